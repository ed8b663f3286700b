"""Whether Kafka still has what the ledger knows: which changes stop a plan, and which a policy accepts. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.clients.kafka.topics import PartitionLog
from tidemark.errors import (
    Conflict,
    LogTruncated,
    OffsetsOutOfRange,
    TopicGone,
    TopicRecreated,
    TopicUnknown,
    WrongUse,
)
from tidemark.ledger.incarnations import Change
from tidemark.ledger.records import Guarantee, Head, TopicChange
from tidemark.offsets.ranges import FIRST_INCARNATION, OffsetRange, TopicPartition
from tidemark.planning.inputs import KafkaState, Request


def check_topics(known: KafkaState, topics: tuple[str, ...], read: set[str]) -> None:
    """Raise TopicUnknown, TopicGone or TopicRecreated unless every topic exists and is the one that the ledger knows.

    `read`: the topics from which the lane has read before.
    """
    for topic in [topic for topic in topics if topic not in known.logs and topic not in known.left]:
        if topic in read:
            raise TopicGone(
                f"topic {topic} no longer exists, and the lane has positions in it. Nothing was changed. "
                "To go on without it, set `on_deleted: leave` in the stream file."
            )
        raise TopicUnknown(f"topic {topic} does not exist; create it, or correct `source` in the stream file")
    for topic in [topic for topic in topics if topic in known.logs]:
        if topic not in known.incarnations:
            raise TopicRecreated(
                f"topic {topic} has id {known.logs[topic].topic_id}, which the ledger does not know: it was deleted and "
                "created again, and its offsets are not the ones that were read. Nothing was changed. "
                "To read it as a new topic, set `on_recreated: accept` in the stream file."
            )
        there = known.logs[topic].partitions
        for partition in known.chosen.get(topic, ()) if known.chosen else ():
            if partition not in there:
                raise WrongUse(f"source.partitions: {topic}/{partition} does not exist; there are {_numbers(there)}")


def _numbers(partitions: Mapping[int, object]) -> str:
    return f"0 to {max(partitions)}" if len(partitions) > 1 else "only 0"


def changes(head: Head, known: KafkaState, request: Request) -> list[Change]:
    """The changes under the lane's positions that a policy accepts; each topic once.

    Planning the window refuses all other changes.
    """
    newest: dict[str, int] = {}
    positions, logs = reached(head), known.partitions()
    for at in positions:
        newest[at.topic] = max(at.incarnation, newest.get(at.topic, 0))
    accepted = []
    for topic in request.topics:
        policy, log = request.policy(topic), known.logs.get(topic)
        if log is None:
            if topic in newest and topic not in known.left and policy.on_deleted == "leave":
                after = max(newest[topic], known.newest.get(topic, FIRST_INCARNATION))
                accepted.append(Change(TopicChange.DELETED, topic, "", after, "on_deleted: leave"))
        elif topic not in known.incarnations:
            if policy.on_recreated == "accept":
                # An incarnation that was accepted may have been recreated again before the lane read anything of it.
                after = max(newest.get(topic, FIRST_INCARNATION), known.newest.get(topic, FIRST_INCARNATION))
                accepted.append(Change(TopicChange.RECREATED, topic, log.topic_id, after, "on_recreated: accept"))
        elif policy.on_truncated == "accept":
            # A lane that has read nothing since the last cut goes on at that cut.
            offsets = {
                at: offset for at, offset in {**known.starts, **positions}.items() if at in logs and at.topic == topic
            }
            ends = {at: min(logs[at].written, known.epoch_ends.get(at, offset)) for at, offset in offsets.items()}
            cuts = {at: end for at, end in ends.items() if end < offsets[at]}
            if cuts:
                starts = tuple((at.partition, cuts.get(at, offset)) for at, offset in sorted(offsets.items()))
                after = known.incarnations[topic]
                accepted.append(
                    Change(TopicChange.TRUNCATED, topic, log.topic_id, after, "on_truncated: accept", starts)
                )
    return accepted


def reached(head: Head) -> dict[TopicPartition, int]:
    """How far the lane has read: its positions. A lane without positions has the ends of its last window."""
    ends = head.offsets()
    if head.last is not None and head.last.window.guarantee == Guarantee.NONE:
        ends |= {range_.at: range_.until for range_ in head.last.window.ranges}
    return ends


def check_inside(wanted: OffsetRange, log: PartitionLog, position: int | None) -> None:
    """Raise OffsetsOutOfRange or LogTruncated, naming the offsets, unless the log holds what is wanted."""
    if wanted.start < log.start:
        lost = OffsetRange(wanted.partition, wanted.start, min(log.start, max(wanted.until, wanted.start)))
        raise OffsetsOutOfRange(
            f"{lost} is no longer in Kafka: the log now begins at {log.start}. Retention or DeleteRecords removed it. "
            "Nothing was changed. To go on after it, set `on_out_of_range` in the stream file."
        )
    if position is not None:
        _check_end(wanted.partition, position, log)


def _check_end(at: TopicPartition, offset: int, log: PartitionLog) -> None:
    if offset > log.written:
        raise LogTruncated(
            f"{at} ends at {log.written}, below {offset}, which the ledger knows of: the log was truncated or "
            f"an older state restored. {_TO_ACCEPT_A_CUT}"
        )


def check_held_back(wanted: OffsetRange, log: PartitionLog) -> None:
    """Raise Conflict when a transaction that has not ended holds back what is wanted. Its offsets are in the log."""
    if log.end < wanted.until <= log.written:
        held = OffsetRange(wanted.partition, max(wanted.start, log.end), wanted.until)
        raise Conflict(
            f"{held} cannot be read now: a transaction that has not ended holds the offsets from {log.end} on back from "
            "readers with isolation read_committed. Nothing was changed. Run it again when the transaction has ended; "
            "`tidemark status` names it."
        )


def check_reached(known: KafkaState, head: Head) -> None:
    """Raise LogTruncated when a log was cut below what the lane has read, wherever the lane is to read on."""
    logs = known.partitions()
    for at, offset in reached(head).items():
        if at in logs:
            _check_end(at, offset, logs[at])
            check_cut(known, OffsetRange(at, offset, offset))


def check_cut(known: KafkaState, wanted: OffsetRange) -> None:
    """Raise LogTruncated when a log was cut below what was read, and has grown again. Its offsets look valid."""
    end = known.epoch_ends.get(wanted.partition, wanted.until)
    if end < wanted.until:
        raise LogTruncated(
            f"{OffsetRange(wanted.partition, end, wanted.until)} is not what was read: the log was cut at {end}, and written "
            f"again under another leader. {_TO_ACCEPT_A_CUT}"
        )


_TO_ACCEPT_A_CUT = "Nothing was changed. To read on from the cut, set `on_truncated: accept` in the stream file."
