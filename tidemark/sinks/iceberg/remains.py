"""The remains of erased offsets in an Iceberg table: files that older snapshots name, and those that none names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from pyiceberg.table.refs import MAIN_BRANCH

from tidemark.ledger.erasures import erased as erased_by
from tidemark.offsets.counting import named_few, number_of
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.contract import Erasing, SinkContext
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg.catalog import CatalogTable
from tidemark.sinks.iceberg.compacting import VersionSeen, listed, named_files, steadily
from tidemark.sinks.iceberg.holding import FilesOfOffsets, HoldingOf, by_rows, unnamed_holds
from tidemark.sinks.iceberg.live_files import LiveFile, live_files
from tidemark.sinks.iceberg.table import check_there
from tidemark.sinks.parquet.files import Holding


def still_held(
    opened: SinkContext, sink: str, tables: Iterable[CatalogTable], erased: RangeSet, holding_of: HoldingOf = by_rows
) -> str:
    """The files of a sink's tables that have these offsets, in words, with the way to be rid of them; empty for none."""
    done = erased_by(opened.ledger.committed()) & erased
    # A compaction may remove them meanwhile.
    said = [one for where in tables for one in steadily(where, partial(_said, erased, done, holding_of))]
    compact = f"tidemark compact {opened.ledger.stream} --sink {sink}"
    return f"no reader of the newest snapshot sees it; {', '.join(said)}: {compact}" if said else ""


def came_late(where: CatalogTable, done: Sequence[Erasing]) -> int:
    """How many files of the newest snapshot have rows that were erased: published after the erasure had cleared the table."""

    def late(seen: VersionSeen) -> int:
        table = check_there(seen.where, ())
        files = () if table is None else live_files(table)
        return sum(any(_has(file, one.erased, one.generation) for one in done) for file in files)

    return steadily(where, late)


def _has(file: LiveFile, wanted: RangeSet, below: int) -> bool:
    return file.may_have(wanted, below) and data_files.hold(file.path, wanted, below)


def _late(files: Iterable[LiveFile], done: RangeSet, holds: Holding) -> set[str]:
    return {one.path for one in files if one.may_have(done, MAX_OFFSET) and holds(one.path)}


def _said(erased: RangeSet, done: RangeSet, holding_of: HoldingOf, seen: VersionSeen) -> list[str]:
    """The files with these offsets that older snapshots name, those that a tag or a branch keeps, and those that none names.

    Those of the newest snapshot count as older ones: an erasure that is still to come makes copies of them. But not those with
    what was erased before (`done`), which has come late.
    """
    # Before the table: what is named meanwhile is none of its commits' copies.
    written = [name for folder in ("data", "metadata") for name, _ in listed(seen.where.base, folder)]
    table = check_there(seen.where, ())
    if table is None:
        return []
    late = _late(live_files(table), done, holding_of(done)) if done else set()
    held = FilesOfOffsets(table, erased, late, holding_of).files
    kept = {
        f"the {ref.snapshot_ref_type} {name}": {one.path for one in held if ref.snapshot_id in one.snapshots}
        for name, ref in sorted(table.metadata.refs.items())
        if name != MAIN_BRANCH
    }
    older = [one.path for one in held if not any(one.path in some for some in kept.values())]
    told = {*written} - named_files(table)
    holds = holding_of(erased)
    unnamed = [name for name in sorted(told) if _is_read(name) and unnamed_holds(table, name, erased, holds)]
    return [
        *_files(table.location(), older, "of older snapshots", "it until they expire"),
        *(
            f"{line}, which other programs have made: remove {by}, and then"
            for by, some in kept.items()
            for line in _files(table.location(), sorted(some), f"of {by}", "it")
        ),
        *_files(table.location(), unnamed, "that died on the way into the table", "it for a day"),
    ]


def _is_read(name: str) -> bool:
    return name.endswith((".parquet", ".avro"))


def _files(base: str, paths: Sequence[str], whose: str, until: str) -> Iterator[str]:
    if paths:
        names = named_few([one.removeprefix(f"{base}/") for one in paths])
        yield f"{number_of(len(paths), 'file')} {whose} {'holds' if len(paths) == 1 else 'hold'} {until} ({names})"
