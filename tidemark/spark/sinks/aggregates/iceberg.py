"""The sink `iceberg_aggregates` with Spark."""

from __future__ import annotations

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg.aggregates.settings import IcebergAggregatesSink
from tidemark.sinks.iceberg.aggregates.sink import IcebergAggregatesAdmin
from tidemark.sinks.iceberg.aggregates.table import prepare
from tidemark.sinks.iceberg.latest.compacting import expire, where_of
from tidemark.spark.sinks.aggregates import SparkLakeTotals
from tidemark.spark.sinks.aggregates.writer import LakeTotalsResults
from tidemark.spark.sinks.contract import Sink
from tidemark.types.renamed_fields import Names


class IcebergTotalsResults(LakeTotalsResults):
    """The sink `iceberg_aggregates`."""

    def __init__(self, settings: IcebergAggregatesSink, opened: OpenStream) -> None:
        super().__init__(settings, opened)
        self._where = where_of(opened, settings)

    def prepare_table(self, stream: str, ledger: str, fields: Fields, names: Names) -> None:
        prepare(self._where, self._totals, fields, stream, ledger, names)


class SparkIcebergAggregates(SparkLakeTotals):
    def writer(self, opened: OpenStream, settings: IcebergAggregatesSink) -> Sink:
        return IcebergTotalsResults(settings, opened)

    def compact(self, opened: OpenStream, settings: IcebergAggregatesSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)
        expire(opened, settings, run, IcebergAggregatesAdmin())
