"""The audit of aggregates: compares what each unit should contribute to each key with what is stored.

A unit is a window, or what it has read of a block of offsets (see `first_reads`). The audit computes contributions from
Kafka, so only for units that Kafka still holds as a whole. Findings are whole units too, because a replay repairs a unit.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.audit.report import SHOWN_COORDINATES, PlaceReport
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import FIRST_INCARNATION, OffsetRange, RangeSet
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.aggregates.computed import Aggregate
from tidemark.sinks.aggregates.rows import block_of, qualifier
from tidemark.sinks.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.aggregates.table import aggregate_table, counting
from tidemark.sinks.first_reads import Block, FirstWindows
from tidemark_spark.columns import INCARNATION, PARTITION, TOPIC
from tidemark_spark.sinks.aggregates.aggregating import (
    ROWS,
    ROWS_ACK,
    START,
    WINDOW,
    chosen,
    contributions,
    key_name,
    unit_columns,
    value_name,
    with_units,
)
from tidemark_spark.sinks.aggregates.reader import ACK, DEBRIS, QUALIFIER, WANTED, WHOLE, all_contributions

# The last digits of a sum of doubles depend on the order of the numbers.
_TOLERANCE = 1e-9


def compare_aggregates(
    spark: SparkSession,
    opened: OpenStream,
    sink: HBaseAggregatesSink,
    stored: DataFrame,
    in_kafka: RangeSet,
    asked: RangeSet | None,
) -> tuple[PlaceReport, RangeSet]:
    """The report on one sink, and the offsets of the wrong windows. `stored`: the rows that Kafka's messages give.

    Units that are not among the offsets `asked` as a whole are left alone; None: all are looked at.
    """
    aggregates = sink.aggregates(opened.stream.fields)
    keys = [key_name(number) for number, _ in enumerate(sink.key)]
    windows = opened.book.committed()
    table = aggregate_table(opened.connections, sink.hbase, sink.table)
    block = table.block(sink.whole_blocks)
    first = FirstWindows(windows)
    whole = first.intact(in_kafka, block)
    units = _units(whole, block)
    looked_at = None if asked is None else _units(first.intact(asked, block), block)

    given = with_units(chosen(stored, sink.key, aggregates), whole, block).where(
        F.col(unit_columns(block)[-1]).isNotNull()
    )
    expected = units.named(spark, contributions(given, len(keys), aggregates, block))
    expected = expected.withColumn(ACK, F.lpad(F.lower(F.hex(ROWS_ACK)), 16, "0"))

    counts = counting(windows, sink.table, block)
    found = all_contributions(spark, table, counts, units, looked_at, len(keys), aggregates).persist()
    debris = found.agg(F.coalesce(F.sum(DEBRIS), F.lit(0))).collect()[0][0]
    there = found.where(F.col(QUALIFIER).isNotNull())
    unproven = there.where(~F.col(WANTED)).count()

    left = expected.select(QUALIFIER, *keys, *_values(aggregates), ROWS, ACK).alias("left")
    right = there.where(F.col(WANTED)).alias("right")
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
    numbers = both.agg(
        F.count_if(~F.col("extra")).alias("expected"),
        F.count_if(~F.col("missing")).alias("found"),
        *(F.count_if(kind).alias(kind) for kind in kinds),
    ).collect()[0]
    at = {kind: _named(both.where(kind), keys) if numbers[kind] else () for kind in kinds}
    wrong = both.where(" or ".join(kinds)).select(QUALIFIER).distinct().collect() if any(at.values()) else []
    both.unpersist()
    found.unpersist()
    report = PlaceReport(
        name=sink.name,
        expected=numbers["expected"],
        found=numbers["found"],
        missing=numbers["missing"],
        different=numbers["different"],
        extra=numbers["extra"],
        twice=0,
        debris=debris,
        unproven=unproven,
        missing_at=at["missing"],
        different_at=at["different"],
        extra_at=at["extra"],
    )
    return report, RangeSet(one for row in wrong for one in units.offsets(row[QUALIFIER]))


def _units(windows: FirstWindows, block: Block) -> _Windows | _Blocks:
    return _Windows(windows) if block is None else _Blocks(windows, block)


class _Windows:
    """The units of a table by windows. Called with a column's qualifier: whether the column is that of one of them."""

    def __init__(self, windows: FirstWindows) -> None:
        self._names = {
            qualifier(*name).decode(): covers for name, covers in zip(windows.names, windows.covers, strict=True)
        }

    def __call__(self, name: bytes) -> bool:
        return name.decode(errors="replace") in self._names

    def named(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        """Contributions with QUALIFIER."""
        numbered = spark.createDataFrame(list(enumerate(self._names)), f"{WINDOW} int, {QUALIFIER} string")
        return rows.join(F.broadcast(numbered), WINDOW)

    def offsets(self, name: str) -> RangeSet:
        return self._names[name]


class _Blocks:
    """As `_Windows`, for a table by blocks of `size` offsets."""

    def __init__(self, windows: FirstWindows, size: int) -> None:
        self._windows = windows
        self._size = size

    def __call__(self, name: bytes) -> bool:
        found = block_of(name)
        return found is not None and self._windows.at(*found) is not None

    def named(self, spark: SparkSession, rows: DataFrame) -> DataFrame:
        incarnation = F.when(F.col(INCARNATION) == FIRST_INCARNATION, "").otherwise(F.concat(F.lit("#"), INCARNATION))
        start = F.lpad(F.col(START).cast("string"), 19, "0")
        slash = F.lit("/")
        return rows.withColumn(QUALIFIER, F.concat(TOPIC, incarnation, slash, PARTITION, slash, start))

    def offsets(self, name: str) -> RangeSet:
        found = block_of(name.encode())
        if found is None:
            return RangeSet()
        at, start = found
        return self._windows.whole(RangeSet([OffsetRange(at, start, start + 1)]), [self._size])


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
    """Contributions as the report shows them: `logs/0@12000 host, minute`, or `ingest/12 host, minute`."""
    shown = rows.orderBy(QUALIFIER, *keys).limit(SHOWN_COORDINATES).collect()
    return tuple(f"{_unit(row[QUALIFIER])} {', '.join(_shown(row[name]) for name in keys)}" for row in shown)


def _unit(name: str) -> str:
    found = block_of(name.encode())
    if found is not None:
        return str(Coordinate(*found))
    lane, _, number = name.partition("/")
    return f"{lane}/{int(number)}"


def _shown(part: bytes | None) -> str:
    return "null" if part is None else bytes(part).decode(errors="backslashreplace")
