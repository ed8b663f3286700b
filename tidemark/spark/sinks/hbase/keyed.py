"""Tables in HBase with a row for each key, with Spark: what their two sinks share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.aggregates.states import Values
from tidemark.sinks.hbase.keyed.publishing import PublishedTable, RowsByKey
from tidemark.sinks.hbase.keyed.rows import KeyedRow
from tidemark.sinks.hbase.keyed.settings import KeyedTableSettings
from tidemark.sinks.hbase.keyed.sink import KeyedAdmin
from tidemark.sinks.hbase.keyed.table import FAMILIES, KeyedTable, keyed_table
from tidemark.sinks.hbase.table import make_with_regions
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.parquet import types
from tidemark.spark.readers.salts import read_by_salts
from tidemark.spark.sinks.latest.writer import HistoryResults

# Takes a row of the table. It is pickled, and called in Spark's Python workers.
OneRow = Callable[[KeyedRow], tuple[Any, ...]]


class KeyedResults(HistoryResults):
    """The history below a table in HBase."""

    def prepare_table(self, settings: KeyedTableSettings, stream: str, ledger: str, values: Values | None) -> None:
        """Make the table, and note the types of the history. `values`: see `KeyedTable.prepare`."""
        opened, base = self._opened, self._base
        types.keep(base, self._fields, opened.was)
        make_with_regions(opened.connections, settings, FAMILIES)
        table = keyed_table(opened.connections, settings.hbase, settings.table)
        table.prepare(stream, ledger, settings.key, settings.buckets, types.names_of(base, opened.was), values)


def published(opened: OpenStream, settings: KeyedTableSettings) -> PublishedTable:
    admin = kind_of(settings.type).make_admin()
    if not isinstance(admin, KeyedAdmin):
        raise TypeError(f"{settings.type} has no table in HBase with a row for each key")
    place = admin.table_place(settings, settings.base(opened.connections))
    return admin.place_of_table(opened.connections, place, opened.was)


def rows_of_keys(spark: SparkSession, reading: RowsByKey, one: OneRow, schema: pa.Schema) -> DataFrame:
    """The rows of all keys, those that are not published yet as they will be."""
    there = read_by_salts(spark, _Rows(reading.table, reading.unpublished, one), schema)
    unpublished = [one(row) for row in reading.unpublished.values() if row is not None]
    return there.unionAll(spark.createDataFrame(unpublished, from_arrow_schema(schema))) if unpublished else there


@dataclass(frozen=True)
class _Rows:
    """A `salts.RowsOf`: the rows of a table, but for those that are published again."""

    table: KeyedTable
    unpublished: Mapping[bytes, KeyedRow | None]
    one: OneRow

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        return (self.one(row) for row in self.table.all_rows(salts) if row.key not in self.unpublished)
