"""Which of some offsets were counted: a count's XOR tells it while the offsets are few. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark.offsets.hashing import offset_hash, partition_seed
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import Count

# More hashes of 64 bits than this always have two sets with the same XOR.
MAX_TOLD = 64


def counted_ones(offsets: RangeSet, count: Count) -> RangeSet | None:
    """The offsets that make up a count; None where several sets of them could, or none does.

    Gauss's elimination over bits finds the only set with this XOR.
    """
    if offsets.count() > MAX_TOLD:
        return None
    if (known := eliminated(offsets)) is None:
        return None
    left, which = reduced(int(count.ack, 16), 0, known)
    if left or which.bit_count() != count.number:
        return None
    each = (OffsetRange(range_.partition, at, at + 1) for range_ in offsets for at in range(range_.start, range_.until))
    return RangeSet(offset for number, offset in enumerate(each) if which >> number & 1)


def eliminated(offsets: RangeSet) -> dict[int, tuple[int, int]] | None:
    """The hashes of offsets, as `reduced` takes them. None where two sets have the same XOR and cannot be told apart."""
    known: dict[int, tuple[int, int]] = {}
    for number, ack in enumerate(_hashes(offsets)):
        value, which = reduced(ack, 1 << number, known)
        if value == 0:
            return None
        known[value.bit_length()] = (value, which)
    return known


def reduced(value: int, which: int, known: Mapping[int, tuple[int, int]]) -> tuple[int, int]:
    """Reduce a value by the known ones, from its highest bit down. Returns the rest, and which hashes were used."""
    while value and (mask := known.get(value.bit_length())):
        value, which = value ^ mask[0], which ^ mask[1]
    return value, which


def _hashes(offsets: RangeSet) -> Iterator[int]:
    for range_ in offsets:
        seed = partition_seed(range_.partition)
        for offset in range(range_.start, range_.until):
            yield offset_hash(seed, offset)
