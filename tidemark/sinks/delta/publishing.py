"""What readers of a Delta table see of committed windows: each once, and one window or one replay at a time.

An attempt only writes files beside the table. After the window's commit they are published, in one version of the table:

1. Load the newest version.
2. Read from the ledger whether a newer window counts at some of the offsets.
3. Put the window's files into the table's folder, and copies of files without the rows that count no more.
4. Commit exactly the next version, with files in and out; or else begin again.
5. See that the files are there, and remove what the attempt has written beside the table.

A version that was loaded before the ledger was read shows nothing that this reading does not know. So whoever wakes up late
either begins again or has nothing to do. The version's transaction, named after stream, ledger and lane, has the generation:
what is done once more changes nothing.

A table that this ledger has not published into yet is first compared with it, as a whole: of a ledger that was restored, it
may have rows of windows that are forgotten, and earlier versions of Tidemark let attempts write into the table itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, Transaction

from tidemark.clients.lake import beside
from tidemark.errors import TidemarkError, Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.newest import newer_windows
from tidemark.ledger.records import Record, Register
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.delta import attempts
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.changing import FileChange, change_files, put
from tidemark.sinks.delta.live_files import GENERATION, TableFile, has_generation, live_files
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.parquet.compacting import remove_dead
from tidemark.sinks.parquet.files import Counts, are_in
from tidemark.sinks.versions import ERASES, said_of, versions_of, was_restored

# A name of a table's version says that the table was compared with the ledger.
_COMPARED = "compared"


def publish(ledger: Ledger, base: str, sink: str | None, record: Record, folder: str, *, wrote: bool = False) -> bool:
    """Let readers see a committed window of a sink, or of the dead letters (None), which an attempt has written to a folder.

    `wrote`: its attempt has just written rows there, of which the record of a window that was committed first says nothing.

    Repeatable. Returns False if the table has a later window of the lane, and never had this one. Raises Conflict, Unreachable.
    Raises WrongUse for a ledger that is used no more: another one knows windows that are in the table by now.
    """
    publication = _Publication(ledger, base, sink, record, folder, wrote)
    change_files(base, publication.stage)
    # Another ledger may name the attempt's folder by now.
    ledger.check_in_use()
    if attempts.is_beside(base, folder):
        publication.complete()
        _remove_strays(ledger, base, record, folder)
    return not publication.overtaken


def take_out(base: str, record: Record, erased: RangeSet) -> None:
    """Take out the rows of some offsets with generations below that of a window which has erased them."""
    generation = record.attempt.generation

    def stage(table: DeltaTable, change: FileChange) -> None:
        for one in live_files(table):
            if one.generation < generation and one.may_have(erased):
                change.leave_out(one, lambda batch: are_in(batch, erased))
        if change.removed:
            change.said = {**said_of(record), ERASES: "true"}

    change_files(base, stage)


@dataclass
class _Publication:
    ledger: Ledger
    base: str
    sink: str | None
    record: Record
    folder: str
    wrote: bool = False
    overtaken: bool = False
    tried: bool = False

    @property
    def generation(self) -> int:
        return self.record.attempt.generation

    def stage(self, table: DeltaTable, change: FileChange) -> None:
        # The version was loaded before.
        register = self.ledger.register_in_use()
        versions, generation = versions_of(self.ledger), self.generation
        known = table.transaction_version(f"{versions}/{self.record.lane}") or 0
        compared = table.transaction_version(f"{versions}/{_COMPARED}") is not None
        if known >= generation:
            self.overtaken = known > generation and not self.tried and not has_generation(table, generation)
            if not compared:
                self._leave_out_all(change, live_files(table))
        else:
            self.tried = True
            others = self._others(register)
            # A restored ledger settles the last window of a lane once more.
            if not has_generation(table, generation):
                self._add(change, others)
            if compared:
                self._leave_out(change, table, others)
            else:
                self._leave_out_all(change, live_files(table))
            if change.added or change.removed:
                change.transactions.append(Transaction(f"{versions}/{self.record.lane}", generation))
        if not compared:
            change.transactions.append(Transaction(f"{versions}/{_COMPARED}", 1))
        change.said = said_of(self.record)

    def _others(self, register: Register) -> RangeSet:
        """The offsets of the window at which a newer one counts."""
        covers = self.ledger.covers(self.record.window)
        newer = (one.window for one in newer_windows(self.ledger, register, self.generation))
        return RangeSet(part for one in newer if one.counts_for(self.sink) for part in self.ledger.covers(one) & covers)

    def _add(self, change: FileChange, others: RangeSet) -> None:
        """Put the files of the attempt into the table; without the rows at which others count, copies of them."""
        written = _written(self.base, self.folder)
        if not written and (self.wrote or (self._has_rows and not was_restored(self.ledger))):
            raise Unreachable(f"{self.folder} is not there; its disk may have been unmounted just now")
        for path in written:
            try:
                self._add_file(change, path, others)
            except (OSError, TidemarkError):
                # Whoever has published a window without rows has made no version, and has removed its folder.
                if self._has_rows or files.exists(path):
                    raise

    def _add_file(self, change: FileChange, path: str, others: RangeSet) -> None:
        if others and change.copy(path, self.generation, lambda batch: are_in(batch, others)) is not None:
            return
        name = self._name_of(path)
        put(path, f"{self.base}/{name}")
        change.add(name, self.generation)

    def _leave_out(self, change: FileChange, table: DeltaTable, others: RangeSet) -> None:
        """Take out the rows at the window's offsets that count no more because of it."""
        # What an earlier attempt at the window has left was never published. But a window that is forgotten was.
        if not (self.record.kind.reads_again or self.record.owes_sweep or was_restored(self.ledger)):
            return
        replaced = self.ledger.covers(self.record.window) - others
        for one in live_files(table):
            if one.generation != self.generation and one.may_have(replaced):
                change.leave_out(one, lambda batch: are_in(batch, replaced), self._may_count)

    def _leave_out_all(self, change: FileChange, there: Sequence[TableFile]) -> None:
        """Take out all rows of the table that count no more, by the whole ledger."""
        if there:
            dropped = _not_counting(self.ledger, self._names(), lost=was_restored(self.ledger))
            for one in there:
                change.leave_out(one, partial(dropped, one.generation), self._may_count)

    def _may_count(self, one: TableFile) -> bool:
        """Whether a row that a file may have counts, by the ledger."""
        view = self.ledger.view()
        authorities = [view.of(name).authority for name in self._names()]
        return any(one.may_have(of.held_by(one.generation, of.covered())) for of in authorities)

    def complete(self) -> None:
        """See that the window's files are in the table, which a vacuum may have removed before a version had named them.

        Then nobody needs those beside it any more.
        """
        written = {self._name_of(path): path for path in _written(self.base, self.folder)}
        missing = {name: path for name, path in written.items() if not files.exists(f"{self.base}/{name}")}
        if missing:
            for one in live_files(delta_table.prepared(self.base)):
                if one.name in missing:
                    put(missing[one.name], f"{self.base}/{one.name}")
        attempts.remove(self.folder)

    def _name_of(self, path: str) -> str:
        return f"{GENERATION}={self.generation}/{path.rpartition('/')[2]}"

    @property
    def _has_rows(self) -> bool:
        tallies = self.record.tallies
        return any(one.dead_letters if self.sink is None else one.rows.number for one in tallies)

    def _names(self) -> set[str | None]:
        """The names of the sinks that have written to the table."""
        if self.sink is None:
            return {None}
        places = (place for one in self.ledger.committed() for place in one.record.places)
        return {self.sink, *(one.name for one in places if one.place.get("base") == self.base)}


def _not_counting(
    ledger: Ledger, names: Collection[str | None], *, lost: bool
) -> Callable[[int, pa.RecordBatch], np.ndarray]:
    """Whether the rows of a generation go, because nothing counts them in any sink of some names.

    Those at offsets that no window covers stay where the ledger has lost windows: they may be all there is.
    """
    view = ledger.view()
    authorities = [view.of(name).authority for name in names]
    counts = [Counts(one) for one in authorities]
    covered = [one.covered() for one in authorities]

    def dropped(generation: int, batch: pa.RecordBatch) -> np.ndarray:
        rows = pa.Table.from_batches([batch])
        generations = np.full(batch.num_rows, generation)
        counting, here = np.zeros((2, batch.num_rows), dtype=bool)
        for authority, offsets in zip(counts, covered, strict=True):
            counting |= authority.of(rows, generations)
            here |= are_in(batch, offsets)
        gone: np.ndarray = ~counting & here if lost else ~counting
        return gone

    return dropped


def _written(base: str, folder: str) -> list[str]:
    """The files of an attempt's folder beside the table, by the names that receipts give."""
    if not attempts.is_beside(base, folder):
        return []
    with folders.opened(folder) as (_, path):
        return [f"{folder}{one.removeprefix(path)}" for _, one in files.of_attempt(folder)]


def _remove_strays(ledger: Ledger, base: str, record: Record, folder: str) -> None:
    """Remove the folders that attempts of closed lanes, and late ones at windows of this lane, have left.

    No sweep of a later window comes to them.
    """
    others = [one for one in files.on_disk(beside(base)) if one.folder != folder]
    if others:
        register = ledger.register_in_use()
        if any(one.lane not in register.lanes or (one.lane == record.lane and one.seq <= record.seq) for one in others):
            remove_dead(ledger, beside(base), register.generation)
