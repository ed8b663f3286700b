"""The sinks with totals of each key, with Spark."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.aggregates.settings import AggregatesSettings
from tidemark.sinks.aggregates.sink import LakeTotalsAdmin
from tidemark.sinks.aggregates.table import totals_fields
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.latest.table import TableRows
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.sinks.aggregates.reading import PLACE, as_totals, compared_totals, key_totals, with_newest
from tidemark.spark.sinks.latest import SparkPublished
from tidemark.spark.sinks.latest.reading import NEWEST, audited, changes, frame_of


class SparkTotals(SparkPublished):
    """Of any format. Each says how its table is read."""

    def results(self, spark: SparkSession, opened: OpenStream, settings: AggregatesSettings) -> DataFrame:
        """Key and values of each key, by the history, whose files nobody changes while Spark reads them."""
        fields = self.stored(opened, settings)
        base = settings.history(opened.connections).folder

        def totals(parts: list[FolderPart], _: Authority) -> DataFrame:
            rows = changes(spark, [one for one in parts if one.base == base], fields, was=opened.was)
            return key_totals(rows, settings, fields)

        return steady(opened.ledger.showing_all(), settings.name, totals, settings.type)

    def audited(
        self, audit: Audit, settings: AggregatesSettings, there: DataFrame, others: Callable[[DataFrame], int]
    ) -> AuditedPlace:
        """Each row of the history, and the totals of the table: a wrong one is a finding at the newest row of its key.

        `there`: as `compared_totals` takes it. `others`: how many rows are of other programs, by these totals.
        """
        opened, fields = audit.opened, self.stored(audit.opened, settings)
        base = settings.history(opened.connections).folder

        def by_parts(parts: list[FolderPart], _: Authority) -> AuditedPlace:
            # Of a sink that was given another folder, older windows have theirs in the older one.
            elsewhere = changes(audit.spark, [one for one in parts if one.base != base], fields, was=opened.was)
            mine = changes(audit.spark, [one for one in parts if one.base == base], fields, was=opened.was)
            newest = with_newest(mine, settings, fields)
            history = newest.unionAll(elsewhere.withColumn(NEWEST, F.lit(False)))
            table = compared_totals(there, newest, settings, fields)
            placed = table.where(F.col(PLACE[0]).isNotNull())

            def found(within: RangeSet | None) -> DataFrame:
                return audited(history, placed, fields, within)

            return audit.beside(audit.rows_of(settings.name, found, {}), lambda: others(table))

        return steady(opened.ledger.showing_all(), settings.name, by_parts, settings.type)


class SparkLakeTotals(SparkTotals):
    """Tables of a lake."""

    def audit(self, audit: Audit, settings: AggregatesSettings) -> AuditedPlace:
        opened, fields = audit.opened, self.stored(audit.opened, settings)
        admin = kind_of(settings.type).make_admin()
        if not isinstance(admin, LakeTotalsAdmin):
            raise TypeError(f"{settings.type} has no table with totals in a lake")

        def compared(rows: TableRows) -> AuditedPlace:
            table = frame_of(audit.spark, rows, totals_fields(settings, fields), gone=True)
            outside = 0 if rows.version is None else rows.version.outside

            def others(totals: DataFrame) -> int:
                # A key of which the history has no row is at no message.
                return outside + totals.where(F.col(PLACE[0]).isNull()).count()

            return self.audited(audit, settings, as_totals(table, settings, fields), others)

        return admin.read(opened, settings, compared)
