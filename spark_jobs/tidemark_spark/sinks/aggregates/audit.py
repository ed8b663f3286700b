"""The audit of aggregates: compares what each window should contribute to each key with what is stored.

The audit computes contributions from Kafka, so only for windows that Kafka still holds as a whole. Findings are whole
windows too, because a replay repairs a window.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.report import SHOWN_COORDINATES, PlaceReport
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.aggregates.computed import Aggregate
from tidemark.sinks.aggregates.rows import qualifier
from tidemark.sinks.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.aggregates.table import aggregate_table, counting
from tidemark.sinks.first_reads import FirstWindows
from tidemark_spark.sinks.aggregates.aggregating import (
    ROWS,
    ROWS_ACK,
    WINDOW,
    chosen,
    contributions,
    key_name,
    value_name,
    with_windows,
)
from tidemark_spark.sinks.aggregates.reader import ACK, DEBRIS, QUALIFIER, WHOLE, all_contributions

# The last digits of a sum of doubles depend on the order of the numbers.
_TOLERANCE = 1e-9


def compare_aggregates(
    spark: SparkSession, opened: OpenStream, sink: HBaseAggregatesSink, stored: DataFrame, in_kafka: RangeSet
) -> tuple[PlaceReport, list[OffsetRange]]:
    """The report on one sink, and the offsets of the wrong windows. `stored`: the rows that Kafka's messages give."""
    aggregates = sink.aggregates(opened.stream.fields)
    keys = [key_name(number) for number, _ in enumerate(sink.key)]
    windows = opened.book.committed()
    whole = FirstWindows(one for one in windows if not one.covers - in_kafka)
    names = [qualifier(*name).decode() for name in whole.names]

    given = with_windows(chosen(stored, sink.key, aggregates), whole).where(F.col(WINDOW).isNotNull())
    numbered = spark.createDataFrame(list(enumerate(names)), f"{WINDOW} int, {QUALIFIER} string")
    expected = contributions(given, len(keys), aggregates).join(F.broadcast(numbered), WINDOW)
    expected = expected.withColumn(ACK, F.lpad(F.lower(F.hex(ROWS_ACK)), 16, "0"))

    table = aggregate_table(opened.connections, sink.hbase, sink.table)
    found = all_contributions(spark, table, counting(windows, sink.table), len(keys), aggregates).persist()
    debris = found.agg(F.coalesce(F.sum(DEBRIS), F.lit(0))).collect()[0][0]
    known = numbered.select(QUALIFIER)
    there = found.where(F.col(QUALIFIER).isNotNull())
    unproven = there.join(F.broadcast(known), QUALIFIER, "left_anti").count()

    left = expected.select(QUALIFIER, *keys, *_values(aggregates), ROWS, ACK).alias("left")
    right = there.join(F.broadcast(known), QUALIFIER).alias("right")
    same_place = reduce(and_, (_left(name).eqNullSafe(_right(name)) for name in [QUALIFIER, *keys]))
    same = reduce(and_, [_same(one, name) for one, name in zip(aggregates, _values(aggregates), strict=True)])
    same = same & (_left(ROWS) == _right(ROWS)) & (_left(ACK) == _right(ACK)) & _right(WHOLE)
    both = left.join(right, same_place, "full_outer").select(
        *(F.coalesce(_left(name), _right(name)).alias(name) for name in [QUALIFIER, *keys]),
        _right(QUALIFIER).isNull().alias("missing"),
        _left(QUALIFIER).isNull().alias("extra"),
        (_left(QUALIFIER).isNotNull() & _right(QUALIFIER).isNotNull() & ~same).alias("different"),
    )
    both = both.persist()
    kinds = ("missing", "different", "extra")
    counts = both.agg(
        F.count_if(~F.col("extra")).alias("expected"),
        F.count_if(~F.col("missing")).alias("found"),
        *(F.count_if(kind).alias(kind) for kind in kinds),
    ).collect()[0]
    at = {kind: _named(both.where(kind), keys) if counts[kind] else () for kind in kinds}
    wrong = both.where(" or ".join(kinds)).select(QUALIFIER).distinct().collect() if any(at.values()) else []
    both.unpersist()
    found.unpersist()
    report = PlaceReport(
        name=sink.name,
        expected=counts["expected"],
        found=counts["found"],
        missing=counts["missing"],
        different=counts["different"],
        extra=counts["extra"],
        twice=0,
        debris=debris,
        unproven=unproven,
        missing_at=at["missing"],
        different_at=at["different"],
        extra_at=at["extra"],
    )
    return report, [one for row in wrong for one in whole.covers[names.index(row[QUALIFIER])]]


def _values(aggregates: tuple[Aggregate, ...]) -> list[str]:
    return [value_name(number) for number, _ in enumerate(aggregates)]


def _left(name: str) -> Column:
    return F.col(f"left.{name}")


def _right(name: str) -> Column:
    return F.col(f"right.{name}")


def _same(one: Aggregate, name: str) -> Column:
    """Whether two states are the same; never null."""
    left, right = _left(name), _right(name)
    same = left.eqNullSafe(right)
    if one.function != "sum" or one.kind != "double":
        return same
    numbers = [side.cast("string").try_cast("double") for side in (left, right)]
    near = F.abs(numbers[0] - numbers[1]) <= F.greatest(*map(F.abs, numbers)) * _TOLERANCE
    return same | F.coalesce(near, F.lit(False))


def _named(rows: DataFrame, keys: list[str]) -> tuple[str, ...]:
    """Contributions as the report shows them: `ingest/12 host, minute`."""
    shown = rows.orderBy(QUALIFIER, *keys).limit(SHOWN_COORDINATES).collect()
    return tuple(f"{_window(row[QUALIFIER])} {', '.join(_shown(row[name]) for name in keys)}" for row in shown)


def _window(name: str) -> str:
    lane, _, number = name.partition("/")
    return f"{lane}/{int(number)}"


def _shown(part: bytes | None) -> str:
    return "null" if part is None else bytes(part).decode(errors="backslashreplace")
