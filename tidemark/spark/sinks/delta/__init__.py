"""The sink `delta` with Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.offsets.authority import Authority
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.delta.reading import of_parts, parts_that_count
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.delta.table import as_stored
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.readers.parquet import parquet_rows, places_of, shown, values_of
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.delta.writer import DeltaResults
from tidemark.types.renamed_fields import NEVER


class SparkDelta:
    by_sums = True

    def writer(self, opened: OpenStream, settings: DeltaSink) -> Sink:
        return DeltaResults(settings, settings.base(opened.connections), opened.ledger, opened.fields, opened.was)

    def results(self, spark: SparkSession, opened: OpenStream, settings: DeltaSink) -> DataFrame:
        fields = _checked(opened, settings)
        _, parts = parts_that_count(opened.ledger, settings.name)
        return shown(parquet_rows(spark, parts, fields), fields)

    def audit(self, audit: Audit, settings: DeltaSink) -> AuditedPlace:
        fields = _checked(audit.opened, settings)

        def compared(parts: list[FolderPart], _: Authority) -> AuditedPlace:
            return audit.rows_of(settings.name, partial(places_of, audit.spark, parts, fields, NEVER), {})

        # A retry repeats the whole comparison: Spark lists the files of a window, and they move when it is published.
        return of_parts(audit.opened.ledger, settings.name, compared, gone=True)

    def compare(self, comparing: RowsToCompare, settings: DeltaSink) -> PlaceComparison:
        fields = _checked(comparing.opened, settings)

        def compared(parts: list[FolderPart], _: Authority) -> PlaceComparison:
            rows = values_of(comparing.spark, parts, fields, comparing.offsets)
            return comparing.rows_of(settings.name, rows)

        # As for the audit.
        return of_parts(comparing.opened.ledger, settings.name, compared, gone=True)


def _checked(opened: OpenStream, settings: DeltaSink) -> Fields:
    """The stream's fields as the table has them. Raises WrongUse where that is another type: Spark would fail at its files."""
    return as_stored(settings.base(opened.connections), opened.fields)
