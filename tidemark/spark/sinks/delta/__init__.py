"""The sink `delta` with Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.delta.table import as_stored, parts_that_count, versions_of
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import Comparing
from tidemark.spark.readers.parquet import parquet_rows, places_of, shown, values_of
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.delta.writer import DeltaResults
from tidemark.types.renamed_fields import NEVER


class SparkDelta:
    by_sums = True

    def writer(self, opened: OpenStream, settings: DeltaSink) -> Sink:
        base = settings.base(opened.connections)
        return DeltaResults(settings, base, versions_of(opened.book), opened.fields, opened.was)

    def results(self, spark: SparkSession, opened: OpenStream, settings: DeltaSink) -> DataFrame:
        fields = _checked(opened, settings)
        _, parts = parts_that_count(opened.book, settings.name)
        return shown(parquet_rows(spark, parts, fields), fields)

    def audit(self, audit: Audit, settings: DeltaSink) -> AuditedPlace:
        fields = _checked(audit.opened, settings)
        _, parts = parts_that_count(audit.opened.book, settings.name, gone=True)
        return audit.rows_of(settings.name, partial(places_of, audit.spark, parts, fields, NEVER), {})

    def compare(self, comparing: Comparing, settings: DeltaSink) -> PlaceComparison:
        fields = _checked(comparing.opened, settings)
        _, parts = parts_that_count(comparing.opened.book, settings.name, gone=True)
        rows = values_of(comparing.spark, parts, fields, comparing.offsets)
        return comparing.rows_of(settings.name, rows)


def _checked(opened: OpenStream, settings: DeltaSink) -> Fields:
    """The stream's fields as the table has them. Raises WrongUse where that is another type: Spark would fail at its files."""
    return as_stored(settings.base(opened.connections), opened.fields)
