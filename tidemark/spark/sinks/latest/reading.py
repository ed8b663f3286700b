"""The newest rows with Spark: by the history, and as the table has them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from tidemark.ledger.ordering import Epochs
from tidemark.offsets.ranges import RangeSet
from tidemark.schemes.kinds import Fields
from tidemark.sinks.latest.history import conformed
from tidemark.sinks.latest.rows import DELETED, KEY_HASH
from tidemark.sinks.latest.table import TableRows
from tidemark.sinks.parquet.files import exists
from tidemark.sinks.parquet.parts import FolderPart
from tidemark.spark.columns import AT, COORDINATE, DIGEST, INDEX, content_digest, field
from tidemark.spark.readers.parquet import rows_of, schema_of
from tidemark.spark.readers.places import COUNTS, FOUND_DIGEST
from tidemark.spark.rows.selecting import only
from tidemark.spark.runtime.workers import arrow_schema
from tidemark.types.fields import columns_in_ddl
from tidemark.types.renamed_fields import NEVER, Names

_KEY = [*COORDINATE, INDEX]
NEWEST = "_newest"
THERE = "_there"


def changes(
    spark: SparkSession, parts: Sequence[FolderPart], fields: Fields, *more: str, was: Names = NEVER
) -> DataFrame:
    """The rows of some folders of the history that count, with their hashes of the key. Missing folders have no rows.

    `more`: further columns, in Spark's DDL.
    """
    there = [one for one in parts if all(map(exists, one.paths))]
    return rows_of(spark, there, _with(fields, ", ".join((f"{KEY_HASH} long", *more))), was)


def _with(fields: Fields, more: str) -> StructType:
    """The columns of a history, and another one in Spark's DDL."""
    return StructType([*schema_of(fields).fields, *cast("StructType", StructType.fromDDL(more)).fields])


def with_newest(rows: DataFrame, key: Sequence[str], epochs: Epochs) -> DataFrame:
    """The rows of a history, with NEWEST: whether each is the newest row of its topic and key. One without a key is not."""

    def epoch(topics: pa.Array, incarnations: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        columns = (one.to_numpy(zero_copy_only=False) for one in (topics, incarnations, partitions, offsets))
        return pa.array(epochs.of_all(*columns), pa.int64())

    # Its types do not say that it takes a function.
    as_column: Any = arrow_udf
    order = [as_column(epoch, "long")(*COORDINATE), *map(F.col, (COORDINATE[3], AT[1], AT[2], INDEX))]
    # Where Spark groups, NaN is one value, and -0.0 is 0.0.
    last = Window.partitionBy(F.col(AT[0]), F.col(KEY_HASH), *map(field, key)).orderBy(*(one.desc() for one in order))
    return rows.withColumn(NEWEST, F.col(KEY_HASH).isNotNull() & (F.row_number().over(last) == 1))


def rows_of_table(spark: SparkSession, newest: TableRows, fields: Fields, *, gone: bool = False) -> DataFrame:
    """The newest rows, with DELETED. With `gone`, a file that is gone has none."""
    return _frame(spark, newest, _with(fields, f"{DELETED} boolean"), gone=gone)


def frame_of(spark: SparkSession, rows: TableRows, fields: Fields, *, gone: bool = False) -> DataFrame:
    """The rows of a table with these columns. `gone`: as above."""
    return _frame(spark, rows, cast("StructType", StructType.fromDDL(columns_in_ddl(fields))), gone=gone)


def _frame(spark: SparkSession, newest: TableRows, schema: StructType, *, gone: bool) -> DataFrame:
    parts = [spark.createDataFrame([], schema)]
    if files := [one for one in newest.files if not gone or exists(one)]:
        parts.append(spark.read.schema(schema).parquet(*files))
    plain = arrow_schema(schema)
    parts += [spark.createDataFrame(conformed(one, plain), schema) for one in newest.changed.values() if one.num_rows]
    return reduce(DataFrame.unionAll, parts)


def audited(history: DataFrame, table: DataFrame, fields: Fields, within: RangeSet | None) -> DataFrame:
    """The rows that an audit compares: of each key the newest one as the table has it, the older ones of the history.

    `history` has NEWEST, and `table` THERE, the digest of what is in it.

    A newest row that the table lacks is left out, so it is missing; one with other contents has those
    of the table. A row that is the newest in the table alone is there once more.
    """
    digest = content_digest(fields)
    ours = history.withColumn(FOUND_DIGEST, digest).select(*_KEY, DIGEST, FOUND_DIGEST, NEWEST)
    theirs = table.select(*_KEY, F.col(DIGEST).alias("_said"), THERE)
    if within is not None:
        ours, theirs = only(ours, within), only(theirs, within)
    both = ours.join(theirs, _KEY, "full_outer")
    newest = F.coalesce(F.col(NEWEST), F.lit(False))
    there, here = F.col(THERE).isNotNull(), F.col(NEWEST).isNotNull()
    as_found = F.when(newest & (F.col(FOUND_DIGEST) == F.col(DIGEST)), F.col(THERE)).otherwise(F.col(FOUND_DIGEST))
    # Once for the history's row, and once more for a row of the table that should not be there.
    times = F.when(newest, F.when(there, 1).otherwise(0)).otherwise(here.cast("int") + there.cast("int"))
    rows = both.select(
        *_KEY,
        F.lit(True).alias(COUNTS),
        F.coalesce(DIGEST, "_said").alias(DIGEST),
        F.coalesce(as_found, THERE).alias(FOUND_DIGEST),
        F.sequence(F.lit(1), F.lit(2)).alias("_both"),
        times.alias("_times"),
    )
    return rows.select("*", F.explode(F.slice("_both", 1, F.col("_times")))).select(*_KEY, COUNTS, DIGEST, FOUND_DIGEST)
