"""How ranges are spread over tasks, and tasks over cores; tests/integration/test_splitting.py shows that Spark does so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.planning.splitting import share_of, tasks
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition


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


def test_a_few_records_are_one_task_for_each_partition() -> None:
    assert tasks(ranges(5, 0, 7)) == list(ranges(5, 0, 7))


@given(st.lists(st.integers(0, 300_000), max_size=8), st.integers(0, 10**15), st.integers(1, 5))
def test_the_tasks_together_are_exactly_the_ranges(sizes: list[int], start: int, cores: int) -> None:
    wanted = ranges(*sizes, start=start)
    found = tasks(wanted)
    assert RangeSet(found) == wanted
    assert sum(map(len, found)) == wanted.count()
    assert all(len(one) for one in found)
    shared = [one for index in range(cores) for one in share_of(found, cores, index)]
    assert sorted(shared) == sorted(found)
