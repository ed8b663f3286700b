"""Which windows stored a coordinate, found without reading the history.

There is no index. A lane's positions never fall. So the first window that moved the position past an offset has read that
offset, or has jumped over it. A search among the lane's numbered records finds that window, reading many at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.errors import LedgerContradiction
from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.ledger import REMEDY, Ledger, StoredHead
from tidemark.ledger.records import Gap, Head, LaneEntry, LaneState, Position, Record, WindowRange
from tidemark.offsets.coordinates import Coordinate

# Records of a lane that are read at once. Each read leaves a 17th of the lane's windows: four reads search 83,520.
# Guessing from the offsets would read fewer records of a calm stream, but take far more reads after one burst.
_AT_ONCE = 16
# Lanes that are searched at once: 256 records, usually less than a megabyte.
_LANES_AT_ONCE = 16


@dataclass(frozen=True)
class CoveringWindows:
    """The committed windows that cover one coordinate, the newest first, and the gaps that contain it.

    Some of the windows may have written some sinks alone.
    """

    windows: tuple[Record, ...]
    gaps: tuple[tuple[Record, Gap], ...]

    @property
    def generation(self) -> int | None:
        """The coordinate's own authority; None when no committed window covers the coordinate."""
        record = self.counting()
        return record.attempt.generation if record is not None else None

    @property
    def generations(self) -> tuple[int, ...]:
        return tuple(window.attempt.generation for window in self.windows)

    def counting(self, sink: str | None = None) -> Record | None:
        """The window that counts in a sink. Without a sink: for the coordinate itself, and for the dead letters.

        None when no committed window covers the coordinate.
        """
        return next((record for record in self.windows if record.window.counts_for(sink)), None)


def look_up(ledger: Ledger, place: Coordinate) -> CoveringWindows:
    """The windows that cover a coordinate: all that were committed when the search began, and perhaps newer ones.

    Takes one read for the register, one for the heads, and one per some thousand closed lanes. Selections with holes
    around the coordinate take one read per 64, and one more if they are in pieces; the history takes a few. A lane's
    history up to a window without positions is read whole.
    Raises LedgerContradiction when a head or a record is missing.
    """
    register = ledger.register()
    if register is None:
        return CoveringWindows((), ())
    lanes = dict(register[1].lanes)
    for part in closed_lanes(ledger, register[1]):
        lanes |= {lane: entry for lane, entry in part.items() if _may_claim(entry, place)}
    heads = heads_of_open(ledger, lanes)
    within = {lane: entry for lane, entry in lanes.items() if _may_claim(entry, place)}
    scattered = {lane: entry.selection for lane, entry in within.items() if not _is_whole(entry)}
    holding = ledger.holding(scattered.values(), place)
    claiming = [lane for lane in within if (ref := scattered.get(lane)) is None or ref.digest in holding]
    passing = _passing(ledger, _searches(lanes, heads, claiming, place), place)
    passing |= {
        (record.lane, record.seq): record for stored in heads.values() for record in unpositioned(ledger, stored.head)
    }
    windows, gaps = [], []
    for (lane, _), record in passing.items():
        if any(_holds(range_, place) for range_ in record.window.ranges) and _selects(
            ledger, lanes[lane], record, place
        ):
            windows.append(record)
        gaps += [(record, gap) for gap in record.window.gaps if _holds(gap, place)]
    return CoveringWindows(tuple(sorted(windows, key=lambda record: -record.attempt.generation)), tuple(gaps))


# which lanes


def _may_claim(entry: LaneEntry, place: Coordinate) -> bool:
    """Whether a lane's entry allows that its selection has a coordinate: start and end lie around the coordinate."""
    starts = {position.at: position.offset for position in entry.start}
    if place.offset < starts.get(place.partition, 0):
        return False
    if entry.selection is None:
        return True
    ends = {position.at: until for position, until in zip(entry.start, entry.until, strict=False)}
    return not ends or place.offset < ends.get(place.partition, 0)


def _is_whole(entry: LaneEntry) -> bool:
    """Whether a lane's selection has no holes: then its start and end describe all of it."""
    between = sum(until - position.offset for position, until in zip(entry.start, entry.until, strict=False))
    return entry.selection is not None and between == entry.selection.offsets


def _selects(ledger: Ledger, entry: LaneEntry, record: Record, place: Coordinate) -> bool:
    selection = record.window.selection
    if selection is None or (selection == entry.selection and _is_whole(entry)):
        return True
    return bool(ledger.holding([selection], place))


def _holds(part: WindowRange | Gap, place: Coordinate) -> bool:
    range_ = part.as_range()
    return range_.partition == place.partition and range_.start <= place.offset < range_.until


# which window of a lane


@dataclass
class _WindowSearch:
    """The windows of one lane that are left to search: those between `before` and `behind`. `record` is that of `behind`."""

    lane: str
    before: int
    behind: int
    record: Record | None

    def next(self) -> list[tuple[str, int]]:
        """The windows to read next: all that are left, or _AT_ONCE of them, evenly spread."""
        distance = self.behind - self.before
        steps = min(distance - 1, _AT_ONCE)
        return [(self.lane, self.before + distance * step // (steps + 1)) for step in range(1, steps + 1)]

    def learn(self, record: Record, place: Coordinate) -> None:
        if not _is_past(record.positions, place):
            self.before = max(self.before, record.seq)
        elif record.seq < self.behind:
            self.behind, self.record = record.seq, record


def _passing(ledger: Ledger, open_: Iterable[_WindowSearch], place: Coordinate) -> dict[tuple[str, int], Record]:
    """The window of each lane that moved its position over a coordinate, by reading or by jumping, if there is one."""
    searches = {search.lane: search for search in open_}
    while wanted := [search for search in searches.values() if search.next()]:
        for record in ledger.records([key for search in wanted[:_LANES_AT_ONCE] for key in search.next()]):
            searches[record.lane].learn(record, place)
    return {(lane, search.record.seq): search.record for lane, search in searches.items() if search.record is not None}


def heads_of_open(ledger: Ledger, lanes: Mapping[str, LaneEntry]) -> dict[str, StoredHead]:
    """The heads of the lanes that are not closed. The history has all windows of the closed lanes."""
    names = [lane for lane, entry in lanes.items() if entry.windows is None]
    heads = ledger.heads_of(names)
    for lane in names:
        if lane not in heads and lanes[lane].state != LaneState.OPENING:
            raise LedgerContradiction(
                f"the head of {ledger.stream}/{lane} is missing, although the register says that the lane is "
                f"{lanes[lane].state.value}. {REMEDY}."
            )
    return heads


def _searches(
    lanes: Mapping[str, LaneEntry], heads: Mapping[str, StoredHead], claiming: Iterable[str], place: Coordinate
) -> Iterator[_WindowSearch]:
    for lane in claiming:
        windows = lanes[lane].windows
        if windows is not None:
            yield _WindowSearch(lane, 0, windows + 1, None)
        elif lane in heads and _is_past(heads[lane].head.positions, place):
            yield _WindowSearch(lane, 0, heads[lane].head.seq, heads[lane].head.last)


def unpositioned(ledger: Ledger, head: Head) -> Iterator[Record]:
    """The windows of a lane up to the last one that moved no position. A search by positions cannot find these."""
    if not head.unpositioned:
        return
    yield from (record for record in ledger.records_of(head.lane) if record.seq <= head.unpositioned)
    if head.last is not None and head.last.seq == head.unpositioned:
        yield head.last


def _is_past(positions: Sequence[Position], place: Coordinate) -> bool:
    return any(position.at == place.partition and place.offset < position.offset for position in positions)
