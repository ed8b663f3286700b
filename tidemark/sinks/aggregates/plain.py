"""The sink `hbase_aggregates` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.aggregates.rows import qualifier
from tidemark.sinks.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.aggregates.table import aggregate_table, place_of, totals
from tidemark.sinks.contract import Columns, Opened, PlainSink
from tidemark.sinks.texts import text


class PlainAggregates(PlainSink):
    left_by_erasing = ""

    def erase_windows(
        self,
        connections: Connections,
        place: Mapping[str, str],
        record: Record,
        covers: RangeSet,
        erased: RangeSet,
        windows: Sequence[Record],
    ) -> None:
        table = aggregate_table(connections, place["connection"], place["table"])
        table.erase(covers, {qualifier(one.lane, one.seq) for one in windows}, record.attempt.generation)

    def place(
        self, opened: Opened, settings: HBaseAggregatesSink, lane: str, seq: int, generation: int
    ) -> dict[str, str]:
        return place_of(settings.hbase, settings.table, settings.whole_blocks)

    # No sweep: a key that a window no longer contributes to keeps its old cell, which does not count.

    def rows(self, opened: Opened, settings: HBaseAggregatesSink, limit: int) -> Iterator[dict[str, Any]]:
        """Key and values of each key, without a coordinate."""
        aggregates = settings.aggregates(opened.fields)
        table = aggregate_table(opened.connections, settings.hbase, settings.table)
        for key, values in totals(opened.book, table, aggregates):
            yield {
                "key": {name: text(part) for name, part in zip(settings.key, key, strict=True)},
                "values": {one.name: text(values.get(one.name)) for one in aggregates},
            }

    def in_columns(
        self, settings: HBaseAggregatesSink, fields: Sequence[str], rows: Sequence[dict[str, Any]]
    ) -> Columns:
        return Columns(
            (*settings.key, *settings.values), [[*one["key"].values(), *one["values"].values()] for one in rows]
        )
