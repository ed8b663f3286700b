"""What becomes of the rows of a table with aggregates of each key in HBase.

Unlike a newest row, a sum must not take in a window twice. So a row names the windows that it has counted and that may not be
settled (`t:in`). A publication then takes these steps, for the keys of the windows that are not settled:

1. of windows that read offsets for the first time, it adds those to a row that the row does not name;
2. where a window has read offsets again, it computes the keys that had or have rows there from the whole history;
3. before it writes, it looks whether its windows are still not settled, and begins again if one is.

The third step is for a publication that was slower than others. A row that it reads may have been written by one that knew of
a window as settled, and so does not name it. Whoever writes a row names each window that it has counted and that was not
settled when it looked: so as long as a window is not settled, each row that has counted it says so.

An erasure, and a table that has not been compared with its ledger, are computed from the whole history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.ledger.ledger import Committed, Ledger
from tidemark.ledger.records import Record, Register
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.aggregates.folding import Folding
from tidemark.sinks.aggregates.states import aggregates_of, merged
from tidemark.sinks.hbase.aggregates.settings import TYPE
from tidemark.sinks.hbase.keyed.encoding import encoded
from tidemark.sinks.hbase.keyed.publishing import Changes, PublishedTable, Unsettled
from tidemark.sinks.hbase.keyed.rows import AT, MARK, NULLS, WINDOWS, EncodedCells, KeyedRow
from tidemark.sinks.hbase.keyed.table import KeyedTable
from tidemark.sinks.hbase.rows import DATA_PREFIX
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.merging import together
from tidemark.sinks.latest.rows import BUCKET, DELETED, GENERATION, KEY_HASH, history_of
from tidemark.sinks.latest.table import all_count, unsettled
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.files import Counts, exists
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.types.renamed_fields import by_today

T = TypeVar("T")
# What a row of the table has of one row of its key.
OF_HISTORY = ("_topic", "_incarnation", "_partition", "_offset", "_index", GENERATION, KEY_HASH, BUCKET)
# As a row of a history has them, but which no aggregate has.
_LACKS = (("_tombstone", pa.scalar(False)), ("_digest", pa.scalar(0, pa.int64())), (DELETED, pa.scalar(False)))
# Lane, number and generation of a window.
_Window = tuple[str, int, int]


class _SettledMeanwhile(Exception):
    """A window that was not settled is so by now."""


class _OldRowsGone(Exception):
    """What was read again can no longer be found: a compaction has left it out."""


class AggregatedRows(PublishedTable):
    """A table with aggregates of each key."""

    hides = False

    def by_windows(
        self,
        ledger: Ledger,
        sink: str,
        windows: Unsettled,
        erased: RangeSet,
        take: Callable[[Iterable[Changes]], T],
        others: Callable[[], Iterable[KeyedRow]],
    ) -> T:
        while not erased:
            try:
                return self._by_windows(ledger, sink, windows, take)
            except _SettledMeanwhile:
                windows = _unsettled(ledger)
            except _OldRowsGone:
                break
        return self.by_all(ledger, sink, take, others)

    def _by_windows(self, ledger: Ledger, sink: str, windows: Unsettled, take: Callable[[Iterable[Changes]], T]) -> T:
        register = ledger.register_of_windows()
        named = [Committed(record, ledger.covers(record.window)) for record in windows.values()]
        again = [one for one in named if one.record.kind.reads_again]
        # Where nothing counts no more, the ledger's history is not read.
        alone = not again and all(all_count(ledger, register, sink, one) for one in named)

        def changes(parts: list[FolderPart], authority: Authority) -> T:
            return take(_Making.of(self, ledger, parts, authority, register).by_windows(windows, again))

        return steady(ledger, sink, changes, TYPE, named if alone else ())

    def by_all(
        self,
        ledger: Ledger,
        sink: str,
        take: Callable[[Iterable[Changes]], T],
        others: Callable[[], Iterable[KeyedRow]],
    ) -> T:
        register = ledger.register_of_windows()

        def changes(parts: list[FolderPart], authority: Authority) -> T:
            return take(_Making.of(self, ledger, parts, authority, register).by_all(others))

        return steady(ledger, sink, changes, TYPE)


def _unsettled(ledger: Ledger) -> Unsettled:
    return unsettled(ledger, ledger.register_of_windows())


def _names(records: Iterable[Record]) -> set[_Window]:
    return set(map(_window, records))


def _window(record: Record) -> _Window:
    return record.lane, record.seq, record.attempt.generation


def as_history(folded: pa.Table) -> pa.Table:
    """Folded rows, with what each row of a history has."""
    for name, value in _LACKS:
        folded = folded.append_column(name, pa.repeat(value, folded.num_rows))
    return folded


@dataclass(frozen=True)
class _Making:
    """What becomes of the rows of a table, by a history and the ledger as it was read."""

    table: KeyedTable
    ledger: Ledger
    history: History
    folding: Folding
    # All folders of the history, with those in which no row counts any more.
    parts: Sequence[FolderPart]

    @classmethod
    def of(
        cls, place: PublishedTable, ledger: Ledger, parts: list[FolderPart], authority: Authority, register: Register
    ) -> _Making:
        base, mark = history_of(place.base), place.table.owner()
        was, fields = types.names_of(base), types.check(base, {})
        history = History.of(parts, authority, base, forgets=bool(register.restored), was=was)
        key = tuple(by_today(was, dict.fromkeys(mark["key"])))
        folding = Folding(fields, key, aggregates_of(mark["values"], fields, was), OF_HISTORY)
        return cls(place.table, ledger, history, folding, [one for one in parts if one.base == base])

    def by_windows(self, windows: Unsettled, again: Sequence[Committed]) -> Iterator[Changes]:
        """`again`: those that have read offsets again."""
        fresh = self.history.only(windows)
        older = self._touched(again)
        new = fresh.sizes()
        for some in together(sorted({*new, *older.column(BUCKET).to_pylist()}), {}, new):
            yield self._changes(windows, again, older.filter(_is_in(older, BUCKET, some)), some)

    def by_all(self, others: Callable[[], Iterable[KeyedRow]]) -> Iterator[Changes]:
        windows = _names(_unsettled(self.ledger).values()) & self._counted
        sizes = self.history.sizes()
        for some in together(sorted(sizes), {}, sizes):
            rows = self._rows(self._counting(self.history, some))
            yield Changes(self._encoded({key: (row, row.fields, windows) for key, row in rows.items()}), [], [])
        yield Changes(EncodedCells([], [], []), [], [row.key for row in others()])

    def _touched(self, again: Sequence[Committed]) -> pa.Table:
        """A row for each key that has, or had, a row at offsets that were read again."""
        within = RangeSet(one for window in again for one in window.covers)
        oldest = min((window.generation for window in again), default=0)
        parts = [part for part in self.parts if any(window.covers & within for window in part.windows)]
        for part in parts:
            if not all(map(exists, part.paths)) or (part.compacted and _generation_of(part) > oldest):
                raise _OldRowsGone
        looked_for = Counts(Authority([(1, within)]))
        pieces = replace(self.history, parts=tuple(parts)).pieces(self.folding.columns, None, counting=False)
        there = (rows.filter(pa.array(looked_for.of(rows, np.ones(rows.num_rows)))) for rows in pieces)
        return self.folding.folded(there)

    def _changes(
        self, windows: Unsettled, again: Sequence[Committed], older: pa.Table, some: Collection[int]
    ) -> Changes:
        renewed = {_window(one.record) for one in again}
        hashes = np.unique(older.column(KEY_HASH).to_numpy())
        whole = self._rows(self._counting(self.history, some, hashes)) if len(hashes) else {}
        before = self._by_key(older)
        added: dict[bytes, dict[_Window, KeyedRow]] = {}
        for name, record in windows.items():
            if _window(record) in renewed:
                continue
            mine = self._counting(self.history.only([name]), some)
            generation = record.attempt.generation
            for key, row in self._rows(one.filter(pc.field(GENERATION) == generation) for one in mine).items():
                if key not in before:
                    added.setdefault(key, {})[_window(record)] = row
        there = self.table.rows([*added])
        now = _names(_unsettled(self.ledger).values())
        if not _names(windows.values()) <= now:
            raise _SettledMeanwhile
        counted = now & self._counted
        made = {key: (row, row.fields, counted) for key, row in whole.items() if key in before}
        for key, contributions in added.items():
            shown = [there[key]] if key in there else []
            known = {window for row in shown for window in row.windows}
            more = [row for window, row in contributions.items() if window not in known]
            place = next(iter(contributions.values()))
            named = {name: value for name, value in place.fields.items() if name in self.folding.key}
            total = merged(self.folding.aggregates, [row.fields for row in (*shown, *more)])
            made[key] = (place, {**named, **total}, {*contributions, *(known & now)})
        return Changes(self._encoded(made), [], [key for key in before if key not in whole])

    @cached_property
    def _counted(self) -> set[_Window]:
        """The windows whose rows the history has."""
        return {_window(one.record) for part in self.parts for one in part.windows}

    def _counting(
        self, history: History, buckets: Collection[int], hashes: np.ndarray | None = None
    ) -> Iterator[pa.Table]:
        wanted = pc.field(BUCKET).isin(sorted(buckets))
        if hashes is not None:
            wanted &= pc.field(KEY_HASH).isin(pa.array(hashes, pa.int64()))
        return history.pieces(self.folding.columns, wanted)

    def _rows(self, pieces: Iterable[pa.Table]) -> dict[bytes, KeyedRow]:
        """The aggregates of some rows of the history, by the keys of the table."""
        return self._by_key(self.folding.folded(pieces))

    def _by_key(self, folded: pa.Table) -> dict[bytes, KeyedRow]:
        made = encoded(as_history(folded), self.folding.shown, self.folding.key, TYPE, by_topic=False)
        return {row.key: row for row in made.rows()}

    def _encoded(self, rows: Mapping[bytes, tuple[KeyedRow, Mapping[str, bytes], Collection[_Window]]]) -> EncodedCells:
        """Rows by their keys: one of the same key, what the row shows, and the windows that it names."""
        names = [*self.folding.shown]
        cells: dict[bytes, list[bytes]] = {AT: [], MARK: [], NULLS: [], WINDOWS: []}
        cells |= {DATA_PREFIX + name.encode(): [] for name in names}
        for row, fields, windows in rows.values():
            cells[AT].append(row.cells[AT])
            cells[MARK].append(row.cells[MARK])
            cells[NULLS].append(" ".join(name for name in names if name not in fields).encode())
            cells[WINDOWS].append(json.dumps(sorted(windows)).encode())
            for name in names:
                cells[DATA_PREFIX + name.encode()].append(fields.get(name, b""))
        columns = [(column, pa.array(values, pa.binary())) for column, values in cells.items()]
        return EncodedCells([*rows], columns, [False] * len(rows))


def _generation_of(part: FolderPart) -> int:
    """That of the compaction which made a folder."""
    return int(part.folder.rpartition("=")[2])


def _is_in(rows: pa.Table, column: str, values: Collection[int]) -> pa.ChunkedArray:
    return pc.is_in(rows.column(column), pa.array(sorted(values), rows.column(column).type))
