"""The sink `hbase` with Spark."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.hbase.table import stream_table
from tidemark.spark.audit.differences import Audit, AuditedPlace, rows_of_table
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.columns import COORDINATE, INDEX, TOMBSTONE
from tidemark.spark.readers.places import COUNTS, contents_of, hbase_places, typed
from tidemark.spark.rows.outcomes import field_names
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.hbase.writer import HBaseResults


class SparkHBase:
    by_sums = True

    def writer(self, opened: OpenStream, settings: HBaseSink) -> Sink:
        table = stream_table(opened, settings.hbase, settings.table)
        return HBaseResults(settings, table, opened.fields, opened.connections)

    def results(self, spark: SparkSession, opened: OpenStream, settings: HBaseSink) -> DataFrame:
        table = stream_table(opened, settings.hbase, settings.table)
        rows = hbase_places(spark, opened.ledger, table, settings.name, field_names(opened.stream))
        return rows.where(COUNTS).select(*COORDINATE, INDEX, TOMBSTONE, *typed(opened.fields))

    def audit(self, audit: Audit, settings: HBaseSink) -> AuditedPlace:
        opened = audit.opened
        table = stream_table(opened, settings.hbase, settings.table)
        digested = contents_of(opened.fields)
        rows = rows_of_table(audit.spark, opened.ledger, audit.uncommitted, table, settings.name, digested)
        return audit.rows_of(settings.name, rows, {"table": settings.table})

    def compare(self, comparing: RowsToCompare, settings: HBaseSink) -> PlaceComparison:
        opened = comparing.opened
        table = stream_table(opened, settings.hbase, settings.table)
        names = field_names(opened.stream)
        rows = hbase_places(
            comparing.spark, opened.ledger, table, settings.name, names, within=comparing.to_scan, others=True
        )
        return comparing.rows_of(settings.name, rows.where(COUNTS))
