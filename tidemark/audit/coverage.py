"""Which lane has read which offsets of a stream, and which offsets between them no lane has read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidemark.ledger.covered import CoveredRanges
from tidemark.ledger.holes import Ingest
from tidemark.ledger.ledger import Committed
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition, more_than_once


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
    # Each range is looked at once: there may be thousands of replays, each of a hundred records.
    ranges: dict[str, list[RangeSet]] = {}
    for window in windows:
        ranges.setdefault(window.record.lane, []).append(window.covers)
    lanes = {lane: RangeSet.union(found) for lane, found in sorted(ranges.items())}
    return coverage_by(lanes, CoveredRanges.by(windows), ingest)


def coverage_by(lanes: Mapping[str, RangeSet], by_windows: CoveredRanges, ingest: Ingest) -> list[PartitionCoverage]:
    """As `coverage`, by what each lane covers, and all windows together."""
    by_partition: dict[TopicPartition, dict[str, RangeSet]] = {}
    for lane, covers in lanes.items():
        for at in covers.partitions:
            by_partition.setdefault(at, {})[lane] = covers.only([at])
    covered, again = by_windows.all, more_than_once(lanes.values())
    lost, skipped = by_windows.lost - covered, by_windows.skipped - covered
    missing = by_windows.holes(ingest)
    return [
        PartitionCoverage(
            at,
            by_partition.get(at, {}),
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
