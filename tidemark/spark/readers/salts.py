"""Reading tables whose keys begin with a salt, by Spark's workers in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.sinks.hbase.rows import SALTS
from tidemark.spark.runtime.workers import in_batches, in_workers

# Returns the rows with some salts. It is pickled, and called in Spark's Python workers.
RowsOf = Callable[[list[int]], Iterator[tuple[Any, ...]]]


def read_by_salts(spark: SparkSession, rows: RowsOf, schema: pa.Schema) -> DataFrame:
    """The rows that `rows` returns for all salts, with one task per salt."""
    salts = spark.createDataFrame([(salt,) for salt in range(SALTS)], "salt int")
    return in_workers(salts.repartition(SALTS), _SaltReader(rows, schema), from_arrow_schema(schema))


@dataclass(frozen=True)
class _SaltReader:
    rows: RowsOf
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from in_batches(self.rows(batch.column(0).to_pylist()), self.schema)
