"""The sink `parquet` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.adopting import Left
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import Opened, PlainSink
from tidemark.sinks.hbase.table import StoredRow
from tidemark.sinks.parquet import compactions
from tidemark.sinks.parquet.compactions import Span, described, spans
from tidemark.sinks.parquet.parts import Part, steady
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.sinks.reading import parquet_rows
from tidemark.sinks.texts import of_file


class PlainParquet(PlainSink):
    def erase(
        self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet, erased: RangeSet
    ) -> None:
        """Nothing: files are immutable, and a compaction writes new ones without the rows."""

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        # Arrow takes a third of a second to load, and most programs that open a stream never sweep.
        from tidemark.sinks.parquet import files

        files.sweep(place["base"], record)

    def left(self, opened: Opened, settings: ParquetSink) -> Iterator[Left]:
        from tidemark.sinks.parquet import files

        return files.left(settings.base(opened.connections))

    def place(self, opened: Opened, settings: ParquetSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        from tidemark.sinks.parquet import files

        base = settings.base(opened.connections)
        return {"base": base, "folder": files.attempt_folder(base, lane, seq, generation)}

    def remains(self, opened: Opened, sink: str, erased: RangeSet) -> str:
        from tidemark.sinks.parquet.files import holds_erased

        def read(parts: list[Part], _: Authority) -> list[Span]:
            # In a dry run, nothing is erased yet.
            wanted = (replace(part, erased=erased & RangeSet(_covered(part))) for part in parts)
            return [span for part in wanted if holds_erased(part) for span in spans(part.names)]

        held = steady(opened.book, sink, read)
        if not held:
            return ""
        return f"no reader shows it; files of {described(held)} hold it until: tidemark compact {opened.book.stream} --write"

    def rows_at(self, opened: Opened, settings: ParquetSink, at: Coordinate, record: Record) -> list[StoredRow] | str:
        from tidemark.sinks.parquet.looking import rows_of_message

        place = next((one.place for one in record.places if one.name == settings.name), None)
        if place is None:
            return []
        while True:
            # A compaction removes the folders that it has replaced.
            known = compactions.find(opened.book, settings.name)
            folder = known.value.located().get((record.lane, record.seq)) if known else None
            paths = [place["folder"] if folder is None else folder.folder]
            try:
                return rows_of_message(paths, at, record, compacted=folder is not None)
            except Exception:
                if known == compactions.find(opened.book, settings.name):
                    raise

    def rows(self, opened: Opened, settings: ParquetSink, limit: int) -> Iterator[dict[str, Any]]:
        return map(of_file, parquet_rows(opened.book, settings.name, limit))


def _covered(part: Part) -> Iterator[OffsetRange]:
    return (one for window in part.windows for one in window.covers)
