"""Rows into contributions: one row for each key and unit, whose states merge with those of other units.

A unit is what a window has read of a block of offsets (see `first_reads`). Rows are aggregated first within each
partition of Kafka, then over all of them. So each contribution knows how many messages and rows it has from which partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.first_reads import FirstWindows
from tidemark.sinks.hbase.aggregates.states import Aggregate
from tidemark.spark.columns import AT, COORDINATE, DIGEST, INDEX, MESSAGE_HASH, OFFSET, ROW_HASH, field, flat_text
from tidemark.spark.runtime.workers import in_workers

# The unit of a row, together with its partition: the first offset of the unit, or of its block.
START = "_start"
_UNIT = (*AT, START)
ROWS, ROWS_ACK = "_rows", "_rows_ack"
# For each partition of Kafka in a contribution: AT, messages and their XOR, rows, their XOR, their digests' XOR.
PARTS = "_parts"


def key_name(number: int) -> str:
    return f"key_{number}"


def value_name(number: int) -> str:
    return f"value_{number}"


def scale_name(number: int) -> str:
    return f"scale_{number}"


def chosen(rows: DataFrame, key: Sequence[str], aggregates: Sequence[Aggregate]) -> DataFrame:
    """The columns that contributions need, under plain names, because a stream's field may have any name."""
    keys = [flat_text(name).alias(key_name(number)) for number, name in enumerate(key)]
    values = [_value(one).alias(value_name(number)) for number, one in enumerate(aggregates)]
    return rows.select(*COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH, DIGEST, *keys, *values)


def _value(one: Aggregate) -> Column:
    if one.field is None:
        return F.lit(1)
    # -0.0 becomes 0.0: which of the two Spark takes for the least or the most depends on their order.
    return field(one.field) + F.lit(0.0) if one.kind == "double" else field(one.field)


def with_units(rows: DataFrame, windows: FirstWindows, block: int) -> DataFrame:
    """Rows with START. It is null for rows that none of the windows has read first."""
    return in_workers(rows, _Finder(windows, block), T.StructType([*rows.schema, T.StructField(START, T.LongType())]))


def with_unit_of_one(rows: DataFrame, block: int) -> DataFrame:
    """Rows that are all of one window, with START as the first offset of the block: no worker has to look."""
    return rows.withColumn(START, F.col(OFFSET) - F.col(OFFSET) % F.lit(block))


@dataclass(frozen=True)
class _Finder:
    """Runs in Spark's Python workers: rows in, rows with their units out."""

    windows: FirstWindows
    block: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            places = (batch.column(name).to_pylist() for name in COORDINATE)
            starts = [
                self.windows.start(TopicPartition(topic, partition, incarnation), offset, self.block)
                for topic, incarnation, partition, offset in zip(*places, strict=True)
            ]
            columns = [*batch.columns, pa.array(starts, pa.int64())]
            yield pa.RecordBatch.from_arrays(columns, names=[*batch.schema.names, START])


def contributions(rows: DataFrame, keys: int, aggregates: Sequence[Aggregate], *, scales: bool = False) -> DataFrame:
    """One row for each unit and key of `chosen` rows with units: key and values as bytes, ROWS, ROWS_ACK, PARTS.

    With `scales`, also the sum of the absolute values of each sum of doubles (`scale_name`): what its last digits depend on.
    """
    scaled = [number for number, one in enumerate(aggregates) if scales and one.sums_doubles]
    by = [*_UNIT, *(key_name(number) for number in range(keys))]
    names = [value_name(number) for number, _ in enumerate(aggregates)]
    first = F.col(INDEX) == 0
    within = rows.groupBy(*by).agg(
        *(_state(one, F.col(name)).alias(name) for one, name in zip(aggregates, names, strict=True)),
        *(F.sum(F.abs(value_name(number))).alias(scale_name(number)) for number in scaled),
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
        *(F.sum(scale_name(number)).alias(scale_name(number)) for number in scaled),
        F.sum("written").alias(ROWS),
        F.bit_xor("written_ack").alias(ROWS_ACK),
        F.collect_list(part).alias(PARTS),
    )
    states = [F.col(name).cast("string").cast("binary").alias(name) for name in names]
    return whole.select(*by, *states, *map(scale_name, scaled), ROWS, ROWS_ACK, PARTS)


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
