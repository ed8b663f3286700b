"""How a window is spread over Spark's tasks: few reads of Kafka, each split by size.

`spark_jobs/` reads in this way, and a plan shows it before. Tidemark tells Spark only `min_partitions`; Spark does the
split. `tasks` computes that split as KafkaOffsetRangeCalculator of Spark's Kafka source does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

# Scattered records are read together with the records between them, and filtered. One read of 50,000 records is faster
# than many small ones: each read starts a consumer, which seeks.
_GAP = 50_000
# An interval this long is read alone, exactly.
_LONG = 10_000
# Small enough that a partition with most of the lag keeps all cores busy, large enough that tasks do real work.
_RECORDS_PER_TASK = 75_000


@dataclass(frozen=True)
class Read:
    """One read of Spark's Kafka source, which takes one range per partition. `exact`: all offsets of the ranges are wanted."""

    ranges: tuple[OffsetRange, ...]
    exact: bool


def reads(wanted: RangeSet) -> list[Read]:
    """How to read a set of offsets in few reads: the n-th piece of each partition goes into the n-th read.

    No two reads share an offset, so each wanted offset is read exactly once.
    """
    queues: dict[bool, dict[TopicPartition, list[OffsetRange]]] = {True: {}, False: {}}
    for at in wanted.partitions:
        for piece, exact in _pieces(wanted, at):
            queues[exact].setdefault(at, []).append(piece)
    return [
        Read(tuple(pieces[turn] for pieces in queue.values() if turn < len(pieces)), exact)
        for exact, queue in queues.items()
        for turn in range(max(map(len, queue.values()), default=0))
    ]


def _pieces(wanted: RangeSet, at: TopicPartition) -> Iterator[tuple[OffsetRange, bool]]:
    """Disjoint pieces, ascending, each with whether all of it is wanted: several short intervals, or one of any length."""
    together: list[tuple[int, int]] = []
    for start, until in wanted.of(at):
        if together and not _joins(together[-1], (start, until)):
            yield _piece(at, together)
            together = []
        together.append((start, until))
    yield _piece(at, together)


def _joins(before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Whether two neighbouring intervals are read in one piece. A long one ends the piece before it and begins another."""
    return after[0] - before[1] <= _GAP and all(until - start < _LONG for start, until in (before, after))


def _piece(at: TopicPartition, intervals: list[tuple[int, int]]) -> tuple[OffsetRange, bool]:
    return OffsetRange(at, intervals[0][0], intervals[-1][1]), len(intervals) == 1


def min_partitions(read: Read) -> int:
    """The least number of tasks to ask Spark for: one per range, more for many records."""
    return max(len(read.ranges), math.ceil(sum(map(len, read.ranges)) / _RECORDS_PER_TASK))


def tasks(wanted: RangeSet) -> list[OffsetRange]:
    """The range of every Spark task that reads the wanted offsets, read after read."""
    return [task for read in reads(wanted) for task in _split(read.ranges, min_partitions(read))]


def _split(ranges: Sequence[OffsetRange], wanted: int) -> Iterator[OffsetRange]:
    """Split ranges that are larger than others into parts, so that there are about `wanted` in all."""
    ranges = [one for one in ranges if len(one)]
    if len(ranges) >= wanted:
        yield from ranges
        return
    total = sum(map(len, ranges))
    small = {one for one in ranges if _parts(len(one), total, wanted) == 1}
    rest = total - sum(map(len, small))
    for one in ranges:
        parts = 1 if one in small else _parts(len(one), rest, max(wanted - len(small), 1))
        start = one.start
        for part in range(parts):
            # The last part takes the remainder.
            until = start + (one.until - start) // (parts - part)
            if start < until:
                yield OffsetRange(one.partition, start, until)
            start = until


def _parts(size: int, total: int, wanted: int) -> int:
    # Java's Math.round: a half goes up.
    return max(math.floor(size / total * wanted + 0.5), 1)


def share_of(ranges: Iterable[OffsetRange], cores: int, index: int) -> list[OffsetRange]:
    """The ranges that one core reads, when each task goes in turn to the core with the least to read so far.

    The cores count from 0. Raises ValueError when there is no such core.
    """
    if not 0 <= index < cores:
        raise ValueError(f"core {index} of {cores}: expected a number from 0 on and below {cores}")
    share: list[OffsetRange] = []
    loads = [0] * cores
    for one in ranges:
        least = loads.index(min(loads))
        if least == index:
            share.append(one)
        loads[least] += len(one)
    return share
