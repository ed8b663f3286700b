"""Which windows stored a coordinate, found without reading the history.

There is no index: a lane's positions never fall, so the first window behind which the position is above an offset is the
one that read it, or the one that jumped over it. It is searched among the lane's numbered records, many at each step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark.coordinates import Coordinate
from tidemark.errors import LedgerContradiction
from tidemark.ledger.book import Book, Stored
from tidemark.ledger.records import Gap, Head, LaneEntry, LaneState, Position, Record, WindowRange

# Records of a lane that are read at once: each read leaves a 17th of its windows, so that four are enough for 83,520.
# Guessing from the offsets would read fewer records of a calm stream, and ask far more often after one burst.
_AT_ONCE = 16
# Lanes that are searched at once: 256 records, mostly below a megabyte.
_LANES_AT_ONCE = 16


@dataclass(frozen=True)
class Found:
    """What the ledger says of one coordinate: the committed windows that cover it, the newest first, and who jumped over it."""

    windows: tuple[Record, ...]
    gaps: tuple[tuple[Record, Gap], ...]

    @property
    def generation(self) -> int | None:
        """The coordinate's authority; None where no committed window covers it."""
        return self.windows[0].attempt.generation if self.windows else None


def look_up(book: Book, place: Coordinate) -> Found:
    """The windows that cover a coordinate: all that were committed when this began, and perhaps newer ones.

    One read for the register, one for the heads, one for each selection with holes that has the coordinate between its ends,
    and a few for the history; all of it only up to a window that kept no positions.
    Raises LedgerContradiction when a head or a record is missing.
    """
    register = book.register()
    lanes: Mapping[str, LaneEntry] = register[1].lanes if register else {}
    heads = _heads(book, lanes)
    claiming = [lane for lane, entry in lanes.items() if _claims(book, entry, place)]
    passing = _passing(book, _searches(lanes, heads, claiming, place), place)
    passing |= {(one.lane, one.seq): one for stored in heads.values() for one in _unpositioned(book, stored.head)}
    windows, gaps = [], []
    for (lane, _), record in passing.items():
        if any(_holds(one, place) for one in record.window.ranges) and _selects(book, lanes[lane], record, place):
            windows.append(record)
        gaps += [(record, gap) for gap in record.window.gaps if _holds(gap, place)]
    return Found(tuple(sorted(windows, key=lambda one: -one.attempt.generation)), tuple(gaps))


# which lanes


def _claims(book: Book, entry: LaneEntry, place: Coordinate) -> bool:
    """Whether a lane is to read a coordinate: by the register alone, where that says enough."""
    starts = {position.at: position.offset for position in entry.start}
    if place.offset < starts.get(place.partition, 0):
        return False
    if entry.selection is None:
        return True
    ends = {position.at: until for position, until in zip(entry.start, entry.until, strict=False)}
    if ends and place.offset >= ends.get(place.partition, 0):
        return False
    return _is_whole(entry) or (place.partition, place.offset) in book.selection(entry.selection)


def _is_whole(entry: LaneEntry) -> bool:
    """Whether a lane's selection has no holes: then its start and end are all that there is to know of it."""
    between = sum(until - position.offset for position, until in zip(entry.start, entry.until, strict=False))
    return entry.selection is not None and between == entry.selection.offsets


def _selects(book: Book, entry: LaneEntry, record: Record, place: Coordinate) -> bool:
    selection = record.window.selection
    if selection is None or (selection == entry.selection and _is_whole(entry)):
        return True
    return (place.partition, place.offset) in book.selection(selection)


def _holds(part: WindowRange | Gap, place: Coordinate) -> bool:
    one = part.as_range()
    return one.partition == place.partition and one.start <= place.offset < one.until


# which window of a lane


@dataclass
class _Search:
    """What is left to search of one lane: the windows between `before` and `behind`. `record` is that of `behind`."""

    lane: str
    before: int
    behind: int
    record: Record | None

    def next(self) -> list[tuple[str, int]]:
        """The windows to read next: all that are left, or as many as are read at once, evenly spread."""
        distance = self.behind - self.before
        steps = min(distance - 1, _AT_ONCE)
        return [(self.lane, self.before + distance * step // (steps + 1)) for step in range(1, steps + 1)]

    def learn(self, record: Record, place: Coordinate) -> None:
        if not _is_past(record.positions, place):
            self.before = max(self.before, record.seq)
        elif record.seq < self.behind:
            self.behind, self.record = record.seq, record


def _passing(book: Book, found: Iterable[_Search], place: Coordinate) -> dict[tuple[str, int], Record]:
    """Of each lane the window that moved its position over a coordinate, by reading or by jumping; none if none has yet."""
    searches = {search.lane: search for search in found}
    while wanted := [search for search in searches.values() if search.next()]:
        for record in book.records([one for search in wanted[:_LANES_AT_ONCE] for one in search.next()]):
            searches[record.lane].learn(record, place)
    return {(lane, search.record.seq): search.record for lane, search in searches.items() if search.record is not None}


def _heads(book: Book, lanes: Mapping[str, LaneEntry]) -> dict[str, Stored]:
    """The heads of the lanes that are not known to be closed: of those that are, all windows are in the history."""
    names = [lane for lane, entry in lanes.items() if entry.windows is None]
    heads = book.heads_of(names)
    for lane in names:
        if lane not in heads and lanes[lane].state != LaneState.OPENING:
            raise LedgerContradiction(
                f"the head of {book.stream}/{lane} is missing, although the register says that the lane is "
                f"{lanes[lane].state.value}. Restore it from a backup of the ledger."
            )
    return heads


def _searches(
    lanes: Mapping[str, LaneEntry], heads: Mapping[str, Stored], claiming: Iterable[str], place: Coordinate
) -> Iterator[_Search]:
    for lane in claiming:
        windows = lanes[lane].windows
        if windows is not None:
            yield _Search(lane, 0, windows + 1, None)
        elif lane in heads and _is_past(heads[lane].head.positions, place):
            yield _Search(lane, 0, heads[lane].head.seq, heads[lane].head.last)


def _unpositioned(book: Book, head: Head) -> Iterator[Record]:
    """The windows of a lane up to the last one that moved no position: positions do not lead to these."""
    if not head.unpositioned:
        return
    yield from (record for record in book.records_of(head.lane) if record.seq <= head.unpositioned)
    if head.last is not None and head.last.seq == head.unpositioned:
        yield head.last


def _is_past(positions: Sequence[Position], place: Coordinate) -> bool:
    return any(position.at == place.partition and position.offset > place.offset for position in positions)
