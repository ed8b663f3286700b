"""The sink `hbase_latest` with Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.ledger.ordering import Epochs
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.hbase.latest.publishing import LatestWithHistory, NewestInHBase, read
from tidemark.sinks.hbase.latest.rows import LatestRow
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.hbase.latest.sink import PlainHBaseLatest
from tidemark.sinks.hbase.latest.table import LatestInHBase
from tidemark.sinks.latest.rows import DELETED
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.stored_rows import Mark, StoredRow
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.readers.parquet import shown
from tidemark.spark.readers.places import FOUND_DIGEST, Digested, contents_of, place_row, places_schema
from tidemark.spark.readers.salts import read_by_salts
from tidemark.spark.sinks.contract import Sink
from tidemark.spark.sinks.hbase.latest.writer import HBaseLatestResults
from tidemark.spark.sinks.latest import SparkLatest
from tidemark.spark.sinks.latest.reading import NEWEST, THERE, audited, changes, with_newest


class SparkHBaseLatest(SparkLatest):
    def writer(self, opened: OpenStream, settings: HBaseLatestSink) -> Sink:
        return HBaseLatestResults(settings, opened)

    def stored(self, opened: OpenStream, settings: HBaseLatestSink) -> Fields:
        return types.as_stored(settings.history(opened.connections).folder, opened.fields, opened.was)

    def results(self, spark: SparkSession, opened: OpenStream, settings: HBaseLatestSink) -> DataFrame:
        """By the history, whose files nobody changes while Spark reads them."""
        fields = self.stored(opened, settings)

        def newest(parts: list[FolderPart], _: Authority) -> DataFrame:
            rows = _history(spark, opened, settings, parts, fields)
            return shown(rows.where(NEWEST), fields, DELETED)

        return steady(opened.book, settings.name, newest, settings.type)

    def audit(self, audit: Audit, settings: HBaseLatestSink) -> AuditedPlace:
        opened, fields = audit.opened, self.stored(audit.opened, settings)
        base = settings.history(opened.connections).folder

        def compared(reading: NewestInHBase) -> AuditedPlace:
            def by_parts(parts: list[FolderPart], _: Authority) -> AuditedPlace:
                # Of a sink that was given another folder, older windows have theirs in the older one.
                others = changes(audit.spark, [one for one in parts if one.base != base], fields, was=opened.was)
                mine = _history(audit.spark, opened, settings, parts, fields)
                history = mine.drop(DELETED).unionAll(others.withColumn(NEWEST, F.lit(False)))
                table = _table(audit.spark, reading, fields)

                def found(within: RangeSet | None) -> DataFrame:
                    return audited(history, table, fields, within)

                return audit.rows_of(settings.name, found, {})

            return steady(opened.book, settings.name, by_parts, settings.type)

        return read(_place(opened, settings), opened.book, settings.name, compared)

    def compact(self, opened: OpenStream, settings: HBaseLatestSink, run: str, asked: CompactionRequest) -> None:
        self.compact_history(opened, settings, run, asked)


def _place(opened: OpenStream, settings: HBaseLatestSink) -> LatestWithHistory:
    plain = PlainHBaseLatest()
    place = plain.table_place(settings, settings.base(opened.connections))
    return plain.place_of_table(opened.connections, place, opened.was)


def _history(
    spark: SparkSession, opened: OpenStream, settings: HBaseLatestSink, parts: list[FolderPart], fields: Fields
) -> DataFrame:
    """The rows of the history that count, with NEWEST and DELETED."""
    base = settings.history(opened.connections).folder
    rows = changes(spark, [one for one in parts if one.base == base], fields, f"{DELETED} boolean", was=opened.was)
    return with_newest(rows, settings.key, Epochs(opened.book.topics()))


def _table(spark: SparkSession, reading: NewestInHBase, fields: Fields) -> DataFrame:
    """The rows of the table as it shows them, with the digests of what is there."""
    digested, schema = contents_of(fields), places_schema(())
    there = read_by_salts(spark, _Rows(reading.table, reading.unpublished, digested), schema)
    unpublished = [_as_place(row, digested) for row in reading.unpublished.values() if row is not None]
    if unpublished:
        there = there.unionAll(spark.createDataFrame(unpublished, there.schema))
    return there.select("*", F.col(FOUND_DIGEST).alias(THERE)).drop(FOUND_DIGEST)


@dataclass(frozen=True)
class _Rows:
    """A `salts.RowsOf`: the rows of a table, but for those that are published again."""

    table: LatestInHBase
    unpublished: Mapping[bytes, LatestRow | None]
    digested: Digested

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        for row in self.table.all_rows(salts):
            if row.key not in self.unpublished:
                yield _as_place(row, self.digested)


def _as_place(row: LatestRow, digested: Digested) -> tuple[Any, ...]:
    mark = Mark(row.mark.generation, row.mark.digest, "", 0, row.mark.tombstone)
    return place_row((), row.place, StoredRow(row.place, mark, row.fields), digested)
