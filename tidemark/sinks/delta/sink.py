"""The sink `delta` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Standing
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import Erasing, Opened, PlainSink, Taken
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.reading import delta_rows
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import of_file
from tidemark.types.renamed_fields import NEVER


class PlainDelta(PlainSink):
    rows_by_coordinate = True
    owner_asked = True
    left_by_erasing = "the rows are deleted; files of older versions of the table keep their bytes until it is vacuumed"

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        from tidemark.sinks.delta import table

        return table.owner(place["base"])

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        from tidemark.sinks.delta import table

        table.take_over(place["base"], ledger)

    def reach(self, connections: Connections, place: Mapping[str, str], standing: Standing) -> None:
        # Needs an extra of the package, which other sinks do not need.
        from tidemark.sinks.delta import table

        table.check_there(place["base"], (one.record for one in standing.windows))

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        self.reach(connections, place, erasing.standing)
        super().erase(connections, place, erasing)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        from tidemark.sinks.delta import table
        from tidemark.sinks.parquet import files

        # Also of a window of which other rows count: one that was committed before it was written may have come late.
        by_generation = sorted(table.files_of(place["base"]).items())
        gone = ((_older_than(done, generation), paths) for generation, paths in by_generation)
        return sum(1 for erased, paths in gone if erased and files.have(paths, erased))

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        from tidemark.sinks.delta import table

        table.check_there(place["base"], [record])
        # An attempt may have died before it made the table.
        if table.exists(place["base"]):
            table.sweep(place["base"], record, covers)

    def check_fields(self, opened: Opened, settings: DeltaSink) -> None:
        from tidemark.sinks.delta import table

        table.check_columns(settings.base(opened.connections), opened.fields, opened.was)

    def place(self, opened: Opened, settings: DeltaSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        from tidemark.sinks.delta import table

        base = settings.base(opened.connections)
        return {"base": base, "folder": table.partition_folder(base, generation)}

    def rows_at(self, opened: Opened, settings: DeltaSink, at: Coordinate, record: Record) -> list[StoredRow] | str:
        from tidemark.sinks.delta.table import check_there, files_of
        from tidemark.sinks.parquet.row_lookup import rows_of_message

        place = next((one.place for one in record.places if one.name == settings.name), None)
        if place is not None:
            check_there(place["base"], [record])
        # What no longer counts is deleted, so a window may have no file left. A file is removed by a vacuum alone.
        paths = [] if place is None else files_of(place["base"]).get(record.attempt.generation, [])
        return rows_of_message(paths, at, record, compacted=False)

    def rows(self, opened: Opened, settings: DeltaSink, limit: int) -> Iterator[dict[str, Any]]:
        return map(of_file, delta_rows(opened.book, settings.name, limit))

    def rows_within(
        self, opened: Opened, settings: Any, within: OffsetRange, take: Callable[[Iterator[dict[str, Any]]], Taken]
    ) -> Taken:
        from tidemark.sinks.delta.table import parts_that_count
        from tidemark.sinks.parquet.row_lookup import rows_within

        authority, parts = parts_that_count(opened.book, settings.name)
        return take(rows_within(parts, authority, within, NEVER))


def _older_than(done: Sequence[Erasing], generation: int) -> RangeSet:
    """The offsets that erasures have taken of whatever a generation has written."""
    return RangeSet(part for one in done if generation < one.generation for part in one.erased)
