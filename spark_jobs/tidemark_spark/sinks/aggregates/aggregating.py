"""Rows into contributions: one row for each key and window, whose states merge with those of other windows.

Rows are aggregated first within each partition of Kafka, then over all of them. So each contribution knows how many
messages and rows it has from which partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.aggregates.computed import Aggregate
from tidemark.sinks.first_reads import FirstWindows
from tidemark_spark.columns import AT, COORDINATE, DIGEST, INDEX, MESSAGE_HASH, ROW_HASH, field, text
from tidemark_spark.runtime.workers import in_workers

# The number of a row's window; null for a row without one.
WINDOW = "_window"
ROWS, ROWS_ACK = "_rows", "_rows_ack"
# For each partition of Kafka in a contribution: AT, messages and their XOR, rows, their XOR, their digests' XOR.
PARTS = "_parts"


def key_name(number: int) -> str:
    return f"key_{number}"


def value_name(number: int) -> str:
    return f"value_{number}"


def chosen(rows: DataFrame, key: Sequence[str], aggregates: Sequence[Aggregate]) -> DataFrame:
    """The columns that contributions need, under plain names, because a stream's field may have any name."""
    keys = [text(name).alias(key_name(number)) for number, name in enumerate(key)]
    values = [
        F.lit(1).alias(value_name(number)) if one.field is None else field(one.field).alias(value_name(number))
        for number, one in enumerate(aggregates)
    ]
    return rows.select(*COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH, DIGEST, *keys, *values)


def with_windows(rows: DataFrame, windows: FirstWindows) -> DataFrame:
    """Rows with the number of the window that read them first."""
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
    """One row for each window and key of `chosen` rows with WINDOW: key and values as bytes, ROWS, ROWS_ACK, PARTS."""
    by = [WINDOW, *(key_name(number) for number in range(keys))]
    names = [value_name(number) for number, _ in enumerate(aggregates)]
    first = F.col(INDEX) == 0
    within = rows.groupBy(*by, *AT).agg(
        *(_state(one, F.col(name)).alias(name) for one, name in zip(aggregates, names, strict=True)),
        F.count_if(first).alias("messages"),
        F.bit_xor(F.when(first, F.col(MESSAGE_HASH))).alias("messages_ack"),
        F.count("*").alias("written"),
        F.bit_xor(ROW_HASH).alias("written_ack"),
        F.bit_xor(DIGEST).alias("content"),
    )
    messages_ack = F.coalesce("messages_ack", F.lit(0)).alias("messages_ack")
    part = F.struct(*AT, "messages", messages_ack, "written", "written_ack", "content")
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
            # A window has fewer than 10^10 rows of a key, so 29 digits hold any sum of integers.
            return F.sum(value.cast("decimal(19,0)") if one.kind == "integer" else value)
        case "min":
            return F.min(value)
        case "max":
            return F.max(value)


def _merged(one: Aggregate, state: Column) -> Column:
    return F.sum(state) if one.function in ("count", "sum") else _state(one, state)
