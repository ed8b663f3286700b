"""Compaction of the sink `delta_latest`: that of its history, and a vacuum of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyarrow import fs

from tidemark.ledger.erasures import erased
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import CompactionRequest, Opened, Replaceable
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.latest.compacting import HistoryCompaction
from tidemark.sinks.parquet import files, folders


class DeltaLatestCompaction(HistoryCompaction):
    """The compaction of the sink `delta_latest`, without Spark."""

    def planned(self, opened: Opened, settings: DeltaLatestSink, asked: CompactionRequest) -> Sequence[Replaceable]:
        history = super().planned(opened, settings, asked)
        base = settings.base(opened.connections)
        gone = {*_older(base, settings.keep_hours), *_with_erased(opened, base)}
        if not gone:
            return history
        sizes = [size for name in gone for size in _size(f"{base}/{name}")]
        return [*history, Replaceable([f"{number_of(len(gone), 'file')} of older versions"], 0, len(gone), sum(sizes))]


def vacuum(opened: Opened, settings: DeltaLatestSink) -> None:
    """Remove files that only older versions of the table name: old ones, and all that hold what was erased. Repeatable."""
    base = settings.base(opened.connections)
    for name in _with_erased(opened, base):
        with folders.opened(f"{base}/{name}") as (filesystem, path):
            folders.remove(filesystem, path)
    if delta_table.exists(base):
        table = delta_table.opened(base)
        # In full: files too that a process has left which died before it had committed them.
        table.vacuum(settings.keep_hours, dry_run=False, enforce_retention_duration=False, full=True)


def _with_erased(opened: Opened, base: str) -> list[str]:
    """Not those that no version names, which may be about to be committed."""
    return only_in_older(base, erased(opened.book.committed()), full=False)


def only_in_older(base: str, wanted: RangeSet, *, full: bool = True) -> list[str]:
    """The files that the newest version does not name, and that have rows of these offsets. `full`: that no version names."""
    return [name for name in _older(base, 0, full=full) if files.holds(f"{base}/{name}", wanted)] if wanted else []


def _older(base: str, hours: int, *, full: bool = True) -> list[str]:
    """The files that the newest version does not name, and has not for so long, below the base."""
    if not delta_table.exists(base):
        return []
    return list(delta_table.opened(base).vacuum(hours, dry_run=True, enforce_retention_duration=False, full=full))


def _size(name: str) -> Iterator[int]:
    with folders.opened(name) as (filesystem, path):
        info = filesystem.get_file_info(path)
        if info.type == fs.FileType.File:
            yield info.size
