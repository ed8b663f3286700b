"""What a window writes for a table with aggregates of each key in HBase, which is made of it after the commit."""

from __future__ import annotations

from pyspark.sql import Column

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.spark.sinks.aggregates.writer import TotalsResults
from tidemark.spark.sinks.hbase.keyed import KeyedResults
from tidemark.spark.sinks.hbase.writer import cells_too_large
from tidemark.spark.sinks.sizes import key_size


class HBaseAggregateResults(TotalsResults, KeyedResults):
    """The sink `hbase_aggregates`."""

    def __init__(self, settings: HBaseAggregatesSink, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._sink = settings

    def prepare(self, stream: str, ledger: str) -> None:
        super().prepare(stream, ledger)
        self.prepare_table(self._sink, stream, ledger, self._sink.described(self._fields))

    def refusal(self, fields: Fields) -> Column | None:  # type: ignore[override]
        shown = {name: fields[name] for name in self._sink.fields_named}
        return cells_too_large(self.name, shown, self._sink.max_cell_bytes, key_size(self._sink.key))
