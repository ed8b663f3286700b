"""Rows into contributions: of each key and window one row, whose states merge with those of other windows.

First within a partition of Kafka, then over all of them, so that each contribution knows how many messages and rows of which
partition are in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.first_windows import FirstWindows
from tidemark.ranges import TopicPartition
from tidemark.results.aggregates import Aggregate
from tidemark_spark.arrow import in_workers
from tidemark_spark.columns import AT, COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH, field, text

# The number of the window that a row belongs to; null for a row of none.
WINDOW = "_window"
ROWS, ROWS_ACK = "_rows", "_rows_ack"
# Of each partition of Kafka that a contribution is made of: AT, messages and their XOR, rows and their XOR.
PARTS = "_parts"


def key_name(number: int) -> str:
    return f"key_{number}"


def value_name(number: int) -> str:
    return f"value_{number}"


def chosen(rows: DataFrame, key: Sequence[str], aggregates: Sequence[Aggregate]) -> DataFrame:
    """Of rows what contributions are made of, under plain names: a stream's field may be called as it likes."""
    keys = [text(name).alias(key_name(number)) for number, name in enumerate(key)]
    values = [
        F.lit(1).alias(value_name(number)) if one.field is None else field(one.field).alias(value_name(number))
        for number, one in enumerate(aggregates)
    ]
    return rows.select(*COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH, *keys, *values)


def with_windows(rows: DataFrame, windows: FirstWindows) -> DataFrame:
    """Rows with the number of the window that has read them first."""
    return in_workers(rows, _Finder(windows), T.StructType([*rows.schema, T.StructField(WINDOW, T.IntegerType())]))


@dataclass(frozen=True)
class _Finder:
    """Runs in Spark's Python workers: rows in, rows with their windows out."""

    windows: FirstWindows

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = (batch.column(name).to_pylist() for name in COORDINATE)
            numbers = [
                self.windows.at(TopicPartition(topic, partition, incarnation), offset)
                for topic, incarnation, partition, offset in zip(*places, strict=True)
            ]
            columns = [*batch.columns, pa.array(numbers, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, WINDOW])


def contributions(rows: DataFrame, keys: int, aggregates: Sequence[Aggregate]) -> DataFrame:
    """Of `chosen` rows with WINDOW, a row for each window and key: key and values as bytes, ROWS, ROWS_ACK and PARTS."""
    by = [WINDOW, *(key_name(number) for number in range(keys))]
    names = [value_name(number) for number, _ in enumerate(aggregates)]
    first = F.col(INDEX) == 0
    within = rows.groupBy(*by, *AT).agg(
        *(_state(one, F.col(name)).alias(name) for one, name in zip(aggregates, names, strict=True)),
        F.count_if(first).alias("messages"),
        F.bit_xor(F.when(first, F.col(MESSAGE_HASH))).alias("messages_ack"),
        F.count("*").alias("written"),
        F.bit_xor(ROW_HASH).alias("written_ack"),
    )
    part = F.struct(
        *AT, "messages", F.coalesce("messages_ack", F.lit(0)).alias("messages_ack"), "written", "written_ack"
    )
    whole = within.groupBy(*by).agg(
        *(_merged(one, F.col(name)).alias(name) for one, name in zip(aggregates, names, strict=True)),
        F.sum("written").alias(ROWS),
        F.bit_xor("written_ack").alias(ROWS_ACK),
        F.collect_list(part).alias(PARTS),
    )
    states = [F.col(name).cast("string").cast("binary").alias(name) for name in names]
    return whole.select(*by, *states, ROWS, ROWS_ACK, PARTS)


def _state(one: Aggregate, value: Column) -> Column:
    match one.function:
        case "count":
            return F.count("*")
        case "sum":
            # A window has fewer than 10^10 rows of a key, so that 29 digits hold any sum of integers.
            return F.sum(value.cast("decimal(19,0)") if one.kind == "integer" else value)
        case "min":
            return F.min(value)
        case "max":
            return F.max(value)


def _merged(one: Aggregate, state: Column) -> Column:
    return F.sum(state) if one.function in ("count", "sum") else _state(one, state)
