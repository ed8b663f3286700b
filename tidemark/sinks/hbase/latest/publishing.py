"""What becomes of the rows of a table with the newest row of each key in HBase.

A row of the table counts no more only if a window that is not settled has read its message again, or if it was erased. Then
what it had overwritten comes back from the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import pyarrow as pa

from tidemark.ledger.ledger import NOTHING, Committed, Ledger
from tidemark.ledger.ordering import Epochs
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.hbase.keyed.encoding import encoded
from tidemark.sinks.hbase.keyed.publishing import AT_ONCE, Changes, PublishedTable, Unsettled
from tidemark.sinks.hbase.keyed.rows import EncodedCells, KeyedRow
from tidemark.sinks.hbase.keyed.table import KeyedTable
from tidemark.sinks.hbase.latest.settings import TYPE
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.merging import together
from tidemark.sinks.latest.rows import columns, history_of, newest
from tidemark.sinks.latest.table import all_count
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import by_today

T = TypeVar("T")


class NewestRows(PublishedTable):
    """A table with the newest row of each key."""

    hides = True

    def by_windows(
        self,
        ledger: Ledger,
        sink: str,
        windows: Unsettled,
        erased: RangeSet,
        take: Callable[[Iterable[Changes]], T],
        others: Callable[[], Iterable[KeyedRow]],
    ) -> T:
        register = ledger.register_of_windows()
        named = [Committed(record, ledger.covers(record.window)) for record in windows.values()]
        again = RangeSet(one for window in named if window.record.kind.reads_again for one in window.covers) | erased
        # Where nothing counts no more, the ledger's history is not read.
        alone = all(all_count(ledger, register, sink, one) for one in named) and not _has_older(
            self.table, named, again
        )

        def changes(parts: list[FolderPart], authority: Authority) -> T:
            made = _Making.of(self, parts, authority, ledger)
            return take(made.by_windows(windows, NOTHING if alone else again, alone=alone))

        return steady(ledger, sink, changes, TYPE, named if alone else ())

    def by_all(
        self,
        ledger: Ledger,
        sink: str,
        take: Callable[[Iterable[Changes]], T],
        others: Callable[[], Iterable[KeyedRow]],
    ) -> T:
        def changes(parts: list[FolderPart], authority: Authority) -> T:
            return take(_Making.of(self, parts, authority, ledger).by_all(others))

        return steady(ledger, sink, changes, TYPE)


def _has_older(table: KeyedTable, windows: Iterable[Committed], again: RangeSet) -> bool:
    """Whether the table has a row of offsets that were read again, or erased, which is of none of these windows."""
    generations = {window.generation for window in windows}
    return any(row.mark.generation not in generations for row in table.within(again))


@dataclass(frozen=True)
class _Making:
    """What becomes of the rows of a table, by a history and the ledger as it was read."""

    table: KeyedTable
    history: History
    ledger: Ledger
    fields: Mapping[str, FieldType]
    key: Sequence[str]
    buckets: int

    @classmethod
    def of(cls, place: NewestRows, parts: list[FolderPart], authority: Authority, ledger: Ledger) -> _Making:
        base, mark = history_of(place.base), place.table.owner()
        was = types.names_of(base)
        fields = types.check(base, {})
        forgets = bool(ledger.register_of_windows().restored)
        history = History.of(parts, authority, base, forgets=forgets, was=was)
        key = [*by_today(was, dict.fromkeys(mark["key"]))]
        return cls(place.table, history, ledger, fields, key, mark["buckets"])

    def by_windows(self, windows: Unsettled, within: RangeSet, *, alone: bool) -> Iterator[Changes]:
        """`within`: where rows of the table may count no more. `alone`: they all count, and so do those of the window."""
        fresh = self.history.only(windows)
        lost: dict[int, dict[bytes, KeyedRow]] = {}
        for row in self.table.within(within):
            if not self._counts(row):
                lost.setdefault(row.mark.key_hash % self.buckets, {})[row.key] = row
        new = fresh.sizes()
        for some in together(sorted({*new, *lost}), {}, new):
            gone = {key: row for bucket in some for key, row in lost.get(bucket, {}).items()}
            yield self._changes(fresh.newest(self._columns, some, self.key, self._epochs()), some, gone, alone=alone)

    def by_all(self, others: Callable[[], Iterable[KeyedRow]]) -> Iterator[Changes]:
        new = self.history.sizes()
        for some in together(sorted(new), {}, new):
            yield self._changes(
                self.history.newest(self._columns, some, self.key, self._epochs()), some, {}, alone=False
            )
        # Of folders that a compaction has removed since the backup, the table has the newest rows.
        rest = iter(others())
        while some_rows := [*islice(rest, AT_ONCE)]:
            again = [row for row in some_rows if self._counts(row)]
            kept = {row.key for row in again}
            yield Changes(EncodedCells([], [], []), again, [row.key for row in some_rows if row.key not in kept])

    @property
    def _columns(self) -> pa.Schema:
        return columns(self.fields)

    def _counts(self, row: KeyedRow) -> bool:
        return self.history.authority.of(row.place.partition, row.place.offset) == row.mark.generation

    def _changes(self, rows: pa.Table, some: Sequence[int], gone: dict[bytes, KeyedRow], *, alone: bool) -> Changes:
        """`rows`: the newest of the windows in `some` buckets. `gone`: the rows of the table that count no more."""
        made = encoded(rows, self.fields, self.key, TYPE)
        there = self.table.marks(made.keys)
        gone |= {key: row for key, row in there.items() if not alone and not self._counts(row)}
        epochs = self._epochs()
        places = dict(zip(made.keys, _places(rows), strict=True))
        # A row that takes the place of one of the same message is the newest, as that was. Rows that count no more have no
        # order: a ledger that was restored may not know their topic as it was then.
        if lost := [key for key, row in gone.items() if places.get(key) != _place(row)]:
            hashes = np.unique(np.array([gone[key].mark.key_hash for key in lost], dtype=np.int64))
            both = pa.concat_tables([rows, self.history.rows(self._columns, some, hashes)])
            rows = both.take(pa.array(newest(both, self.key, self._epochs())))
            made = encoded(rows, self.fields, self.key, TYPE)
            there = self.table.marks(made.keys)
            gone |= {key: row for key, row in there.items() if not alone and not self._counts(row)}
            epochs = self._epochs()
        stays = {
            key
            for key, order in zip(made.keys, _orders(rows, epochs), strict=True)
            if key in there and key not in gone and _order(there[key], epochs) > order
        }
        chosen = [number for number, key in enumerate(made.keys) if key not in stays]
        known = {*made.keys}
        kept = [*self.table.rows([*stays]).values()] if stays else []
        if [row.mark for row in kept] != [there[row.key].mark for row in kept] or len(kept) < len(stays):
            # Another publication has written them meanwhile.
            return self._changes(rows, some, gone, alone=alone)
        return Changes(made.only(chosen), kept, [key for key in gone if key not in known])

    def _epochs(self) -> Epochs:
        """The order of topics, as it is by now: read after rows of the history or of the table, it knows the topics of all."""
        return Epochs(self.ledger.register_of_windows().topics)


_PLACE = ("_incarnation", "_partition", "_offset", "_index")


def _place(row: KeyedRow) -> tuple[int, ...]:
    at, offset, index = row.place.partition, row.place.offset, row.place.index
    return at.incarnation, at.partition, offset, index


def _places(rows: pa.Table) -> Iterator[tuple[int, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in _PLACE), strict=True)


def _order(row: KeyedRow, known: Epochs) -> tuple[int, ...]:
    at, offset, index = row.place.partition, row.place.offset, row.place.index
    return known.of(at, offset), offset, at.incarnation, at.partition, index


def _orders(rows: pa.Table, known: Epochs) -> Iterator[tuple[int, ...]]:
    topics, incarnations, partitions, offsets, indexes = (
        rows.column(name).to_numpy() for name in ("_topic", "_incarnation", "_partition", "_offset", "_index")
    )
    epochs = known.of_all(topics, incarnations, partitions, offsets)
    return zip(*(one.tolist() for one in (epochs, offsets, incarnations, partitions, indexes)), strict=True)
