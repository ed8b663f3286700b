"""Dividing the offsets of one request: among lanes that read at the same time, or into pieces one after another. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark.offsets.ranges import RangeSet

# Lanes that read at the same time. Each has a Spark job of its own.
MOST_LANES = 8


def divide_evenly(
    selection: RangeSet, most: int, whole: Callable[[RangeSet], RangeSet] = lambda range_: range_
) -> list[RangeSet]:
    """A selection in at most this many nearly equal parts, by partition and offset. No part is empty.

    `whole` adds the offsets that have to be read with some others, as `FirstWindows.whole`, and parts are as equal as
    it allows. The same arguments give the same parts, so a retry finds the lanes of the first try.
    """
    parts: list[RangeSet] = []
    left = selection
    while left:
        size = -(-left.count() // (most - len(parts)))
        part = whole(next(left.pieces(size))) & left
        parts.append(part)
        left -= part
    return parts


def divide_by_size(selection: RangeSet, size: int, whole: Callable[[RangeSet], RangeSet]) -> Iterator[RangeSet]:
    """A selection in pieces of some `size` offsets; each has as many of all partitions. `whole` is as for `divide_evenly`."""
    left = selection
    while left:
        # Offsets that are read together may lie in all partitions, as those of a window do.
        piece = whole(left.first(-(-size // len(left.partitions)))) & left
        yield piece
        left -= piece
