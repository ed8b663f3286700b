"""Dividing the offsets of one request among lanes that read at the same time. Pure."""

from __future__ import annotations

from collections.abc import Callable

from tidemark.offsets.ranges import RangeSet


def in_parts(selection: RangeSet, most: int, whole: Callable[[RangeSet], RangeSet] = lambda one: one) -> list[RangeSet]:
    """At most so many parts of a selection, of nearly as many offsets each, by partition and offset. None is empty.

    `whole` gives some offsets with all those that have to be read with them, as `FirstWindows.whole` does. Parts are then as
    equal as that allows. The same arguments give the same parts, so a retry finds the lanes of the first try.
    """
    parts: list[RangeSet] = []
    left = selection
    while left:
        size = -(-left.count() // (most - len(parts)))
        part = whole(next(left.pieces(size))) & left
        parts.append(part)
        left -= part
    return parts
