"""A table with the newest row of each key, in any format: how it is published, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from tidemark.ledger.book import Book, Committed
from tidemark.ledger.forgetting import origin
from tidemark.ledger.newest import newer_windows
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import Head, Record, Register
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange
from tidemark.sinks.latest.history import BucketFileGone, History
from tidemark.sinks.latest.merging import Merge, TableVersion, coordinates
from tidemark.sinks.latest.rows import GENERATION, history_of
from tidemark.sinks.owners import check_not_replaced
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.files import Counts, exists, is_within
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.parquet.row_lookup import tables_within
from tidemark.sinks.versions import GENERATION_SHOWN as GENERATION_SHOWN
from tidemark.sinks.versions import LANE_SHOWN as LANE_SHOWN
from tidemark.sinks.versions import said_of as said_of

T = TypeVar("T")
# Writes all rows of a bucket into a file that no version names yet, and gives its name; None for no rows.
Write = Callable[[int, pa.Table], str | None]


@dataclass(frozen=True)
class Staged:
    """The contents of the next version: the buckets that change, each with the file that takes the place of its files.

    `restored` is what that version says of the ledger, as `TableVersion` has it.
    """

    files: Mapping[int, str | None]
    restored: str


Stage = Callable[[TableVersion, Write], Staged]


class LatestTable(Protocol):
    """Where such a table is. `kind` is the type of its sink."""

    @property
    def kind(self) -> str: ...

    @property
    def base(self) -> str: ...

    def opened(self) -> TableVersion | None:
        """The newest version; None if the table does not exist. Raises Unreachable."""
        ...

    def identity(self) -> str | None:
        """The mark that tells the table from one that is made in its place; None where there is none. Raises Unreachable."""
        ...

    def change(self, stage: Stage, said: dict[str, str]) -> None:
        """Write buckets again, all in one version. If the table has another version by then, begin again with that one.

        Makes no version if nothing changes, and it would say the same of the ledger. `said` is noted in it. Raises Conflict
        when others are first again and again.
        """
        ...


def publish(table: LatestTable, book: Book, sink: str, record: Record) -> None:
    """Let readers see a committed window of a sink, and no rows that count no more because of it. Repeatable."""
    name = (record.lane, record.seq)

    def stage(version: TableVersion, write: Write) -> Staged:
        # The version was loaded before.
        register = book.register_in_use()
        _check_not_replaced(table, version, register)
        window = Committed(record, book.covers(record.window))
        if not _stands_alone(book, register, sink, version, window):
            return _from_all(table, book, sink, version, write, {name})

        def merged(parts: list[FolderPart], authority: Authority) -> Staged:
            fresh = _history(table, parts, authority, register)
            changed = Merge(version, fresh, Epochs(register.topics)).changed()
            return Staged({bucket: write(bucket, rows) for bucket, rows in changed}, version.restored)

        return steady(book, sink, merged, table.kind, [window])

    def again(version: TableVersion, write: Write) -> Staged:
        return _from_all(table, book, sink, version, write, {name}, _lost(version))

    table.change(lambda *made: _unless_lost(stage, again, *made), said_of(record))


def take_out(table: LatestTable, book: Book, sink: str, said: dict[str, str]) -> None:
    """Take out the rows of a sink that count no more, and bring back what they had overwritten. Repeatable."""

    def stage(version: TableVersion, write: Write) -> Staged:
        return _from_all(table, book, sink, version, write, ())

    def again(version: TableVersion, write: Write) -> Staged:
        return _from_all(table, book, sink, version, write, (), _lost(version))

    table.change(lambda *made: _unless_lost(stage, again, *made), said)


def _unless_lost(stage: Stage, again: Stage, version: TableVersion, write: Write) -> Staged:
    """What a stage makes, or `again` where it finds that a file of a bucket is gone."""
    try:
        return stage(version, write)
    except BucketFileGone:
        return again(version, write)


def _lost(version: TableVersion) -> frozenset[int]:
    """The buckets of which a file is gone."""
    return frozenset(bucket for bucket in version.sizes if not all(map(exists, version.paths(bucket))))


def _stands_alone(book: Book, register: Register, sink: str, version: TableVersion, window: Committed) -> bool:
    """Whether a window only adds rows to a version: all of its rows count, and it takes none out.

    Not if a newer window covers some of its offsets, or if the version has rows of the offsets that the window has read again.
    Nor if the ledger was restored since: the version may have rows of windows that the ledger knows no more.
    """
    if version.restored != register.restored or not all_count(book, register, sink, window):
        return False
    return not (window.record.kind.reads_again and _has_older(version, window))


def all_count(book: Book, register: Register, sink: str, window: Committed) -> bool:
    """Whether all rows of a window count: no newer one covers any of its offsets. `register` was read before."""
    newer = (one.window for one in newer_windows(book, register, window.generation))
    return not any(one.counts_for(sink) and book.covers(one) & window.covers for one in newer)


def _has_older(version: TableVersion, window: Committed) -> bool:
    within = Counts(Authority([(window.generation, window.covers)]))
    for bucket in version.sizes:
        rows = coordinates(version, [bucket])
        older = rows.column(GENERATION).to_numpy() != window.generation
        if (older & within.of(rows, np.full(rows.num_rows, window.generation))).any():
            return True
    return False


def _from_all(
    table: LatestTable,
    book: Book,
    sink: str,
    version: TableVersion,
    write: Write,
    windows: Collection[WindowName],
    lost: frozenset[int] = frozenset(),
) -> Staged:
    """By the whole history of the ledger. `lost`: buckets that are made again."""

    def merged(parts: list[FolderPart], authority: Authority) -> Staged:
        register = book.register_in_use()
        _check_not_replaced(table, version, register)
        history = _history(table, parts, authority, register)
        changed = replace(_merge(version, history, windows, register, stale=True), lost=lost).changed()
        return Staged({bucket: write(bucket, rows) for bucket, rows in changed}, register.restored)

    return steady(book, sink, merged, table.kind)


def _merge(
    version: TableVersion, history: History, windows: Collection[WindowName], register: Register, *, stale: bool
) -> Merge:
    """The changes that some windows make to a version. `stale`: rows of it may count no more."""
    epochs = Epochs(register.topics)
    if version.restored != register.restored:
        # It may have rows of windows that the ledger has forgotten, and lack what these had taken out.
        return Merge(version, history, epochs, history)
    return Merge(version, history.only(windows), epochs, history if stale else None)


def _check_not_replaced(table: LatestTable, version: TableVersion, register: Register) -> None:
    """Raises OwnedByAnother where a ledger that was restored later has published already."""
    if version.restored > register.restored:
        theirs = {"ledger": f"{origin(register.ledger)}/{version.restored}"}
        check_not_replaced(table.base, theirs, register.stream, register.ledger)


def _history(table: LatestTable, parts: list[FolderPart], authority: Authority, register: Register) -> History:
    return History.of(parts, authority, history_of(table.base), forgets=bool(register.restored))


@dataclass(frozen=True)
class Newest:
    """The newest rows of all keys by the ledger: those of a version of the table, and what is not published yet.

    `changed`: what the buckets become that have rows of windows which are not published yet. `version` is None before there is
    a table. With the folders of the history, and the order of its messages.
    """

    version: TableVersion | None
    changed: Mapping[int, pa.Table]
    parts: Sequence[FolderPart]
    epochs: Epochs

    @property
    def files(self) -> list[str]:
        """The files of the buckets that do not change."""
        return [one for bucket, version in self._others() for one in version.paths(bucket)]

    def tables(self) -> Iterator[pa.Table]:
        """The newest rows, table by table."""
        yield from self.changed.values()
        for bucket, version in self._others():
            yield version.rows([bucket], version.columns)

    def within(self, wanted: OffsetRange) -> Iterator[pa.Table]:
        """Those of them that are of some offsets, some at a time."""
        for table in self.changed.values():
            yield table.filter(is_within(wanted))
        for place in self.files:
            with folders.opened(place) as (filesystem, path):
                yield from tables_within(place, filesystem, path, wanted)

    def _others(self) -> list[tuple[int, TableVersion]]:
        if self.version is None:
            return []
        return [(bucket, self.version) for bucket in sorted({*self.version.sizes} - {*self.changed})]


def read(table: LatestTable, book: Book, sink: str, take: Callable[[Newest], T]) -> T:
    """The result of `take` for the newest rows of all keys by the ledger. Reads again when a window was committed meanwhile.

    And where it fails and the table has another version by then: a compaction removes files with what was erased at once.
    """
    while True:
        view = book.view(sink)
        # What is not settled now may not be in the version that is loaded next.
        waiting, version = unpublished(book, view.heads.values()), table.opened()
        read_all = partial(_newest, table, book, waiting, version)
        try:
            taken = steady(book, sink, lambda *there: take(read_all(*there)), table.kind)  # noqa: B023
        except Exception:
            if _name(table.opened()) == _name(version):
                raise
            continue
        if not book.changed_since(view):
            return taken


def _name(version: TableVersion | None) -> str | None:
    return None if version is None else version.name


def _newest(
    table: LatestTable,
    book: Book,
    windows: dict[WindowName, Record],
    version: TableVersion | None,
    parts: list[FolderPart],
    authority: Authority,
) -> Newest:
    if version is None:
        return Newest(None, {}, parts, Epochs({}))
    register = book.register_of_windows()
    # What another stream has erased is in the table, and readers do not show it.
    stale = bool(book.hidden) or any(one.owes_sweep for one in windows.values())
    merge = _merge(version, _history(table, parts, authority, register), windows, register, stale=stale)
    return Newest(version, dict(merge.changed()), parts, merge.epochs)


def unpublished(book: Book, heads: Iterable[Head]) -> dict[WindowName, Record]:
    """The windows that are committed, and perhaps not in the table yet."""
    last = (head.last for head in heads)
    return {(one.lane, one.seq): one for one in last if one is not None and not book.is_settled(one)}
