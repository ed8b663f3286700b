"""The servers of sinks that write files: a file system in memory, and Delta tables, which are delta-rs' own in a folder.

A file is there when it is closed, a listing shows every attempt's files, and a folder is removed file by file. A table has
versions, each put if it is absent: two programs that commit at the same time are put in order by delta-rs itself.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from io import BytesIO
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch
from weakref import finalize

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyarrow import fs
from pyarrow._fs import _MockFileSystem

from tests.simulation.actors import COMMIT_LOST, COMMIT_UNSURE, COMMITS, current, effect, reached, written
from tidemark.clients.connections import Connection
from tidemark.sinks.delta import changing
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.latest import table as delta_latest
from tidemark.sinks.parquet import files, folders

# Of a folder whose files are removed one by one.
HALF_REMOVED = "a file removed"
LAKE, TABLES, CATALOG = "lake_default", "tables", "iceberg_default"
_SCHEME = "file://"
_IN_MEMORY = "/lake"
_names = itertools.count()
# What is replaced while a stage is open.
_patched = ExitStack()


class Lake:
    """Both servers of one world. `changes` counts what has happened to them."""

    def __init__(self) -> None:
        self.changes = 0
        self._memory = InMemory()
        # What lies below the place where the disk is mounted.
        self._below = InMemory()
        self._local = Local()
        self._folder = ""
        self.is_away: Callable[[], bool] = lambda: False
        # Folders of files never change, so the oracle reads each once.
        self.known: dict[Any, Any] = {}

    def connection(self, name: str) -> Connection:
        if name == CATALOG:
            from tests.simulation import frozen

            frozen.enter(_patched)
            return Connection(name, f"{self.tables()}/catalog.db", kind="sqlite")
        return Connection(name, extra={"path": _IN_MEMORY if name == LAKE else self.tables()})

    def tables(self) -> str:
        if not self._folder:
            self._folder = tempfile.mkdtemp(prefix="tables")
            finalize(self, shutil.rmtree, self._folder)
        return self._folder

    def located(self, folder: str) -> tuple[fs.FileSystem, str]:
        path = folder.removeprefix(_SCHEME)
        if self.is_away() and current() is not None:
            # A disk that is not mounted: its folder is there, and has what was written while it was not.
            return (self._below, path[1:]) if path.startswith(_IN_MEMORY) else (self._local, self.mounted(path))
        return (self._memory, path[1:]) if path.startswith(_IN_MEMORY) else (self._local, path)

    def mounted(self, path: str) -> str:
        """A path in the folder of tables as the current actor reaches it."""
        away = self._folder and self.is_away() and current() is not None
        return path.replace(self._folder, f"{self._folder}/unmounted") if away else path

    def files(self, base: str) -> Iterator[tuple[str, pa.Table]]:
        """Every file below a folder in memory with its contents, whoever has written it."""
        filesystem, path = self.located(base)
        for one in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
            if one.is_file and one.path.endswith(".parquet"):
                path = f"{_SCHEME}/{one.path}" if filesystem is self._memory else f"{_SCHEME}{one.path}"
                yield path, self.contents(path)

    def contents(self, path: str) -> pa.Table:
        if path not in self.known:
            filesystem, inner = self.located(path)
            self.known[path] = pq.read_table(inner, filesystem=filesystem, partitioning=None)
        return self.known[path]


class _Whole(BytesIO):
    """A file that is being written: it is there when it is closed, and not at all where its program has died before."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        super().__init__()
        self._put: Callable[[bytes], None] | None = put

    def close(self) -> None:
        put, self._put = self._put, None
        if put is not None:
            changed(lambda: put(self.getvalue()))

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    def __del__(self) -> None:
        """What nobody has closed is not there."""


class _Effects:
    """Python's calls of a file system; what Arrow's own code does after them belongs to the same effect."""

    def get_file_info(self, asked: Any) -> Any:
        effect()
        return super().get_file_info(asked)  # type: ignore[misc]

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        changed(lambda: super(_Effects, self).create_dir(path, recursive=recursive))  # type: ignore[misc]

    def delete_dir(self, path: str) -> None:
        """An object store knows no folders: each file is removed by itself."""
        listed = super().get_file_info(fs.FileSelector(path, recursive=True))  # type: ignore[misc]
        for one in listed:
            if one.type == fs.FileType.File:
                changed(lambda one=one: self._delete(one.path))
                reached(HALF_REMOVED)
        if super().get_file_info(path).type != fs.FileType.NotFound:  # type: ignore[misc]
            super().delete_dir(path)  # type: ignore[misc]

    def _delete(self, path: str) -> None:
        if super().get_file_info(path).type != fs.FileType.NotFound:  # type: ignore[misc]
            super().delete_file(path)  # type: ignore[misc]

    def open_output_stream(self, path: str, *_: Any, **__: Any) -> Any:
        effect()

        def put(contents: bytes) -> None:
            with super(_Effects, self).open_output_stream(path) as out:  # type: ignore[misc]
                out.write(contents)

        return _Whole(put)

    def open_input_stream(self, path: str, *more: Any, **others: Any) -> Any:
        effect()
        return super().open_input_stream(path, *more, **others)  # type: ignore[misc]

    def open_input_file(self, path: str) -> Any:
        effect()
        return super().open_input_file(path)  # type: ignore[misc]


class InMemory(_Effects, _MockFileSystem): ...


class Local(_Effects, fs.LocalFileSystem): ...


class Table(DeltaTable):
    """A Delta table: each way to its server is an effect. After a lost answer, delta-rs asks again and meets its own commit."""

    def __init__(self, table_uri: str, **more: Any) -> None:
        effect()
        super().__init__(lake().mounted(table_uri), **more)

    @classmethod
    def create(cls, table_uri: Any, *more: Any, **others: Any) -> DeltaTable:
        effect()
        return DeltaTable.create(lake().mounted(table_uri), *more, **others)

    @classmethod
    def is_deltatable(cls, table_uri: Any, storage_options: dict[str, str] | None = None) -> bool:
        effect()
        return DeltaTable.is_deltatable(lake().mounted(table_uri), storage_options)

    def create_write_transaction(self, *more: Any, **others: Any) -> None:
        _committed(self, lambda: super(Table, self).create_write_transaction(*more, **others))

    def delete(self, *more: Any, **others: Any) -> Any:
        return _committed(self, lambda: super(Table, self).delete(*more, **others))

    def merge(self, *more: Any, **others: Any) -> Any:
        found = super().merge(*more, **others)
        execute = found.execute
        found.execute = lambda: _committed(self, execute)  # type: ignore[method-assign]
        return found


def _committed(table: DeltaTable, apply: Callable[[], Any]) -> Any:
    actor = current()
    how = actor.stop.how if actor is not None and actor.stop is not None else ""
    if actor is None or actor.stop is None or how not in COMMITS:
        return changed(apply)
    actor.commits += 1
    if actor.stop.at != actor.commits - 1:
        return changed(apply)
    actor.stopped = True
    if how == COMMIT_LOST:
        effect()
        raise OSError("the connection was lost")
    before = table.version()
    found = changed(apply)
    if how == COMMIT_UNSURE:
        raise OSError("the connection was lost")
    if DeltaTable(table.table_uri).version() == before:
        # There was nothing to commit.
        return found
    raise CommitFailedError("the version is there already: another program has committed it")


def _lost(applied: bool) -> Exception:
    return OSError("the connection was lost")


def changed(apply: Callable[[], Any]) -> Any:
    """A change on one of the servers, whose answer may be lost."""
    found = None

    def do() -> None:
        nonlocal found
        lake().changes += 1
        found = apply()

    written(do, _lost)
    return found


def _nowhere() -> Lake:
    raise RuntimeError("no world is played")


# The lake of the world that is played.
lake: Callable[[], Lake] = _nowhere


def write(folder: str, table: pa.Table) -> None:
    """The files of a folder, as tasks of Spark write them, one after the other."""
    with folders.opened(folder) as (filesystem, path):
        filesystem.create_dir(path, recursive=True)
        half = -(-table.num_rows // 2)
        for number, part in enumerate((table.slice(0, half), table.slice(half)) if half else (table,)):
            if part.num_rows or not half:
                with filesystem.open_output_stream(f"{path}/part-{number}.parquet") as out:
                    pq.write_table(part, out)


def _remembered(read: Callable[..., Any], key: Callable[[Lake, Any], Any]) -> Callable[..., Any]:
    """The oracle's questions are answered once; an actor asks the server each time."""

    @wraps(read)
    def answered(asked: Any, *more: Any) -> Any:
        if current() is not None:
            return read(asked, *more)
        here = lake()
        name = (read.__name__, key(here, asked))
        if name not in here.known:
            # No field here ever gets another name.
            here.known[name] = read(asked, *more)
        return here.known[name]

    return answered


def _there(here: Lake, part: Any) -> Any:
    """A folder's files, which never change while they are there."""
    return part.paths, tuple(here.located(one)[0].get_file_info(here.located(one)[1]).type for one in part.paths)


@contextmanager
def stored(of: Callable[[], Lake]) -> Iterator[None]:
    """While the block runs, the product finds its folders in the lake that `of` gives."""
    global lake, _patched
    lake = of
    dataset = ds.dataset

    def listed(*more: Any, **others: Any) -> Any:
        effect()
        return dataset(*more, **others)

    arrow = SimpleNamespace(**{**vars(ds), "dataset": listed})
    with ExitStack() as stack:
        _patched = stack
        stack.enter_context(patch.object(folders, "_located", _located))
        stack.enter_context(patch.object(files, "ds", arrow))
        stack.enter_context(patch.object(files, "_table", _remembered(files._table, _there)))
        stack.enter_context(patch.object(delta_table, "DeltaTable", Table))
        by_changes = _remembered(delta_table.files_of, lambda here, base: (base, here.changes))
        stack.enter_context(patch.object(delta_table, "files_of", by_changes))
        # Names of files come from the world, too.
        for module in (delta_latest, changing):
            stack.enter_context(patch.object(module, "uuid4", lambda: f"{lake().changes:08}-{next(_names)}"))
        link = changing.link
        stack.enter_context(patch.object(changing, "link", lambda *there: changed(lambda: link(*there))))
        stack.enter_context(patch.object(delta_table, "random", SimpleNamespace(uniform=lambda least, most: most)))
        yield


def _located(folder: str) -> tuple[fs.FileSystem, str]:
    effect()
    return lake().located(folder)
