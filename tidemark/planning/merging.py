"""Which offsets between scattered records are read too: where that costs less than to begin another range. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

# Measured with two cores and a broker on the same machine (docs/benchmarks.md). Only the ratios of the three decide.
# To begin a range: the consumer seeks, asks for the log's ends, and waits for its first fetch.
_RANGE_MICROSECONDS = 1_500
# To read a record of no size, and to throw it away.
_RECORD_MICROSECONDS = 0.5
_BYTE_MICROSECONDS = 0.002
# The bytes of key and value, for partitions of which nothing has been read yet.
USUAL_BYTES = 250


@dataclass(frozen=True, slots=True)
class ReadPiece:
    """Offsets that are read in one go, and how many of them are wanted."""

    range: OffsetRange
    wanted: int

    @property
    def exact(self) -> bool:
        """Whether all of it is wanted."""
        return self.wanted == len(self.range)


def merged(wanted: RangeSet, sizes: Mapping[TopicPartition, float] | None = None) -> list[ReadPiece]:
    """The cheapest pieces that hold the wanted offsets, ascending and disjoint.

    Each gap is either read or left out, whatever becomes of the others, so deciding gap by gap finds the least. `sizes` are
    bytes per record, for partitions where they are known.
    """
    pieces = []
    for at in wanted.partitions:
        longest = _RANGE_MICROSECONDS / _record(at, sizes)
        intervals = wanted.of(at)
        start, before = intervals[0]
        inside = before - start
        for first, until in intervals[1:]:
            if first - before > longest:
                pieces.append(ReadPiece(OffsetRange(at, start, before), inside))
                start, inside = first, 0
            before = until
            inside += until - first
        pieces.append(ReadPiece(OffsetRange(at, start, before), inside))
    return pieces


def microseconds(ranges: Iterable[OffsetRange], sizes: Mapping[TopicPartition, float] | None = None) -> float:
    """The cost of reading some ranges."""
    return sum(_RANGE_MICROSECONDS + len(range_) * _record(range_.partition, sizes) for range_ in ranges)


def scatter(wanted: RangeSet, sizes: Mapping[TopicPartition, float] | None = None) -> tuple[int, float]:
    """How many offsets between the wanted ones are read too, and the seconds that the wanted ones cost by not being in one."""
    pieces = merged(wanted, sizes)
    between = sum(len(piece.range) - piece.wanted for piece in pieces)
    read = microseconds((piece.range for piece in pieces), sizes)
    at_once = microseconds((OffsetRange(at, 0, wanted.count(at)) for at in wanted.partitions), sizes)
    return between, (read - at_once) / 1_000_000


def _record(at: TopicPartition, sizes: Mapping[TopicPartition, float] | None) -> float:
    return _RECORD_MICROSECONDS + _BYTE_MICROSECONDS * (sizes or {}).get(at, USUAL_BYTES)
