"""What counts, against a naive model: for each offset, the highest generation among the windows that cover it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.range_strategies import PARTITIONS, offsets, range_sets
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

windows = st.lists(st.tuples(st.integers(1, 50), range_sets), max_size=8, unique_by=lambda window: window[0])


def naive(found: list[tuple[int, RangeSet]]) -> dict[tuple[object, int], int]:
    highest: dict[tuple[object, int], int] = {}
    for generation, covers in found:
        for place in offsets(covers):
            highest[place] = max(generation, highest.get(place, 0))
    return highest


@pytest.mark.covers("E48")
@given(windows)
def test_the_highest_generation_counts(found: list[tuple[int, RangeSet]]) -> None:
    authority = Authority(found)
    expected = naive(found)
    for at in PARTITIONS:
        for offset in range(45):
            assert authority.of(at, offset) == expected.get((at, offset))
    assert offsets(authority.covered()) == set(expected)


@given(windows, st.sampled_from(PARTITIONS), st.integers(0, 40), st.integers(0, 20))
def test_segments_within_a_range(
    found: list[tuple[int, RangeSet]], at: TopicPartition, start: int, length: int
) -> None:
    expected = naive(found)
    segments = list(Authority(found).within(OffsetRange(at, start, start + length)))
    seen = {offset: one.generation for one in segments for offset in range(one.start, one.until)}
    assert seen == {offset: expected[at, offset] for offset in range(start, start + length) if (at, offset) in expected}
    assert segments == sorted(segments)


@given(windows)
def test_the_order_of_the_windows_does_not_matter(found: list[tuple[int, RangeSet]]) -> None:
    assert Authority(found) == Authority(list(reversed(found)))


@pytest.mark.covers("E48")
@given(windows, range_sets)
def test_what_is_hidden_does_not_count(found: list[tuple[int, RangeSet]], hidden: RangeSet) -> None:
    """A partition of which all is hidden is not there: readers take the segments of each that is."""
    authority = Authority(found).without(hidden)
    expected = {place: one for place, one in naive(found).items() if place not in offsets(hidden)}
    assert offsets(authority.covered()) == set(expected)
    assert all(authority.of(at, offset) == one for (at, offset), one in expected.items())  # type: ignore[arg-type]
    assert list(authority.partitions) == sorted({at for at, _ in expected})  # type: ignore[type-var]
