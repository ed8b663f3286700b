"""The remains of erased offsets in an Iceberg table: files that older snapshots name, and those that none names."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from tidemark.ledger.erased import places_to_clear
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.contract import Opened
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg.catalog import located
from tidemark.sinks.iceberg.compacting import VersionSeen, listed, named_files, steadily
from tidemark.sinks.iceberg.live_files import files_of_all
from tidemark.sinks.iceberg.table import TYPE, check_there


def still_held(opened_stream: Opened, sink: str, erased: RangeSet) -> str:
    """The files of a sink's tables that have rows of these offsets, in words; empty for none."""
    snapshots = unnamed = 0
    places = (one.place for one in places_to_clear(opened_stream.book))
    for place in (one.place for one in places if one.name == sink and one.type == TYPE):
        where = located(opened_stream.connections, place)
        # A compaction may remove them meanwhile.
        held = steadily(where, partial(_held, erased))
        snapshots, unnamed = snapshots + held[0], unnamed + held[1]
    older = number_of(snapshots, "file", "of older snapshots holds", "of older snapshots hold")
    died = number_of(
        unnamed, "file", "that died on its way into the table holds", "that died on their way into the table hold"
    )
    said = [f"{older} it until they expire"] if snapshots else []
    said += [f"{died} it for a day"] if unnamed else []
    return ", ".join(said)


def _held(erased: RangeSet, seen: VersionSeen) -> tuple[int, int]:
    """How many files with rows of these offsets older snapshots name, and how many none names."""
    # Before the table: what is named meanwhile is none of its commits' copies.
    written = [name for name, _ in listed(seen.where.base, "data") if name.endswith(".parquet")]
    table = check_there(seen.where, ())
    if table is None:
        return 0, 0
    by_snapshots = files_of_all(table)
    files = sum(one.may_have(erased, MAX_OFFSET) and data_files.hold(one.path, erased) for one in by_snapshots)
    return files, sum(_may_hold(name, erased) for name in {*written} - named_files(table))


def _may_hold(name: str, erased: RangeSet) -> bool:
    """As `hold`, of a file that may not have been written to its end."""
    try:
        return data_files.hold(name, erased)
    except pa.ArrowInvalid:
        return True
