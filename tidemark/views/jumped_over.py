"""What policies have let the ingest pass, and no window has read since: what a backfill can still read, and what is lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from tidemark.clients.kafka.topics import TopicLog
from tidemark.ledger.holes import UnreadOffsets
from tidemark.ledger.incarnations import Topics, newest, written_range
from tidemark.ledger.records import Gap, GapKind, Record
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.views.values import Number

_RANGES = 5


@dataclass(frozen=True)
class SkippedOffsets:
    """Offsets that no window has read, since a policy has let the ingest pass: the first ranges and the policies, in words."""

    offsets: Number
    ranges: str
    policies: str


def jumped_over_now(
    topics: Topics, lately: Iterable[Record], unread: UnreadOffsets | None, logs: Mapping[str, TopicLog]
) -> tuple[SkippedOffsets | None, SkippedOffsets | None]:
    """What was skipped and Kafka still has; and what it has no more, of the windows `lately`, as everything else in time ends.

    Without `unread`, only the gaps of these windows are known. Without `logs`, Kafka is away, and may have everything.
    """
    gaps = [gap for record in lately for gap in record.window.gaps]
    of_gaps = RangeSet(gap.as_range() for gap in gaps)
    skipped = RangeSet(gap.as_range() for gap in gaps if gap.kind == GapKind.SKIPPED)
    lost = of_gaps - skipped
    if unread is not None:
        skipped, lost = unread.skipped, unread.lost & of_gaps
    deleted = _deleted(topics, skipped, logs)
    return (
        _shown(topics, skipped - deleted, GapKind.SKIPPED, gaps),
        _shown(topics, lost | (deleted & of_gaps), None, gaps),
    )


def _deleted(topics: Topics, ranges: RangeSet, logs: Mapping[str, TopicLog]) -> RangeSet:
    """The offsets among these that Kafka holds no more: below a log's start, or of a topic that was there before."""
    gone = []
    for range_ in ranges if logs else ():
        log = logs.get(range_.partition.topic)
        known = newest(topics, range_.partition.topic)
        there = log is not None and (known.topic_id, known.incarnation) == (log.topic_id, range_.partition.incarnation)
        partition = log.partitions.get(range_.partition.partition) if log is not None and there else None
        end = range_.until if partition is None else min(range_.until, max(range_.start, partition.start))
        if range_.start < end:
            gone.append(OffsetRange(range_.partition, range_.start, end))
    return RangeSet(gone)


def _shown(topics: Topics, offsets: RangeSet, kind: GapKind | None, gaps: Iterable[Gap]) -> SkippedOffsets | None:
    if not offsets:
        return None
    more = sum(1 for _ in offsets) - _RANGES
    written = ", ".join(written_range(topics, range_) for range_ in islice(offsets, _RANGES))
    policies = dict.fromkeys(gap.policy for gap in gaps if kind in (None, gap.kind))
    return SkippedOffsets(
        offsets.count(),
        written + (f" and {number_of(more, 'more range')}" if more > 0 else ""),
        ", ".join(policies) or "a policy of the stream file",
    )
