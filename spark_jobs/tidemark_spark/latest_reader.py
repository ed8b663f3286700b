"""The newest values of keys, and all stored ones, as Spark DataFrames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.authority import Authority
from tidemark.ledger.book import Book
from tidemark.results.hbase_rows import SALTS, Place
from tidemark.results.hbase_table import StoredRow
from tidemark.results.latest_table import LatestTable
from tidemark_spark.readers import place_row, places_schema

# As many rows go to Spark in one piece.
_BATCH_ROWS = 2_000


def newest_values(spark: SparkSession, book: Book, table: LatestTable, fields: Sequence[str]) -> DataFrame:
    """Of every key the newest value that counts. Columns as of `hbase_places`."""
    return _read(spark, book, table, fields, newest=True)


def all_values(spark: SparkSession, book: Book, table: LatestTable, fields: Sequence[str]) -> DataFrame:
    """Every stored value that counts or is debris. Columns as of `hbase_places`."""
    return _read(spark, book, table, fields, newest=False)


def _read(spark: SparkSession, book: Book, table: LatestTable, fields: Sequence[str], *, newest: bool) -> DataFrame:
    schema = places_schema(fields)
    # What was read of the ledger before the rows says which of them count: nothing is removed meanwhile.
    reader = _Reader(table, book.authority(), tuple(fields), schema, newest)
    salts = spark.createDataFrame([(salt,) for salt in range(SALTS)], "salt int")
    return salts.repartition(SALTS).mapInArrow(reader, from_arrow_schema(schema))


@dataclass(frozen=True)
class _Reader:
    """Runs in Spark's Python workers: salts in, rows out."""

    table: LatestTable
    authority: Authority
    fields: tuple[str, ...]
    schema: pa.Schema
    newest: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = []
        for batch in batches:
            salts = batch.column(0).to_pylist()
            for place, row in self._found(salts):
                rows.append(place_row(self.fields, place, row))
                if len(rows) == _BATCH_ROWS:
                    yield self._batch(rows)
                    rows = []
        if rows:
            yield self._batch(rows)

    def _found(self, salts: list[int]) -> Iterator[tuple[Place, StoredRow | None]]:
        if self.newest:
            return ((row.place, row) for row in self.table.newest(self.authority, salts))
        return self.table.places(self.authority, salts)

    def _batch(self, rows: list[tuple[object, ...]]) -> pa.RecordBatch:
        arrays = [
            pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)
