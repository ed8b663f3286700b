"""The sink `iceberg_aggregates` without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.sink import LakeTotalsAdmin
from tidemark.sinks.contract import SinkContext
from tidemark.sinks.iceberg.aggregates.settings import TYPE, IcebergAggregatesSink
from tidemark.sinks.iceberg.latest.sink import IcebergTableAdmin, located
from tidemark.types.renamed_fields import Names

if TYPE_CHECKING:
    from tidemark.sinks.iceberg.latest.table import IcebergLatest

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class IcebergAggregatesAdmin(LakeTotalsAdmin, IcebergTableAdmin):
    kind = TYPE

    def table(self, connections: Connections, place: Mapping[str, str]) -> IcebergLatest:
        from tidemark.sinks.iceberg.aggregates.table import totals_table

        return totals_table(located(connections, place))

    def check_key(self, opened: SinkContext, settings: IcebergAggregatesSink, key: Fields, was: Names) -> None:
        from tidemark.sinks.iceberg.latest.table import as_stored

        place = self.table_place(settings, settings.base(opened.connections))
        as_stored(located(opened.connections, place), key, was)
