"""Which lane has read which offsets of a stream, and which offsets between them no lane has read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark.ledger.book import Committed
from tidemark.ledger.holes import Ingest, holes, jumped_over
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


@dataclass(frozen=True)
class PartitionCoverage:
    """One partition: the offsets that each lane covers, the holes, and repeated offsets.

    More than one lane covers the offsets of `again`: there the newest window counts. A policy jumped over `lost` and
    `skipped`, and no lane has read them since. `before`: offsets above the first covered one that no lane has read, and that
    lie before the beginning of the ingest: they are no holes, since nobody has asked for them.
    """

    partition: TopicPartition
    lanes: dict[str, RangeSet]
    holes: RangeSet
    again: RangeSet
    lost: RangeSet
    skipped: RangeSet
    before: RangeSet


def coverage(windows: Sequence[Committed], ingest: Ingest) -> list[PartitionCoverage]:
    """The coverage of every partition that any committed window names, in order."""
    lanes: dict[str, RangeSet] = {}
    for window in windows:
        lane = window.record.lane
        lanes[lane] = lanes.get(lane, RangeSet()) | window.covers
    covered, again = RangeSet(), RangeSet()
    for covers in lanes.values():
        again |= covered & covers
        covered |= covers
    lost, skipped = (gaps - covered for gaps in jumped_over(windows))
    missing = holes(windows, ingest)
    return [
        PartitionCoverage(
            at,
            {lane: part for lane, covers in sorted(lanes.items()) if (part := covers.only([at]))},
            missing.only([at]),
            again.only([at]),
            lost.only([at]),
            skipped.only([at]),
            _below(at, covered) - covered - lost - skipped - missing,
        )
        for at in sorted({*covered.partitions, *lost.partitions, *skipped.partitions, *missing.partitions})
    ]


def _below(at: TopicPartition, covered: RangeSet) -> RangeSet:
    """All offsets from the first covered offset of a partition to the last."""
    intervals = covered.of(at)
    return RangeSet([OffsetRange(at, intervals[0][0], intervals[-1][1])] if intervals else [])
