"""The sink `hbase_latest` without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.clients.connections import Connections
from tidemark.errors import Unreachable
from tidemark.ledger.book import Book
from tidemark.ledger.lookup import CoveringWindows
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.contract import Erasing, Opened, Taken, UnderKey
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.latest.sink import PlainLatest
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import place as at_place
from tidemark.sinks.texts import texts
from tidemark.types.renamed_fields import NEVER, Names

if TYPE_CHECKING:
    from tidemark.sinks.hbase.latest.publishing import LatestWithHistory, NewestInHBase
    from tidemark.sinks.hbase.latest.rows import LatestRow

T = TypeVar("T")

# HBase looks at all rows before it gives the first one of a few messages.
_SEARCHING_MS = 10 * 60 * 1000


class PlainHBaseLatest(PlainLatest):
    kind = "hbase_latest"

    def place_of_table(
        self, connections: Connections, place: Mapping[str, str], was: Names = NEVER
    ) -> LatestWithHistory:
        from tidemark.sinks.hbase.latest.publishing import LatestWithHistory
        from tidemark.sinks.hbase.latest.table import latest_table

        table = latest_table(connections, place["connection"], place["table"], _SEARCHING_MS, was)
        return LatestWithHistory(table, place["location"])

    def table_place(self, settings: HBaseLatestSink, base: str) -> dict[str, str]:
        return {"location": base, "connection": settings.hbase, "table": settings.table}

    def identity(self, connections: Connections, place: Mapping[str, str]) -> str | None:
        mark: str | None = self.place_of_table(connections, place).table.owner().get("id")
        return mark

    def publish_to(
        self, connections: Connections, place: Mapping[str, str], book: Book, sink: str, record: Record
    ) -> None:
        from tidemark.sinks.hbase.latest.publishing import publish

        publish(self.place_of_table(connections, place), book, sink, record)

    def take_out_of(self, connections: Connections, place: Mapping[str, str], sink: str, erasing: Erasing) -> None:
        from tidemark.sinks.hbase.latest.publishing import publish

        there = self.place_of_table(connections, place)
        if there.table.owner():
            publish(there, erasing.standing.book, sink, erasing.record, erasing.erased)

    def shown(self, book: Book, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        last, register = self.place_of_table(connections, place).table.published(), book.register()
        # Whatever it has shown for a ledger that was restored since, is looked at as a whole when that publishes.
        if register is None or last.restored != register[1].restored:
            return ()
        return [(last.lane, last.generation)] if last.number else ()

    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        self.place_of_table(connections, place).table.take_over(ledger)

    def check_fields(self, opened: Opened, settings: HBaseLatestSink) -> None:
        from tidemark.sinks.parquet import types

        types.check(settings.history(opened.connections).folder, opened.fields, opened.was)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        there = self.place_of_table(connections, place)
        mine = ("connection", "table")
        if not there.table.owner() and any(
            all(one.place.get(name) == place[name] for name in mine) for record in records for one in record.places
        ):
            raise Unreachable(
                f"{there.table} is gone, and windows have published there. Make it again by a replay of everything, into a "
                "table of another name"
            )

    def older(self, opened: Opened, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        return ""

    def rows(self, opened: Opened, settings: HBaseLatestSink, limit: int) -> Iterator[dict[str, Any]]:
        """The newest row of each key, and whether it says that the key is gone."""
        yield from self._read(opened, settings, lambda newest: [*islice(_shown(settings, newest.rows()), limit)])

    def rows_within(
        self, opened: Opened, settings: Any, within: OffsetRange, take: Callable[[Iterator[dict[str, Any]]], Taken]
    ) -> Taken:
        """Of the newest rows of all keys those that were made of messages at these offsets."""
        wanted = RangeSet([within])
        return self._read(opened, settings, lambda newest: take(_shown(settings, newest.within(wanted))))

    def under_key(
        self, opened: Opened, settings: HBaseLatestSink, row: StoredRow, windows: CoveringWindows
    ) -> UnderKey | None:
        from tidemark.sinks.hbase.latest.rows import key_text, row_key

        key = {name: row.fields.get(name) for name in settings.key}
        named = [key_text(opened.fields[name], value) for name, value in key.items()]
        wanted = row_key(row.place.partition.topic, named)
        newest = self._read(opened, settings, lambda newest: newest.row(wanted))
        if newest is None:
            return UnderKey(key, "no row of its key counts", {})
        at = newest.place
        same = (at.partition, at.offset) == (row.place.partition, row.place.offset)
        whose = "this message" if same else f"{at.partition}@{at.offset}"
        what = "no row, as its key is gone" if newest.mark.gone else "the newest row of its key"
        return UnderKey(key, f"{what}, by {whose}" if newest.mark.gone else f"{what}, from {whose}", newest.fields)

    def _read(self, opened: Opened, settings: HBaseLatestSink, take: Callable[[NewestInHBase], T]) -> T:
        from tidemark.sinks.hbase.latest.publishing import read

        base = settings.base(opened.connections)
        there = self.place_of_table(opened.connections, self.table_place(settings, base), opened.was)
        return read(there, opened.book, settings.name, take)


def _shown(settings: HBaseLatestSink, rows: Iterator[LatestRow]) -> Iterator[dict[str, Any]]:
    """Of a key that is gone, the table has the key alone."""
    for row in rows:
        fields = {**row.key_fields(settings.key), **row.fields} if row.mark.gone else row.fields
        yield {**at_place(row.place), "fields": texts(fields), "deleted": row.mark.gone}
