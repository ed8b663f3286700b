"""Aggregates as Spark DataFrames: the totals of all keys for people, and what each window contributes for the audit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.results.aggregate_table import AggregateTable, counting, totals_that_count
from tidemark.results.aggregates import Aggregate
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.opened import OpenStream
from tidemark_spark.aggregating import ROWS, key_name, value_name
from tidemark_spark.readers import of_text
from tidemark_spark.salts import read_by_salts
from tidemark_spark.schemes.fields import SPARK_TYPES

# Of a contribution: the qualifier of its window, the XOR of its rows' ack values, whether its cell holds what its mark says.
QUALIFIER, ACK, WHOLE = "_qualifier", "_ack", "_whole"
# Of a key: how many cells of it are debris; a row of these has no contribution.
DEBRIS = "_debris"


def key_totals(spark: SparkSession, opened: OpenStream, sink: HBaseAggregatesSink) -> DataFrame:
    """Key and values of each key, with their types."""
    aggregates = sink.aggregates(opened.stream.fields)
    table = opened.aggregate_table(sink.hbase, sink.table)
    # What was read of the ledger before the rows says which of them count: nothing is removed meanwhile.
    reader = _Totals(table, counting(opened.book.committed(), sink.table), aggregates)
    kinds = [*(SPARK_TYPES[opened.stream.fields[name]] for name in sink.key), *map(_spark_type, aggregates)]
    names = [*(key_name(number) for number, _ in enumerate(sink.key)), *_value_names(aggregates)]
    found = read_by_salts(spark, reader, pa.schema([(name, pa.binary()) for name in names]))
    wanted = zip(names, kinds, [*sink.key, *sink.values], strict=True)
    return found.select(*(of_text(F.col(name), kind) for name, kind, _ in wanted)).toDF(*sink.key, *sink.values)


def all_contributions(
    spark: SparkSession,
    table: AggregateTable,
    counts: Mapping[bytes, int],
    keys: int,
    aggregates: tuple[Aggregate, ...],
) -> DataFrame:
    """Every contribution that counts, as `aggregating.contributions` gives them, with QUALIFIER, ACK, WHOLE and DEBRIS.

    A row without a qualifier only counts the debris of a key.
    """
    names = [*(key_name(number) for number in range(keys)), *_value_names(aggregates)]
    schema = pa.schema(
        [
            (QUALIFIER, pa.string()),
            *((name, pa.binary()) for name in names),
            (ROWS, pa.int64()),
            (ACK, pa.string()),
            (WHOLE, pa.bool_()),
            (DEBRIS, pa.int64()),
        ]
    )
    return read_by_salts(spark, _Contributions(table, counts, keys, aggregates), schema)


def _spark_type(one: Aggregate) -> str:
    if one.function == "count":
        return "bigint"
    return "decimal(38,0)" if one.function == "sum" and one.kind == "integer" else SPARK_TYPES[one.kind]  # type: ignore[index]


def _value_names(aggregates: Iterable[Aggregate]) -> list[str]:
    return [value_name(number) for number, _ in enumerate(aggregates)]


@dataclass(frozen=True)
class _Totals:
    table: AggregateTable
    counts: Mapping[bytes, int]
    aggregates: tuple[Aggregate, ...]

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        for key, values in totals_that_count(self.table, self.counts, self.aggregates, salts):
            yield (*key, *(values.get(one.name) for one in self.aggregates))


@dataclass(frozen=True)
class _Contributions:
    table: AggregateTable
    counts: Mapping[bytes, int]
    keys: int
    aggregates: tuple[Aggregate, ...]

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        for row in self.table.rows(self.counts, salts):
            for name, one in row.contributions.items():
                states = [one.states.get(value.name) for value in self.aggregates]
                yield (name.decode(), *row.key, *states, one.rows, one.ack, one.whole, 0)
            if row.debris:
                yield (None, *row.key, *(None for _ in self.aggregates), None, None, None, row.debris)
