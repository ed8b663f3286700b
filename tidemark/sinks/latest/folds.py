"""What a bucket of a table is made of its rows: a fold, such as the newest row of each key."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark.ledger.ledger import Committed, Ledger
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import Record, Register
from tidemark.offsets.authority import Authority
from tidemark.sinks.latest.history import History
from tidemark.sinks.latest.merging import Merge, TableVersion, coordinates
from tidemark.sinks.latest.rows import GENERATION
from tidemark.sinks.parquet.compactions import WindowName
from tidemark.sinks.parquet.files import Counts
from tidemark.sinks.parquet.parts import FolderPart


@dataclass(frozen=True)
class Changed:
    """The buckets that change, each with all its rows.

    `mark` is the beginning of the names of their files. `noted`: what the version then notes, by the names of all its files.
    """

    rows: Iterable[tuple[int, pa.Table]]
    mark: str = ""
    noted: Callable[[Iterable[str]], str] = lambda names: ""


@dataclass(frozen=True)
class TableState:
    """A version of a table, and the ledger with its register as they were read after it."""

    version: TableVersion
    ledger: Ledger
    register: Register


class Fold(Protocol):
    """What becomes of the rows of each key. The versions and the ledger are read in the order of `merging`."""

    def has(self, at: TableState, record: Record) -> bool:
        """Whether the version says that it has a committed window. No, if that can be found out by adding it alone."""
        ...

    def adds(self, at: TableState, window: Committed) -> bool:
        """Whether a window, all of whose rows count, can be added to the version: it takes out nothing that is there."""
        ...

    def added(self, at: TableState, fresh: History, window: Committed) -> Changed:
        """What the version becomes with such a window, whose rows are `fresh`."""
        ...

    def anew(
        self,
        at: TableState,
        history: History,
        parts: Sequence[FolderPart],
        windows: Collection[WindowName],
        lost: frozenset[int],
    ) -> Changed:
        """What the version becomes by the whole `history`, in which some `windows` are to be seen. `lost`: see `Merge`.

        `parts`: all its folders, with those in which no row counts any more.
        """
        ...

    def unpublished(
        self,
        at: TableState,
        history: History,
        parts: Sequence[FolderPart],
        windows: Mapping[WindowName, Record],
    ) -> Changed:
        """What the version becomes for readers, with the windows that are committed and perhaps not in it."""
        ...


class NewestFold:
    """The newest row of each key. A row may be added twice, so a version need not say which windows it has."""

    def has(self, at: TableState, record: Record) -> bool:
        return False

    def adds(self, at: TableState, window: Committed) -> bool:
        return not (window.record.kind.reads_again and _has_older(at.version, window))

    def added(self, at: TableState, fresh: History, window: Committed) -> Changed:
        return Changed(Merge(at.version, fresh, Epochs(at.register.topics)).changed())

    def anew(
        self,
        at: TableState,
        history: History,
        parts: Sequence[FolderPart],
        windows: Collection[WindowName],
        lost: frozenset[int],
    ) -> Changed:
        merge = replace(_merge(at, history, windows, stale=True), lost=lost)
        return Changed(merge.changed())

    def unpublished(
        self,
        at: TableState,
        history: History,
        parts: Sequence[FolderPart],
        windows: Mapping[WindowName, Record],
    ) -> Changed:
        # What another stream has erased is in the table, and readers do not show it.
        stale = bool(at.ledger.hidden) or any(one.owes_sweep for one in windows.values())
        return Changed(_merge(at, history, windows, stale=stale).changed())


def _has_older(version: TableVersion, window: Committed) -> bool:
    within = Counts(Authority([(window.generation, window.covers)]))
    for bucket in version.sizes:
        rows = coordinates(version, [bucket])
        older = rows.column(GENERATION).to_numpy() != window.generation
        if (older & within.of(rows, np.full(rows.num_rows, window.generation))).any():
            return True
    return False


def _merge(at: TableState, history: History, windows: Collection[WindowName], *, stale: bool) -> Merge:
    """The changes that some windows make to a version. `stale`: rows of it may count no more."""
    epochs = Epochs(at.register.topics)
    if at.version.restored != at.register.restored:
        # It may have rows of windows that the ledger has forgotten, and lack what these had taken out.
        return Merge(at.version, history, epochs, history)
    return Merge(at.version, history.only(windows), epochs, history if stale else None)
