"""The sink `hbase_latest` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from tidemark.ledger.lookup import CoveringWindows
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import KeyedRowFound, SinkContext, T
from tidemark.sinks.hbase.keyed.sink import KeyedAdmin
from tidemark.sinks.hbase.latest.settings import TYPE, HBaseLatestSink
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import place as at_place
from tidemark.sinks.texts import texts

if TYPE_CHECKING:
    from tidemark.sinks.hbase.keyed.publishing import PublishedTable
    from tidemark.sinks.hbase.keyed.rows import KeyedRow
    from tidemark.sinks.hbase.keyed.table import KeyedTable


class HBaseLatestAdmin(KeyedAdmin):
    kind = TYPE
    versions_by_order = True

    def published(self, table: KeyedTable, base: str) -> PublishedTable:
        from tidemark.sinks.hbase.latest.publishing import NewestRows

        return NewestRows(table, base)

    def rows(self, opened: SinkContext, settings: HBaseLatestSink, limit: int) -> Iterator[dict[str, Any]]:
        """The newest row of each key, and whether it says that the key is gone."""
        yield from self.read(opened, settings, lambda newest: [*islice(_shown(settings, newest.rows()), limit)])

    def rows_within(
        self,
        opened: SinkContext,
        settings: Any,
        within: OffsetRange,
        take: Callable[[Iterator[dict[str, Any]]], T],
    ) -> T:
        """Of the newest rows of all keys those that were made of messages at these offsets."""
        wanted = RangeSet([within])
        return self.read(opened, settings, lambda newest: take(_shown(settings, newest.within(wanted))))

    def under_key(
        self, opened: SinkContext, settings: HBaseLatestSink, row: StoredRow, windows: CoveringWindows
    ) -> KeyedRowFound | None:
        from tidemark.sinks.hbase.keyed.rows import key_text, row_key

        key = {name: row.fields.get(name) for name in settings.key}
        named = [key_text(opened.fields[name], value) for name, value in key.items()]
        wanted = row_key(row.place.partition.topic, named, TYPE)
        newest = self.read(opened, settings, lambda newest: newest.row(wanted))
        if newest is None:
            return KeyedRowFound(key, "no row of its key counts", {})
        at = newest.place
        same = (at.partition, at.offset) == (row.place.partition, row.place.offset)
        whose = "this message" if same else f"{at.partition}@{at.offset}"
        what = "no row, as its key is gone" if newest.mark.gone else "the newest row of its key"
        return KeyedRowFound(key, f"{what}, by {whose}" if newest.mark.gone else f"{what}, from {whose}", newest.fields)


def _shown(settings: HBaseLatestSink, rows: Iterator[KeyedRow]) -> Iterator[dict[str, Any]]:
    """Of a key that is gone, the table has the key alone."""
    for row in rows:
        fields = {**row.key_fields(settings.key), **row.fields} if row.mark.gone else row.fields
        yield {**at_place(row.place), "fields": texts(fields), "deleted": row.mark.gone}
