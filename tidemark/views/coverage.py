"""Which lane has read which offsets of a stream, and what between them nobody has: the ledger as intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.audit import jumped_over
from tidemark.ledger.book import Committed
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition


@dataclass(frozen=True)
class PartitionCoverage:
    """One partition: what each lane covers, what nobody covers below the highest covered offset, and what counts twice.

    `again` is covered by more than one lane: there the newest window counts. `lost` and `skipped` were jumped over by a
    policy, and no lane has read them since.
    """

    partition: TopicPartition
    lanes: dict[str, RangeSet]
    holes: RangeSet
    again: RangeSet
    lost: RangeSet
    skipped: RangeSet


def coverage(windows: Sequence[Committed]) -> list[PartitionCoverage]:
    """The coverage of every partition that any committed window names, in their order."""
    lanes: dict[str, RangeSet] = {}
    for window in windows:
        lane = window.record.lane
        lanes[lane] = lanes.get(lane, RangeSet()) | window.covers
    covered, again = RangeSet(), RangeSet()
    for found in lanes.values():
        again |= covered & found
        covered |= found
    lost, skipped = (gaps - covered for gaps in jumped_over(windows))
    return [
        PartitionCoverage(
            at,
            {lane: part for lane, found in sorted(lanes.items()) if (part := found.only([at]))},
            _below(at, covered) - covered - lost - skipped,
            again.only([at]),
            lost.only([at]),
            skipped.only([at]),
        )
        for at in sorted({*covered.partitions, *lost.partitions, *skipped.partitions})
    ]


def _below(at: TopicPartition, covered: RangeSet) -> RangeSet:
    """From the first covered offset of a partition to the last."""
    intervals = covered.of(at)
    return RangeSet([OffsetRange(at, intervals[0][0], intervals[-1][1])] if intervals else [])
