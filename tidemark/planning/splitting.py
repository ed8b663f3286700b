"""How a window is spread over Spark's tasks: few reads of Kafka, each split by size.

`tidemark.spark.rows.reading` reads in this way, and a plan shows it before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.merging import merged, microseconds

# Small enough that a partition with most of the lag keeps all cores busy, large enough that tasks do real work.
RECORDS_PER_TASK = 75_000
# Where the cores are known, a task takes a share of each core's part: each task opens a consumer and a file, and no
# core should wait long for another at the end.
_SHARES, _MAX_PER_TASK = 4, 250_000
# A longer range has a task to itself. Shorter ones share tasks.
_SHORT = 10_000
# The length of a task with short ranges: a few times as long as Spark needs to start it.
_TASK_MICROSECONDS = 200_000
# Processing a record takes longer than reading it: some 10 microseconds for a file, and 30 for HBase.
_WORK_MICROSECONDS = 20
# The driver names each range to Spark, and sends all ranges of a read to every task.
_MAX_RANGES = 10_000


@dataclass(frozen=True)
class Read:
    """One read of Kafka: ranges, ascending and disjoint, and how many tasks share them."""

    ranges: tuple[OffsetRange, ...]
    tasks: int

    @cached_property
    def offsets(self) -> RangeSet:
        """All that is read."""
        return RangeSet(self.ranges)


def reads(
    wanted: RangeSet, sizes: Mapping[TopicPartition, float] | None = None, cores: int | None = None
) -> list[Read]:
    """Split a set of offsets into few reads. `sizes` are bytes per record, and `cores` those of Spark, if known.

    No two reads share an offset. Offsets between wanted ones may be read too.
    """
    return spread_over_tasks([piece.range for piece in merged(wanted, sizes)], sizes, cores)


def parts(
    wanted: RangeSet, sizes: Mapping[TopicPartition, float] | None = None, cores: int | None = None
) -> list[tuple[Read, RangeSet]]:
    """The reads of a set of offsets, each with what is wanted of it: together that is all, and no offset twice."""
    split = reads(wanted, sizes, cores)
    # Each of several reads gets its part of a long selection.
    return [(read, wanted if len(split) == 1 else wanted & read.offsets) for read in split]


def spread_over_tasks(
    pieces: Sequence[OffsetRange], sizes: Mapping[TopicPartition, float] | None = None, cores: int | None = None
) -> list[Read]:
    """How to read some ranges in few reads, none together with another: long ones are split, short ones share tasks."""
    most = records_per_task(sum(map(len, pieces)), cores)
    long = [part for piece in pieces if len(piece) >= _SHORT for part in _even(piece, math.ceil(len(piece) / most))]
    short = [piece for piece in pieces if len(piece) < _SHORT]
    tasks = [Read(some, len(some)) for some in _batches(long, _MAX_RANGES)]
    for some in _batches(short, _MAX_RANGES):
        takes = microseconds(some, sizes) + _WORK_MICROSECONDS * sum(map(len, some))
        tasks.append(Read(some, min(math.ceil(takes / _TASK_MICROSECONDS), len(some))))
    return tasks


def records_per_task(records: int, cores: int | None) -> int:
    """The most records that a task takes, if there are this many together."""
    if cores is None:
        return RECORDS_PER_TASK
    return min(max(RECORDS_PER_TASK, records // (_SHARES * cores)), _MAX_PER_TASK)


def _batches(ranges: Sequence[OffsetRange], size: int) -> Iterator[tuple[OffsetRange, ...]]:
    for start in range(0, len(ranges), size):
        yield tuple(ranges[start : start + size])


def tasks(wanted: RangeSet, cores: int | None = None) -> list[OffsetRange]:
    """The ranges that Spark's tasks read, read after read. Short ranges share tasks."""
    return [range_ for read in reads(wanted, cores=cores) for range_ in read.ranges]


def _even(piece: OffsetRange, parts: int) -> Iterator[OffsetRange]:
    """A range in this many parts, or in one for each of its offsets."""
    start = piece.start
    for part in range(parts):
        # The last part takes the remainder.
        until = start + (piece.until - start) // (parts - part)
        if start < until:
            yield OffsetRange(piece.partition, start, until)
        start = until


def share_of(ranges: Iterable[OffsetRange], cores: int, index: int) -> list[OffsetRange]:
    """The ranges that one core reads, when each task goes in turn to the core with the least to read so far.

    The cores count from 0. Raises ValueError when there is no such core.
    """
    if not 0 <= index < cores:
        raise ValueError(f"core {index} of {cores}: expected a number from 0 on and below {cores}")
    share: list[OffsetRange] = []
    loads = [0] * cores
    for range_ in ranges:
        least = loads.index(min(loads))
        if least == index:
            share.append(range_)
        loads[least] += len(range_)
    return share
