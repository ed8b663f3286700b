"""The sink `iceberg_latest` without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Opened
from tidemark.sinks.iceberg.latest.settings import IcebergLatestSink
from tidemark.sinks.iceberg.settings import place_of
from tidemark.sinks.latest.sink import PlainLatestRows

if TYPE_CHECKING:
    from tidemark.sinks.iceberg.catalog import CatalogTable
    from tidemark.sinks.iceberg.latest.table import IcebergLatest

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


def located(connections: Connections, place: Mapping[str, str]) -> CatalogTable:
    """The table that a receipt names: its `base` is that of the history."""
    from tidemark.sinks.iceberg.catalog import located

    return located(connections, {**place, "base": place["location"]})


class PlainIcebergLatest(PlainLatestRows):
    kind = "iceberg_latest"

    def table(self, connections: Connections, place: Mapping[str, str]) -> IcebergLatest:
        from tidemark.sinks.iceberg.latest.table import IcebergLatest

        return IcebergLatest(located(connections, place))

    def table_place(self, settings: IcebergLatestSink, base: str) -> dict[str, str]:
        named = place_of(settings, base)
        return {"location": named.pop("base"), **named}

    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        from tidemark.sinks.iceberg import table

        where = located(connections, place)
        if table.owner(where):
            table.take_over(where, ledger)

    def check_fields(self, opened: Opened, settings: IcebergLatestSink) -> None:
        from tidemark.sinks.iceberg.latest.table import as_stored

        place = self.table_place(settings, settings.base(opened.connections))
        as_stored(located(opened.connections, place), opened.fields, opened.was)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        from tidemark.sinks.iceberg import table

        table.check_there(located(connections, place), records, "location")

    def older(self, opened: Opened, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        from tidemark.sinks.iceberg.remains import still_held

        return still_held(opened, sink, [located(opened.connections, place)], erased)
