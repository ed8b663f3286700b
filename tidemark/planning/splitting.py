"""How a window is spread over Spark's tasks: few reads of Kafka, each split by size.

`spark_jobs/` reads so, and a plan shows it before. Spark splits by itself: what it is told is `min_partitions`, and what it
makes of that is `tasks`, as KafkaOffsetRangeCalculator of its Kafka source does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tidemark.ranges import OffsetRange, RangeSet, TopicPartition

# Scattered records are read together with what lies between them, and filtered: one read of 50,000 records is faster
# than many small ones (each has a consumer to start and to seek).
_GAP = 50_000
# An interval this long is read alone, exactly.
_LONG = 10_000
# Small enough that a partition with most of the lag keeps all cores busy, large enough that tasks do real work.
_RECORDS_PER_TASK = 75_000


@dataclass(frozen=True)
class Read:
    """One read of Spark's Kafka source, which takes one range per partition. `exact`: everything in them is wanted."""

    ranges: tuple[OffsetRange, ...]
    exact: bool


def reads(wanted: RangeSet) -> list[Read]:
    """How to read a set of offsets in few reads: the n-th piece of each partition goes into the n-th read."""
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
    short: list[tuple[int, int]] = []
    for start, until in wanted.of(at):
        if until - start >= _LONG:
            yield OffsetRange(at, start, until), True
        elif short and start - short[-1][1] <= _GAP:
            short[-1] = (short[-1][0], until)
        else:
            short.append((start, until))
    for start, until in short:
        piece = OffsetRange(at, start, until)
        yield piece, RangeSet([piece]) & wanted == RangeSet([piece])


def min_partitions(read: Read) -> int:
    """The least number of tasks that Spark is asked for: one for each range, more where there are many records."""
    return max(len(read.ranges), math.ceil(sum(map(len, read.ranges)) / _RECORDS_PER_TASK))


def tasks(wanted: RangeSet) -> list[OffsetRange]:
    """The range of every Spark task that reads the wanted offsets, read after read."""
    return [task for read in reads(wanted) for task in _split(read.ranges, min_partitions(read))]


def _split(ranges: Sequence[OffsetRange], wanted: int) -> Iterator[OffsetRange]:
    """Ranges that are large beside the others in several parts, so that there are about `wanted` in all."""
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
            # The last part takes what the divisions leave over.
            until = start + (one.until - start) // (parts - part)
            if start < until:
                yield OffsetRange(one.partition, start, until)
            start = until


def _parts(size: int, total: int, wanted: int) -> int:
    # Java's Math.round: a half goes up.
    return max(math.floor(size / total * wanted + 0.5), 1)


def share_of(ranges: Iterable[OffsetRange], cores: int, index: int) -> list[OffsetRange]:
    """What one of the cores reads, when each task goes in its turn to the core with the least to read so far.

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
