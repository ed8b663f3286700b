"""The sink `delta` with Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.delta.table import parts_that_count
from tidemark_spark.audit.comparing import Audit, Audited
from tidemark_spark.audit.replays import Comparing
from tidemark_spark.readers.parquet import parquet_rows, places_of, shown, values_of
from tidemark_spark.sinks.contract import Sink
from tidemark_spark.sinks.delta.writer import DeltaResults


class SparkDelta:
    by_sums = True

    def writer(self, opened: OpenStream, settings: DeltaSink) -> Sink:
        return DeltaResults(settings, settings.base(opened.connections), opened.stream.name, opened.fields)

    def results(self, spark: SparkSession, opened: OpenStream, settings: DeltaSink) -> DataFrame:
        _, parts = parts_that_count(opened.book, settings.name)
        return shown(parquet_rows(spark, parts, opened.fields), opened.fields)

    def audit(self, audit: Audit, settings: DeltaSink) -> Audited:
        _, parts = parts_that_count(audit.opened.book, settings.name, gone=True)
        return audit.rows_of(settings.name, partial(places_of, audit.spark, parts, audit.opened.fields), {})

    def compare(self, comparing: Comparing, settings: DeltaSink) -> PlaceComparison:
        _, parts = parts_that_count(comparing.opened.book, settings.name, gone=True)
        found = values_of(comparing.spark, parts, comparing.opened.fields, comparing.offsets)
        return comparing.rows_of(settings.name, found)
