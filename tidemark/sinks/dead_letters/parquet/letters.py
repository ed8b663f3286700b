"""Dead letters in Parquet files, to read from.

    BASE/_tidemark_owner.json
    BASE/lane=LANE/seq=NUMBER/generation=GENERATION/part-*.parquet

An attempt that has dead letters writes one folder. Generations are one rising counter for each stream, so the generation that
counts at an offset names the folder with its dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.clients.connections import Connections
from tidemark.clients.object_stores import Access, access_to, note_folder
from tidemark.errors import LedgerContradiction, Unreachable
from tidemark.ledger.book import Book
from tidemark.offsets.authority import Authority
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.dead_letters.parquet.settings import ParquetDeadLetters
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.files import AttemptFolder
from tidemark.sinks.stored import Mark, Place, StoredRow

_PLACE = ("_topic", "_incarnation", "_partition", "_offset")
# About how many bytes of dead letters are in memory at once.
_AT_ONCE_BYTES = 16 << 20


def open_letters(settings: ParquetDeadLetters, book: Book, connections: Connections) -> LettersInParquet:
    return LettersInParquet(settings.sink.base(connections), book)


@dataclass(frozen=True)
class _File:
    """A file, the offsets of its dead letters by partition, and how many bytes one of them has on average."""

    path: str
    offsets: Mapping[TopicPartition, frozenset[int]]
    average: int


class LettersInParquet(DeadLetters):
    """The dead letters below a base folder. Each reader knows the files that it has met; those of a window never change,

    except where offsets were erased.
    """

    def __init__(self, base: str, book: Book, fields: tuple[str, ...] = FIELDS) -> None:
        self._base = base
        self._book = book
        self._fields = fields
        self._known = _Known()

    def __reduce__(self) -> Any:
        # What was met stays here: a worker meets other files. It has no stream file, so it is given the key to the folder.
        return _elsewhere, (self._base, self._book, self._fields, access_to(self._base))

    def only(self, fields: Iterable[str]) -> LettersInParquet:
        return LettersInParquet(self._base, self._book, tuple(fields))

    def owner(self) -> Mapping[str, Any]:
        return files.owner(self._base)

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        """As `DeadLetters.rows`. Without debris: a folder of which nothing counts is not opened.

        Raises Unreachable, also where the folder is not there although windows have named it.
        """
        there: list[tuple[int, AttemptFolder, _File]] = []
        attempts: dict[int, AttemptFolder] | None = None
        for segment in authority.within(wanted):
            if attempts is None:
                attempts = self._attempts(authority)
            if (attempt := attempts.get(segment.generation)) is None:
                continue
            for file in self._files(attempt):
                offsets = file.offsets.get(wanted.partition, frozenset())
                there += [(one, attempt, file) for one in offsets if segment.start <= one < segment.until]
        there.sort(key=lambda one: one[0])
        while there:
            number = max(1, _AT_ONCE_BYTES // max(file.average for _, _, file in there))
            yield from self._read(wanted.partition, there[:number])
            there = there[number:]

    def _attempts(self, authority: Authority) -> dict[int, AttemptFolder]:
        """The folders by generation. What counts by an authority was written before: one listing is enough for it."""
        if self._known.listed_for is not authority:
            if not self.owner():
                self._check_never_written()
            self._known.attempts = {one.generation: one for one in files.on_disk(self._base)}
            self._known.listed_for = authority
        return self._known.attempts

    def _check_never_written(self) -> None:
        """Raises Unreachable where windows have written there. A disk that is not mounted looks like an empty folder."""
        if any(place.place.get("base") == self._base for one in self._book.committed() for place in one.record.places):
            raise Unreachable(
                f"{self._base} is not there, and windows have dead letters in it; its disk may not be mounted"
            )

    def _files(self, attempt: AttemptFolder) -> list[_File]:
        if attempt.generation not in self._known.files:
            self._known.files[attempt.generation] = [
                _file(filesystem, path)
                for filesystem, path in files.of_attempt(attempt.folder)
                if filesystem.get_file_info(path).type == fs.FileType.File
            ]
        return self._known.files[attempt.generation]

    def _read(
        self, at: TopicPartition, there: list[tuple[int, AttemptFolder, _File]]
    ) -> Iterator[tuple[Place, StoredRow | None]]:
        wanted: dict[str, tuple[AttemptFolder, set[int]]] = {}
        for offset, attempt, file in there:
            wanted.setdefault(file.path, (attempt, set()))[1].add(offset)
        found: list[tuple[Place, StoredRow]] = []
        for path, (attempt, offsets) in wanted.items():
            for row in self._rows_of(path, at, offsets):
                mark = Mark(
                    attempt.generation, unsigned(row["_digest"]), attempt.lane, attempt.seq, bool(row["_tombstone"])
                )
                contents = {name: row[name] for name in self._fields if row[name] is not None}
                place = Place(at, row["_offset"], row["_index"])
                found.append((place, StoredRow(place, mark, contents)))
        yield from sorted(found, key=lambda one: one[0].offset)

    def _rows_of(self, path: str, at: TopicPartition, offsets: set[int]) -> Iterator[dict[str, Any]]:
        chosen = (
            (pc.field("_topic") == at.topic)
            & (pc.field("_incarnation") == at.incarnation)
            & (pc.field("_partition") == at.partition)
            & (pc.field("_offset") >= min(offsets))
            & (pc.field("_offset") <= max(offsets))
        )
        columns = ["_offset", "_index", "_digest", "_tombstone", *self._fields]
        with folders.opened(self._base) as (filesystem, _):
            try:
                table = pq.read_table(path, columns=columns, filters=chosen, filesystem=filesystem, partitioning=None)
            except FileNotFoundError:
                # What was erased meanwhile counts no more, and readers ask again.
                return
            except pa.ArrowException as problem:
                raise LedgerContradiction(f"{path} cannot be read: {problem}") from problem
        table = table.filter(pc.is_in(table.column("_offset"), value_set=pa.array(offsets, pa.int64())))
        # A message may hold any bytes, which need not be a text.
        exact = [(one.name, one.type if one.name.startswith("_") else pa.binary()) for one in table.schema]
        yield from table.cast(pa.schema(exact)).to_pylist()


def _elsewhere(base: str, book: Book, fields: tuple[str, ...], access: Access | None) -> LettersInParquet:
    if access is not None:
        note_folder(base, access)
    return LettersInParquet(base, book, fields)


@dataclass
class _Known:
    """What a reader has met."""

    listed_for: Authority | None = None
    attempts: dict[int, AttemptFolder] = field(default_factory=dict)
    files: dict[int, list[_File]] = field(default_factory=dict)


def _file(filesystem: fs.FileSystem, path: str) -> _File:
    try:
        with filesystem.open_input_file(path) as opened:
            file = pq.ParquetFile(opened)
            groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
            places = file.read(columns=list(_PLACE)).to_pydict()
    except pa.ArrowException as problem:
        raise LedgerContradiction(f"{path} cannot be read: {problem}") from problem
    found: dict[TopicPartition, set[int]] = {}
    for topic, incarnation, partition, offset in zip(*(places[name] for name in _PLACE), strict=True):
        found.setdefault(TopicPartition(topic, partition, incarnation), set()).add(offset)
    rows = max(1, file.metadata.num_rows)
    average = max(1, sum(one.total_byte_size for one in groups) // rows)
    return _File(path, {at: frozenset(offsets) for at, offsets in found.items()}, average)
