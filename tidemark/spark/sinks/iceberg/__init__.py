"""The sink `iceberg` with Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg import compacting
from tidemark.sinks.iceberg.catalog import located
from tidemark.sinks.iceberg.compacting import where_of
from tidemark.sinks.iceberg.reading import parts_that_count, rows_of_others
from tidemark.sinks.iceberg.settings import IcebergSink, place_of
from tidemark.sinks.iceberg.table import as_stored, names_of
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.readers.parquet import parquet_rows, places_of, shown, values_of
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.iceberg.writer import IcebergResults
from tidemark.types.renamed_fields import Names, both


class SparkIceberg:
    by_sums = True

    def writer(self, opened: OpenStream, settings: IcebergSink) -> Sink:
        return IcebergResults(settings, opened)

    def results(self, spark: SparkSession, opened: OpenStream, settings: IcebergSink) -> DataFrame:
        fields, was = _checked(opened, settings)
        _, parts = parts_that_count(opened.ledger, settings.name, opened.connections)
        return shown(parquet_rows(spark, parts, fields, was), fields)

    def audit(self, audit: Audit, settings: IcebergSink) -> AuditedPlace:
        opened = audit.opened
        fields, was = _checked(opened, settings)
        _, parts = parts_that_count(opened.ledger, settings.name, opened.connections, gone=True)
        found = audit.rows_of(settings.name, partial(places_of, audit.spark, parts, fields, was), {})
        return audit.beside(found, lambda: rows_of_others(opened.ledger, settings.name, where_of(opened, settings)))

    def compare(self, comparing: RowsToCompare, settings: IcebergSink) -> PlaceComparison:
        opened = comparing.opened
        fields, was = _checked(opened, settings)
        _, parts = parts_that_count(opened.ledger, settings.name, opened.connections, gone=True)
        return comparing.rows_of(settings.name, values_of(comparing.spark, parts, fields, comparing.offsets, was))

    def compact(self, opened: OpenStream, settings: IcebergSink, run: str, asked: CompactionRequest) -> None:
        compacting.compact(opened, settings, run, asked)


def _checked(opened: OpenStream, settings: IcebergSink) -> tuple[Fields, Names]:
    """The stream's fields as the table has them, and the older names of its columns.

    Raises WrongUse where that is another type: Spark would fail at its files.
    """
    where = located(opened.connections, place_of(settings, settings.base(opened.connections)))
    return as_stored(where, opened.fields, opened.was), both(names_of(where), opened.was)
