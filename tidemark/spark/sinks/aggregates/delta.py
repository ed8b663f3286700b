"""The sink `delta_aggregates` with Spark."""

from __future__ import annotations

from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.delta.aggregates.settings import DeltaAggregatesSink
from tidemark.sinks.delta.aggregates.sink import DeltaAggregatesAdmin
from tidemark.sinks.delta.aggregates.table import prepare
from tidemark.sinks.delta.latest.compacting import vacuum
from tidemark.spark.sinks.aggregates import SparkLakeTotals
from tidemark.spark.sinks.aggregates.writer import LakeTotalsResults
from tidemark.spark.sinks.contract import Sink
from tidemark.types.renamed_fields import Names


class DeltaTotalsResults(LakeTotalsResults):
    """The sink `delta_aggregates`."""

    def prepare_table(self, stream: str, ledger: str, fields: Fields, names: Names) -> None:
        prepare(self._totals.base(self._opened.connections), self._totals, fields, stream, ledger, names)


class SparkDeltaAggregates(SparkLakeTotals):
    def writer(self, opened: OpenStream, settings: DeltaAggregatesSink) -> Sink:
        return DeltaTotalsResults(settings, opened)

    def compact(self, opened: OpenStream, settings: DeltaAggregatesSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)
        vacuum(opened, settings, DeltaAggregatesAdmin())
