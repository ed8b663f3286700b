"""Authority: which attempt's results are the valid ones, for each offset.

The authority of a coordinate is the highest generation among the *committed* windows that cover it. A row, dead letter
or file row counts only when it carries exactly that generation; all else is debris.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


class Segment(NamedTuple):
    """Neighbouring offsets [start, until) of a partition with one authority."""

    start: int
    until: int
    generation: int


class Authority:
    """The authority of every offset that any committed window covers; pure, and immutable once made."""

    def __init__(self, windows: Iterable[tuple[int, RangeSet]]) -> None:
        """`windows`: (generation, offsets covered) of each committed window, in any order."""
        edges: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        for generation, covered in windows:
            for partition in covered.partitions:
                ranges = edges.setdefault(partition, [])
                ranges += [(start, until, generation) for start, until in covered.of(partition)]
        self._segments = {partition: segments_of(ranges) for partition, ranges in sorted(edges.items())}

    def without(self, hidden: RangeSet) -> Authority:
        """The same, but that nothing counts at some offsets. A partition of which nothing counts any more is left out."""
        if not any(one in self._segments for one in hidden.partitions):
            return self
        made = Authority(())
        left = {at: self._left(at, hidden) if hidden.of(at) else found for at, found in self._segments.items()}
        made._segments = {at: found for at, found in left.items() if found}
        return made

    def _left(self, at: TopicPartition, hidden: RangeSet) -> list[Segment]:
        gone = hidden.only([at])
        return [
            Segment(left.start, left.until, one.generation)
            for one in self._segments[at]
            for left in RangeSet([OffsetRange(at, one.start, one.until)]) - gone
        ]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Authority) and self._segments == other._segments

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._segments)

    def of(self, partition: TopicPartition, offset: int) -> int | None:
        """The generation that counts at a coordinate, or None where no committed window covers it."""
        segments = self._segments.get(partition, [])
        at = bisect.bisect_right(segments, offset, key=lambda segment: segment.start) - 1
        if at >= 0 and offset < segments[at].until:
            return segments[at].generation
        return None

    def segments(self, partition: TopicPartition) -> tuple[Segment, ...]:
        """The segments of a partition, ascending and disjoint."""
        return tuple(self._segments.get(partition, ()))

    def within(self, wanted: OffsetRange) -> Iterator[Segment]:
        """The segments inside a range, cut to it, ascending."""
        segments = self._segments.get(wanted.partition, [])
        at = bisect.bisect_right(segments, wanted.start, key=lambda segment: segment.until)
        # By number, since a slice would copy the rest for each window.
        while at < len(segments) and (segment := segments[at]).start < wanted.until:
            yield Segment(max(segment.start, wanted.start), min(segment.until, wanted.until), segment.generation)
            at += 1

    def held_by(self, generation: int, covers: RangeSet) -> RangeSet:
        """The part of a window's offsets that is still its own: no newer window has covered it."""
        return RangeSet(
            OffsetRange(range_.partition, segment.start, segment.until)
            for range_ in covers
            for segment in self.within(range_)
            if segment.generation == generation
        )

    def holds_in(self, newer: Authority) -> bool:
        """Whether all that counts here counts in a newer authority too, which may cover more."""
        return all(
            [*newer.within(OffsetRange(partition, segment.start, segment.until))] == [segment]
            for partition, segments in self._segments.items()
            for segment in segments
        )

    def covered(self) -> RangeSet:
        return RangeSet.of_intervals(
            (partition, ((segment.start, segment.until) for segment in segments))
            for partition, segments in self._segments.items()
        )


def segments_of(ranges: list[tuple[int, int, int]]) -> list[Segment]:
    """The segments of one partition, from (start, until, generation) in any order.

    Sweeps over the edges from left to right; a heap holds the generations that cover the present offset.
    """
    ranges = sorted(ranges)
    edges = sorted({start for start, _, _ in ranges} | {until for _, until, _ in ranges})
    active: list[tuple[int, int]] = []
    shared: list[Segment] = []
    following = 0
    for at, behind in pairwise(edges):
        while following < len(ranges) and ranges[following][0] <= at:
            _, until, generation = ranges[following]
            heapq.heappush(active, (-generation, until))
            following += 1
        while active and active[0][1] <= at:
            heapq.heappop(active)
        if not active:
            continue
        generation = -active[0][0]
        if shared and shared[-1].until == at and shared[-1].generation == generation:
            shared[-1] = Segment(shared[-1].start, behind, generation)
        else:
            shared.append(Segment(at, behind, generation))
    return shared
