"""The ledger against the offsets that Kafka has: what is gone, what was never read, and what cannot be. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from tidemark.clients.kafka.topics import TopicLog
from tidemark.ledger.incarnations import At, Topics, newest
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition


class SourceReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One partition, in offsets. `log_start` and `end` are absent where Kafka does not have the partition that was read.

    Of the offsets that windows cover, Kafka still has `held` and has deleted `expired`. The ingest has not read `unread`
    offsets. `position` is absent for a stream that stores none. `problem`: what cannot be, or is lost.
    """

    partition: At
    log_start: int | None = None
    end: int | None = None
    position: int | None = None
    held: int = 0
    expired: int = 0
    unread: int = 0
    problem: str | None = None


def source_reports(
    positions: Mapping[TopicPartition, int],
    covered: RangeSet,
    logs: Mapping[str, TopicLog],
    topics: Topics,
    added: Collection[TopicPartition] = (),
) -> tuple[SourceReport, ...]:
    """One report for each partition with a position or a window, in order, and for those `added` that the ingest will read.

    `logs` is what Kafka has now, `topics` what the ledger knows. Older incarnations, and topics that the stream has left,
    have no log of their own any more: all of their offsets are expired.
    """
    return tuple(
        _report(at, positions.get(at), covered.only([at]), logs.get(at.topic), topics, at in added)
        for at in sorted({*positions, *covered.partitions, *added})
    )


def _report(
    at: TopicPartition, position: int | None, covered: RangeSet, log: TopicLog | None, topics: Topics, added: bool
) -> SourceReport:
    last = newest(topics, at.topic)
    gone = SourceReport(partition=str(at), position=position, expired=covered.count())
    if at.incarnation != last.incarnation or last.left is not None:
        return gone
    if log is None:
        return _with(gone, f"{at}: the topic is not in Kafka")
    if log.topic_id != last.topic_id:
        return _with(gone, f"{at}: the topic was recreated: its id is {log.topic_id}, and {last.topic_id} was read")
    if at.partition not in log.partitions:
        return _with(gone, f"{at}: the topic has no such partition in Kafka")
    partition_log = log.partitions[at.partition]
    held = covered & RangeSet([OffsetRange(at, partition_log.start, partition_log.written)])
    beyond = covered & RangeSet([OffsetRange(at, partition_log.written, MAX_OFFSET)])
    problem = None
    if beyond or (position is not None and position > partition_log.written):
        reached = max([range_.until for range_ in beyond] + [position or 0])
        problem = (
            f"{at}: the ledger has offsets up to {reached}, and the log ends at {partition_log.written}: it was cut"
        )
    elif position is not None and position < partition_log.start:
        problem = f"{OffsetRange(at, position, partition_log.start)} was deleted before it was read"
    # The ingest begins a partition that was added at its log start.
    begins = partition_log.start if added else position
    return SourceReport(
        partition=str(at),
        log_start=partition_log.start,
        end=partition_log.end,
        position=position,
        held=held.count(),
        expired=(covered - held - beyond).count(),
        unread=0 if begins is None else max(0, partition_log.end - max(begins, partition_log.start)),
        problem=problem,
    )


def _with(report: SourceReport, problem: str) -> SourceReport:
    return SourceReport(partition=report.partition, position=report.position, expired=report.expired, problem=problem)
