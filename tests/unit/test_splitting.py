"""How ranges are spread over tasks, and tasks over cores; tests/integration/test_splitting.py shows that Spark does so."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.splitting import Read, parts, reads, records_per_task, share_of, tasks

# Lengths and gaps on both sides of every threshold.
SIZES = st.one_of(st.integers(1, 40), st.integers(9_990, 10_010), st.integers(49_990, 50_010), st.integers(1, 300_000))
# Of each partition, gaps and lengths in turn.
SELECTIONS = st.lists(st.lists(st.tuples(SIZES, SIZES), max_size=8), max_size=4)


def selection(partitions: list[list[tuple[int, int]]]) -> RangeSet:
    found = []
    for number, pairs in enumerate(partitions):
        offset = 0
        for gap, length in pairs:
            found.append(OffsetRange(TopicPartition("t", number), offset + gap, offset + gap + length))
            offset += gap + length
    return RangeSet(found)


def given_by(read: Read, wanted: RangeSet) -> RangeSet:
    """What is left of a read, after what is not wanted."""
    return read.offsets & wanted


def ranges(*sizes: int, start: int = 0) -> RangeSet:
    return RangeSet(OffsetRange(TopicPartition("t", at), start, start + size) for at, size in enumerate(sizes))


@pytest.mark.covers("A09")
def test_partitions_are_shared_out_evenly() -> None:
    sixteen = tasks(ranges(*[100] * 16))
    assert [len(share_of(sixteen, 8, index)) for index in range(8)] == [2] * 8
    one = tasks(ranges(100))
    assert [len(share_of(one, 2, index)) for index in range(2)] == [1, 0]
    for cores, index in ((1, 1), (2, -1), (0, 0)):
        with pytest.raises(ValueError, match=f"core {index} of {cores}"):
            share_of(one, cores, index)


@pytest.mark.covers("S14")
def test_a_hot_partition_is_split_and_keeps_all_cores_busy() -> None:
    found = tasks(ranges(400_000, 100, 100, start=7))
    hot = [one for one in found if one.partition.partition == 0]
    assert len(hot) >= 4
    assert [one.partition.partition for one in found if one not in hot] == [1, 2]
    loads = [sum(map(len, share_of(found, 4, index))) for index in range(4)]
    assert min(loads) > 50_000


@pytest.mark.parametrize(
    ("sizes", "parts"),
    [
        ((100_000,), [50_000, 50_000]),
        # Short ranges are read after the long ones.
        ((1, 150_000), [75_000, 75_000, 1]),
        ((60_000, 100_000), [60_000, 50_000, 50_000]),
        ((100_000, 75_000), [50_000, 50_000, 75_000]),
        ((260_000, *[113_000] * 3, *[1] * 4), [*[65_000] * 4, *[56_500] * 6, *[1] * 4]),
    ],
)
def test_large_ranges_are_split(sizes: tuple[int, ...], parts: list[int]) -> None:
    assert list(map(len, tasks(ranges(*sizes)))) == parts


@pytest.mark.parametrize(
    ("sizes", "cores", "parts"),
    [
        # A share for each of the known cores, and no smaller than without.
        ((1_000_000, 100_000), 2, [*[125_000] * 8, 100_000]),
        ((1_050_000, 100_000), None, [*[75_000] * 14, 50_000, 50_000]),
        ((1_050_000,), 40, [75_000] * 14),
        ((300_000,), 2, [75_000] * 4),
        ((10_000_000,), 2, [250_000] * 40),
    ],
)
def test_a_task_reads_more_of_a_large_range_where_the_cores_are_known(
    sizes: tuple[int, ...], cores: int | None, parts: list[int]
) -> None:
    assert list(map(len, tasks(ranges(*sizes), cores))) == parts


def test_short_ranges_share_a_task() -> None:
    assert tasks(ranges(5, 0, 7)) == list(ranges(5, 0, 7))
    (read,) = reads(ranges(5, 0, 7))
    assert read.tasks == 1
    # An hour of a small topic, and partitions that each take their time.
    assert [one.tasks for one in reads(ranges(*[100] * 12))] == [1]
    assert [one.tasks for one in reads(ranges(*[8_000] * 12))] == [11]


@given(st.lists(st.integers(0, 300_000), max_size=8), st.integers(0, 10**15), st.integers(1, 5))
def test_the_tasks_together_are_exactly_the_ranges(sizes: list[int], start: int, cores: int) -> None:
    wanted = ranges(*sizes, start=start)
    found = tasks(wanted)
    assert RangeSet(found) == wanted
    assert sum(map(len, found)) == wanted.count()
    assert all(len(one) for one in found)
    shared = [one for index in range(cores) for one in share_of(found, cores, index)]
    assert sorted(shared) == sorted(found)


@given(SELECTIONS)
@example([[(1, 10), (10, 10_000), (30, 10)]])
def test_every_wanted_offset_is_in_exactly_one_read(partitions: list[list[tuple[int, int]]]) -> None:
    wanted = selection(partitions)
    found = [given_by(read, part) for read, part in parts(wanted)]
    assert RangeSet(one for part in found for one in part) == wanted
    assert sum(part.count() for part in found) == wanted.count()


@given(SELECTIONS, st.none() | st.integers(1, 64))
def test_reads_are_few_and_their_tasks_are_neither_long_nor_many(
    partitions: list[list[tuple[int, int]]], cores: int | None
) -> None:
    wanted = selection(partitions)
    found = reads(wanted, cores=cores)
    assert len(found) <= 2
    everything = sum(len(one) for read in found for one in read.ranges)
    most = records_per_task(everything, cores)
    assert 75_000 <= most <= (75_000 if cores is None else max(75_000, min(everything // (4 * cores), 250_000)))
    for read in found:
        assert all(len(one) <= most for one in read.ranges)
        assert 1 <= read.tasks <= len(read.ranges)
        # What shares a task is short.
        assert read.tasks == len(read.ranges) or max(map(len, read.ranges)) < 10_000
    assert tasks(wanted, cores) == [one for read in found for one in read.ranges]
    # Nothing is fetched from Kafka twice.
    every = [one for read in found for one in read.ranges]
    assert sum(map(len, every)) == RangeSet(every).count()


def test_many_far_records_share_tasks_and_reads() -> None:
    at = TopicPartition("t", 0)
    wanted = RangeSet(OffsetRange(at, offset, offset + 1) for offset in range(0, 10_500 * 50_000, 50_000))
    assert [(len(read.ranges), read.tasks) for read in reads(wanted)] == [(10_000, 77), (500, 4)]


def test_long_and_short_ranges_are_read_apart() -> None:
    long, near = [(0, 100_000), (200_000, 220_000)], [(500_000, 500_001), (500_100, 500_101)]
    wanted = RangeSet(OffsetRange(TopicPartition("t", 0), *one) for one in (*long, *near, (600_000, 600_001)))
    apart, together = reads(wanted)
    assert (list(map(len, apart.ranges)), apart.tasks) == ([50_000, 50_000, 20_000], 3)
    assert (list(map(len, together.ranges)), together.tasks) == ([101, 1], 1)
