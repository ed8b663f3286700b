"""Which offsets between scattered ones are read too: the cheapest way of all, by the measured costs."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.merging import merged, microseconds, scatter

AT, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
# Gaps on both sides of every threshold: 1,500 µs for a range, against 0.5 µs for a record and 2 ns for each of its bytes.
GAPS = st.one_of(st.integers(1, 3_500), st.integers(1, 10**12))
SIZES = st.dictionaries(st.sampled_from([AT, OTHER]), st.sampled_from([0.0, 100.0, 1e6]))
# Of each partition, gaps and lengths in turn.
SELECTIONS = st.lists(
    st.lists(st.tuples(GAPS, st.integers(1, 100_000)), min_size=1, max_size=7), min_size=1, max_size=2
)


def selection(partitions: list[list[tuple[int, int]]]) -> RangeSet:
    found = []
    for at, pairs in zip((AT, OTHER), partitions, strict=False):
        offset = 0
        for gap, length in pairs:
            found.append(OffsetRange(at, offset + gap, offset + gap + length))
            offset += gap + length
    return RangeSet(found)


@given(SELECTIONS, SIZES)
def test_pieces_hold_what_is_wanted_and_nothing_beyond(
    partitions: list[list[tuple[int, int]]], sizes: dict[TopicPartition, float]
) -> None:
    wanted = selection(partitions)
    found = merged(wanted, sizes)
    ranges = [one.range for one in found]
    assert ranges == sorted(ranges)
    read = RangeSet(ranges)
    assert read.count() == sum(map(len, ranges))
    assert not wanted - read
    assert not read - wanted.hull()
    for one in found:
        here = RangeSet([one.range]) & wanted
        assert one.wanted == here.count()
        assert one.exact == (here == RangeSet([one.range]))
        # Each begins and ends with what is wanted.
        assert (one.range.partition, one.range.start) in wanted
        assert (one.range.partition, one.range.until - 1) in wanted


@pytest.mark.covers("N29")
@given(SELECTIONS, SIZES)
def test_no_other_way_costs_less(partitions: list[list[tuple[int, int]]], sizes: dict[TopicPartition, float]) -> None:
    wanted = selection(partitions)
    cost = microseconds((one.range for one in merged(wanted, sizes)), sizes)
    assert cost <= microseconds(wanted.hull(), sizes)
    assert cost <= microseconds(wanted, sizes)
    for at in wanted.partitions:
        intervals = wanted.of(at)
        of_partition = microseconds((one.range for one in merged(wanted.only([at]), sizes)), sizes)
        # Every choice of gaps that are left out.
        for number in range(len(intervals)):
            for left in combinations(range(1, len(intervals)), number):
                edges = [0, *left, len(intervals)]
                pieces = [
                    OffsetRange(at, intervals[first][0], intervals[until - 1][1]) for first, until in pairwise(edges)
                ]
                assert of_partition <= microseconds(pieces, sizes) * (1 + 1e-12)


@pytest.mark.parametrize(("size", "longest"), [(0.0, 3_000), (800.0, 714), (1e6, 0), (None, 1_500)])
def test_the_longest_gap_that_is_read(size: float | None, longest: int) -> None:
    """Large records make a gap dear, and what is not known counts 250 bytes."""
    sizes = {} if size is None else {AT: size}

    def pieces(gap: int) -> int:
        return len(merged(RangeSet([OffsetRange(AT, 0, 1), OffsetRange(AT, 1 + gap, 2 + gap)]), sizes))

    assert (pieces(longest or 1), pieces(longest + 1)) == (1 if longest else 2, 2)


def test_what_scattered_offsets_cost_more() -> None:
    assert scatter(RangeSet(), {}) == (0, 0.0)
    assert scatter(RangeSet([OffsetRange(AT, 5, 90), OffsetRange(OTHER, 7, 8)])) == (0, 0.0)
    # One gap is read, one is not.
    wanted = RangeSet(OffsetRange(AT, at, at + 1) for at in (0, 101, 10**9))
    between, seconds = scatter(wanted, {AT: 200.0})
    assert between == 100
    assert seconds == pytest.approx(0.0015 + 100 * 0.9e-6)
