"""The sink `hbase_latest` with Spark."""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.ledger.ordering import Epochs
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.hbase.keyed.publishing import RowsByKey, read
from tidemark.sinks.hbase.keyed.rows import KeyedRow
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.latest.rows import DELETED
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.stored_rows import Mark, StoredRow
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.readers.parquet import shown
from tidemark.spark.readers.places import FOUND_DIGEST, Digested, contents_of, place_row, places_schema
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.hbase.keyed import published, rows_of_keys
from tidemark.spark.sinks.hbase.latest.writer import HBaseLatestResults
from tidemark.spark.sinks.latest import SparkPublished
from tidemark.spark.sinks.latest.reading import NEWEST, THERE, audited, changes, with_newest


class SparkHBaseLatest(SparkPublished):
    def writer(self, opened: OpenStream, settings: HBaseLatestSink) -> Sink:
        return HBaseLatestResults(settings, opened)

    def results(self, spark: SparkSession, opened: OpenStream, settings: HBaseLatestSink) -> DataFrame:
        """By the history, whose files nobody changes while Spark reads them."""
        fields = self.stored(opened, settings)

        def newest(parts: list[FolderPart], _: Authority) -> DataFrame:
            rows = _history(spark, opened, settings, parts, fields)
            return shown(rows.where(NEWEST), fields, DELETED)

        return steady(opened.ledger, settings.name, newest, settings.type)

    def audit(self, audit: Audit, settings: HBaseLatestSink) -> AuditedPlace:
        opened, fields = audit.opened, self.stored(audit.opened, settings)
        base = settings.history(opened.connections).folder

        def compared(reading: RowsByKey) -> AuditedPlace:
            def by_parts(parts: list[FolderPart], _: Authority) -> AuditedPlace:
                # Of a sink that was given another folder, older windows have theirs in the older one.
                others = changes(audit.spark, [one for one in parts if one.base != base], fields, was=opened.was)
                mine = _history(audit.spark, opened, settings, parts, fields)
                history = mine.drop(DELETED).unionAll(others.withColumn(NEWEST, F.lit(False)))
                table = _table(audit.spark, reading, fields)

                def found(within: RangeSet | None) -> DataFrame:
                    return audited(history, table, fields, within)

                return audit.rows_of(settings.name, found, {})

            return steady(opened.ledger, settings.name, by_parts, settings.type)

        return read(published(opened, settings), opened.ledger, settings.name, compared)

    def compact(self, opened: OpenStream, settings: HBaseLatestSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)


def _history(
    spark: SparkSession, opened: OpenStream, settings: HBaseLatestSink, parts: list[FolderPart], fields: Fields
) -> DataFrame:
    """The rows of the history that count, with NEWEST and DELETED."""
    base = settings.history(opened.connections).folder
    rows = changes(spark, [one for one in parts if one.base == base], fields, f"{DELETED} boolean", was=opened.was)
    return with_newest(rows, settings.key, Epochs(opened.ledger.topics()))


def _table(spark: SparkSession, reading: RowsByKey, fields: Fields) -> DataFrame:
    """The rows of the table as it shows them, with the digests of what is there."""
    there = rows_of_keys(spark, reading, partial(_as_place, contents_of(fields)), places_schema(()))
    return there.select("*", F.col(FOUND_DIGEST).alias(THERE)).drop(FOUND_DIGEST)


def _as_place(digested: Digested, row: KeyedRow) -> tuple[Any, ...]:
    mark = Mark(row.mark.generation, row.mark.digest, "", 0, row.mark.tombstone)
    return place_row((), row.place, StoredRow(row.place, mark, row.fields), digested)
