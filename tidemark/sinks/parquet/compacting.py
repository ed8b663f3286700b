"""A Parquet compaction without Spark: chooses its folders, lists those it made, and removes those it replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.clients.connections import Connections
from tidemark.errors import LedgerContradiction
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import LaneState
from tidemark.offsets.authority import Authority
from tidemark.sinks.contract import CompactionRequest, Replaceable, Replacement, SinkContext
from tidemark.sinks.parquet import compactions, folders
from tidemark.sinks.parquet.compactions import Compactions, WindowName, WindowSpan, described, spans
from tidemark.sinks.parquet.files import COMPACTED, WINDOW_COLUMNS, delete, holds_erased, on_disk
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.parquet.settings import Compression, FolderKey

# The columns of a folder, and their types.
_Schema = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Size:
    files: int
    bytes: int


class Folders(Protocol):
    """The folders of a sink: the type that its receipts give, and the name under which they are found."""

    @property
    def name(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def compression(self) -> Compression: ...

    def base(self, connections: Connections) -> str: ...

    def folder_keys(self) -> tuple[FolderKey, ...]: ...


class ParquetCompaction:
    """The compaction of the sink `parquet`, without Spark."""

    def planned(self, opened: SinkContext, settings: Folders, asked: CompactionRequest) -> Sequence[Replaceable]:
        base = settings.base(opened.connections)

        def read(parts: list[FolderPart], _: Authority) -> list[Replaceable]:
            return [_replaceable(group) for group in groups(choose(parts, base, asked))]

        return steady(opened.ledger, settings.name, read, settings.type)

    def at_work(self, opened: SinkContext, settings: Folders) -> str | None:
        stored = compactions.find(opened.ledger, settings.name)
        return stored.value.claim.run if stored is not None and stored.value.claim is not None else None

    def made(self, opened: SinkContext, settings: Folders, run: str) -> Sequence[Replacement]:
        stored = compactions.find(opened.ledger, settings.name)
        made = [folder for folder in stored.value.folders if folder.run == run] if stored else []
        return [Replacement(_named(folder.windows), folder.rows, folder.folder) for folder in made]


def _replaceable(group: Sequence[FolderPart]) -> Replaceable:
    total = size(group)
    return Replaceable(
        _named(spans(name for part in group for name in part.names)), len(group), total.files, total.bytes
    )


def _named(windows: Sequence[WindowSpan]) -> list[str]:
    return [described([window]) for window in windows]


def choose(parts: Sequence[FolderPart], base: str, asked: CompactionRequest) -> list[FolderPart]:
    """The folders below `base` that are asked for, the oldest commits first.

    Folders with rows that were erased are among them, even if a compaction has made them.
    """

    def oldest(part: FolderPart) -> int:
        return min(window.record.committed_at for window in part.windows)

    chosen: list[FolderPart] = []
    left = asked.windows
    for part in sorted((one for one in parts if one.base == base), key=oldest):
        newest = max(window.record.committed_at for window in part.windows)
        if asked.before is not None and newest >= asked.before:
            continue
        stale = holds_erased(part)
        if part.compacted and not asked.again and not stale:
            continue
        if left is not None and len(part.windows) > left:
            break
        left = None if left is None else left - len(part.windows)
        chosen.append(replace(part, stale=stale))
    if any(part.stale for part in chosen) and not any(part.holds for part in chosen):
        # Nothing of these folders counts. They become part of a folder that has rows.
        others = (one for one in parts if one.base == base and one.holds)
        chosen += list(islice(others, 1))
    return chosen


def groups(parts: Sequence[FolderPart]) -> list[list[FolderPart]]:
    """Groups of folders that become one folder each. A group has one schema, so nothing is lost or converted.

    Folders without a row that counts go with the first group. Where nothing counts at all, those with rows that were erased
    are a group of their own, which becomes a folder without rows. Raises LedgerContradiction when a folder is missing.
    """
    by_schema: dict[_Schema, list[FolderPart]] = {}
    empty = []
    for part in parts:
        if (schema := _schema(part)) is None:
            empty.append(part)
        else:
            by_schema.setdefault(schema, []).append(part)
    together = list(by_schema.values())
    if together:
        together[0] = together[0] + empty
    elif any(part.stale for part in empty):
        together = [empty]
    return [group for group in together if len(group) > 1 or any(part.stale for part in group)]


def _schema(part: FolderPart) -> _Schema | None:
    if not part.holds:
        return None
    with folders.opened(part.folder) as (filesystem, path):
        first = next(_files(filesystem, path), None)
        if first is None:
            raise LedgerContradiction(
                f"{part.folder} has no files, and {described(spans(part.names))} have their results there. "
                "Replay their offsets to write them again; nothing was compacted."
            )
        with filesystem.open_input_file(first.path) as file:
            schema = pq.read_schema(file)
    return tuple((column.name, str(column.type)) for column in schema if column.name not in WINDOW_COLUMNS)


def size(parts: Sequence[FolderPart]) -> Size:
    sizes: list[int] = []
    for part in parts:
        with folders.opened(part.folder) as (filesystem, path):
            sizes += (file.size for file in _files(filesystem, path))
    return Size(len(sizes), sum(sizes))


def _files(filesystem: fs.FileSystem, path: str) -> Iterator[fs.FileInfo]:
    for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
        if folders.is_read(info):
            yield info


def remove_replaced(ledger: Ledger, known: Compactions, base: str, generation: int) -> None:
    """Remove the folders of windows that a compacted folder holds, and what compactions and attempts before `generation` left.

    `known` was read or changed under the claim of `generation`, so no older compaction of the sink can name a folder
    any more. Folders of sinks with other names stay, even below the same base: the name may have changed.
    Repeatable. The call also removes what a late attempt at a compacted window has written since.
    """
    for at in sorted({base, *(folder.base for folder in known.folders)}):
        held = {name for folder in known.folders if folder.base == at for name in folder.names()}
        with folders.opened(at) as (filesystem, path):
            _remove_below(ledger, known, filesystem, path, held, generation)
        remove_dead(ledger, at, generation)


def _remove_below(
    ledger: Ledger, known: Compactions, filesystem: fs.FileSystem, path: str, held: set[WindowName], generation: int
) -> None:
    for lane in sorted({lane for lane, _ in held}):
        for seq, info in _numbered(filesystem, f"{path}/lane={lane}", "seq"):
            if (lane, seq) in held:
                folders.remove(filesystem, info.path)
    older = [
        (written, info)
        for _, number in _numbered(filesystem, f"{path}/lane={COMPACTED}", "seq")
        for written, info in _numbered(filesystem, number.path, "generation")
        if written < generation
    ]
    # Read after the folders were listed: the ledger claims a generation before its folder is made.
    others = [compaction for compaction in compactions.of_all_sinks(ledger) if compaction.sink != known.sink]
    claimed = {compaction.claim.generation for compaction in others if compaction.claim is not None}
    named = {folders.path_of(folder.folder) for value in (known, *others) for folder in value.folders}
    for written, info in older:
        if written not in claimed and info.path not in named:
            folders.remove(filesystem, info.path)


def remove_dead(ledger: Ledger, base: str, generation: int) -> None:
    """Remove what attempts have left that can never commit, in lanes that have gone on without them, or were cancelled."""
    listed = [attempt for attempt in on_disk(base) if not attempt.compacted]
    # Read after the folders were listed: an attempt is in its head before it makes its folder.
    standing, heads = ledger.standing(), ledger.heads()
    for attempt in listed:
        stored = heads.get(attempt.lane)
        # A ledger that was restored from a backup does not know the windows after it. Their rows may be all there is.
        known = stored is not None and (attempt.seq <= stored.head.seq or stored.head.state == LaneState.CLOSED)
        if known and standing.is_dead(attempt.generation, generation):
            delete(attempt.folder)


def _numbered(filesystem: fs.FileSystem, path: str, key: str) -> Iterator[tuple[int, fs.FileInfo]]:
    for info in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        name, _, number = info.base_name.partition("=")
        if name == key and number.isdecimal():
            yield int(number), info
