"""The sink `hbase_aggregates` without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidemark.ledger.lookup import CoveringWindows
from tidemark.sinks.aggregates.sink import TotalsAdmin, shown, under
from tidemark.sinks.contract import KeyedRowFound, SinkContext
from tidemark.sinks.hbase.aggregates.settings import TYPE, HBaseAggregatesSink
from tidemark.sinks.hbase.keyed.sink import KeyedAdmin
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import text

if TYPE_CHECKING:
    from tidemark.sinks.hbase.keyed.publishing import PublishedTable
    from tidemark.sinks.hbase.keyed.rows import KeyedRow
    from tidemark.sinks.hbase.keyed.table import KeyedTable


class HBaseAggregatesAdmin(TotalsAdmin, KeyedAdmin):
    kind = TYPE

    def published(self, table: KeyedTable, base: str) -> PublishedTable:
        from tidemark.sinks.hbase.aggregates.publishing import AggregatedRows

        return AggregatedRows(table, base)

    def rows(self, opened: SinkContext, settings: HBaseAggregatesSink, limit: int) -> Iterator[dict[str, Any]]:
        """Key and values of each key, without a coordinate."""

        def of_key(row: KeyedRow) -> dict[str, Any]:
            return shown(
                settings, {name: text(one) for name, one in {**row.fields, **row.key_fields(settings.key)}.items()}
            )

        yield from self.read(opened, settings, lambda found: [*islice(map(of_key, found.rows()), limit)])

    def under_key(
        self, opened: SinkContext, settings: HBaseAggregatesSink, row: StoredRow, windows: CoveringWindows
    ) -> KeyedRowFound | None:
        """The total of the message's key."""
        from tidemark.sinks.hbase.keyed.rows import key_text, row_key

        key = {name: row.fields.get(name) for name in settings.key}
        wanted = row_key("", [key_text(opened.fields[name], value) for name, value in key.items()], TYPE)
        total = self.read(opened, settings, lambda found: found.row(wanted))
        return under(settings, key, None if total is None else total.fields)
