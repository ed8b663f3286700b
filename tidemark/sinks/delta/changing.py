"""Changes of a Delta table by whole files: one version takes files out, and takes others in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from tidemark.errors import TidemarkError
from tidemark.ledger.ledger import now_ms
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.live_files import GENERATION, TableFile, live_files
from tidemark.sinks.parquet import folders, rewriting
from tidemark.sinks.parquet.files import COORDINATE


@dataclass
class FileChange:
    """The files that go out of a table and come into it, in one version, with what is said of it.

    `version`: the one that is changed. `copies`: those of the files that come in which were written for this version alone.
    """

    base: str
    version: int = 0
    removed: list[RemoveAction] = field(default_factory=list)
    added: list[AddAction] = field(default_factory=list)
    copies: list[str] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, generation: int) -> None:
        """Add a file that is in the table's folder, by its name there; not if it has no rows."""
        with folders.opened(f"{self.base}/{name}") as (filesystem, path):
            size = filesystem.get_file_info(path).size
            with filesystem.open_input_file(path) as file:
                footer = pq.read_metadata(file)
        if footer.num_rows:
            values: dict[str, str | None] = {GENERATION: str(generation)}
            statistics = json.dumps(delta_table.statistics(footer))
            self.added.append(AddAction(name, size, values, now_ms(), True, statistics))

    def copy(self, original: str, generation: int, dropped: rewriting.Dropped) -> str | None:
        """As `rewriting.copied_without`; a copy with rows is added."""
        name = f"{GENERATION}={generation}/{uuid4()}.parquet"

        def named() -> str:
            self.copies.append(name)
            _make_folder(f"{self.base}/{name}")
            return f"{self.base}/{name}"

        copy = rewriting.copied_without(original, COORDINATE, dropped, named, _created)
        if copy:
            self.add(name, generation)
        return copy

    def leave_out(
        self, one: TableFile, dropped: rewriting.Dropped, may_count: Callable[[TableFile], bool] = lambda one: True
    ) -> None:
        """Replace a file by a copy without some of its rows, if it has any of them; see `without_what_is_lost`."""
        name = f"{self.base}/{one.name}"
        copy = rewriting.without_what_is_lost(
            name,
            partial(self.copy, name, one.generation, dropped),
            is_newest=lambda: delta_table.prepared(self.base).version() == self.version,
            may_count=partial(may_count, one),
        )
        if copy is not None:
            self.removed.append(one.removed())


Stage = Callable[[DeltaTable, FileChange], None]


def change_files(base: str, stage: Stage) -> None:
    """Change the files of the newest version of a table, all in the next version. If others are first, begin again with theirs.

    Makes no version where `stage` has put nothing into the change. Raises Conflict when others are first again and again.
    """
    copies: list[str] = []
    tries = 0

    def changes(table: DeltaTable) -> None:
        nonlocal tries
        tries += 1
        change = FileChange(base, table.version())
        try:
            stage(table, change)
        except (OSError, TidemarkError) as problem:
            _remove(base, change.copies)
            # Somebody else has published the window meanwhile, and has removed its folder; or a file, by a vacuum.
            if delta_table.prepared(base).version() != table.version():
                raise CommitFailedError(f"the table was changed meanwhile: {problem}") from problem
            raise
        copies.extend(change.copies)
        if change.added or change.removed or change.transactions:
            _commit(table, change)

    try:
        delta_table.change(base, changes)
    finally:
        if copies and tries > 1:
            _remove_of_tries(base, copies)


def _commit(table: DeltaTable, change: FileChange) -> None:
    properties = CommitProperties(
        custom_metadata=change.said, max_commit_retries=0, app_transactions=change.transactions
    )
    actions: list[AddAction | RemoveAction] = [*change.removed, *change.added]
    hooks = delta_table.after_commit(table)
    table.create_write_transaction(
        actions, "append", table.schema(), [GENERATION], commit_properties=properties, post_commithook_properties=hooks
    )


def _remove_of_tries(base: str, copies: Collection[str]) -> None:
    """Remove the copies of commits that are not there: they would hold rows that may be erased later."""
    with suppress(OSError, TidemarkError):
        _remove(base, {*copies}.difference(one.name for one in live_files(delta_table.prepared(base))))


def _remove(base: str, names: Iterable[str]) -> None:
    """Remove files as far as that can be done now. An erasure finds those that stay."""
    for name in names:
        with suppress(OSError, TidemarkError), folders.opened(f"{base}/{name}") as (filesystem, path):
            filesystem.delete_file(path)


def put(original: str, name: str) -> None:
    """Give a file another name too, where the file system has such links; otherwise copy it. It is there as a whole, or not."""
    _make_folder(name)
    with folders.opened(original) as (filesystem, path), folders.opened(name) as (_, there):
        if isinstance(filesystem, fs.LocalFileSystem):
            link(path, there)
        else:
            filesystem.copy_file(path, there)


def link(path: str, there: str) -> None:
    """As `put`, on this machine. Whatever had the name before has it no more."""
    above, _, name = there.rpartition("/")
    hidden = Path(above) / f".{name}.{uuid4()}"
    try:
        hidden.hardlink_to(path)
    except FileNotFoundError:
        raise
    except OSError:
        # The other file system, or any, has no links to it.
        shutil.copyfile(path, hidden)
    hidden.replace(there)
    # Two names of one file stay two.
    hidden.unlink(missing_ok=True)


def _make_folder(name: str) -> None:
    with folders.opened(name) as (filesystem, path):
        # A bucket of an object store has no folders. And not the table's folder, which is gone if its disk is.
        if isinstance(filesystem, fs.LocalFileSystem):
            filesystem.create_dir(path.rpartition("/")[0], recursive=False)


def _created(name: str) -> pa.NativeFile:
    with folders.opened(name) as (filesystem, path):
        return filesystem.open_output_stream(path)
