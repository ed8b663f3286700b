"""How a table with the newest row of each key in HBase is published, and how it is read.

HBase has no versions of a table, so the table counts its publications (see table.py). Each takes these steps:

1. gets its number from the table;
2. reads the ledger;
3. makes the newest rows of the keys of all windows that are not settled: from the rows of these windows, from what the table
   has, and, where a row of the table counts no more, from the history;
4. writes them, each with its number, also those that stay as they are.

So what the table shows of a key is what the publication with the highest number knew. That one got its number after the last
commit that changes the key: by then the window was settled, and all of it is in the table, or the third step has taken it in.
One that was asleep writes below.

A row of the table counts no more only if a window that is not settled has read its message again, or if it was erased.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from tidemark.errors import OwnedByAnother
from tidemark.ledger.book import NOTHING, Book, Committed
from tidemark.ledger.newest import open_heads
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import Record, Register
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.hbase.latest.encoding import encoded
from tidemark.sinks.hbase.latest.rows import TYPE, Encoded, LatestRow
from tidemark.sinks.hbase.latest.table import LatestInHBase
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.merging import together
from tidemark.sinks.latest.rows import columns, history_of, newest
from tidemark.sinks.latest.table import all_count, unpublished
from tidemark.sinks.owners import check_not_replaced
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import by_today

T = TypeVar("T")
Unsettled = Mapping[WindowName, Record]
_AT_ONCE = 2_000


@dataclass(frozen=True)
class LatestWithHistory:
    """A table in HBase, and the folder above its history."""

    table: LatestInHBase
    base: str


class Changes(NamedTuple):
    """Rows that become the newest of their keys, rows that stay so, and keys of which nothing counts any more."""

    put: Encoded
    again: list[LatestRow]
    gone: list[bytes]


def publish(place: LatestWithHistory, book: Book, sink: str, record: Record, erased: RangeSet = NOTHING) -> None:
    """Let readers see a committed window of a sink, and no rows that count no more because of it. Repeatable.

    `erased`: where rows of the table count no more, besides the offsets that the window has read again.
    """
    restored = _check_in_use(place, book)
    number = place.table.begin(record.lane, record.attempt.generation, restored, book.clock())
    written: list[bytes] = []

    def write(changes: Iterable[Changes]) -> None:
        for put, again, gone in changes:
            written.extend((*put.keys, *(row.key for row in again)))
            place.table.put(put, number)
            place.table.put_again(again, number)
            place.table.remove(gone, number)

    # Once more: what comes before the number may be older than what others know.
    restored = _check_in_use(place, book)
    compared = place.table.owner().get("restored", "") == restored
    heads = open_heads(book, book.register_in_use())
    windows = unpublished(book, (stored.head for stored in heads.values())) | {(record.lane, record.seq): record}
    if compared:
        _by_windows(place, book, sink, windows, erased, write)
    else:
        _by_all(place, book, sink, write, lambda: place.table.older_than(number))
        place.table.note_restored(restored)
    try:
        _check_in_use(place, book)
    except OwnedByAnother:
        # Another ledger was restored meanwhile, and may know no window with these keys.
        place.table.remove(written, number)
        raise


def _check_in_use(place: LatestWithHistory, book: Book) -> str:
    """The `restored` of a register in use. Raises OwnedByAnother or WrongUse where another ledger took its place."""
    register = book.register_in_use()
    check_not_replaced(str(place.table), place.table.owner(), register.stream, register.ledger)
    return register.restored


def _by_windows(
    place: LatestWithHistory,
    book: Book,
    sink: str,
    windows: Unsettled,
    erased: RangeSet,
    take: Callable[[Iterable[Changes]], T],
) -> T:
    """The result of `take` for what some windows change. May call it again where a compaction has replaced a folder."""
    register = book.register_of_windows()
    named = [Committed(record, book.covers(record.window)) for record in windows.values()]
    again = RangeSet(one for window in named if window.record.kind.reads_again for one in window.covers) | erased
    # Where nothing counts no more, the ledger's history is not read.
    alone = all(all_count(book, register, sink, one) for one in named) and not _has_older(place.table, named, again)

    def changes(parts: list[FolderPart], authority: Authority) -> T:
        made = _Making.of(place, parts, authority, register)
        return take(made.by_windows(windows, NOTHING if alone else again, alone=alone))

    return steady(book, sink, changes, TYPE, named if alone else ())


def _has_older(table: LatestInHBase, windows: Iterable[Committed], again: RangeSet) -> bool:
    """Whether the table has a row of offsets that were read again, or erased, which is of none of these windows."""
    generations = {window.generation for window in windows}
    return any(row.mark.generation not in generations for row in table.within(again))


def _by_all(
    place: LatestWithHistory,
    book: Book,
    sink: str,
    take: Callable[[Iterable[Changes]], T],
    others: Callable[[], Iterable[LatestRow]],
) -> T:
    """As `_by_windows`, by all rows that count. `others`: the rows of the table whose keys have not been taken."""
    register = book.register_of_windows()

    def changes(parts: list[FolderPart], authority: Authority) -> T:
        return take(_Making.of(place, parts, authority, register).by_all(others))

    return steady(book, sink, changes, TYPE)


@dataclass(frozen=True)
class _Making:
    """What becomes of the rows of a table, by a history and the ledger as it was read."""

    table: LatestInHBase
    history: History
    epochs: Epochs
    fields: Mapping[str, FieldType]
    key: Sequence[str]
    buckets: int

    @classmethod
    def of(cls, place: LatestWithHistory, parts: list[FolderPart], authority: Authority, register: Register) -> _Making:
        base, mark = history_of(place.base), place.table.owner()
        was = types.names_of(base)
        fields = types.check(base, {})
        history = History.of(parts, authority, base, forgets=bool(register.restored), was=was)
        key = [*by_today(was, dict.fromkeys(mark["key"]))]
        return cls(place.table, history, Epochs(register.topics), fields, key, mark["buckets"])

    def by_windows(self, windows: Unsettled, within: RangeSet, *, alone: bool) -> Iterator[Changes]:
        """`within`: where rows of the table may count no more. `alone`: they all count, and so do those of the window."""
        fresh = self.history.only(windows)
        lost: dict[int, dict[bytes, LatestRow]] = {}
        for row in self.table.within(within):
            if not self._counts(row):
                lost.setdefault(row.mark.key_hash % self.buckets, {})[row.key] = row
        new = fresh.sizes()
        for some in together(sorted({*new, *lost}), {}, new):
            gone = {key: row for bucket in some for key, row in lost.get(bucket, {}).items()}
            yield self._changes(fresh.newest(self._columns, some, self.key, self.epochs), some, gone, alone=alone)

    def by_all(self, others: Callable[[], Iterable[LatestRow]]) -> Iterator[Changes]:
        new = self.history.sizes()
        for some in together(sorted(new), {}, new):
            yield self._changes(self.history.newest(self._columns, some, self.key, self.epochs), some, {}, alone=False)
        # Of folders that a compaction has removed since the backup, the table has the newest rows.
        rest = iter(others())
        while some_rows := [*islice(rest, _AT_ONCE)]:
            again = [row for row in some_rows if self._counts(row)]
            kept = {row.key for row in again}
            yield Changes(Encoded([], [], []), again, [row.key for row in some_rows if row.key not in kept])

    @property
    def _columns(self) -> pa.Schema:
        return columns(self.fields)

    def _counts(self, row: LatestRow) -> bool:
        return self.history.authority.of(row.place.partition, row.place.offset) == row.mark.generation

    def _changes(self, rows: pa.Table, some: Sequence[int], gone: dict[bytes, LatestRow], *, alone: bool) -> Changes:
        """`rows`: the newest of the windows in `some` buckets. `gone`: the rows of the table that count no more."""
        made = encoded(rows, self.fields, self.key)
        there = self.table.marks(made.keys)
        gone |= {key: row for key, row in there.items() if not alone and not self._counts(row)}
        places = dict(zip(made.keys, self._orders(rows), strict=True))
        # A row that takes the place of one of the same message is the newest, as that was.
        if lost := [key for key, row in gone.items() if places.get(key) != self._order(row)]:
            hashes = np.unique(np.array([gone[key].mark.key_hash for key in lost], dtype=np.int64))
            both = pa.concat_tables([rows, self.history.rows(self._columns, some, hashes)])
            rows = both.take(pa.array(newest(both, self.key, self.epochs)))
            made = encoded(rows, self.fields, self.key)
            there = self.table.marks(made.keys)
            gone |= {key: row for key, row in there.items() if not alone and not self._counts(row)}
        stays = {
            key
            for key, order in zip(made.keys, self._orders(rows), strict=True)
            if key in there and key not in gone and self._order(there[key]) > order
        }
        chosen = [number for number, key in enumerate(made.keys) if key not in stays]
        known = {*made.keys}
        kept = [*self.table.rows([*stays]).values()] if stays else []
        if [row.mark for row in kept] != [there[row.key].mark for row in kept] or len(kept) < len(stays):
            # Another publication has written them meanwhile.
            return self._changes(rows, some, gone, alone=alone)
        return Changes(made.only(chosen), kept, [key for key in gone if key not in known])

    def _order(self, row: LatestRow) -> tuple[int, ...]:
        at, offset, index = row.place.partition, row.place.offset, row.place.index
        return self.epochs.of(at, offset), offset, at.incarnation, at.partition, index

    def _orders(self, rows: pa.Table) -> Iterator[tuple[int, ...]]:
        topics, incarnations, partitions, offsets, indexes = (
            rows.column(name).to_numpy() for name in ("_topic", "_incarnation", "_partition", "_offset", "_index")
        )
        epochs = self.epochs.of_all(topics, incarnations, partitions, offsets)
        return zip(*(one.tolist() for one in (epochs, offsets, incarnations, partitions, indexes)), strict=True)


@dataclass(frozen=True)
class NewestInHBase:
    """The newest rows by the ledger: those of the table, and what the windows change that are not published yet."""

    table: LatestInHBase
    unpublished: Mapping[bytes, LatestRow | None]

    def row(self, key: bytes) -> LatestRow | None:
        return self.unpublished[key] if key in self.unpublished else self.table.rows([key]).get(key)

    def within(self, wanted: RangeSet) -> Iterator[LatestRow]:
        """The rows of messages at some offsets."""
        unpublished = [row for row in self.unpublished.values() if row is not None]
        yield from (row for row in unpublished if (row.place.partition, row.place.offset) in wanted)
        there = (row.key for row in self.table.within(wanted) if row.key not in self.unpublished)
        while some := [*islice(there, _AT_ONCE)]:
            yield from self.table.rows(some).values()

    def rows(self) -> Iterator[LatestRow]:
        yield from (row for row in self.unpublished.values() if row is not None)
        yield from _without(self.table, self.unpublished)


def _without(table: LatestInHBase, known: Mapping[bytes, LatestRow | None]) -> Iterator[LatestRow]:
    return (row for row in table.all_rows() if row.key not in known)


def read(place: LatestWithHistory, book: Book, sink: str, take: Callable[[NewestInHBase], T]) -> T:
    """The result of `take` for the newest rows by the ledger. Reads again when a window was committed meanwhile."""
    while True:
        view = book.view(sink)
        waiting = unpublished(book, view.heads.values())
        mark, register = place.table.owner(), view.register
        changed: dict[bytes, LatestRow | None] = {}

        def gather(changes: Iterable[Changes], changed: dict[bytes, LatestRow | None] = changed) -> None:
            changed.clear()
            for put, _, gone in changes:
                changed |= {row.key: row for row in put.rows()}
                changed |= dict.fromkeys(gone)

        if mark and register is not None:
            if mark.get("restored", "") != register.restored:
                others = partial(_without, place.table, changed)
                _by_all(place, book, sink, gather, others)
            elif waiting or view.hidden:
                # What another stream has erased is in the table, and readers do not show it.
                _by_windows(place, book, sink, waiting, view.hidden, gather)
        taken = take(NewestInHBase(place.table, changed))
        if not book.changed_since(view):
            return taken
