"""Where every offset of a partition is, as a bar of a given width in pixels. Pure: takes values, and gives blocks of a bar.

Each offset has one class, and a pixel shows the most remarkable class among its offsets: a hole of one offset is seen
however many offsets share its pixel.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from tidemark.ledger.records import LaneKind
from tidemark.offsets.authority import Segment
from tidemark.offsets.ranges import Interval


class OffsetState(StrEnum):
    """The state of an offset, the most remarkable first."""

    # A hole (`ledger.holes`) that Kafka still has.
    HOLE = "hole"
    # A policy let the ingest jump over them: Kafka no longer had them, or the policy left them out.
    LOST = "lost"
    SKIPPED = "skipped"
    # In no window, and no longer in Kafka.
    EXPIRED = "expired"
    # In a window that is not committed yet, even where an older window has committed them.
    PENDING = "pending"
    # The newest committed window is of a lane of this kind.
    ERASE = "erase"
    REPLAY = "replay"
    BACKFILL = "backfill"
    INGEST = "ingest"
    # In no window, and before the beginning of the ingest: nobody has asked for them.
    BEFORE = "before"
    # In no window, and the ingest has not come to them.
    UNREAD = "unread"


# No window has read these offsets, and the ingest is past them.
GAPS = frozenset({OffsetState.HOLE, OffsetState.LOST, OffsetState.SKIPPED, OffsetState.EXPIRED})
_ORDER = {state: number for number, state in enumerate(OffsetState)}
_OF_LANES = {kind: OffsetState(kind.value) for kind in LaneKind}
_UNTIL = itemgetter(1)
# A window that is narrower than this cannot be pointed at; it becomes part of a block with its neighbours.
_POINTED_AT = 3
# A committed window by its generation, a pending one by its lane and number.
Name = int | tuple[str, int]


@dataclass(frozen=True)
class OffsetsOfPartition:
    """The known offsets of one partition. `start` and `end` are Kafka's, `pending` maps windows' names to their offsets.

    `asked_for`: what the ingest has had to read until now, as `holes.Ingest` says; empty where there is no ingest.
    """

    start: int
    end: int
    segments: Sequence[Segment]
    lost: Sequence[Interval] = ()
    skipped: Sequence[Interval] = ()
    pending: Sequence[tuple[int, int, tuple[str, int]]] = ()
    asked_for: Interval = (0, 0)


class Stretch(NamedTuple):
    """Neighbouring offsets [start, until) of one class, and of one window if there is one: its generation or name."""

    start: int
    until: int
    state: OffsetState
    window: Name | None


class Block(NamedTuple):
    """Pixels [first, last) of a bar, with the class that they show.

    [start, until) reaches from the first stretch of that class to the end of the last one. `stretches` counts these, and
    `windows` their windows. `window` is the only one; None where there are several or none.
    """

    first: int
    last: int
    state: OffsetState
    start: int
    until: int
    stretches: int
    window: Name | None
    windows: int


def bounds(log: OffsetsOfPartition) -> Interval:
    """The offsets that a bar shows: from the first one that Kafka or the ledger knows of, to the last."""
    intervals = [
        *((one.start, one.until) for one in (*log.segments[:1], *log.segments[-1:])),
        *log.lost,
        *log.skipped,
        *((start, until) for start, until, _ in log.pending),
    ]
    return min([log.start, *(start for start, _ in intervals)]), max([log.end, *(until for _, until in intervals)])


def stretches(log: OffsetsOfPartition, kinds: Mapping[int, LaneKind], start: int, until: int) -> Iterator[Stretch]:
    """The offsets [start, until) of a partition, ascending and without a gap. `kinds` gives the lane's of a generation."""
    at = start
    for low, high, name in [*sorted(log.pending), (until, until, ("", 0))]:
        low, high = max(at, min(low, until)), max(at, min(high, until))
        yield from _committed(log, kinds, at, low)
        if low < high:
            yield Stretch(low, high, OffsetState.PENDING, name)
        at = high


def _committed(log: OffsetsOfPartition, kinds: Mapping[int, LaneKind], start: int, until: int) -> Iterator[Stretch]:
    """As `stretches`, of offsets in no pending window."""
    segments = log.segments
    at = start
    for number in range(bisect_right(segments, start, key=_UNTIL), len(segments)):
        low, high, generation = segments[number]
        if low >= until:
            break
        if at < low:
            yield from _uncovered(log, at, low)
        at = min(high, until)
        yield Stretch(max(low, start), at, _OF_LANES[kinds[generation]], generation)
    yield from _uncovered(log, at, until)


def _uncovered(log: OffsetsOfPartition, start: int, until: int) -> Iterator[Stretch]:
    """As `stretches`, of offsets in no window at all."""
    edges = [log.start, *log.asked_for, *(edge for pair in (*log.lost, *log.skipped) for edge in pair)]
    inside = sorted({start, until, *(edge for edge in edges if start < edge < until)})
    for low, high in pairwise(inside):
        yield Stretch(low, high, _without_window(log, low), None)


def _without_window(log: OffsetsOfPartition, offset: int) -> OffsetState:
    if _holds(log.lost, offset):
        return OffsetState.LOST
    if _holds(log.skipped, offset):
        return OffsetState.SKIPPED
    if offset < log.start:
        return OffsetState.EXPIRED
    begin, position = log.asked_for
    if offset >= position:
        return OffsetState.UNREAD
    return OffsetState.HOLE if offset >= begin else OffsetState.BEFORE


def _holds(intervals: Sequence[Interval], offset: int) -> bool:
    at = bisect_right(intervals, offset, key=lambda pair: pair[0]) - 1
    return at >= 0 and offset < intervals[at][1]


def pixel_offsets(start: int, until: int, width: int, pixel: int) -> int:
    """The first offset of a pixel of a bar that shows [start, until)."""
    return start + (until - start) * pixel // width


def bar(stretches: Iterable[Stretch], start: int, until: int, width: int) -> list[Block]:
    """The blocks of a bar of at most `width` pixels that shows [start, until), from left to right.

    A bar of fewer offsets has one pixel for each. Blocks that only differ in their windows stay apart where each is wide
    enough to be pointed at.
    """
    offsets = until - start
    if offsets <= 0:
        return []
    width = min(width, offsets)
    blocks: list[_Building] = []
    pixel = 0
    inside: list[Stretch] = []
    waiting = iter(stretches)
    following = next(waiting, None)
    while pixel < width:
        low, high = pixel_offsets(start, until, width, pixel), pixel_offsets(start, until, width, pixel + 1)
        inside = [one for one in inside if one.until > low]
        while following is not None and following.start < high:
            inside.append(following)
            following = next(waiting, None)
        state = inside[0].state if len(inside) == 1 else min((one.state for one in inside), key=_ORDER.__getitem__)
        shown = inside if len(inside) == 1 else [one for one in inside if one.state == state]
        if len(shown) == 2 and shown[1].until > high:
            # The border of two windows: the second one is seen in the next pixel.
            shown = shown[:1]
        # The last of the pixels that one stretch fills, or the next one.
        last = ((inside[0].until - start + 1) * width - 1) // offsets if len(inside) == 1 else pixel + 1
        _append(blocks, _Building(pixel, last, state, shown))
        pixel = last
    return [one.block() for one in blocks]


class _Building:
    """A block that may grow to the right."""

    __slots__ = ("first", "found", "last", "state")

    def __init__(self, first: int, last: int, state: OffsetState, found: list[Stretch]) -> None:
        self.first, self.last, self.state, self.found = first, last, state, found

    def block(self) -> Block:
        stretches = set(self.found)
        windows = {one.window for one in stretches if one.window is not None}
        only = next(iter(windows)) if len(windows) == 1 else None
        start, until = self.found[0].start, self.found[-1].until
        return Block(self.first, self.last, self.state, start, until, len(stretches), only, len(windows))


def _append(blocks: list[_Building], one: _Building) -> None:
    """Add a block, as a part of the last one if both look the same and either is too narrow to be pointed at."""
    last = blocks[-1] if blocks else None
    if last is not None and last.state == one.state:
        same = len(last.found) == len(one.found) == 1 and last.found == one.found
        if same or min(last.last - last.first, one.last - one.first) < _POINTED_AT:
            last.last = one.last
            if not same:
                last.found += one.found
            return
    blocks.append(one)
