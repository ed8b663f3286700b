"""Compaction of a sink with a Delta table of a row for each key: that of its history, and a vacuum of the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from pyarrow import fs

from tidemark.ledger.erasures import erased
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import CompactionRequest, Replaceable, SinkContext
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.latest.sink import DeltaLatestAdmin
from tidemark.sinks.latest.compacting import HistoryCompaction
from tidemark.sinks.latest.rows import history_of
from tidemark.sinks.latest.settings import VersionedTable
from tidemark.sinks.latest.sink import LakeTableAdmin
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.files import Holding


class DeltaTableCompaction(HistoryCompaction):
    """The compaction of such a sink, without Spark."""

    admin: ClassVar[LakeTableAdmin]

    def planned(self, opened: SinkContext, settings: VersionedTable, asked: CompactionRequest) -> Sequence[Replaceable]:
        history = super().planned(opened, settings, asked)
        base = settings.base(opened.connections)
        gone = {*_older(base, settings.keep_hours), *_with_erased(opened, settings, self.admin)}
        if not gone:
            return history
        sizes = [size for name in gone for size in _size(f"{base}/{name}")]
        return [*history, Replaceable([f"{number_of(len(gone), 'file')} of older versions"], 0, len(gone), sum(sizes))]


class DeltaLatestCompaction(DeltaTableCompaction):
    """The compaction of the sink `delta_latest`."""

    admin = DeltaLatestAdmin()


def vacuum(opened: SinkContext, settings: VersionedTable, admin: LakeTableAdmin) -> None:
    """Remove files that only older versions of the table name: old ones, and all that hold what was erased. Repeatable."""
    base = settings.base(opened.connections)
    for name in _with_erased(opened, settings, admin):
        with folders.opened(f"{base}/{name}") as (filesystem, path):
            folders.remove(filesystem, path)
    if delta_table.exists(base):
        table = delta_table.opened(base)
        # In full: files too that a process has left which died before it had committed them.
        table.vacuum(settings.keep_hours, dry_run=False, enforce_retention_duration=False, full=True)


def _with_erased(opened: SinkContext, settings: VersionedTable, admin: LakeTableAdmin) -> list[str]:
    """Not those that no version names, which may be about to be committed."""
    base, wanted = settings.base(opened.connections), erased(opened.ledger.committed())
    holding = admin.holding(opened, settings.name, history_of(base), wanted)
    return only_in_older(base, wanted, holding, full=False)


def only_in_older(base: str, wanted: RangeSet, holding: Holding, *, full: bool = True) -> list[str]:
    """The files that the newest version does not name, and that have rows of these offsets. `full`: that no version names.

    `holding`: whether a file has, or its totals have counted, any.
    """
    return [name for name in _older(base, 0, full=full) if holding(f"{base}/{name}")] if wanted else []


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
