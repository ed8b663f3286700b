"""The sink `delta_aggregates` without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.sink import LakeTotalsAdmin
from tidemark.sinks.contract import SinkContext
from tidemark.sinks.delta.aggregates.settings import TYPE, DeltaAggregatesSink
from tidemark.sinks.delta.latest.sink import DeltaTableAdmin
from tidemark.types.renamed_fields import Names

if TYPE_CHECKING:
    from tidemark.sinks.delta.latest.table import DeltaLatest

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class DeltaAggregatesAdmin(LakeTotalsAdmin, DeltaTableAdmin):
    kind = TYPE

    def table(self, connections: Connections, place: Mapping[str, str]) -> DeltaLatest:
        from tidemark.sinks.delta.aggregates.table import totals_table

        return totals_table(place["location"])

    def check_key(self, opened: SinkContext, settings: DeltaAggregatesSink, key: Fields, was: Names) -> None:
        from tidemark.sinks.delta import table

        table.check_columns(settings.base(opened.connections), key, was)
