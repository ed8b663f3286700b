"""Dividing the offsets of one request: among lanes that read at the same time, or into pieces one after another. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.offsets.ranges import RangeSet

# Lanes that read at the same time. Each has a Spark job of its own.
MAX_LANES = 8


def divide_evenly(selection: RangeSet, most: int) -> list[RangeSet]:
    """A selection in at most this many nearly equal parts, by partition and offset. No part is empty.

    The same arguments give the same parts, so a retry finds the lanes of the first try.
    """
    parts: list[RangeSet] = []
    left = selection
    while left:
        size = -(-left.count() // (most - len(parts)))
        part = next(left.pieces(size))
        parts.append(part)
        left -= part
    return parts


def divide_by_size(selection: RangeSet, size: int) -> Iterator[RangeSet]:
    """A selection in pieces of some `size` offsets; each has as many of all partitions."""
    left = selection
    while left:
        piece = left.first(-(-size // len(left.partitions)))
        yield piece
        left -= piece
