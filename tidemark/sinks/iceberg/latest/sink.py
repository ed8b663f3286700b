"""The sink `iceberg_latest` without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import SinkContext
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.settings import InCatalog, place_of
from tidemark.sinks.latest.sink import LakeTableAdmin, LatestRowsAdmin

if TYPE_CHECKING:
    from tidemark.sinks.iceberg.catalog import CatalogTable
    from tidemark.sinks.iceberg.latest.table import IcebergLatest
    from tidemark.sinks.parquet.files import Holding

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


def located(connections: Connections, place: Mapping[str, str]) -> CatalogTable:
    """The table that a receipt names: its `base` is that of the history."""
    from tidemark.sinks.iceberg.catalog import located

    return located(connections, {**place, "base": place["location"]})


def table_place(settings: InCatalog, base: str) -> dict[str, str]:
    """How a receipt names a table."""
    named = place_of(settings, base)
    return {"location": named.pop("base"), **named}


class IcebergTableAdmin(LakeTableAdmin):
    """An Iceberg table with a row for each key, whatever its rows are."""

    def table_place(self, settings: Any, base: str) -> dict[str, str]:
        return table_place(settings, base)

    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        from tidemark.sinks.iceberg import table

        where = located(connections, place)
        if table.owner(where):
            table.take_over(where, ledger)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        from tidemark.sinks.iceberg import table

        table.check_there(located(connections, place), records, "location")

    def older(self, opened: SinkContext, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        from tidemark.sinks.iceberg.remains import still_held

        holding_of = partial(self.holding, opened, sink, place["base"])
        return still_held(opened, sink, [located(opened.connections, place)], erased, holding_of)


class IcebergLatestAdmin(IcebergTableAdmin, LatestRowsAdmin):
    kind = "iceberg_latest"

    def table(self, connections: Connections, place: Mapping[str, str]) -> IcebergLatest:
        from tidemark.sinks.iceberg.latest.table import IcebergLatest

        return IcebergLatest(located(connections, place))

    def check_fields(self, opened: SinkContext, settings: IcebergLatestSink) -> None:
        from tidemark.sinks.iceberg.latest.table import as_stored

        place = self.table_place(settings, settings.base(opened.connections))
        as_stored(located(opened.connections, place), opened.fields, opened.was)

    def holding(self, opened: SinkContext, sink: str, history: str, wanted: RangeSet) -> Holding:
        from tidemark.sinks.iceberg.holding import by_rows

        return by_rows(wanted)
