"""Offsets, half-open ranges of them, and their algebra.

A range is [start, until): `start` is in it, `until` is the next offset to read. Everything here is a value.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from tidemark.errors import WrongUse
from tidemark.offsets import time_limit

# Kafka's offsets are signed 64-bit numbers. The largest is kept free, so that `until` always fits.
MAX_OFFSET = 2**63 - 1

# The first incarnation of a topic. It rises when a recreated or truncated topic is accepted.
FIRST_INCARNATION = 1

Interval = tuple[int, int]
_START, _UNTIL = itemgetter(0), itemgetter(1)


class TopicPartition(NamedTuple):
    """A partition of one incarnation of a topic. Sorts by number, so partition 10 comes after 9."""

    topic: str
    partition: int
    incarnation: int = FIRST_INCARNATION

    def __str__(self) -> str:
        again = "" if self.incarnation == FIRST_INCARNATION else f"#{self.incarnation}"
        return f"{self.topic}{again}/{self.partition}"


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """Offsets [start, until) of a partition. A range may be empty, but never runs backwards.

    Raises WrongUse for a negative offset or when `start` lies above `until`.
    """

    partition: TopicPartition
    start: int
    until: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.until <= MAX_OFFSET:
            raise WrongUse(
                f"{self.partition}: from {self.start} until {self.until} is not a range of offsets; "
                f"expected 0 <= from <= until <= {MAX_OFFSET}"
            )

    def __len__(self) -> int:
        return self.until - self.start

    def __str__(self) -> str:
        return f"{self.partition}@{self.start}-{self.until}"


class RangeSet:
    """A set of offsets over any number of partitions, held as sorted disjoint ranges that do not touch.

    Immutable; `|`, `&` and `-` give new sets. Costs grow with the number of ranges, never with the number of offsets.
    """

    __slots__ = ("_intervals",)

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        # Whatever takes long makes many sets.
        time_limit.look()
        collected: dict[TopicPartition, list[Interval]] = {}
        for range_ in ranges:
            if range_.start < range_.until:
                collected.setdefault(range_.partition, []).append((range_.start, range_.until))
        self._intervals: dict[TopicPartition, tuple[Interval, ...]] = {
            partition: _merged(intervals) for partition, intervals in sorted(collected.items())
        }

    @classmethod
    def of_intervals(cls, intervals: Iterable[tuple[TopicPartition, Iterable[Interval]]]) -> RangeSet:
        """The set of (start, until) pairs of partitions. Faster than ranges where there are a million.

        Raises WrongUse as `OffsetRange` does.
        """
        collected: dict[TopicPartition, list[Interval]] = {}
        for partition, pairs in intervals:
            kept = collected.setdefault(partition, [])
            for pair in pairs:
                if 0 <= pair[0] < pair[1] <= MAX_OFFSET:
                    kept.append(pair)
                else:
                    # An empty pair is no error, and adds nothing.
                    OffsetRange(partition, *pair)
        return cls._from({partition: _merged(kept) for partition, kept in collected.items()})

    @classmethod
    def union(cls, sets: Iterable[RangeSet]) -> RangeSet:
        """The union of any number of sets, each of whose pairs is looked at once: those of 100,000 windows."""
        time_limit.look()
        collected: dict[TopicPartition, list[Interval]] = {}
        for part in sets:
            for partition, intervals in part._intervals.items():  # noqa: SLF001 - of the same class
                collected.setdefault(partition, []).extend(intervals)
        return cls._from({partition: _merged(found) for partition, found in collected.items()})

    @classmethod
    def _from(cls, intervals: Mapping[TopicPartition, Iterable[Interval]]) -> RangeSet:
        time_limit.look()
        made = object.__new__(cls)
        made._intervals = {partition: kept for partition in sorted(intervals) if (kept := tuple(intervals[partition]))}
        return made

    def __iter__(self) -> Iterator[OffsetRange]:
        for partition, intervals in self._intervals.items():
            for start, until in intervals:
                yield OffsetRange(partition, start, until)

    def __contains__(self, place: tuple[TopicPartition, int]) -> bool:
        partition, offset = place
        intervals = self._intervals.get(partition, ())
        at = bisect_right(intervals, offset, key=_START) - 1
        return at >= 0 and offset < intervals[at][1]

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._intervals == other._intervals

    def __hash__(self) -> int:
        return hash(tuple(self._intervals.items()))

    def __repr__(self) -> str:
        return f"RangeSet({', '.join(str(range_) for range_ in self) or 'empty'})"

    def __or__(self, other: RangeSet) -> RangeSet:
        return self.union((self, other))

    def __and__(self, other: RangeSet) -> RangeSet:
        shared = self._intervals.keys() & other._intervals.keys()
        return self._from({p: _intersection(self._intervals[p], other._intervals[p]) for p in shared})

    def __sub__(self, other: RangeSet) -> RangeSet:
        return self._from({p: _difference(i, other._intervals.get(p, ())) for p, i in self._intervals.items()})

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(self._intervals)

    def of(self, partition: TopicPartition) -> tuple[Interval, ...]:
        """The disjoint (start, until) pairs of one partition, ascending."""
        return self._intervals.get(partition, ())

    def at_or_above(self, partition: TopicPartition, offset: int) -> int | None:
        """The lowest offset of a partition in the set that is not below the given one."""
        intervals = self._intervals.get(partition, ())
        at = _first_above(intervals, offset)
        return max(intervals[at][0], offset) if at < len(intervals) else None

    def only(self, partitions: Iterable[TopicPartition]) -> RangeSet:
        return self._from({p: self._intervals[p] for p in partitions if p in self._intervals})

    def hull(self) -> RangeSet:
        """The smallest set with one range per partition that holds this one."""
        return self._from({p: ((i[0][0], i[-1][1]),) for p, i in self._intervals.items()})

    def first(self, limit: int) -> RangeSet:
        """The lowest `limit` offsets of each partition."""
        kept: dict[TopicPartition, list[Interval]] = {}
        for partition, intervals in self._intervals.items():
            left = limit
            for start, until in intervals:
                if left > 0:
                    kept.setdefault(partition, []).append((start, min(until, start + left)))
                    left -= until - start
        return self._from(kept)

    def pieces(self, size: int) -> Iterator[RangeSet]:
        """The set in pieces of `size` offsets, by partition and offset; the last one may have fewer."""
        piece: list[OffsetRange] = []
        left = size
        for range_ in self:
            start = range_.start
            while range_.until - start >= left:
                yield RangeSet([*piece, OffsetRange(range_.partition, start, start + left)])
                start, left, piece = start + left, size, []
            if start < range_.until:
                piece.append(OffsetRange(range_.partition, start, range_.until))
                left -= range_.until - start
        if piece:
            yield RangeSet(piece)

    def count(self, partition: TopicPartition | None = None) -> int:
        """How many offsets are in the set, or in one of its partitions."""
        counted = self._intervals.values() if partition is None else [self.of(partition)]
        return sum(until - start for intervals in counted for start, until in intervals)


def more_than_once(sets: Iterable[RangeSet]) -> RangeSet:
    """The offsets that are in more than one of some sets. Each range is looked at once: there may be 100,000 windows."""
    pairs: dict[TopicPartition, list[Interval]] = {}
    for ranges in sets:
        for at in ranges.partitions:
            pairs.setdefault(at, []).extend(ranges.of(at))
    return RangeSet.of_intervals((at, repeated(found)) for at, found in pairs.items())


def repeated(pairs: Iterable[Interval]) -> Iterator[Interval]:
    """The parts of some pairs of one partition that earlier ones have, too."""
    furthest = 0
    for start, until in sorted(pairs):
        if start < furthest:
            yield start, min(until, furthest)
        furthest = max(until, furthest)


def _merged(intervals: list[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for interval in sorted(intervals):
        if merged and interval[0] <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], interval[1]))
        else:
            merged.append(interval)
    return tuple(merged)


def _intersection(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> list[Interval]:
    # A range that is read often holds a long selection, all of whose pairs stay as they are.
    if len(right) == 1:
        return _cut(left, *right[0])
    if len(left) == 1:
        return _cut(right, *left[0])
    shared: list[Interval] = []
    # A window's hull is a short part of a selection that may be long: begin there, and share the selection's pairs.
    i, j = _first_above(left, right[0][0]), _first_above(right, left[0][0])
    while i < len(left) and j < len(right):
        start, until = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < until:
            shared.append(right[j] if right[j] == (start, until) else (start, until))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return shared


def _cut(intervals: tuple[Interval, ...], start: int, until: int) -> list[Interval]:
    """The parts of intervals that lie in [start, until)."""
    inside = list(intervals[_first_above(intervals, start) : bisect_left(intervals, until, key=_START)])
    if inside:
        inside[0] = max(inside[0][0], start), inside[0][1]
        inside[-1] = inside[-1][0], min(inside[-1][1], until)
    return inside


def _first_above(intervals: tuple[Interval, ...], offset: int) -> int:
    """The index of the first interval that ends above an offset."""
    return bisect_right(intervals, offset, key=_UNTIL)


def _difference(left: tuple[Interval, ...], right: tuple[Interval, ...]) -> list[Interval]:
    rest: list[Interval] = []
    j = 0
    for interval in left:
        start, until = interval
        while j < len(right) and right[j][1] <= start:
            j += 1
        if j == len(right) or right[j][0] >= until:
            rest.append(interval)
            continue
        k, at = j, start
        while k < len(right) and right[k][0] < until:
            if at < right[k][0]:
                rest.append((at, right[k][0]))
            at = max(at, right[k][1])
            k += 1
        if at < until:
            rest.append((at, until))
    return rest
