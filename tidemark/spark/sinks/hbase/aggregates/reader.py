"""Aggregates as Spark DataFrames: the totals of all keys for users, and the contributions for the audit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.states import Aggregate
from tidemark.sinks.hbase.aggregates.table import SteadyRows, aggregate_table
from tidemark.spark.readers.places import of_text
from tidemark.spark.readers.salts import read_by_salts
from tidemark.spark.sinks.hbase.aggregates.aggregating import ROWS, key_name, value_name
from tidemark.types.fields import spark_type

# A contribution's columns: its qualifier in HBase, the XOR of its rows' ack values, whether cell and mark agree.
QUALIFIER, ACK, WHOLE = "_qualifier", "_ack", "_whole"
# Whether a contribution's unit is among those that the reader asked for.
WANTED = "_wanted"
# The number of a key's debris cells, in a row of its own, without a contribution.
DEBRIS = "_debris"


def key_totals(spark: SparkSession, opened: OpenStream, sink: HBaseAggregatesSink) -> DataFrame:
    """Key and values of each key, with their types."""
    aggregates = sink.aggregates(opened.stream.fields)
    table = aggregate_table(opened.connections, sink.hbase, sink.table)
    reader = _Totals(SteadyRows.of(opened.book, table), aggregates)
    kinds = [*(spark_type(opened.stream.fields[name]) for name in sink.key), *map(_spark_type, aggregates)]
    names = [*(key_name(number) for number, _ in enumerate(sink.key)), *_value_names(aggregates)]
    states = read_by_salts(spark, reader, pa.schema([(name, pa.binary()) for name in names]))
    wanted = zip(names, kinds, [*sink.key, *sink.values], strict=True)
    return states.select(*(of_text(F.col(name), kind) for name, kind, _ in wanted)).toDF(*sink.key, *sink.values)


def all_contributions(
    spark: SparkSession,
    steady: SteadyRows,
    wanted: Callable[[bytes], bool],
    asked: Callable[[bytes], bool] | None,
    keys: int,
    aggregates: tuple[Aggregate, ...],
) -> DataFrame:
    """Every contribution that counts, like those of `aggregating.contributions`, with QUALIFIER, ACK, WHOLE, WANTED,
    DEBRIS.

    `wanted` and `asked` take a qualifier. Contributions of units that are not `asked` for are left out. A row without a
    qualifier only counts the debris of a key.
    """
    names = [*(key_name(number) for number in range(keys)), *_value_names(aggregates)]
    schema = pa.schema(
        [
            (QUALIFIER, pa.string()),
            *((name, pa.binary()) for name in names),
            (ROWS, pa.int64()),
            (ACK, pa.string()),
            (WHOLE, pa.bool_()),
            (WANTED, pa.bool_()),
            (DEBRIS, pa.int64()),
        ]
    )
    return read_by_salts(spark, _Contributions(steady, wanted, asked, keys, aggregates), schema)


def _spark_type(one: Aggregate) -> str:
    if one.function == "count":
        return "bigint"
    return "decimal(38,0)" if one.function == "sum" and one.kind == "integer" else spark_type(one.kind)


def _value_names(aggregates: Iterable[Aggregate]) -> list[str]:
    return [value_name(number) for number, _ in enumerate(aggregates)]


@dataclass(frozen=True)
class _Totals:
    steady: SteadyRows
    aggregates: tuple[Aggregate, ...]

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        for key, values in self.steady.totals(self.aggregates, salts):
            yield (*key, *(values.get(aggregate.name) for aggregate in self.aggregates))


@dataclass(frozen=True)
class _Contributions:
    steady: SteadyRows
    wanted: Callable[[bytes], bool]
    asked: Callable[[bytes], bool] | None
    keys: int
    aggregates: tuple[Aggregate, ...]

    def __call__(self, salts: list[int]) -> Iterator[tuple[Any, ...]]:
        for row in self.steady.rows(salts):
            for name, one in row.contributions.items():
                if self.asked is not None and not self.asked(name):
                    continue
                states = [one.states.get(value.name) for value in self.aggregates]
                yield (name.decode(), *row.key, *states, one.rows, one.ack, one.whole, self.wanted(name), 0)
            if row.debris:
                yield (None, *row.key, *(None for _ in self.aggregates), None, None, None, None, row.debris)
