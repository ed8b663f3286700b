"""The coverage picture against a naive one: the class of each offset by itself, and the most remarkable one of each pixel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.records import LaneKind
from tidemark.offsets.authority import segments_of
from tidemark.offsets.ranges import Interval, OffsetRange, RangeSet, TopicPartition
from tidemark.views.coverage.picture import OffsetsOfPartition, OffsetState, bar, bounds, pixel_offsets, stretches

AT = TopicPartition("orders", 0)
intervals = st.tuples(st.integers(0, 60), st.integers(1, 15)).map(lambda one: (one[0], one[0] + one[1]))
# (start, until), and the kind of the lane; a window's generation is its place in the list.
committed = st.lists(st.tuples(intervals, st.sampled_from(list(LaneKind))), max_size=12)
# The ledger gives gaps as disjoint intervals.
few = st.lists(intervals, max_size=2).map(
    lambda found: list(RangeSet(OffsetRange(AT, *one) for one in found).of(AT)),
)


def naive(
    offset: int,
    start: int,
    windows: list[tuple[Interval, LaneKind]],
    pending: list[Interval],
    gaps: list[list[Interval]],
    asked_for: Interval,
) -> OffsetState:
    def inside(found: list[Interval]) -> bool:
        return any(low <= offset < high for low, high in found)

    covering = [kind for interval, kind in windows if inside([interval])]
    lost, skipped = gaps
    if inside(pending):
        return OffsetState.PENDING
    if covering:
        return OffsetState(covering[-1].value)
    if inside(lost):
        return OffsetState.LOST
    if inside(skipped):
        return OffsetState.SKIPPED
    if offset < start:
        return OffsetState.EXPIRED
    begin, position = asked_for
    if offset >= position:
        return OffsetState.UNREAD
    return OffsetState.HOLE if offset >= begin else OffsetState.BEFORE


@pytest.mark.covers("U2")
@given(
    committed,
    st.lists(intervals, max_size=1),
    few,
    few,
    st.tuples(st.integers(0, 60), st.integers(0, 30)),
    st.integers(1, 90),
    st.tuples(st.integers(0, 20), st.integers(0, 20)),
    intervals,
)
def test_each_pixel_shows_the_most_remarkable_of_its_offsets(
    windows: list[tuple[Interval, LaneKind]],
    pending: list[Interval],
    lost: list[Interval],
    skipped: list[Interval],
    kafka: tuple[int, int],
    width: int,
    zoom: tuple[int, int],
    asked_for: Interval,
) -> None:
    log_start, log_end = kafka[0], sum(kafka)
    log = OffsetsOfPartition(
        log_start,
        log_end,
        segments_of([(start, until, generation) for generation, ((start, until), _) in enumerate(windows)]),
        lost,
        skipped,
        [(start, until, ("ingest", 7)) for start, until in pending],
        asked_for,
    )
    start, until = bounds(log)
    ends = [
        log_end,
        *(high for (_, high), _ in windows),
        *(high for one in (pending, lost, skipped) for _, high in one),
    ]
    assert until == max(ends)
    # The whole bar, or a part of it.
    start, until = min(start + zoom[0], until), max(min(start + zoom[0], until), until - zoom[1])
    kinds = {generation: kind for generation, (_, kind) in enumerate(windows)}
    blocks = bar(stretches(log, kinds, start, until), start, until, width)
    pixels = min(width, until - start)
    # Without a gap, from the first pixel to the last.
    assert [one.first for one in blocks] == [0, *(one.last for one in blocks)][: len(blocks)]
    assert (blocks[-1].last if blocks else 0) == pixels
    expected = {at: naive(at, log_start, windows, pending, [lost, skipped], asked_for) for at in range(start, until)}
    for block in blocks:
        for pixel in range(block.first, block.last):
            low, high = (pixel_offsets(start, until, pixels, one) for one in (pixel, pixel + 1))
            assert block.state == min((expected[at] for at in range(low, high)), key=list(OffsetState).index)
        # From the first offset of this class to the last, and all of them when it is one stretch.
        assert expected[block.start] == expected[block.until - 1] == block.state
        if block.stretches == 1:
            assert {expected[at] for at in range(block.start, block.until)} == {block.state}
        if isinstance(block.window, int):
            assert block.windows == 1
            (low, high), kind = windows[block.window]
            assert low <= block.start < block.until <= high
            assert kind.value == block.state


def test_a_hole_of_one_offset_is_seen_among_millions() -> None:
    log = OffsetsOfPartition(0, 10**7, segments_of([(0, 5_000_000, 1), (5_000_001, 10**7, 2)]), asked_for=(0, 10**7))
    start, until = bounds(log)
    blocks = bar(stretches(log, dict.fromkeys((1, 2), LaneKind.INGEST), start, until), start, until, 800)
    assert [(one.state, one.last - one.first, one.window, one.start, one.until) for one in blocks] == [
        (OffsetState.INGEST, 400, 1, 0, 5_000_000),
        (OffsetState.HOLE, 1, None, 5_000_000, 5_000_001),
        (OffsetState.INGEST, 399, 2, 5_000_001, 10**7),
    ]
    zoomed = bar(
        stretches(log, dict.fromkeys((1, 2), LaneKind.INGEST), 4_999_999, 5_000_002), 4_999_999, 5_000_002, 800
    )
    assert [(one.state, one.start, one.until) for one in zoomed] == [
        (OffsetState.INGEST, 4_999_999, 5_000_000),
        (OffsetState.HOLE, 5_000_000, 5_000_001),
        (OffsetState.INGEST, 5_000_001, 5_000_002),
    ]
    # The pixel on the border of two windows belongs to one of them, so both can be pointed at.
    log = OffsetsOfPartition(0, 100, segments_of([(0, 33, 1), (33, 66, 2), (66, 100, 3)]))
    thirds = bar(stretches(log, dict.fromkeys((1, 2, 3), LaneKind.INGEST), 0, 100), 0, 100, 20)
    assert [(one.first, one.last, one.window) for one in thirds] == [(0, 7, 1), (7, 14, 2), (14, 20, 3)]
    # Offsets beyond 2^53 are exact.
    far = 2**62
    log = OffsetsOfPartition(far, far + 3, segments_of([(far, far + 1, 1), (far + 2, far + 3, 2)]))
    assert [
        one.start
        for one in bar(stretches(log, {1: LaneKind.INGEST, 2: LaneKind.REPLAY}, far, far + 3), far, far + 3, 9)
    ] == [
        far,
        far + 1,
        far + 2,
    ]
