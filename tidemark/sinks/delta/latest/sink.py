"""The sink `delta_latest` without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidemark.clients.connections import Connections
from tidemark.ledger.records import Record
from tidemark.offsets.counting import named_few, number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Opened
from tidemark.sinks.delta.latest.settings import DeltaLatestSink
from tidemark.sinks.latest.sink import PlainLatestRows

if TYPE_CHECKING:
    from tidemark.sinks.delta.latest.table import DeltaLatest

# Needs an extra of the package, which other sinks do not need: so it is loaded where it is needed.


class PlainDeltaLatest(PlainLatestRows):
    kind = "delta_latest"

    def table(self, connections: Connections, place: Mapping[str, str]) -> DeltaLatest:
        from tidemark.sinks.delta.latest.table import DeltaLatest

        return DeltaLatest(place["location"])

    def table_place(self, settings: DeltaLatestSink, base: str) -> dict[str, str]:
        return {"location": base}

    def take_over_table(self, connections: Connections, place: Mapping[str, str], ledger: str) -> None:
        from tidemark.sinks.delta import table

        if table.exists(place["location"]):
            table.take_over(place["location"], ledger)

    def check_fields(self, opened: Opened, settings: DeltaLatestSink) -> None:
        from tidemark.sinks.delta import table

        table.check_columns(settings.base(opened.connections), opened.fields, opened.was)

    def check_table(self, connections: Connections, place: Mapping[str, str], records: Iterable[Record]) -> None:
        from tidemark.sinks.delta import table

        table.check_there(place["location"], records, "location")

    def older(self, opened: Opened, sink: str, place: Mapping[str, str], erased: RangeSet) -> str:
        from tidemark.sinks.delta.latest.compacting import only_in_older

        if not (names := sorted(only_in_older(place["location"], erased))):
            return ""
        compact = f"tidemark compact {opened.book.stream} --sink {sink}"
        hold = number_of(len(names), "file", "of older versions holds", "of older versions hold")
        return f"no reader of the newest version sees it; {hold} it ({named_few(names)}) until: {compact}"
