"""The sink `delta_latest` without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.counting import named_few, number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import SinkContext
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.latest.settings import HistorySettings
from tidemark.sinks.latest.sink import LakeTableAdmin, LatestRowsAdmin

if TYPE_CHECKING:
    from tidemark.sinks.delta.latest.table import DeltaLatest

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class DeltaTableAdmin(LakeTableAdmin):
    """A Delta table with a row for each key, whatever its rows are."""

    def table_place(self, settings: HistorySettings, base: str) -> dict[str, str]:
        return {"location": base}

    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        from tidemark.sinks.delta import table

        if table.exists(place["location"]):
            table.take_over(place["location"], ledger)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        from tidemark.sinks.delta import table

        table.check_there(place["location"], records, "location")

    def older(self, opened: SinkContext, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        from tidemark.sinks.delta.latest.compacting import only_in_older

        holding = self.holding(opened, sink, place["base"], erased)
        if not (names := sorted(only_in_older(place["location"], erased, holding))):
            return ""
        compact = f"tidemark compact {opened.ledger.stream} --sink {sink}"
        hold = number_of(len(names), "file", "of older versions holds", "of older versions hold")
        return f"no reader of the newest version sees it; {hold} it ({named_few(names)}) until: {compact}"


class DeltaLatestAdmin(DeltaTableAdmin, LatestRowsAdmin):
    kind = "delta_latest"

    def table(self, connections: Connections, place: Mapping[str, str]) -> DeltaLatest:
        from tidemark.sinks.delta.latest.table import DeltaLatest

        return DeltaLatest(place["location"])

    def check_fields(self, opened: SinkContext, settings: DeltaLatestSink) -> None:
        from tidemark.sinks.delta import table

        table.check_columns(settings.base(opened.connections), opened.fields, opened.was)
