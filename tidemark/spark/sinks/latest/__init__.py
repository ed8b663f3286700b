"""The sinks with the newest row of each key, with Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.comparison import PlaceComparison
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.latest.rows import BUCKET, DELETED, KEY_HASH
from tidemark.sinks.latest.settings import HistorySettings, LatestSettings
from tidemark.sinks.latest.sink import LatestRowsAdmin
from tidemark.sinks.latest.table import TableRows
from tidemark.sinks.parquet import types
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare
from tidemark.spark.columns import content_digest
from tidemark.spark.readers.parquet import shown, values_of
from tidemark.spark.sinks.latest.reading import NEWEST, THERE, audited, changes, rows_of_table, with_newest
from tidemark.spark.sinks.parquet import compacting

T = TypeVar("T")


class SparkPublished:
    """What all sinks share whose tables follow from a history. Each makes its writer."""

    by_sums = True

    def stored(self, opened: OpenStream, settings: Any) -> Fields:
        """The stream's fields as the history has them; a table with columns of its own says its own.

        Raises WrongUse where that is another type.
        """
        return types.as_stored(settings.history(opened.connections).folder, opened.fields, opened.was)

    def compare(self, comparing: RowsToCompare, settings: HistorySettings) -> PlaceComparison:
        fields = self.stored(comparing.opened, settings)

        def compared(parts: list[FolderPart], _: Authority) -> PlaceComparison:
            was = comparing.opened.was
            before = values_of(comparing.spark, parts, fields, comparing.offsets, was, own=(DELETED, KEY_HASH, BUCKET))
            return comparing.rows_of(settings.name, before)

        return steady(comparing.opened.ledger, settings.name, compared, settings.type)

    def compact_history(
        self, opened: OpenStream, settings: HistorySettings, run: str, asked: CompactionRequest
    ) -> None:
        compacting.compact(opened, settings.history(opened.connections), run, asked)


class SparkLatestRows(SparkPublished):
    """Tables of a lake."""

    def results(self, spark: SparkSession, opened: OpenStream, settings: LatestSettings) -> DataFrame:
        fields = self.stored(opened, settings)

        def rows(newest: TableRows) -> DataFrame:
            return shown(rows_of_table(spark, newest, fields), fields, DELETED)

        return _read(opened, settings, rows)

    def audit(self, audit: Audit, settings: LatestSettings) -> AuditedPlace:
        opened = audit.opened
        fields = self.stored(opened, settings)
        base = settings.history(opened.connections).folder

        def compared(newest: TableRows) -> AuditedPlace:
            # Of a sink that was given another folder, older windows have theirs in the older one, of which this has no table.
            mine = changes(audit.spark, [one for one in newest.parts if one.base == base], fields)
            others = changes(audit.spark, [one for one in newest.parts if one.base != base], fields)
            history = with_newest(mine, settings.key, newest.epochs).unionAll(others.withColumn(NEWEST, F.lit(False)))
            table = rows_of_table(audit.spark, newest, fields, gone=True).withColumn(THERE, content_digest(fields))

            def found(within: RangeSet | None) -> DataFrame:
                return audited(history, table, fields, within)

            version = newest.version
            return audit.beside(
                audit.rows_of(settings.name, found, {}), lambda: 0 if version is None else version.outside
            )

        return _read(opened, settings, compared)


def _read(opened: OpenStream, settings: LatestSettings, take: Callable[[TableRows], T]) -> T:
    admin = kind_of(settings.type).make_admin()
    if not isinstance(admin, LatestRowsAdmin):
        raise TypeError(f"{settings.type} has no table with the newest rows")
    return admin.read(opened, settings, take)
