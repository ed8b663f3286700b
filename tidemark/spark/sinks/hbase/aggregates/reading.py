"""Totals in HBase with Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.keyed.publishing import RowsByKey
from tidemark.sinks.hbase.keyed.rows import KeyedRow
from tidemark.spark.sinks.aggregates.reading import totals_schema
from tidemark.spark.sinks.hbase.keyed import rows_of_keys


def totals_of_table(spark: SparkSession, reading: RowsByKey, sink: HBaseAggregatesSink) -> DataFrame:
    """The rows of the table, as `totals_schema` has them."""
    return rows_of_keys(spark, reading, _Shown(tuple(sink.key), tuple(sink.values)), totals_schema(sink))


@dataclass(frozen=True)
class _Shown:
    """A `keyed.OneRow`: place, key and values."""

    key: tuple[str, ...]
    values: tuple[str, ...]

    def __call__(self, row: KeyedRow) -> tuple[Any, ...]:
        at, fields = row.place.partition, row.fields
        key = row.key_fields(self.key)
        place = (at.topic, at.incarnation, at.partition, row.place.offset, row.place.index)
        return *place, *map(key.get, self.key), *map(fields.get, self.values)
