"""A table with the newest row of each key, in any format: how it is published, and how it is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa

from tidemark.errors import LedgerContradiction
from tidemark.ledger.book import Book, View
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.merging import Merge, Version
from tidemark.sinks.latest.rows import history_of
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.parts import FolderPart, steady

T = TypeVar("T")
# Writes all rows of a bucket into a file that no version names yet, and gives its name; None for no rows.
Write = Callable[[int, pa.Table], str | None]
# Of a version, the buckets that change, each with the file that takes the place of its files.
Stage = Callable[[Version, Write], dict[int, str | None]]


class LatestTable(Protocol):
    """Where such a table is. `kind` is the type of its sink."""

    @property
    def kind(self) -> str: ...

    @property
    def base(self) -> str: ...

    def opened(self) -> Version | None:
        """The newest version; None if the table does not exist. Raises Unreachable."""
        ...

    def identity(self) -> str | None:
        """What tells the table from one that is made in its place; None where there is none. Raises Unreachable."""
        ...

    def change(self, stage: Stage, said: dict[str, str]) -> None:
        """Write buckets again, all in one version. If the table has another version by then, begin again with that one.

        Makes no version if nothing changes. `said` is noted in it. Raises Conflict when others are first again and again.
        """
        ...


def publish(
    table: LatestTable, book: Book, sink: str, windows: Collection[WindowName], said: dict[str, str], *, replaced: bool
) -> None:
    """Let readers see some committed windows of a sink; `replaced`: and no rows that count no more. Repeatable."""

    def stage(version: Version, write: Write) -> dict[int, str | None]:
        # The version was loaded before.
        def merged(parts: list[FolderPart], authority: Authority) -> dict[int, str | None]:
            changed = _merge(table, book, version, parts, authority).changed(windows, replaced=replaced)
            return {bucket: write(bucket, rows) for bucket, rows in changed}

        return steady(book, sink, merged, table.kind)

    table.change(stage, said)


def _merge(table: LatestTable, book: Book, version: Version, parts: list[FolderPart], authority: Authority) -> Merge:
    register = book.register()
    if register is None:
        raise LedgerContradiction(f"{book.stream} has no register, although windows of it were committed")
    history = History.of(parts, authority, history_of(table.base))
    return Merge(version, history, Epochs(register[1].topics))


def said_of(record: Record) -> dict[str, str]:
    """What a version of a table says of the window that it shows."""
    return {
        "tidemark.lane": record.lane,
        "tidemark.window": f"{record.lane}/{record.seq}",
        "tidemark.generation": str(record.attempt.generation),
        "tidemark.attempt": record.attempt.token,
    }


@dataclass(frozen=True)
class Newest:
    """The newest rows of all keys by the ledger: those of a version of the table, and what is not published yet.

    `changed`: what the buckets become that have rows of windows which are not published yet. `version` is None before there is
    a table. With the folders of the history, and the order of its messages.
    """

    version: Version | None
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

    def _others(self) -> list[tuple[int, Version]]:
        if self.version is None:
            return []
        return [(bucket, self.version) for bucket in sorted({*self.version.sizes} - {*self.changed})]


def read(table: LatestTable, book: Book, sink: str, take: Callable[[Newest], T]) -> T:
    """What `take` gives of the newest rows of all keys by the ledger. Reads again when a window was committed meanwhile."""
    while True:
        view = book.view(sink)
        # What is not settled now may not be in the version that is loaded next.
        read_all = partial(_newest, table, book, _unpublished(book, view), table.opened())
        found = steady(book, sink, lambda *there: take(read_all(*there)), table.kind)  # noqa: B023
        if not book.changed_since(view):
            return found


def _newest(
    table: LatestTable,
    book: Book,
    windows: dict[WindowName, Record],
    version: Version | None,
    parts: list[FolderPart],
    authority: Authority,
) -> Newest:
    if version is None:
        return Newest(None, {}, parts, Epochs({}))
    merge = _merge(table, book, version, parts, authority)
    # What another stream has erased is in the table, and readers do not show it.
    replaced = bool(book.hidden) or any(one.owes_sweep for one in windows.values())
    changed = dict(merge.changed(windows, replaced=replaced)) if windows or replaced else {}
    return Newest(version, changed, parts, merge.epochs)


def _unpublished(book: Book, view: View) -> dict[WindowName, Record]:
    """The windows that are committed, and perhaps not in the table yet."""
    last = (head.last for head in view.heads.values())
    return {(one.lane, one.seq): one for one in last if one is not None and not book.is_settled(one)}
