"""The remains of erased offsets in an Iceberg table: files that older snapshots name, and those that none names."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from tidemark.ledger.erasures import erased as erased_by
from tidemark.ledger.erasures import places_to_clear
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.contract import Erasing, Opened
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg.catalog import CatalogTable, located
from tidemark.sinks.iceberg.compacting import VersionSeen, listed, named_files, steadily
from tidemark.sinks.iceberg.live_files import LiveFile, files_of_all, live_files
from tidemark.sinks.iceberg.table import TYPE, check_there


def still_held(opened_stream: Opened, sink: str, erased: RangeSet) -> str:
    """The files of a sink's tables that have rows of these offsets, in words; empty for none."""
    snapshots = unnamed = 0
    done = erased_by(opened_stream.book.committed()) & erased
    places = (one.place for one in places_to_clear(opened_stream.book))
    for place in (one.place for one in places if one.name == sink and one.type == TYPE):
        where = located(opened_stream.connections, place)
        # A compaction may remove them meanwhile.
        held = steadily(where, partial(_held, erased, done))
        snapshots, unnamed = snapshots + held[0], unnamed + held[1]
    older = number_of(snapshots, "file", "of older snapshots holds", "of older snapshots hold")
    died = number_of(
        unnamed, "file", "that died on its way into the table holds", "that died on their way into the table hold"
    )
    said = [f"{older} it until they expire"] if snapshots else []
    said += [f"{died} it for a day"] if unnamed else []
    return ", ".join(said)


def came_late(where: CatalogTable, done: Sequence[Erasing]) -> int:
    """How many files of the newest snapshot have rows that were erased: published after the erasure had cleared the table."""

    def late(seen: VersionSeen) -> int:
        table = check_there(seen.where, ())
        files = () if table is None else live_files(table)
        return sum(any(_has(file, one.erased, one.generation) for one in done) for file in files)

    return steadily(where, late)


def _has(file: LiveFile, wanted: RangeSet, below: int = MAX_OFFSET) -> bool:
    return file.may_have(wanted, below) and data_files.hold(file.path, wanted, below)


def _held(erased: RangeSet, done: RangeSet, seen: VersionSeen) -> tuple[int, int]:
    """How many files with rows of these offsets older snapshots name, and how many none names.

    Those of the newest snapshot count as older ones: an erasure that is still to come makes copies of them. But not those with
    what was erased before (`done`), which has come late.
    """
    # Before the table: what is named meanwhile is none of its commits' copies.
    written = [name for name, _ in listed(seen.where.base, "data") if name.endswith(".parquet")]
    table = check_there(seen.where, ())
    if table is None:
        return 0, 0
    late = {one.path for one in live_files(table) if _has(one, done)} if done else set()
    files = sum(_has(one, erased) for one in files_of_all(table) if one.path not in late)
    return files, sum(_may_hold(name, erased) for name in {*written} - named_files(table))


def _may_hold(name: str, erased: RangeSet) -> bool:
    """As `hold`, of a file that may not have been written to its end."""
    try:
        return data_files.hold(name, erased)
    except pa.ArrowInvalid:
        return True
