"""The sink `hbase_latest` with Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.hbase.latest.table import latest_table
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import Comparing
from tidemark.spark.columns import COORDINATE, INDEX, TOMBSTONE
from tidemark.spark.readers.places import COUNTS, typed
from tidemark.spark.rows.outcomes import field_names
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.hbase.latest.reader import all_values, all_values_with_fields, newest_values
from tidemark.spark.sinks.hbase.latest.writer import HBaseLatest


class SparkLatest:
    by_sums = True

    def writer(self, opened: OpenStream, settings: HBaseLatestSink) -> Sink:
        table = latest_table(opened.connections, settings.hbase, settings.table, was=opened.was)
        return HBaseLatest(settings, table, opened.book, opened.fields)

    def results(self, spark: SparkSession, opened: OpenStream, settings: HBaseLatestSink) -> DataFrame:
        table = latest_table(opened.connections, settings.hbase, settings.table, was=opened.was)
        rows = newest_values(spark, opened.book, settings.name, table, field_names(opened.stream))
        return rows.select(*COORDINATE, INDEX, TOMBSTONE, *typed(opened.fields))

    def audit(self, audit: Audit, settings: HBaseLatestSink) -> AuditedPlace:
        opened = audit.opened
        table = latest_table(opened.connections, settings.hbase, settings.table, was=opened.was)
        rows = all_values(audit.spark, opened.book, settings.name, table, opened.fields)
        return audit.rows_of(settings.name, rows, {"table": settings.table})

    def compare(self, comparing: Comparing, settings: HBaseLatestSink) -> PlaceComparison:
        opened = comparing.opened
        table = latest_table(opened.connections, settings.hbase, settings.table, was=opened.was)
        rows = all_values_with_fields(comparing.spark, opened.book, settings.name, table, field_names(opened.stream))
        return comparing.rows_of(settings.name, rows.where(COUNTS))
