"""Which folders of Parquet a compaction takes, and the removal of those that it has replaced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyarrow import fs

from tidemark.errors import LedgerContradiction
from tidemark.ledger import compactions
from tidemark.ledger.book import Book
from tidemark.ledger.compactions import Compactions, WindowName, described, spans
from tidemark.results import folders
from tidemark.results.parquet_files import COMPACTED, WINDOW_COLUMNS
from tidemark.results.parquet_parts import Part

# Of a folder of one schema: its columns and their types.
_Schema = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Asked:
    """Windows committed `before` a time (milliseconds since 1970), at most so many `windows`, compacted ones `again`."""

    before: int | None = None
    windows: int | None = None
    again: bool = False


@dataclass(frozen=True)
class Size:
    files: int
    bytes: int


def choose(parts: Sequence[Part], base: str, asked: Asked) -> list[Part]:
    """The folders below `base` that are asked for, the oldest commits first."""

    def oldest(part: Part) -> int:
        return min(window.record.committed_at for window in part.windows)

    chosen: list[Part] = []
    left = asked.windows
    for part in sorted((one for one in parts if one.base == base), key=oldest):
        newest = max(window.record.committed_at for window in part.windows)
        if (part.compacted and not asked.again) or (asked.before is not None and newest >= asked.before):
            continue
        if left is not None and len(part.windows) > left:
            break
        left = None if left is None else left - len(part.windows)
        chosen.append(part)
    return chosen


def groups(parts: Sequence[Part]) -> list[list[Part]]:
    """The folders that become one folder each: those of the same columns, since nothing is to be lost or converted.

    Folders without a row that counts go with the first of them. Raises LedgerContradiction when a folder is missing.
    """
    found: dict[_Schema, list[Part]] = {}
    empty = []
    for part in parts:
        if (schema := _schema(part)) is None:
            empty.append(part)
        else:
            found.setdefault(schema, []).append(part)
    together = list(found.values())
    if together:
        together[0] = together[0] + empty
    return [group for group in together if len(group) > 1]


def _schema(part: Part) -> _Schema | None:
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
    return tuple((one.name, str(one.type)) for one in schema if one.name not in WINDOW_COLUMNS)


def size(parts: Sequence[Part]) -> Size:
    sizes: list[int] = []
    for part in parts:
        with folders.opened(part.folder) as (filesystem, path):
            sizes += (one.size for one in _files(filesystem, path))
    return Size(len(sizes), sum(sizes))


def _files(filesystem: fs.FileSystem, path: str) -> Iterator[fs.FileInfo]:
    for found in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True)):
        if found.type == fs.FileType.File and found.base_name.endswith(".parquet") and found.base_name[0] not in "._":
            yield found


def remove_replaced(book: Book, known: Compactions, base: str, generation: int) -> None:
    """Remove the folders of windows that a compacted folder holds, and what compactions before `generation` left.

    `known` is as it was read or changed under the claim of `generation`: no older compaction of the sink can name a folder
    any more. What sinks of other names have below the same base, as after a change of the name, is left alone.
    Repeatable; what a late attempt at a compacted window has written since goes too.
    """
    for at in {base, *(one.base for one in known.folders)}:
        held = {name for one in known.folders if one.base == at for name in one.names()}
        with folders.opened(at) as (filesystem, path):
            _remove_below(book, known, filesystem, path, held, generation)


def _remove_below(
    book: Book, known: Compactions, filesystem: fs.FileSystem, path: str, held: set[WindowName], generation: int
) -> None:
    for lane in {lane for lane, _ in held}:
        for seq, found in _numbered(filesystem, f"{path}/lane={lane}", "seq"):
            if (lane, seq) in held:
                filesystem.delete_dir(found.path)
    older = [
        (written, found)
        for _, number in _numbered(filesystem, f"{path}/lane={COMPACTED}", "seq")
        for written, found in _numbered(filesystem, number.path, "generation")
        if written < generation
    ]
    # Read behind the folders: a folder that is there has been claimed or named in the ledger before.
    others = [one for one in compactions.of_all_sinks(book) if one.sink != known.sink]
    claimed = {one.claim.generation for one in others if one.claim is not None}
    named = {folders.path_of(one.folder) for value in (known, *others) for one in value.folders}
    for written, found in older:
        if written not in claimed and found.path not in named:
            filesystem.delete_dir(found.path)


def _numbered(filesystem: fs.FileSystem, path: str, key: str) -> Iterator[tuple[int, fs.FileInfo]]:
    for found in filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True)):
        name, _, number = found.base_name.partition("=")
        if name == key and number.isdecimal():
            yield int(number), found
