"""Dividing offsets among lanes, over all selections: what the lanes read together, and how even their parts are."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.range_strategies import range_sets
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.dividing import divide_by_size, divide_evenly

MOST = st.integers(1, 8)
AT = TopicPartition("orders", 0)


@pytest.mark.covers("N33")
@given(selection=range_sets, most=MOST)
def test_parts_are_the_selection_in_its_order_and_as_even_as_can_be(selection: RangeSet, most: int) -> None:
    parts = divide_evenly(selection, most)
    assert len(parts) == min(most, selection.count())
    # In all the same offsets, none of them twice.
    assert RangeSet(one for part in parts for one in part) == selection
    assert sum(part.count() for part in parts) == selection.count()
    counts = [part.count() for part in parts]
    assert not counts or max(counts) - min(counts) <= 1
    places = [[(one.partition, offset) for one in part for offset in range(one.start, one.until)] for part in parts]
    assert all(before[-1] < after[0] for before, after in pairwise(places))
    # A retry finds the same parts.
    assert divide_evenly(RangeSet(reversed(list(selection))), most) == parts


def in_blocks(selection: RangeSet, size: int, one: RangeSet) -> RangeSet:
    """Blocks of some size, which stand for what a sink needs whole."""
    return selection & RangeSet(
        OffsetRange(part.partition, part.start // size * size, -(-part.until // size) * size) for part in one
    )


@given(selection=range_sets, size=st.integers(1, 30), block=st.integers(1, 12))
def test_pieces_are_the_selection_in_whole_blocks(selection: RangeSet, size: int, block: int) -> None:
    whole = partial(in_blocks, selection, block)
    pieces = list(divide_by_size(selection, size, whole))
    assert RangeSet(one for piece in pieces for one in piece) == selection
    assert sum(piece.count() for piece in pieces) == selection.count()
    assert all(whole(piece) == piece for piece in pieces)
    assert all(0 < piece.count() < size + len(piece.partitions) * (block + 1) for piece in pieces)
    assert len(pieces) <= selection.count() // size + len(selection.partitions)


def test_a_piece_has_few_more_windows_than_it_needs() -> None:
    """A window has read offsets of all partitions, and is in one piece."""
    every = RangeSet(OffsetRange(TopicPartition("orders", number), 0, 1_000) for number in range(50))

    def whole(one: RangeSet) -> RangeSet:
        until = max(-(-part.until // 10) * 10 for part in one)
        return RangeSet(OffsetRange(at, 0, until) for at in every.partitions)

    pieces = list(divide_by_size(every, 5_000, whole))
    assert [piece.count() for piece in pieces] == [5_000] * 10
    assert RangeSet(one for piece in pieces for one in piece) == every


@given(selection=range_sets, most=MOST, size=st.integers(1, 30))
def test_what_has_to_be_read_together_is_in_one_part(selection: RangeSet, most: int, size: int) -> None:
    whole = partial(in_blocks, selection, size)
    parts = divide_evenly(selection, most, whole)
    assert len(parts) <= most
    assert RangeSet(one for part in parts for one in part) == selection
    assert sum(part.count() for part in parts) == selection.count()
    assert all(part and whole(part) == part for part in parts)
    assert all(part.count() < -(-selection.count() // most) + size for part in parts)


@pytest.mark.parametrize(
    ("most", "expected"),
    [(1, [(0, 10)]), (3, [(0, 4), (4, 7), (7, 10)]), (8, [(0, 2), (2, 4), *((n, n + 1) for n in range(4, 10))])],
)
def test_parts_of_ten_offsets(most: int, expected: list[tuple[int, int]]) -> None:
    parts = divide_evenly(RangeSet([OffsetRange(AT, 0, 10)]), most)
    assert [part.of(AT) for part in parts] == [(one,) for one in expected]
