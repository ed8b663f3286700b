"""What an Iceberg table still holds of erased offsets: files that older snapshots name."""

from __future__ import annotations

from tidemark.ledger.erased import places_to_clear
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
from tidemark.sinks.contract import Opened
from tidemark.sinks.iceberg import data_files
from tidemark.sinks.iceberg.catalog import located, opened
from tidemark.sinks.iceberg.live_files import files_of_all
from tidemark.sinks.iceberg.table import TYPE


def held_by_snapshots(opened_stream: Opened, sink: str, erased: RangeSet) -> str:
    """The snapshots of a sink's tables that have rows of these offsets, in words; empty for none."""
    found = 0
    places = (one.place for one in places_to_clear(opened_stream.book))
    for place in (one.place for one in places if one.name == sink and one.type == TYPE):
        table = opened(located(opened_stream.connections, place))
        for one in files_of_all(table) if table is not None else ():
            if one.may_have(erased, MAX_OFFSET) and data_files.hold(one.path, erased):
                found += 1
    return f"{found} files of older snapshots" if found else ""
