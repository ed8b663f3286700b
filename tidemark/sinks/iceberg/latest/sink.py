"""The sink `iceberg_latest` without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import MAX_OFFSET, RangeSet
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

    def check_fields(self, opened: Opened, settings: IcebergLatestSink) -> None:
        from tidemark.sinks.iceberg.latest.table import as_stored

        place = self.table_place(settings, settings.base(opened.connections))
        as_stored(located(opened.connections, place), opened.fields, opened.was)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        from tidemark.sinks.iceberg import table

        table.check_there(located(connections, place), records, "location")

    def older(self, opened: Opened, place: Mapping[str, str], erased: RangeSet) -> int:
        from tidemark.sinks.iceberg import catalog, data_files
        from tidemark.sinks.iceberg.live_files import files_of_all, live_files

        table = catalog.opened(located(opened.connections, place))
        if table is None:
            return 0
        named = {one.path for one in live_files(table)}
        older = (one for one in files_of_all(table) if one.path not in named and one.may_have(erased, MAX_OFFSET))
        return sum(data_files.hold(one.path, erased) for one in older)
