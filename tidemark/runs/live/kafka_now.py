"""The messages that can be read now: a stream's topics, what Kafka says about them, and their incarnations in the ledger."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import Conflict, TopicUnknown
from tidemark.ledger import ordering
from tidemark.ledger.incarnations import Topics, accepted, assign_incarnations, learned, newest
from tidemark.ledger.records import INGEST, Head, Register, Window, WindowRange
from tidemark.ledger.register import change_topics
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.planning import checking
from tidemark.planning.inputs import KafkaState, Request
from tidemark.runs.live.open_stream import OpenStream

# A broker that has just become leader may give an older end than the leader before it (KAFKA-7703). So an end below the
# positions is asked for this many times more before it is believed.
_STALE_ANSWERS = 3
_STALE_PAUSE_SECONDS = 1.0
NOWHERE: Mapping[TopicPartition, int] = MappingProxyType({})
T = TypeVar("T")


def topics_now(opened: OpenStream) -> tuple[str, ...]:
    """The topics that the stream reads: the named ones. With a pattern: those that exist or were read before, and match.

    Raises TopicUnknown when no topic matches.
    """
    source = opened.stream.source
    if source.pattern is None:
        return source.named()
    ingest = opened.ledger.head(INGEST)
    read = {at.topic for at in ingest.head.offsets()} if ingest else set()
    topics = tuple(sorted(topic for topic in opened.log.names() | read if source.reads(topic)))
    if not topics:
        raise TopicUnknown(f"no topic matches source.pattern {source.pattern!r}: create one, or correct the pattern")
    return topics


def known_now(
    opened: OpenStream,
    topics: tuple[str, ...],
    *,
    learn: bool,
    reached: Mapping[TopicPartition, int] = NOWHERE,
) -> KafkaState:
    """Kafka's state of these topics, and their incarnations in the ledger.

    Asks again where a log seems to end below the ingest's positions, or below where the caller has `reached`: the answer may be
    stale.

    With `learn`, new topics are entered in the ledger. Without, they only get the number that they would have there: for
    whoever asks and plans. Only what pins a window learns.
    """
    ingest = opened.ledger.head(INGEST)
    read = ingest.head.offsets() if ingest else NOWHERE

    def is_older(known: KafkaState) -> bool:
        return any(
            log.written < max(read.get(at, known.starts.get(at, 0)), reached.get(at, 0))
            for at, log in known.partitions().items()
        )

    return asked_surely(lambda: _said_now(opened, topics, learn=learn), is_older)


def asked_surely(ask: Callable[[], T], is_older: Callable[[T], bool]) -> T:
    """An answer of Kafka about the ends of logs; asked again where it seems to be older than what is known."""
    found = ask()
    for _ in range(_STALE_ANSWERS):
        if not is_older(found):
            break
        time.sleep(_STALE_PAUSE_SECONDS)
        found = ask()
    return found


def _said_now(opened: OpenStream, topics: tuple[str, ...], *, learn: bool) -> KafkaState:
    # Before Kafka is asked: an incarnation that another run has entered meanwhile is newer than this look at Kafka.
    known = opened.ledger.topics()
    logs = opened.log.topics(topics, opened.stream.source.isolation)
    # A missing topic refuses the plan, so the ledger must stay as it is.
    missing = [topic for topic in topics if topic not in logs and not (topic in known and newest(known, topic).left)]
    if learn and not missing:
        entered = change_topics(opened.ledger, partial(_learned, opened, logs))
        return _known(opened, logs, {**entered, **known})
    return _known(opened, logs, _learned(opened, logs, known))


def held_now(opened: OpenStream, topics: tuple[str, ...]) -> RangeSet:
    """The offsets that Kafka holds of these topics. Below the cut of a log, they belong to an earlier incarnation."""
    logs, known = known_now(opened, topics, learn=False).logs, opened.ledger.topics()
    there = RangeSet(
        OffsetRange(TopicPartition(topic, number), log.start, log.end)
        for topic, topic_log in logs.items()
        for number, log in topic_log.partitions.items()
    )
    ours = {
        (topic, incarnation.incarnation)
        for topic, topic_log in logs.items()
        for incarnation in known.get(topic, ())
        if incarnation.topic_id == topic_log.topic_id
    }
    cuts = assign_incarnations(known, there)
    return cuts.only(at for at in cuts.partitions if (at.topic, at.incarnation) in ours)


def as_read(opened: OpenStream, ingest: Head, held: RangeSet) -> RangeSet:
    """Without what lies above a cut of a log that no run has met yet: other messages are there than those that were read.

    Such a cut may lie below one that a run has met, and then in an earlier incarnation too.
    """
    topics = tuple(sorted({at.topic for at in held.partitions}))
    known = with_epoch_ends(opened, known_now(opened, topics, learn=False), ingest)
    ends = {(at.topic, at.partition): end for at, end in known.epoch_ends.items()}
    return held - RangeSet(
        OffsetRange(at, ends[at.topic, at.partition], MAX_OFFSET)
        for at in held.partitions
        if (at.topic, at.partition) in ends
    )


def note_partitions(opened: OpenStream, known: KafkaState, ingest: Head | None) -> None:
    """Note where the logs of a topic with added partitions end now: there the order of its messages changes.

    Not while a log was cut and nobody has met that yet: the partitions are added to the incarnation that begins with the cut.
    """
    stored, now = opened.ledger.register(), opened.ledger.clock()
    read = ingest.offsets() if ingest else {}
    cut = {at.topic for at, end in known.epoch_ends.items() if end < read.get(at, 0)}
    logs = {at: log for at, log in known.partitions().items() if at.topic not in cut}
    ends = {at: max(log.end, read.get(at, 0)) for at, log in logs.items()}
    if stored is None or ordering.noted(stored[1].topics, ends, now) is stored[1].topics:
        return
    # Not the last stable offsets: messages that an open transaction holds back were written before too.
    high = opened.log.high_watermarks(known.logs)
    ends = {at: max(end, high[at.topic, at.partition]) for at, end in ends.items()}
    change_topics(opened.ledger, lambda topics: ordering.noted(topics, ends, now))


def known_to_ingest(opened: OpenStream, request: Request, head: Head, *, learn: bool) -> KafkaState:
    """As `known_now`, for the lane's positions: also finds logs that were cut, and accepts the changes that a policy accepts.

    Without `learn` the ledger stays as it is, and the answer is as if it had been changed.
    """
    known = with_epoch_ends(
        opened, known_now(opened, request.topics, learn=learn, reached=checking.reached(head)), head
    )
    changes = checking.changes(head, known, request)
    if not changes:
        return known

    def accept(topics: Topics) -> Topics:
        # An incarnation begins where this head was. A window that was pinned since draws a generation before it commits, and
        # so changes the register: then this is asked again.
        now = opened.ledger.head(head.lane)
        if learn and now is not None and now.head != head:
            raise Conflict(
                f"{opened.ledger.stream}/{head.lane} has gone on while this run looked at Kafka, whose topics or logs have "
                "changed. Nothing was accepted: run it again"
            )
        topics = _learned(opened, known.logs, topics)
        for change in changes:
            topics = accepted(topics, change, request.run, request.now)
        return topics

    if learn:
        return _known(opened, known.logs, change_topics(opened.ledger, accept))
    return _known(opened, known.logs, accept(opened.ledger.topics()))


def with_epoch_ends(opened: OpenStream, known: KafkaState, ingest: Head) -> KafkaState:
    """`known` with the ends of the leader epochs of the ingest's last window, for partitions with a newer leader.

    Of an ingest that has read nothing, those of the last window of each partition: backfills read what lies before it.
    """
    ends = _epoch_ends(opened, known.logs, ingest)
    incarnations = known.incarnations
    return replace(
        known,
        epoch_ends={
            TopicPartition(topic, partition, incarnations[topic]): end
            for (topic, partition), end in ends.items()
            if topic in incarnations
        },
    )


def _epoch_ends(opened: OpenStream, logs: Mapping[str, TopicLog], ingest: Head) -> Mapping[tuple[str, int], int]:
    if ingest.last is not None:
        asked = newer_epochs(ingest.last.window, logs)
    else:
        asked = {}
        for window, range_ in _last_ranges(opened):
            asked |= newer_epochs(window, logs, [range_])
    return opened.log.epoch_ends(asked)


def unmet_cuts(opened: OpenStream, logs: Mapping[str, TopicLog], ingest: Head | None) -> dict[tuple[str, int], int]:
    """Per (topic, partition), where a log was cut below what the ingest has read, if no run has met that yet.

    From there on Kafka has other messages than those that were read, in whatever incarnation.
    """
    if ingest is None:
        return {}
    read = {(at.topic, at.partition): offset for at, offset in sorted(checking.reached(ingest).items())}
    return {at: end for at, end in _epoch_ends(opened, logs, ingest).items() if end < read.get(at, 0)}


def _last_ranges(opened: OpenStream) -> Iterable[tuple[Window, WindowRange]]:
    """Of each partition the range that was read last, and its window."""
    last: dict[tuple[str, int], tuple[Window, WindowRange]] = {}
    for committed in sorted(opened.ledger.view().windows, key=lambda committed: committed.generation):
        window = committed.record.window
        last |= {(range_.topic, range_.partition): (window, range_) for range_ in window.ranges}
    return last.values()


def _learned(opened: OpenStream, logs: Mapping[str, TopicLog], topics: Topics) -> Topics:
    return learned(topics, {topic: log.topic_id for topic, log in logs.items()}, opened.ledger.clock())


def _known(opened: OpenStream, logs: Mapping[str, TopicLog], topics: Topics) -> KafkaState:
    last = {topic: newest(topics, topic) for topic in topics}
    current = {
        topic: last[topic] for topic, log in logs.items() if topic in last and last[topic].topic_id == log.topic_id
    }
    return KafkaState(
        logs,
        {topic: incarnation.incarnation for topic, incarnation in current.items()},
        chosen=opened.stream.source.partitions,
        newest={topic: incarnation.incarnation for topic, incarnation in last.items()},
        left=frozenset(
            topic for topic, incarnation in last.items() if incarnation.left is not None and topic not in logs
        ),
        starts={
            TopicPartition(topic, partition, incarnation.incarnation): offset
            for topic, incarnation in current.items()
            for partition, offset in incarnation.starts
        },
    )


def newest_incarnations(register: Register) -> dict[str, int]:
    return {topic: newest(register.topics, topic).incarnation for topic in register.topics}


def newer_epochs(
    window: Window, logs: Mapping[str, TopicLog], ranges: Iterable[WindowRange] | None = None
) -> dict[tuple[str, int], int]:
    """The partitions of a window that have a newer leader epoch now, with the epoch that the window was pinned under.

    `ranges`: those of the window that are looked at; all of them without it.
    """
    ends = {}
    for range_ in window.ranges if ranges is None else ranges:
        log = logs.get(range_.topic)
        now = (
            log.partitions.get(range_.partition) if log and log.topic_id == window.topic_ids.get(range_.topic) else None
        )
        if (
            now
            and now.leader_epoch is not None
            and range_.leader_epoch is not None
            and now.leader_epoch > range_.leader_epoch
        ):
            ends[range_.topic, range_.partition] = range_.leader_epoch
    return ends
