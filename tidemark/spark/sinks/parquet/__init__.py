"""The sink `parquet` with Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.offsets.authority import Authority
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.parquet.settings import ParquetSink
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.readers.parquet import parquet_rows, places_of, shown, values_of
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.parquet import compacting
from tidemark.spark.sinks.parquet.writer import ParquetResults
from tidemark.types.renamed_fields import Names


class SparkParquet:
    by_sums = True

    def writer(self, opened: OpenStream, settings: ParquetSink) -> Sink:
        return ParquetResults(settings, settings.base(opened.connections), opened.fields, opened.was)

    def results(self, spark: SparkSession, opened: OpenStream, settings: ParquetSink) -> DataFrame:
        # Spark lists the files here, and fails if a compaction has removed them before Spark reads them.
        fields, was = _checked(opened, settings)
        return shown(
            steady(opened.ledger, settings.name, lambda parts, _: parquet_rows(spark, parts, fields, was)), fields
        )

    def audit(self, audit: Audit, settings: ParquetSink) -> AuditedPlace:
        fields, was = _checked(audit.opened, settings)

        def compared(parts: list[FolderPart], _: Authority) -> AuditedPlace:
            rows = partial(places_of, audit.spark, parts, fields, was)
            return audit.rows_of(settings.name, rows, {})

        # A retry repeats the whole comparison: a compaction may remove the folders after their files were listed.
        return steady(audit.opened.ledger, settings.name, compared)

    def compare(self, comparing: RowsToCompare, settings: ParquetSink) -> PlaceComparison:
        fields, was = _checked(comparing.opened, settings)

        def compared(parts: list[FolderPart], _: Authority) -> PlaceComparison:
            rows = values_of(comparing.spark, parts, fields, comparing.offsets, was)
            return comparing.rows_of(settings.name, rows)

        # As for the audit.
        return steady(comparing.opened.ledger, settings.name, compared)

    def compact(self, opened: OpenStream, settings: ParquetSink, run: str, asked: CompactionRequest) -> None:
        compacting.compact(opened, settings, run, asked)


def _checked(opened: OpenStream, settings: ParquetSink) -> tuple[Fields, Names]:
    """The stream's fields as files have them, and the older names of these.

    Raises WrongUse where that is another type: Spark would fail at them.
    """
    base = settings.base(opened.connections)
    return types.as_stored(base, opened.fields, opened.was), types.names_of(base, opened.was)
