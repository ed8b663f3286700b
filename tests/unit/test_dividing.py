"""Dividing offsets among lanes, over all selections: what the lanes read together, and how even their parts are."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.range_strategies import range_sets
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.dividing import divide_by_size, divide_evenly

MAX = st.integers(1, 8)
AT = TopicPartition("orders", 0)


@pytest.mark.covers("N33")
@given(selection=range_sets, most=MAX)
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


@given(selection=range_sets, size=st.integers(1, 30))
def test_pieces_are_the_selection(selection: RangeSet, size: int) -> None:
    pieces = list(divide_by_size(selection, size))
    assert RangeSet(one for piece in pieces for one in piece) == selection
    assert sum(piece.count() for piece in pieces) == selection.count()
    assert all(0 < piece.count() < size + len(piece.partitions) for piece in pieces)
    assert len(pieces) <= selection.count() // size + len(selection.partitions)


def test_a_piece_has_as_many_offsets_of_each_partition() -> None:
    every = RangeSet(OffsetRange(TopicPartition("orders", number), 0, 1_000) for number in range(50))
    pieces = list(divide_by_size(every, 5_000))
    assert [{piece.count(at) for at in every.partitions} for piece in pieces] == [{100}] * 10
    assert RangeSet(one for piece in pieces for one in piece) == every
