"""Where the rows of a sink `iceberg` are that count: in the table's newest snapshot, or in files that are not published yet."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.table import Table

from tidemark.clients.connections import Connections
from tidemark.clients.environment import from_environment
from tidemark.errors import LedgerContradiction
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.sinks import versions
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg.catalog import CatalogTable, located, opened, version_of
from tidemark.sinks.iceberg.lanes import published
from tidemark.sinks.iceberg.live_files import LiveFile, live_files, nulls
from tidemark.sinks.iceberg.schema import GENERATION
from tidemark.sinks.iceberg.table import TYPE, check_there, names_of
from tidemark.sinks.parquet.compactions import described, spans
from tidemark.sinks.parquet.files import tables_that_count
from tidemark.sinks.parquet.parts import FolderPart, parts
from tidemark.sinks.reading import first_rows
from tidemark.sinks.versions import versions_of
from tidemark.types.renamed_fields import NEVER, Names, both

T = TypeVar("T")
# Tables that were read, each with the metadata of its version; None where there was none.
Seen = dict[CatalogTable, object]


def iceberg_tables(ledger: Ledger, sink: str, connections: Connections = from_environment) -> list[pa.Table]:
    """The rows of a sink `iceberg` that count, one table for each window, or for several that share files."""
    return of_parts(for_readers(ledger), sink, connections, lambda *there: list(tables_that_count(*there)))


def iceberg_rows(ledger: Ledger, sink: str, limit: int, connections: Connections) -> list[dict[str, Any]]:
    """The first rows of a sink `iceberg` that count, at most `limit`; times are texts."""
    return of_parts(ledger, sink, connections, lambda *there: first_rows(tables_that_count(*there), limit))


def of_parts(
    ledger: Ledger, sink: str, connections: Connections, take: Callable[[list[FolderPart], Authority, Names], T]
) -> T:
    """The result of `take` for the files of a sink, the authority that goes with them, and the older names of the columns."""

    def read(seen: Seen) -> T:
        authority, folder_parts = _counting(ledger, sink, connections, seen)
        return take(folder_parts, authority, names_of_tables(folder_parts, sink, connections))

    return steadily(read)


def steadily(read: Callable[[Seen], T]) -> T:
    """The result of a reader, which begins again if it fails and a table has another version than the reader has `seen`.

    A compaction removes what no snapshot names any more: after an erasure, all that was there before it, however new.
    """
    return versions.steadily(read, lambda where: version_of(opened(where)))


def names_of_tables(folder_parts: list[FolderPart], sink: str, connections: Connections) -> Names:
    """The older names of the columns. A stream has one table, or had others before: a name that was is one column's."""
    return reduce(both, map(names_of, _tables(folder_parts, sink, connections)), NEVER)


def parts_that_count(
    ledger: Ledger, sink: str, connections: Connections, *, gone: bool = False
) -> tuple[Authority, list[FolderPart]]:
    """The files of each window of a sink, and the authority that goes with them. Each row in them has its generation.

    A commit may have taken out rows that counted when the heads were read. So the heads are read again after the table, and
    the table too if something here counts no more; what is committed beside it disturbs nobody. Raises LedgerContradiction
    when a window is not in its table; with `gone`, skips that window.
    """
    return steadily(lambda seen: _counting(ledger, sink, connections, seen, gone=gone))


def _counting(
    ledger: Ledger, sink: str, connections: Connections, seen: Seen, *, gone: bool = False
) -> tuple[Authority, list[FolderPart]]:
    view = ledger.view(sink)
    versions = versions_of(ledger)
    # Those that were settled, so published, before the tables were listed.
    settled: set[int] = set()
    while True:
        listed = parts(view.windows, view.authority, sink, kind=TYPE)
        tables = {
            where: _Listed.of(where, listed, sink, connections, seen) for where in _tables(listed, sink, connections)
        }
        known = [_with_files(one, tables[_where(one, sink, connections)], versions, settled) for one in listed]
        if ledger.changed_since(view) and not view.authority.holds_in((newer := ledger.view(sink)).authority):
            view = newer
            continue
        lacking = [
            one.windows[0].record
            for one in listed
            if one.holds and tables[_where(one, sink, connections)].lacks(one.windows[0].record, versions)
        ]
        asked = [one for one in lacking if one.attempt.generation not in settled and _has_rows(one)]
        if not (published := {one.attempt.generation for one in asked if _is_settled(ledger, one)}):
            break
        # Only a table that was listed after that shows that it lacks them.
        settled |= published
    for part in known:
        # A window may have lost exactly those offsets that had rows. Nor does a ledger that was rebuilt know of any rows.
        if not part.files and part.holds and _has_rows(part.windows[0].record) and not part.lost and not gone:
            raise LedgerContradiction(
                f"the table {part.base} has nothing of {described(spans(part.names))}, whose results are there: its files "
                "were removed, or its catalog was set back. Replay their offsets to write them again."
            )
    return view.authority, _apart(part for part in known if part.files)


def _has_rows(record: Record) -> bool:
    return any(tally.rows.number for tally in record.tallies)


def _is_settled(ledger: Ledger, record: Record) -> bool:
    """Whether a window that is committed was published: no later one is pinned in its lane before."""
    stored = ledger.head(record.lane)
    last = stored.head.last if stored is not None else None
    return last is None or last.seq != record.seq or ledger.is_settled(last)


def rows_of_others(ledger: Ledger, sink: str, where: CatalogTable) -> int:
    """How many rows of the newest snapshot no window of the ledger has written: other programs have added them.

    No reader of Tidemark takes them, nor do compactions remove them.
    """

    def counted(seen: Seen) -> int:
        table = opened(where)
        seen[where] = version_of(table)
        # Read after the table, whose windows it knows.
        known = {one.generation for one in ledger.view(sink).windows}
        return 0 if table is None else sum(_of_others(table, one, known) for one in live_files(table))

    return steadily(counted)


def _of_others(table: Table, one: LiveFile, known: Collection[int]) -> int:
    least, most = one.generations
    # Null is in no bounds.
    if least == most and (without := nulls(table.schema(), one.file, GENERATION)) is not None:
        return without if least in known else one.file.record_count
    return data_files.rows_beside(one.path, known)


def files_of_window(
    ledger: Ledger, record: Record, place: Mapping[str, str], connections: Connections, seen: Seen
) -> list[str]:
    """The files that may have rows of a window."""
    where = located(connections, place)
    settled = _has_rows(record) and _is_settled(ledger, record)
    table = check_there(where, [record])
    seen[where] = version_of(table)
    return listed(table).of_window(record, place["folder"], versions_of(ledger), settled=settled)


def _where(part: FolderPart, sink: str, connections: Connections) -> CatalogTable:
    places = (place.place for place in part.windows[0].record.places if place.name == sink and place.type == TYPE)
    return located(connections, next(places))


def _tables(folder_parts: list[FolderPart], sink: str, connections: Connections) -> set[CatalogTable]:
    return {_where(part, sink, connections) for part in folder_parts}


@dataclass(frozen=True)
class _Listed:
    """A version of a table, and the files that its readers see."""

    table: Table | None
    # By the generation of their rows, and those that hold rows of several.
    by_generation: Mapping[int, Sequence[str]]
    mixed: Sequence[LiveFile]

    @classmethod
    def of(
        cls, where: CatalogTable, folder_parts: list[FolderPart], sink: str, connections: Connections, seen: Seen
    ) -> _Listed:
        here = (part for part in folder_parts if _where(part, sink, connections) == where)
        table = check_there(where, (window.record for part in here for window in part.windows))
        seen[where] = version_of(table)
        return listed(table)

    def of_window(self, record: Record, folder: str, versions: str, *, settled: bool) -> list[str]:
        """The files that may have rows of a window. `settled`: it was published before the table was listed."""
        if not self.lacks(record, versions):
            generation = record.attempt.generation
            return [*self.by_generation.get(generation, ()), *self.shared(generation)]
        # It is committed and about to be published; or else the table has lost it.
        return [] if settled else data_files.in_folder(folder)

    def lacks(self, record: Record, versions: str) -> bool:
        """Whether readers of the table have never seen a window, nor rows of it under the versions of an earlier ledger."""
        generation = record.attempt.generation
        if generation in self.by_generation or self.table is None:
            return False
        if published(self.table.properties, versions, record.lane) >= generation:
            return False
        # A file that was compacted has rows of some generations between its least and its most, and not of all.
        return not any(generation in self._generations[path] for path in self.shared(generation))

    def shared(self, generation: int) -> list[str]:
        """The files that may have rows of a generation beside those of others."""
        return [file.path for file in self.mixed if file.may_have_generation(generation)]

    @cached_property
    def _generations(self) -> Mapping[str, set[int]]:
        """The generations of each file that holds rows of several."""
        return {file.path: data_files.generations(file.path) for file in self.mixed}


def listed(table: Table | None) -> _Listed:
    by_generation: dict[int, list[str]] = {}
    mixed = []
    for one in live_files(table) if table is not None else ():
        least, most = one.generations
        if least == most:
            by_generation.setdefault(least, []).append(one.path)
        else:
            mixed.append(one)
    return _Listed(table, by_generation, mixed)


def _with_files(part: FolderPart, there: _Listed, versions: str, settled: Collection[int]) -> FolderPart:
    (window,) = part.windows
    # Of a window of which nothing counts, rows may lie in a file of others, until what counts instead is published: the file
    # is read with what that window has lost.
    was_published = window.generation in settled
    held = (
        there.of_window(window.record, part.folder, versions, settled=was_published)
        if part.holds
        else there.shared(window.generation)
    )
    # `compacted`: the generation of a row stands in the file.
    return replace(part, files=tuple(held), compacted=True)


def _apart(folder_parts: Iterable[FolderPart]) -> list[FolderPart]:
    """Parts of which no two have a file in common: windows that share files become one part."""
    together: dict[int, FolderPart] = {}
    at: dict[str, int] = {}
    for number, part in enumerate(folder_parts):
        whole = part
        for other in sorted({at[path] for path in part.paths if path in at}):
            whole = _joined(together.pop(other), whole)
        together[number] = whole
        at.update(dict.fromkeys(whole.paths, number))
    return list(together.values())


def _joined(one: FolderPart, other: FolderPart) -> FolderPart:
    return replace(
        one,
        windows=(*one.windows, *other.windows),
        holds=one.holds or other.holds,
        lost={**one.lost, **other.lost},
        files=tuple(dict.fromkeys((*one.paths, *other.paths))),
        erased=one.erased | other.erased,
    )
