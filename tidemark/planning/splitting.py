"""How a window is spread over Spark's tasks: few reads of Kafka, each split by size.

`spark_jobs/` reads in this way, and a plan shows it before. Where a read has one range per partition, Tidemark tells Spark
only `min_partitions`, and Spark does the split: `tasks` computes it as KafkaOffsetRangeCalculator of Spark's Kafka source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.merging import Piece, merged, microseconds

# Small enough that a partition with most of the lag keeps all cores busy, large enough that tasks do real work.
_RECORDS_PER_TASK = 75_000
# A longer range has a task to itself. Shorter ones share tasks, and with them the consumer of their partition.
_SHORT = 10_000
# How long a task with short ranges takes: a few times as long as Spark needs to start it.
_TASK_MICROSECONDS = 200_000
# The driver names each range to Spark, and sends all ranges of a read to every task.
_MOST_RANGES = 10_000


@dataclass(frozen=True)
class Read:
    """One read of Kafka. `exact`: all offsets of the ranges are wanted.

    Without `shared`, a range per partition, as Spark's Kafka source takes them. With it, any number of ranges, ascending,
    which share so many tasks.
    """

    ranges: tuple[OffsetRange, ...]
    exact: bool
    shared: int | None = None


def reads(wanted: RangeSet, sizes: Mapping[TopicPartition, float] | None = None) -> list[Read]:
    """How to read a set of offsets in few reads. `sizes` are bytes per record, where they are known.

    No two reads share an offset, so each wanted offset is read exactly once.
    """
    pieces = merged(wanted, sizes)
    if len(pieces) == len(wanted.partitions):
        return [Read(alike, exact) for exact in (True, False) if (alike := _ranges(pieces, exact))]
    long = [one for one in pieces if len(one.range) >= _SHORT]
    short = [one.range for one in pieces if len(one.range) < _SHORT]
    found: list[Read] = []
    for exact in (True, False):
        parts = [part for one in _ranges(long, exact) for part in _even(one, math.ceil(len(one) / _RECORDS_PER_TASK))]
        found += [Read(some, exact, len(some)) for some in _batches(parts, _MOST_RANGES)]
    # Filtering the few records of short ranges costs less than a read for those that are exact.
    exact = all(one.exact for one in pieces if len(one.range) < _SHORT)
    for some in _batches(short, _MOST_RANGES):
        found.append(Read(some, exact, math.ceil(microseconds(some, sizes) / _TASK_MICROSECONDS)))
    return found


def _batches(ranges: Sequence[OffsetRange], size: int) -> Iterator[tuple[OffsetRange, ...]]:
    for start in range(0, len(ranges), size):
        yield tuple(ranges[start : start + size])


def _ranges(pieces: Iterable[Piece], exact: bool) -> tuple[OffsetRange, ...]:
    return tuple(one.range for one in pieces if one.exact == exact)


def min_partitions(read: Read) -> int:
    """The least number of tasks to ask Spark for: one per range, more for many records."""
    return max(len(read.ranges), math.ceil(sum(map(len, read.ranges)) / _RECORDS_PER_TASK))


def tasks(wanted: RangeSet) -> list[OffsetRange]:
    """The range of every Spark task that reads the wanted offsets, read after read. Short scattered ranges share tasks."""
    return [
        task
        for read in reads(wanted)
        for task in (read.ranges if read.shared else _split(read.ranges, min_partitions(read)))
    ]


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
        yield from _even(one, 1 if one in small else _parts(len(one), rest, max(wanted - len(small), 1)))


def _even(one: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """A range in so many parts, or in one for each of its offsets."""
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
