"""The remains of erased offsets in a Delta table: in files of older versions, and in those that no version names."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from contextlib import suppress

from deltalake import Transaction
from pyarrow import fs

from tidemark.clients.lake import beside
from tidemark.errors import Unreachable
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.changing import change_files
from tidemark.sinks.delta.live_files import GENERATION, live_files
from tidemark.sinks.parquet import files, folders

_CLEARED = "tidemark/cleared"


def only_in_older(base: str, wanted: RangeSet) -> list[str]:
    """The files of older versions, below the base, that the newest does not name and that have rows of these offsets."""
    return [name for name in _older(base) if files.holds(f"{base}/{name}", wanted)] if wanted else []


def came_late(base: str, done: Sequence[Erasing]) -> int:
    """How many files have rows that were erased, in the newest version, in none, or beside the table."""
    # Also of a window of which other rows count: one that was committed before it was written may have come late.
    found = [(one.generation, one.folder) for one in files.on_disk(beside(base))]
    if delta_table.exists(base):
        found += [(one.generation, f"{base}/{one.name}") for one in live_files(delta_table.opened(base))]
        found += [(generation, f"{base}/{name}") for generation, name in unnamed(base)]
    by_erasure = ((_older_than(done, generation), path) for generation, path in found)
    return sum(1 for erased, path in by_erasure if erased and files.holds(path, erased))


def clear(base: str, erasing: Erasing) -> None:
    """Remove what attempts and publications have left of erased offsets, that no version of the table names.

    A window that was committed before it was written may be on its way: then its files are written again without them.
    """
    files.erase_dead(beside(base), erasing)
    for one in files.on_disk(beside(base)):
        if one.generation < erasing.generation:
            _rewrite(one.folder, erasing.erased)
    if delta_table.exists(base):
        _remove_unnamed(base, erasing)


def _rewrite(folder: str, erased: RangeSet) -> None:
    try:
        files.rewrite_without(folder, erased)
    except Unreachable:
        # It was published meanwhile.
        if files.exists(folder):
            raise


def _remove_unnamed(base: str, erasing: Erasing) -> None:
    there = [name for generation, name in unnamed(base) if generation < erasing.generation]
    doomed = [name for name in there if files.holds(f"{base}/{name}", erasing.erased)]
    for name in doomed:
        with folders.opened(f"{base}/{name}") as (filesystem, path), suppress(FileNotFoundError):
            filesystem.delete_file(path)
    if doomed:
        # Whoever was about to name one of them begins again, with the newest version.
        change_files(base, lambda _, change: change.transactions.append(Transaction(_CLEARED, erasing.generation)))


def unnamed(base: str) -> Iterator[tuple[int, str]]:
    """The files that no version of a table names, below the base, each with the generation of its rows."""
    # In this order: what is published, or replaced by a newer version, meanwhile has a name.
    listed = list(_of_generations(base))
    named = {one.name for one in live_files(delta_table.opened(base))} | {*_older(base)}
    return ((generation, name) for generation, name in listed if name not in named)


def _of_generations(base: str) -> Iterator[tuple[int, str]]:
    with folders.opened(base) as (filesystem, path):
        for one in filesystem.get_file_info(fs.FileSelector(path, recursive=True)):
            folder, name = posixpath.split(one.path.removeprefix(f"{path}/"))
            column, _, generation = folder.partition("=")
            if one.type == fs.FileType.File and column == GENERATION and name.endswith(".parquet"):
                yield int(generation), f"{folder}/{name}"


def _older(base: str) -> list[str]:
    """The files of older versions that the newest does not name, as far as they are there."""
    if not delta_table.exists(base):
        return []
    return list(delta_table.opened(base).vacuum(0, dry_run=True, enforce_retention_duration=False))


def _older_than(done: Sequence[Erasing], generation: int) -> RangeSet:
    """The offsets that erasures have taken of whatever a generation has written."""
    return RangeSet(part for one in done if generation < one.generation for part in one.erased)
