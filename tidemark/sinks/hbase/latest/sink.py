"""The sink `hbase_latest` without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Standing
from tidemark.ledger.lookup import CoveringWindows
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.sinks.contract import NO_KEY, Erasing, Opened, PlainSink, UnderKey
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.reading import LookedUp
from tidemark.sinks.stored_rows import StoredRow
from tidemark.sinks.texts import place, texts

# HBase looks at a sixteenth of the table before it gives the first row of a scan for few versions.
_ERASING_MS = 10 * 60 * 1000


class PlainLatest(PlainSink):
    looks_quickly = True
    versions_by_order = True
    left_by_erasing = ""

    def reach(self, connections: Connections, place: Mapping[str, str], standing: Standing) -> None:
        from tidemark.sinks.hbase.latest.table import latest_table

        latest_table(connections, place["connection"], place["table"]).exists()

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        from tidemark.sinks.hbase.latest.table import latest_table

        table = latest_table(connections, place["connection"], place["table"])
        return table.owner() if table.exists() else {}

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        from tidemark.sinks.hbase.latest.table import latest_table

        latest_table(connections, place["connection"], place["table"]).take_over(ledger)

    def highest_ordinal(self, connections: Connections, place: Mapping[str, str]) -> int:
        from tidemark.sinks.hbase.latest.table import latest_table

        return latest_table(connections, place["connection"], place["table"]).highest_ordinal()

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        from tidemark.sinks.hbase.latest.table import latest_table

        table = latest_table(connections, place["connection"], place["table"], _ERASING_MS)
        table.erase(erasing.erased, erasing.generation, Epochs(erasing.standing.topics).highest)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        from tidemark.sinks.hbase.latest.table import latest_table

        table = latest_table(connections, place["connection"], place["table"], _ERASING_MS)
        erased = ((one.generation, one.erased) for one in done)
        return table.late(erased, Epochs(done[0].standing.topics).highest)

    def place(self, opened: Opened, settings: HBaseLatestSink, lane: str, seq: int, generation: int) -> dict[str, str]:
        return {"connection": settings.hbase, "table": settings.table}

    # No sweep: the keys that an older attempt wrote are unknown. An old cell lies below newer ones, or does not count.

    def rows_at(
        self, opened: Opened, settings: HBaseLatestSink, at: Coordinate, record: Record
    ) -> list[StoredRow] | str:
        return NO_KEY

    def under_key(
        self, opened: Opened, settings: HBaseLatestSink, row: StoredRow, windows: CoveringWindows
    ) -> UnderKey | None:
        from tidemark.sinks.hbase.latest.table import latest_table

        table = latest_table(opened.connections, settings.hbase, settings.table, was=opened.was)
        key = {name: row.fields.get(name) for name in settings.key}
        topic = row.place.partition.topic
        counts = LookedUp(opened.book, settings.name)
        newest = counts.steadily(lambda: table.newest_of(topic, list(key.values()), counts))
        if newest is None:
            return UnderKey(key, "no value of its key counts", {})
        same = (newest.place.partition, newest.place.offset) == (row.place.partition, row.place.offset)
        whose = "this message" if same else f"{newest.place.partition}@{newest.place.offset}"
        what = "a tombstone" if newest.mark.tombstone else "the newest value"
        return UnderKey(key, f"{what} of its key, from {whose}", newest.fields)

    def rows(self, opened: Opened, settings: HBaseLatestSink, limit: int) -> Iterator[dict[str, Any]]:
        """The newest value of each key, and whether that is a tombstone."""
        # Thrift 2 takes a third of a second to load, and a sweep does not need it.
        from tidemark.sinks.hbase.latest.table import SteadyValues, latest_table

        table = latest_table(opened.connections, settings.hbase, settings.table, was=opened.was)
        for row in SteadyValues.of(opened.book, table, settings.name).newest():
            yield {**place(row.place), "tombstone": row.mark.tombstone, "fields": texts(row.fields)}
