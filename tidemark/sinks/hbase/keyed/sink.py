"""The sinks in HBase with a row for each key, without Spark."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from tidemark.clients.connections import Connections
from tidemark.errors import Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing, SinkContext
from tidemark.sinks.hbase.keyed.settings import KeyedTableSettings
from tidemark.sinks.hbase.sink import table_as_data_set
from tidemark.sinks.latest.sink import PublishedAdmin
from tidemark.types.renamed_fields import NEVER, Names

if TYPE_CHECKING:
    from tidemark.sinks.hbase.keyed.publishing import PublishedTable, RowsByKey
    from tidemark.sinks.hbase.keyed.table import KeyedTable

T = TypeVar("T")

# HBase looks at all rows before it gives the first one of a few messages.
_SEARCHING_MS = 10 * 60 * 1000


class KeyedAdmin(PublishedAdmin):
    """What both share. Each says what becomes of the rows."""

    @abstractmethod
    def published(self, table: KeyedTable, base: str) -> PublishedTable:
        """The table, with what becomes of its rows."""

    def place_of_table(self, connections: Connections, place: Mapping[str, str], was: Names = NEVER) -> PublishedTable:
        """The table that a receipt names."""
        from tidemark.sinks.hbase.keyed.table import keyed_table

        table = keyed_table(connections, place["connection"], place["table"], _SEARCHING_MS, was)
        return self.published(table, place["location"])

    def table_place(self, settings: KeyedTableSettings, base: str) -> dict[str, str]:
        return {"location": base, "connection": settings.hbase, "table": settings.table}

    def data_sets(self, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        return [table_as_data_set(connections, place)]

    def identity(self, connections: Connections, place: Mapping[str, str]) -> str | None:
        mark: str | None = self.place_of_table(connections, place).table.owner().get("id")
        return mark

    def publish_to(
        self, connections: Connections, place: Mapping[str, str], ledger: Ledger, sink: str, record: Record
    ) -> None:
        from tidemark.sinks.hbase.keyed.publishing import publish

        publish(self.place_of_table(connections, place), ledger, sink, record)

    def take_out_of(self, connections: Connections, place: Mapping[str, str], sink: str, erasing: Erasing) -> None:
        from tidemark.sinks.hbase.keyed.publishing import publish

        there = self.place_of_table(connections, place)
        if there.table.owner():
            publish(there, erasing.standing.ledger, sink, erasing.record, erasing.erased)

    def shown(self, ledger: Ledger, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        last, register = self.place_of_table(connections, place).table.published(), ledger.register()
        # Whatever it has shown for a ledger that was restored since, is looked at as a whole when that publishes.
        if register is None or last.restored != register[1].restored:
            return ()
        return [(last.lane, last.generation)] if last.number else ()

    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        self.place_of_table(connections, place).table.take_over(ledger)

    def check_fields(self, opened: SinkContext, settings: KeyedTableSettings) -> None:
        from tidemark.sinks.parquet import types

        types.check(settings.history(opened.connections).folder, opened.fields, opened.was)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        there = self.place_of_table(connections, place)
        mine = ("connection", "table")
        named_by_windows = not there.table.owner() and any(
            all(one.place.get(name) == place[name] for name in mine) for record in records for one in record.places
        )
        # Another run may have made the table, and committed, while the records were read.
        if named_by_windows and not there.table.owner():
            raise Unreachable(
                f"{there.table} is gone, and windows have published there. Make it again by a replay of everything, into a "
                "table of another name"
            )

    def older(self, opened: SinkContext, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        return ""

    def read(self, opened: SinkContext, settings: KeyedTableSettings, take: Callable[[RowsByKey], T]) -> T:
        """The result of `take` for the rows of all keys by the ledger."""
        from tidemark.sinks.hbase.keyed.publishing import read

        base = settings.base(opened.connections)
        there = self.place_of_table(opened.connections, self.table_place(settings, base), opened.was)
        return read(there, opened.ledger, settings.name, take)
