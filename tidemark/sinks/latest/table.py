"""A table with a row for each key, in any format: how it is published, and how it is read. See `folds` for what a row is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from tidemark.ledger.forgetting import origin
from tidemark.ledger.ledger import Committed, Ledger
from tidemark.ledger.newest import newer_windows, open_heads
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import Head, Record, Register
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange
from tidemark.sinks.latest.folds import Changed, Fold, TableState
from tidemark.sinks.latest.history import BucketFileGone, History
from tidemark.sinks.latest.merging import TableVersion
from tidemark.sinks.latest.rows import history_of
from tidemark.sinks.owners import check_not_replaced
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.files import exists, is_within
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.parquet.row_lookup import tables_within
from tidemark.sinks.versions import GENERATION_SHOWN as GENERATION_SHOWN
from tidemark.sinks.versions import LANE_SHOWN as LANE_SHOWN
from tidemark.sinks.versions import said_of as said_of

T = TypeVar("T")
# Writes all rows of a bucket into a file that no version names yet, and gives its name; None for no rows. The name begins with
# the last argument.
Write = Callable[[int, pa.Table, str], str | None]


@dataclass(frozen=True)
class Staged:
    """The contents of the next version: the buckets that change, each with the file that takes the place of its files.

    `restored` and `noted` are what that version says, as `TableVersion` has it.
    """

    files: Mapping[int, str | None]
    restored: str
    noted: str = ""


Stage = Callable[[TableVersion, Write], Staged]


class LatestTable(Protocol):
    """Where such a table is. `kind` is the type of its sink, and `fold` says what its rows are."""

    @property
    def kind(self) -> str: ...

    @property
    def fold(self) -> Fold: ...

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


def publish(table: LatestTable, ledger: Ledger, sink: str, record: Record) -> None:
    """Let readers see a committed window of a sink, and no rows that count no more because of it. Repeatable."""
    name = (record.lane, record.seq)

    def stage(version: TableVersion, write: Write) -> Staged:
        # The version was loaded before.
        at = TableState(version, ledger, ledger.register_in_use())
        _check_not_replaced(table, at)
        if table.fold.has(at, record):
            return Staged({}, version.restored)
        window = Committed(record, ledger.covers(record.window))
        if not _stands_alone(table.fold, at, sink, window):
            return _from_all(table, ledger, sink, version, write, {name})

        def merged(parts: list[FolderPart], authority: Authority) -> Staged:
            fresh = _history(table, parts, authority, at.register)
            return _staged(at, table.fold.added(at, fresh, window), write)

        return steady(ledger, sink, merged, table.kind, [window])

    def again(version: TableVersion, write: Write) -> Staged:
        return _from_all(table, ledger, sink, version, write, {name}, _lost(version))

    table.change(lambda *made: _unless_lost(stage, again, *made), said_of(record))


def take_out(table: LatestTable, ledger: Ledger, sink: str, said: dict[str, str]) -> None:
    """Take out the rows of a sink that count no more, and bring back what they had overwritten. Repeatable."""

    def stage(version: TableVersion, write: Write) -> Staged:
        return _from_all(table, ledger, sink, version, write, ())

    def again(version: TableVersion, write: Write) -> Staged:
        return _from_all(table, ledger, sink, version, write, (), _lost(version))

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


def _staged(at: TableState, changed: Changed, write: Write) -> Staged:
    files = {bucket: write(bucket, rows, changed.mark) for bucket, rows in changed.rows}
    sizes, paths = at.version.sizes, at.version.paths
    stay = (one for bucket in sizes if bucket not in files for one in paths(bucket))
    return Staged(files, at.register.restored, changed.noted([*stay, *filter(None, files.values())]))


def _stands_alone(fold: Fold, at: TableState, sink: str, window: Committed) -> bool:
    """Whether a window only adds rows to a version: all of its rows count, and it takes none out.

    Not if a newer window covers some of its offsets, or if the version has rows of the offsets that the window has read again.
    Nor if the ledger was restored since: the version may have rows of windows that the ledger knows no more.
    """
    if at.version.restored != at.register.restored or not all_count(at.ledger, at.register, sink, window):
        return False
    return fold.adds(at, window)


def all_count(ledger: Ledger, register: Register, sink: str, window: Committed) -> bool:
    """Whether all rows of a window count: no newer one covers any of its offsets. `register` was read before."""
    newer = (one.window for one in newer_windows(ledger, register, window.generation))
    return not any(one.counts_for(sink) and ledger.covers(one) & window.covers for one in newer)


def _from_all(
    table: LatestTable,
    ledger: Ledger,
    sink: str,
    version: TableVersion,
    write: Write,
    windows: Collection[WindowName],
    lost: frozenset[int] = frozenset(),
) -> Staged:
    """By the whole history of the ledger. `lost`: buckets that are made again."""

    def merged(parts: list[FolderPart], authority: Authority) -> Staged:
        at = TableState(version, ledger, ledger.register_in_use())
        _check_not_replaced(table, at)
        history, mine = _history(table, parts, authority, at.register), _parts_of(table, parts)
        return _staged(at, table.fold.anew(at, history, mine, windows, lost), write)

    return steady(ledger, sink, merged, table.kind)


def _check_not_replaced(table: LatestTable, at: TableState) -> None:
    """Raises OwnedByAnother where a ledger that was restored later has published already."""
    register = at.register
    if at.version.restored > register.restored:
        theirs = {"ledger": f"{origin(register.ledger)}/{at.version.restored}"}
        check_not_replaced(table.base, theirs, register.stream, register.ledger)


def _history(table: LatestTable, parts: list[FolderPart], authority: Authority, register: Register) -> History:
    return History.of(parts, authority, history_of(table.base), forgets=bool(register.restored))


def _parts_of(table: LatestTable, parts: Iterable[FolderPart]) -> list[FolderPart]:
    return [one for one in parts if one.base == history_of(table.base)]


@dataclass(frozen=True)
class TableRows:
    """The rows of all keys by the ledger: those of a version of the table, and what is not published yet.

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
        """The rows, table by table."""
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


def read(table: LatestTable, ledger: Ledger, sink: str, take: Callable[[TableRows], T]) -> T:
    """The result of `take` for the rows of all keys by the ledger. Reads again when a window was committed meanwhile.

    And where it fails and the table has another version by then: a compaction removes files with what was erased at once.
    """
    while True:
        view = ledger.view(sink)
        # What is not settled now may not be in the version that is loaded next.
        waiting, version = unpublished(ledger, view.heads.values()), table.opened()
        read_all = partial(_newest, table, ledger, waiting, version)
        try:
            taken = steady(ledger, sink, lambda *there: take(read_all(*there)), table.kind)  # noqa: B023
        except Exception:
            if _name(table.opened()) == _name(version):
                raise
            continue
        if not ledger.changed_since(view):
            return taken


def _name(version: TableVersion | None) -> str | None:
    return None if version is None else version.name


def _newest(
    table: LatestTable,
    ledger: Ledger,
    windows: dict[WindowName, Record],
    version: TableVersion | None,
    parts: list[FolderPart],
    authority: Authority,
) -> TableRows:
    if version is None:
        return TableRows(None, {}, parts, Epochs({}))
    at = TableState(version, ledger, ledger.register_of_windows())
    history, mine = _history(table, parts, authority, at.register), _parts_of(table, parts)
    changed = table.fold.unpublished(at, history, mine, windows)
    return TableRows(version, dict(changed.rows), parts, Epochs(at.register.topics))


def unpublished(ledger: Ledger, heads: Iterable[Head]) -> dict[WindowName, Record]:
    """The windows that are committed, and perhaps not in the table yet."""
    last = (head.last for head in heads)
    return {(one.lane, one.seq): one for one in last if one is not None and not ledger.is_settled(one)}


def unsettled(ledger: Ledger, register: Register) -> dict[WindowName, Record]:
    """The windows that are committed, and perhaps not in the table yet. `register` was read before."""
    return unpublished(ledger, (stored.head for stored in open_heads(ledger, register).values()))
