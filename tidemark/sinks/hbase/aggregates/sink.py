"""The sink `hbase_aggregates` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Book, Standing
from tidemark.ledger.lookup import CoveringWindows
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.counting import number_of
from tidemark.sinks.contract import NO_KEY, Columns, Erasing, Opened, PlainSink, UnderKey
from tidemark.sinks.first_reads import reads_first
from tidemark.sinks.hbase.aggregates.rows import block_qualifier, row_key
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.states import Aggregate, merged
from tidemark.sinks.hbase.aggregates.table import (
    AggregateTable,
    MadeOfErased,
    SteadyRows,
    Totals,
    aggregate_table,
    place_of,
)
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import text

# HBase looks at a sixteenth of the table before it gives the first row of a scan for few columns.
_ERASING_MS = 10 * 60 * 1000


def _to_erase(
    connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]
) -> tuple[AggregateTable, MadeOfErased]:
    """The table, and what of it is made of erased messages.

    A table that was recreated has other blocks than the place says. One that is gone holds nothing.
    """
    table = aggregate_table(connections, place["connection"], place["table"], _ERASING_MS)
    erased = [(one.generation, one.erased) for one in done]
    return table, MadeOfErased(done[0].standing, erased, table.block())


class PlainAggregates(PlainSink):
    looks_quickly = True
    left_by_erasing = ""

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        return aggregate_table(connections, place["connection"], place["table"]).owner()

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        aggregate_table(connections, place["connection"], place["table"]).take_over(ledger)

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        table, made_of = _to_erase(connections, place, [erasing])
        table.erase(made_of)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        table, made_of = _to_erase(connections, place, done)
        return table.late(made_of)

    def reach(self, connections: Connections, place: Mapping[str, str], standing: Standing) -> None:
        aggregate_table(connections, place["connection"], place["table"]).block()

    def place(
        self, opened: Opened, settings: HBaseAggregatesSink, lane: str, seq: int, generation: int
    ) -> dict[str, str]:
        return place_of(settings.hbase, settings.table, settings.whole_blocks)

    # No sweep: a key that a window no longer contributes to keeps its old cell, which does not count.

    def rows_at(
        self, opened: Opened, settings: HBaseAggregatesSink, at: Coordinate, record: Record
    ) -> list[StoredRow] | str:
        return NO_KEY

    def under_key(
        self, opened: Opened, settings: HBaseAggregatesSink, row: StoredRow, windows: CoveringWindows
    ) -> UnderKey | None:
        """The contribution of the message's unit to its key. The total of a key has contributions of any number of units."""
        aggregates = settings.aggregates(opened.fields)
        key = {name: row.fields.get(name) for name in settings.key}
        counting = windows.counting(settings.name)
        first = next((one for one in windows.windows if reads_first(one)), None)
        if counting is None or first is None:
            return None
        table = aggregate_table(opened.connections, settings.hbase, settings.table)
        at, block = row.place.partition, table.block()
        covers = opened.book.covers(first.window)
        start = covers.at_or_above(at, row.place.offset - row.place.offset % block) or row.place.offset
        unit = f"the block of {at} that begins at {start}"
        made = table.contribution(row_key(list(key.values())), block_qualifier(at, start), counting.attempt.generation)
        if made is None:
            return UnderKey(key, f"{unit} contributes nothing to its key", {})
        rows = number_of(made.rows, "row")
        return UnderKey(key, f"what {unit} contributes to its key, of {rows}", merged(aggregates, [made.states]))

    def rows(self, opened: Opened, settings: HBaseAggregatesSink, limit: int) -> Iterator[dict[str, Any]]:
        """Key and values of each key, without a coordinate."""
        aggregates = settings.aggregates(opened.fields)
        table = aggregate_table(opened.connections, settings.hbase, settings.table)
        # All of them as of one moment: this many keys are in memory at once.
        for key, values in self._steady(opened.book, table, aggregates, limit):
            yield {
                "key": {name: text(part) for name, part in zip(settings.key, key, strict=True)},
                "values": {one.name: text(values.get(one.name)) for one in aggregates},
            }

    @staticmethod
    def _steady(book: Book, table: AggregateTable, aggregates: Sequence[Aggregate], limit: int) -> list[Totals]:
        while True:
            known = SteadyRows.of(book, table)
            totals = list(islice(known.totals(aggregates), limit))
            if not known.erased_since():
                return totals

    def in_columns(
        self, settings: HBaseAggregatesSink, fields: Sequence[str], rows: Sequence[dict[str, Any]]
    ) -> Columns:
        return Columns(
            (*settings.key, *settings.values), [[*one["key"].values(), *one["values"].values()] for one in rows]
        )
