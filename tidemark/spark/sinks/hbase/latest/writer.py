"""What a window writes for a table with the newest row of each key in HBase, which is made of it after the commit."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.spark.sinks.hbase.keyed import KeyedResults
from tidemark.spark.sinks.hbase.writer import cells_too_large
from tidemark.spark.sinks.latest.writer import LatestResults
from tidemark.spark.sinks.sizes import key_size


class HBaseLatestResults(LatestResults, KeyedResults):
    """The sink `hbase_latest`."""

    def __init__(self, settings: HBaseLatestSink, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._sink = settings

    def prepare(self, stream: str, ledger: str) -> None:
        super().prepare(stream, ledger)
        self.prepare_table(self._sink, stream, ledger, None)

    def refusal(self, fields: Fields) -> Column | None:  # type: ignore[override]
        key = key_size(self._sink.key)
        others = super().refusal(fields)
        large = cells_too_large(self.name, fields, self._sink.max_cell_bytes, key)
        both = [one for one in (others, large) if one is not None]
        return F.coalesce(*both) if both else None
