"""The sink `hbase_aggregates` with Spark."""

from __future__ import annotations

from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.keyed.publishing import RowsByKey, read
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.sinks.aggregates import SparkTotals
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.hbase.aggregates.reading import totals_of_table
from tidemark.spark.sinks.hbase.aggregates.writer import HBaseAggregateResults
from tidemark.spark.sinks.hbase.keyed import published


class SparkHBaseAggregates(SparkTotals):
    def writer(self, opened: OpenStream, settings: HBaseAggregatesSink) -> Sink:
        return HBaseAggregateResults(settings, opened)

    def audit(self, audit: Audit, settings: HBaseAggregatesSink) -> AuditedPlace:
        opened = audit.opened

        def compared(reading: RowsByKey) -> AuditedPlace:
            there = totals_of_table(audit.spark, reading, settings)
            return self.audited(audit, settings, there, lambda totals: 0)

        return read(published(opened, settings), opened.ledger.showing_all(), settings.name, compared)

    def compact(self, opened: OpenStream, settings: HBaseAggregatesSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)
