"""The range algebra against a naive model: plain sets of offsets."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.range_strategies import PARTITIONS, offsets, range_sets
from tidemark.errors import WrongUse
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition


@given(range_sets, range_sets)
def test_algebra_is_that_of_sets(left: RangeSet, right: RangeSet) -> None:
    assert offsets(left | right) == offsets(left) | offsets(right)
    assert offsets(left & right) == offsets(left) & offsets(right)
    assert offsets(left - right) == offsets(left) - offsets(right)
    assert (left == right) == (offsets(left) == offsets(right))
    assert left.count() == len(offsets(left))
    for at in PARTITIONS:
        assert left.count(at) == sum(one == at for one, _ in offsets(left))
    # Not only the same offsets: the same set, without empty ranges and with none that touch.
    for made in (left | right, left & right, left - right):
        assert made == RangeSet(made)


@given(range_sets)
def test_ranges_are_sorted_disjoint_and_do_not_touch(ranges: RangeSet) -> None:
    for at in ranges.partitions:
        intervals = ranges.of(at)
        assert all(start < until for start, until in intervals)
        assert all(one[1] < following[0] for one, following in pairwise(intervals))


@given(range_sets, range_sets)
def test_pairs_make_the_same_set_as_ranges(left: RangeSet, right: RangeSet) -> None:
    pairs = [(at, one.of(at)) for one in (left, right) for at in one.partitions]
    assert RangeSet.of_intervals(pairs) == left | right
    assert RangeSet.of_intervals([*pairs, (PARTITIONS[0], [(7, 7)])]) == left | right


@pytest.mark.parametrize("pair", [(-1, 2), (5, 3), (-1, -1), (0, MAX_OFFSET + 1)])
def test_pairs_that_are_no_ranges_are_refused(pair: tuple[int, int]) -> None:
    with pytest.raises(WrongUse, match="is not a range of offsets"):
        RangeSet.of_intervals([(PARTITIONS[0], [(1, 2), pair])])


@given(range_sets, st.integers(0, 20))
def test_first_takes_the_lowest_offsets_of_each_partition(ranges: RangeSet, limit: int) -> None:
    for at in ranges.partitions:
        all_of_it = sorted(offset for partition, offset in offsets(ranges) if partition == at)
        taken = sorted(offset for partition, offset in offsets(ranges.first(limit)) if partition == at)
        assert taken == all_of_it[:limit]
    # Not only the same offsets: the same set, without empty ranges.
    assert ranges.first(limit) == RangeSet(ranges.first(limit))
    assert ranges.first(10**6) == ranges


@given(range_sets, st.integers(1, 9))
def test_pieces_have_so_many_offsets_each_in_order(ranges: RangeSet, size: int) -> None:
    pieces = [sorted(offsets(one)) for one in ranges.pieces(size)]
    assert [len(one) for one in pieces[:-1]] == [size] * (len(pieces) - 1)
    assert all(0 < len(one) <= size for one in pieces)
    assert [one for piece in pieces for one in piece] == sorted(offsets(ranges))


@given(range_sets)
def test_the_hull_is_one_range_from_first_to_last(ranges: RangeSet) -> None:
    hull = ranges.hull()
    assert offsets(ranges) <= offsets(hull)
    for at in ranges.partitions:
        assert hull.of(at) == ((ranges.of(at)[0][0], ranges.of(at)[-1][1]),)


@given(range_sets, st.sampled_from(PARTITIONS), st.integers(0, 50))
def test_membership(ranges: RangeSet, at: TopicPartition, offset: int) -> None:
    assert ((at, offset) in ranges) == ((at, offset) in offsets(ranges))


def test_the_largest_offsets_do_not_overflow() -> None:
    at = TopicPartition("a", 0)
    everything = RangeSet([OffsetRange(at, 0, MAX_OFFSET)])
    assert everything.count() == 2**63 - 1
    assert (everything - RangeSet([OffsetRange(at, 1, MAX_OFFSET)])).count() == 1


@pytest.mark.covers("A03", "E32")
@pytest.mark.parametrize(("start", "until"), [(-99, 5), (-1, 0), (5, 3), (0, 2**63)])
def test_what_is_not_a_range_is_refused(start: int, until: int) -> None:
    with pytest.raises(WrongUse, match=rf"a/0: from {start} until {until} is not a range") as caught:
        OffsetRange(TopicPartition("a", 0), start, until)
    assert caught.value.exit_code == 2


@pytest.mark.covers("E28")
def test_partitions_sort_as_numbers() -> None:
    shuffled = [TopicPartition("a", number) for number in (10, 9, 2)]
    assert [at.partition for at in sorted(shuffled)] == [2, 9, 10]


def test_equal_sets_are_one_in_a_set() -> None:
    at = TopicPartition("logs", 0)
    one = RangeSet([OffsetRange(at, 0, 5), OffsetRange(at, 5, 9)])
    same, other = RangeSet([OffsetRange(at, 0, 9)]), RangeSet([OffsetRange(at, 0, 8)])
    assert {one, same, other} == {same, other}
    assert hash(one) == hash(same) != hash(other)
