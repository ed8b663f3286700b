"""The sink `parquet` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Opened, PlainSink
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.sinks.reading import parquet_rows
from tidemark.sinks.texts import of_file


class PlainParquet(PlainSink):
    left_by_erasing = "no reader of Tidemark shows the rows; their bytes stay in files until `tidemark compact --write`"

    def erase(
        self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet, erased: RangeSet
    ) -> None:
        """Nothing: files are immutable, and a compaction writes new ones without the rows."""

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        # Arrow takes a third of a second to load, and most programs that open a stream never sweep.
        from tidemark.sinks.parquet import files

        files.sweep(place["base"], record)

    def rows(self, opened: Opened, settings: ParquetSink, limit: int) -> Iterator[dict[str, Any]]:
        return map(of_file, parquet_rows(opened.book, settings.name, limit))
