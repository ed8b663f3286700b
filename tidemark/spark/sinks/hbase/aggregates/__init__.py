"""The sink `hbase_aggregates` with Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.table import aggregate_table
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import Comparing
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.hbase.aggregates.audit import audit_contributions, compare_contributions
from tidemark.spark.sinks.hbase.aggregates.reader import key_totals
from tidemark.spark.sinks.hbase.aggregates.writer import HBaseAggregates


class SparkAggregates:
    def writer(self, opened: OpenStream, settings: HBaseAggregatesSink) -> Sink:
        table = aggregate_table(opened.connections, settings.hbase, settings.table)
        return HBaseAggregates(settings, table, opened.book, opened.fields, opened.connections)

    def results(self, spark: SparkSession, opened: OpenStream, settings: HBaseAggregatesSink) -> DataFrame:
        return key_totals(spark, opened, settings)

    def audit(self, audit: Audit, settings: HBaseAggregatesSink) -> AuditedPlace:
        whole = RangeSet(one for one in audit.in_kafka if one.partition.topic not in audit.compacted)
        report, findings = audit_contributions(audit, settings, whole)
        return AuditedPlace(report, findings, None)

    def compare(self, comparing: Comparing, settings: HBaseAggregatesSink) -> PlaceComparison:
        return compare_contributions(comparing, settings)
