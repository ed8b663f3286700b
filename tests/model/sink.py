"""Where attempts put their rows: a table by coordinate, and folders by window that a compaction replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from tidemark.errors import Fenced
from tidemark.ledger.erasures import WrittenPlace
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compactions import CompactedFolder, spans
from tidemark.sinks.parquet.parts import FolderPart, parts, steady
from tidemark.sinks.reading import hbase_rows
from tidemark.sinks.stored_rows import Place

# (topic, incarnation, partition, offset)
Coordinate = tuple[str, int, int, int]
# Of a window: (lane, number, generation); of a compaction: ("compacted", number, generation).
FolderName = tuple[str, int, int]
SINK = "files"
TABLE = "hbase"
BASE = "base"


@dataclass(frozen=True)
class Row:
    """What an attempt made of one message. `at` is the number of the call that wrote it."""

    message: int
    at: int


@dataclass(frozen=True)
class Stored:
    """A row that a reader was given, as `StoredRow` of the product: without fields, which it only counts."""

    place: Place
    message: int
    fields: dict[str, bytes] = field(default_factory=dict)


Send = Callable[[Callable[[], object]], None]


class Results:
    """Everything that all attempts have written.

    `changing` is called before each change, and `removing` with each row that is about to be swept.
    """

    def __init__(self) -> None:
        self.rows: dict[Coordinate, dict[int, Row]] = {}
        self.folders: dict[FolderName, dict[tuple[Coordinate, int], int]] = {}
        # What each attempt has made of each message, wherever it has written that.
        self.made: dict[tuple[Coordinate, int], int] = {}
        self.changing: Callable[[], None] = lambda: None
        self.removing: Callable[[Coordinate, int], None] = lambda coordinate, generation: None

    def write(self, rows: Mapping[Coordinate, Row], generation: int) -> None:
        self.changing()
        for coordinate, row in rows.items():
            self.rows.setdefault(coordinate, {})[generation] = row
            self.made[coordinate, generation] = row.message

    def write_folder(self, name: FolderName, rows: dict[tuple[Coordinate, int], int]) -> None:
        self.changing()
        self.folders[name] = rows
        self.made |= rows

    def remove_folder(self, name: FolderName) -> None:
        self.changing()
        self.folders.pop(name, None)

    def sweep(self, covers: RangeSet, generation: int) -> None:
        """Remove what is older than a generation, as the sink `hbase` does."""
        self.changing()
        for coordinate in coordinates(covers):
            found = self.rows.get(coordinate, {})
            for older in [one for one in found if one < generation]:
                self.removing(coordinate, older)
                del found[older]

    def sweep_folders(self, lane: str, seq: int, generation: int) -> None:
        """Remove the folders of older attempts at a window, as the sink `parquet` does."""
        for name in [name for name in self.folders if name[:2] == (lane, seq) and name[2] < generation]:
            self.remove_folder(name)


class Sweeper:
    """The sweeps of one actor: each removal is a write, at which it may die."""

    def __init__(self, results: Results, send: Send) -> None:
        self._results = results
        self._send = send

    def reach(self, stream: str, places: Sequence[WrittenPlace]) -> None: ...

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
        generation = record.attempt.generation
        # As the product does: only what the receipt names, which are the sinks that the window has written.
        for at in covers.partitions if record.window.counts_for(TABLE) else ():
            self._send(lambda at=at: self._results.sweep(covers.only([at]), generation))
        self._send(lambda: self._results.sweep_folders(record.lane, record.seq, generation))

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None:
        generation = record.attempt.generation
        self._send(lambda: self._results.sweep(erased, generation))


class Table:
    """The rows as `hbase_rows` asks for them."""

    def __init__(self, results: Results) -> None:
        self._results = results

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, Stored | None]]:
        at = wanted.partition
        for coordinate in coordinates([wanted]):
            found = self._results.rows.get(coordinate)
            if found:
                place = Place(at, coordinate[3], 0)
                generation = authority.of(at, coordinate[3])
                row = None if generation is None else found.get(generation)
                yield place, row and Stored(place, row.message)


def rows_that_count(ledger: Ledger, results: Results) -> dict[Coordinate, int]:
    """What the product's reader gives: the message at each coordinate."""
    found: dict[Coordinate, int] = {}
    rows: Iterable[Any] = hbase_rows(ledger, cast("Any", Table(results)), TABLE)
    for row in rows:
        coordinate = _of(row.place.partition, row.place.offset)
        assert coordinate not in found, f"a reader was given {coordinate} twice"
        found[coordinate] = row.message
    return found


def rows_in_folders(ledger: Ledger, results: Results) -> dict[Coordinate, int]:
    """The same from the folders, as the product finds them."""

    def read(found: list[FolderPart], authority: Authority) -> dict[Coordinate, int]:
        rows: dict[Coordinate, int] = {}
        for part in found:
            for (coordinate, generation), message in held_by(results, part, authority).items():
                assert coordinate not in rows, f"a reader of folders was given {coordinate} twice"
                rows[coordinate] = message
                assert authority.of(*_at(coordinate)) == generation
        return rows

    return steady(ledger, SINK, read)


def held_by(results: Results, part: FolderPart, authority: Authority) -> dict[tuple[Coordinate, int], int]:
    """The rows of a folder that count. Raises KeyError where the folder is gone, as a reader of files does."""
    if all(not (window.covers - part.lost.get(window.generation, RangeSet())) for window in part.windows):
        return {}
    rows = results.folders[name_of(part.folder)]
    return {key: message for key, message in rows.items() if authority.of(*_at(key[0])) == key[1]}


def compact(ledger: Ledger, results: Results, run: str, send: Send, *, again: bool) -> str | None:
    """A compaction as the job does it; gives the folder that it has made, None where there was nothing to do."""
    held = compactions.claim(ledger, SINK, run)
    generation = held.value.claim.generation
    view = ledger.view(SINK)
    chosen = [one for one in parts(view.windows, view.authority, SINK, held.value) if again or not one.compacted]
    made = None
    if len(chosen) > 1:
        name = ("compacted", 1, generation)
        try:
            rows = {key: row for part in chosen for key, row in held_by(results, part, view.authority).items()}
        except KeyError:
            compactions.check_held(ledger, held)
            raise
        send(lambda: results.write_folder(name, rows))
        windows = spans(name for part in chosen for name in part.names)
        folder = CompactedFolder(
            base=BASE,
            folder=folder_of(name),
            generation=generation,
            windows=windows,
            rows=len(rows),
            run=run,
            at=ledger.clock(),
        )
        try:
            held = compactions.replace(ledger, held, folder)
        except Fenced:
            found = compactions.find(ledger, SINK)
            names = [one.folder for one in found.value.folders] if found else []
            assert folder.folder not in names, "a compaction was told that it was fenced, and its folder counts"
            raise
        made = folder.folder
    for name in _replaced(ledger, results, held.value, generation):
        send(lambda name=name: results.remove_folder(name))
    compactions.finish(ledger, held)
    return made


def _replaced(ledger: Ledger, results: Results, known: compactions.Compactions, generation: int) -> list[FolderName]:
    """As `compacting.remove_replaced`: the folders of windows that were replaced, and what died compactions have left."""
    held = {name for one in known.folders for name in one.names()}
    named = {one.folder for one in known.folders}
    return [
        name
        for name in results.folders
        if name[:2] in held or (name[0] == "compacted" and name[2] < generation and folder_of(name) not in named)
    ]


def folder_of(name: FolderName) -> str:
    return "/".join(map(str, name))


def name_of(folder: str) -> FolderName:
    lane, seq, generation = folder.split("/")
    return lane, int(seq), int(generation)


def coordinates(ranges: Iterable[OffsetRange]) -> Iterator[Coordinate]:
    for one in ranges:
        for offset in range(one.start, one.until):
            yield _of(one.partition, offset)


def _of(at: TopicPartition, offset: int) -> Coordinate:
    return at.topic, at.incarnation, at.partition, offset


def _at(coordinate: Coordinate) -> tuple[TopicPartition, int]:
    topic, incarnation, partition, offset = coordinate
    return TopicPartition(topic, partition, incarnation), offset
