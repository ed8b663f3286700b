"""Dead letters in Parquet files, to read from.

    BASE/_tidemark_owner.json
    BASE/lane=LANE/seq=NUMBER/generation=GENERATION/part-*.parquet

An attempt that has dead letters writes one folder. Generations are one rising counter for each stream, so the generation that
counts at an offset names the folder with its dead letter.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.clients.connections import Connections
from tidemark.clients.object_stores import Access, access_to, note_folder
from tidemark.errors import LedgerContradiction, Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.offsets.authority import Authority
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.types.fields import FieldType

# The fields have whatever bytes a message has, or texts.
TYPES: dict[str, FieldType] = {name: "binary" if name in ("key", "value") else "string" for name in FIELDS}
_PLACE = ("_topic", "_incarnation", "_partition", "_offset")
# About how many bytes of dead letters are in memory at once.
_AT_ONCE_BYTES = 16 << 20


def open_letters(place: Mapping[str, str], ledger: Ledger, _connections: Connections) -> LettersInParquet:
    return LettersInParquet(place["base"], ledger)


@dataclass(frozen=True)
class _LetterFile:
    """A file, the offsets of its dead letters by partition, and how many bytes one of them has on average."""

    path: str
    offsets: Mapping[TopicPartition, frozenset[int]]
    average: int


class LettersInFiles(DeadLetters):
    """The dead letters in files below a base folder. Each reader knows the files that it has met.

    A file never changes, except that erased rows leave it.
    """

    # Columns, besides the fields, from which `_window_of` takes the window of a dead letter.
    window_columns: tuple[str, ...] = ()

    def __init__(self, base: str, ledger: Ledger, fields: tuple[str, ...] = FIELDS) -> None:
        self._base = base
        self.ledger = ledger
        self._fields = fields
        self._known = _Known()

    def __reduce__(self) -> Any:
        # What was met stays here: a worker meets other files. It has no stream file, so it is given the key to the folder.
        return _elsewhere, (type(self), self._base, self.ledger, self._fields, access_to(self._base))

    def only(self, fields: Iterable[str]) -> LettersInFiles:
        return type(self)(self._base, self.ledger, tuple(fields))

    @abstractmethod
    def owner(self) -> Mapping[str, Any]: ...

    @abstractmethod
    def _listed(self) -> Mapping[int, list[str]]:
        """The files of each attempt there, by its generation, as readers of Parquet take them."""

    @abstractmethod
    def _window_of(self, file: str, row: Mapping[str, Any]) -> tuple[str, int]:
        """The lane and the number of the window that has written a dead letter."""

    def _gone(self, file: str) -> str | None:
        """Where a file is now that was listed, and is gone from there; None if it was erased. Then readers ask again."""
        return None

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        """As `DeadLetters.rows`. Without debris: a file of which nothing counts is not opened.

        Raises Unreachable, and so if the folder is not there although windows have named it.
        """
        there: list[tuple[int, int, _LetterFile]] = []
        attempts: Mapping[int, list[str]] | None = None
        for segment in authority.within(wanted):
            if attempts is None:
                attempts = self._attempts(authority)
            for path in attempts.get(segment.generation, ()):
                file = self._file(path)
                offsets = file.offsets.get(wanted.partition, frozenset())
                there += [
                    (offset, segment.generation, file) for offset in offsets if segment.start <= offset < segment.until
                ]
        there.sort(key=lambda entry: entry[0])
        while there:
            number = max(1, _AT_ONCE_BYTES // max(file.average for _, _, file in there))
            yield from self._read(wanted.partition, there[:number])
            there = there[number:]

    def _attempts(self, authority: Authority) -> Mapping[int, list[str]]:
        """The files by generation. What counts by an authority was written before: one listing is enough for it."""
        if self._known.listed_for is not authority:
            if not self.owner():
                self._check_never_written()
            self._known.attempts = self._listed()
            self._known.listed_for = authority
        return self._known.attempts

    def _check_never_written(self) -> None:
        """Raises Unreachable where windows have written there. A disk that is not mounted looks like an empty folder."""
        if any(
            place.place.get("base") == self._base
            for window in self.ledger.committed()
            for place in window.record.places
        ):
            raise Unreachable(
                f"{self._base} is not there, and windows have dead letters in it; its disk may not be mounted"
            )

    def _file(self, path: str) -> _LetterFile:
        if path not in self._known.files:
            self._known.files[path] = self._met(path)
        return self._known.files[path]

    def _met(self, file: str) -> _LetterFile:
        with folders.opened(file) as (filesystem, path):
            try:
                with filesystem.open_input_file(path) as opened:
                    return _described(file, pq.ParquetFile(opened))
            except FileNotFoundError:
                now = self._gone(file)
                return _LetterFile(file, {}, 1) if now is None else self._met(now)
            except pa.ArrowException as problem:
                raise LedgerContradiction(f"{file} cannot be read: {problem}") from problem

    def _read(
        self, at: TopicPartition, there: list[tuple[int, int, _LetterFile]]
    ) -> Iterator[tuple[Place, StoredRow | None]]:
        wanted: dict[str, tuple[int, set[int]]] = {}
        for offset, generation, file in there:
            wanted.setdefault(file.path, (generation, set()))[1].add(offset)
        letters: list[tuple[Place, StoredRow]] = []
        for path, (generation, offsets) in wanted.items():
            for row in self._rows_of(path, at, offsets):
                mark = Mark(generation, unsigned(row["_digest"]), *self._window_of(path, row), bool(row["_tombstone"]))
                contents = {name: row[name] for name in self._fields if row[name] is not None}
                place = Place(at, row["_offset"], row["_index"])
                letters.append((place, StoredRow(place, mark, contents)))
        yield from sorted(letters, key=lambda letter: letter[0].offset)

    def _rows_of(self, file: str, at: TopicPartition, offsets: set[int]) -> Iterator[dict[str, Any]]:
        chosen = (
            (pc.field("_topic") == at.topic)
            & (pc.field("_incarnation") == at.incarnation)
            & (pc.field("_partition") == at.partition)
            & (pc.field("_offset") >= min(offsets))
            & (pc.field("_offset") <= max(offsets))
        )
        columns = ["_offset", "_index", "_tombstone", "_digest", *self.window_columns, *self._fields]
        with folders.opened(file) as (filesystem, path):
            try:
                plain = files.uniform(files.dataset_at(filesystem, path))
                table = plain.to_table(columns=columns, filter=chosen)
            except FileNotFoundError:
                if (now := self._gone(file)) is not None:
                    yield from self._rows_of(now, at, offsets)
                return
            except pa.ArrowException as problem:
                raise LedgerContradiction(f"{file} cannot be read: {problem}") from problem
        table = table.filter(pc.is_in(table.column("_offset"), value_set=pa.array(offsets, pa.int64())))
        # A message may hold any bytes, which need not be a text.
        exact = [
            (column.name, pa.binary() if pa.types.is_string(column.type) else column.type) for column in table.schema
        ]
        yield from table.cast(pa.schema(exact)).to_pylist()


class LettersInParquet(LettersInFiles):
    """The dead letters in the folders of attempts."""

    def owner(self) -> Mapping[str, Any]:
        return files.owner(self._base)

    def _listed(self) -> Mapping[int, list[str]]:
        return {one.generation: paths for one, paths in files.by_attempt(self._base).items()}

    def _window_of(self, file: str, row: Mapping[str, Any]) -> tuple[str, int]:
        return files.window_of(self._base, file)


def _elsewhere(
    kind: type[LettersInFiles], base: str, ledger: Ledger, fields: tuple[str, ...], access: Access | None
) -> LettersInFiles:
    if access is not None:
        note_folder(base, access)
    return kind(base, ledger, fields)


@dataclass
class _Known:
    """The problems that a reader has met."""

    listed_for: Authority | None = None
    attempts: Mapping[int, list[str]] = field(default_factory=dict)
    files: dict[str, _LetterFile] = field(default_factory=dict)


def _described(path: str, file: pq.ParquetFile) -> _LetterFile:
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    places = file.read(columns=list(_PLACE)).to_pydict()
    by_partition: dict[TopicPartition, set[int]] = {}
    for topic, incarnation, partition, offset in zip(*(places[name] for name in _PLACE), strict=True):
        by_partition.setdefault(TopicPartition(topic, partition, incarnation), set()).add(offset)
    rows = max(1, file.metadata.num_rows)
    average = max(1, sum(group.total_byte_size for group in groups) // rows)
    return _LetterFile(path, {at: frozenset(offsets) for at, offsets in by_partition.items()}, average)
