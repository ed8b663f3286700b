"""The sink `hbase` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import TableMissing, hbase_endpoint
from tidemark.ledger.ledger import CommittedSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import Erasing, SinkAdmin, SinkContext, T
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.hbase.table import result_table, stream_table
from tidemark.sinks.reading import hbase_rows, pieces, rows_of_pieces
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import place, texts


class HBaseAdmin(SinkAdmin):
    rows_by_coordinate = True
    left_by_erasing = ""

    def data_sets(self, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        return [table_as_data_set(connections, place)]

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        with suppress(TableMissing):
            return result_table(connections, place["connection"], place["table"]).owner()
        return {}

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        result_table(connections, place["connection"], place["table"]).take_over(ledger)

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        # A table that was dropped holds nothing. The stream file may have named another one for years.
        with suppress(TableMissing):
            table = result_table(connections, place["connection"], place["table"])
            table.sweep(erasing.erased, erasing.generation, for_good=True)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        with suppress(TableMissing):
            table = result_table(connections, place["connection"], place["table"])
            return sum(table.older(one.erased, one.generation) for one in done)
        return 0

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
        with suppress(TableMissing):
            result_table(connections, place["connection"], place["table"]).owner()

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        # It may have been dropped since the commit.
        with suppress(TableMissing):
            result_table(connections, place["connection"], place["table"]).sweep(covers, record.attempt.generation)

    looks_quickly = True

    def rows_at(
        self, opened: SinkContext, settings: HBaseSink, at: Coordinate, record: Record
    ) -> list[StoredRow] | str:
        return stream_table(opened, settings.hbase, settings.table).rows_at(at, record.attempt.generation)

    def place(self, opened: SinkContext, settings: HBaseSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        return {"connection": settings.hbase, "table": settings.table}

    def rows(self, opened: SinkContext, settings: HBaseSink, limit: int) -> Iterator[dict[str, Any]]:
        for row in hbase_rows(opened.ledger, stream_table(opened, settings.hbase, settings.table), settings.name):
            yield _shown(row)

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        table, view = stream_table(opened, settings.hbase, settings.table), opened.ledger.view(settings.name)
        return take(map(_shown, rows_of_pieces(opened.ledger, table, view, pieces(RangeSet([within])))))


def table_as_data_set(connections: Connections, place: Mapping[str, str]) -> tuple[str, str]:
    """A table that a receipt names, as lineage tools do: `hbase://host:port` and the table."""
    host, port = hbase_endpoint(connections(place["connection"])).gateways[0]
    return f"hbase://{host}:{port}", place["table"]


def _shown(row: StoredRow) -> dict[str, Any]:
    return {**place(row.place), "fields": texts(row.fields)}
