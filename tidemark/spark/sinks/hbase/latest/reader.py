"""The newest values of keys, and all stored ones, as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.ledger.book import Book
from tidemark.schemes.kinds import Fields
from tidemark.sinks.hbase.latest.table import LatestInHBase, SteadyValues
from tidemark.sinks.stored_rows import Place, StoredRow
from tidemark.spark.readers.places import Digested, contents_of, place_row, places_schema
from tidemark.spark.readers.salts import read_by_salts


def newest_values(spark: SparkSession, book: Book, sink: str, table: LatestInHBase, fields: Sequence[str]) -> DataFrame:
    """The newest value that counts of every key. Columns like those of `hbase_places`."""
    return _read(spark, book, sink, table, fields, None)


def all_values(spark: SparkSession, book: Book, sink: str, table: LatestInHBase, fields: Fields) -> DataFrame:
    """Every stored value that counts or is debris. Columns of `hbase_places`, with digests instead of fields."""
    return _read(spark, book, sink, table, (), contents_of(fields))


def all_values_with_fields(
    spark: SparkSession, book: Book, sink: str, table: LatestInHBase, fields: Sequence[str]
) -> DataFrame:
    """Every stored value that counts or is debris. Columns of `hbase_places`, with `_others`."""
    rows = _Rows(SteadyValues.of(book, table, sink), tuple(fields), None, every=True)
    return read_by_salts(spark, rows, places_schema(fields, others=True))


def _read(
    spark: SparkSession, book: Book, sink: str, table: LatestInHBase, fields: Sequence[str], digested: Digested | None
) -> DataFrame:
    rows = _Rows(SteadyValues.of(book, table, sink), tuple(fields), digested)
    return read_by_salts(spark, rows, places_schema(fields))


@dataclass(frozen=True)
class _Rows:
    """A `salts.RowsOf`: the newest values with their fields, the digests of all values, or every value with its fields."""

    steady: SteadyValues
    fields: tuple[str, ...]
    digested: Digested | None
    every: bool = False

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        for place, row in self._found(salts):
            yield place_row(self.fields, place, row, self.digested, others=self.every)

    def _found(self, salts: list[int]) -> Iterator[tuple[Place, StoredRow | None]]:
        if self.digested is None and not self.every:
            return ((row.place, row) for row in self.steady.newest(salts))
        return self.steady.table.places(self.steady.view.authority, salts)
