"""Aggregates, audited or compared: what each unit should contribute to each key, against what is stored.

A unit is what a window has read of a block of offsets (see `first_reads`). Contributions are computed from Kafka, so an audit
has only those of units that Kafka still holds as a whole. Its findings are whole units too, because a replay repairs a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from tidemark.audit.comparison import MOST_EXAMPLES, NOT_GIVEN_NOW, WAS_NOT_GIVEN, Example, PlaceComparison
from tidemark.audit.report import SHOWN_COORDINATES, PlaceReport
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import FIRST_INCARNATION, OffsetRange, RangeSet
from tidemark.sinks.first_reads import FirstWindows
from tidemark.sinks.hbase.aggregates.rows import block_of
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.states import Aggregate
from tidemark.sinks.hbase.aggregates.table import Layout, SteadyRows, aggregate_table
from tidemark.spark.audit.differences import Audit
from tidemark.spark.audit.replay_comparison import AFTER, BECAUSE, BEFORE, COLUMNS, Comparing, counted
from tidemark.spark.columns import INCARNATION, PARTITION, TOPIC
from tidemark.spark.rows import outcomes
from tidemark.spark.sinks.hbase.aggregates.aggregating import (
    ROWS,
    ROWS_ACK,
    START,
    chosen,
    contributions,
    key_name,
    scale_name,
    value_name,
    with_units,
)
from tidemark.spark.sinks.hbase.aggregates.reader import ACK, DEBRIS, QUALIFIER, WANTED, WHOLE, all_contributions

_KINDS = ("missing", "different", "extra")
# The last digits of a sum of doubles depend on the order of the numbers, and how many do on the size of these: large numbers
# may add up to a small one. So this is of the sum of their absolute values.
_TOLERANCE = 1e-9


def audit_contributions(audit: Audit, sink: HBaseAggregatesSink, in_kafka: RangeSet) -> tuple[PlaceReport, RangeSet]:
    """The report on one sink, and the offsets of the wrong units.

    Only units are looked at that windows have read by the audit's view of the ledger: it expects nothing of later ones. If
    the audit is of some offsets, only those among these as a whole.
    """
    spark, opened = audit.spark, audit.opened
    aggregates = sink.aggregates(opened.stream.fields)
    keys = [key_name(number) for number, _ in enumerate(sink.key)]
    table = aggregate_table(opened.connections, sink.hbase, sink.table)
    block = table.block(sink.whole_blocks)
    view = audit.view or opened.book.view()
    first = FirstWindows(view.windows)
    whole = first.intact(in_kafka, block)
    units = _Units(whole, block)
    looked_at = _Units(first if audit.some is None else first.intact(audit.some, block), block)

    steady = SteadyRows.of(opened.book, table, view)
    stored = all_contributions(spark, steady, units, looked_at, len(keys), aggregates).persist()
    debris = stored.agg(F.coalesce(F.sum(DEBRIS), F.lit(0))).collect()[0][0]
    there = stored.where(F.col(QUALIFIER).isNotNull())
    unproven = there.where(~F.col(WANTED)).count()

    made = units.named(_made(sink, aggregates, audit.stored, whole, block))
    both = _joined(made, there.where(F.col(WANTED)), keys)
    same = reduce(and_, _same_values(aggregates))
    same = same & (_left(ROWS) == _right(ROWS)) & (_left(ACK) == _right(ACK)) & _right(WHOLE)
    both = both.select(
        *(F.coalesce(_left(name), _right(name)).alias(name) for name in [QUALIFIER, *keys]),
        _right(QUALIFIER).isNull().alias("missing"),
        _left(QUALIFIER).isNull().alias("extra"),
        (_left(QUALIFIER).isNotNull() & _right(QUALIFIER).isNotNull() & ~same).alias("different"),
    )
    both = both.persist()
    numbers = _numbers(both)
    some = any(numbers[kind] for kind in _KINDS)
    wrong = [row[0] for row in both.where(" or ".join(_KINDS)).select(QUALIFIER).distinct().collect()] if some else []
    changed = audit.changed() if wrong else RangeSet()
    judged = both
    if meanwhile := {name for name in wrong if units.offsets(name) & changed}:
        judged = both.where(~F.col(QUALIFIER).isin(list(meanwhile)))
        wrong = [name for name in wrong if name not in meanwhile]
        numbers = _numbers(judged)
    at = {kind: _named(judged.where(kind), keys) if numbers[kind] else () for kind in _KINDS}
    both.unpersist()
    stored.unpersist()
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
    return report, RangeSet(range_ for name in wrong for range_ in units.offsets(name))


def _numbers(compared: DataFrame) -> Row:
    """How many contributions were expected and found, and how many there are of each kind of difference."""
    return compared.agg(
        F.count_if(~F.col("extra")).alias("expected"),
        F.count_if(~F.col("missing")).alias("found"),
        *(F.count_if(kind).alias(kind) for kind in _KINDS),
    ).collect()[0]


def compare_contributions(comparing: Comparing, sink: HBaseAggregatesSink) -> PlaceComparison:
    """Compare the contributions that count with those that a replay would write. Reads the whole table.

    A replay reads whole units, so only these are compared. The number of rows in a contribution is not.
    Raises WrongUse for a table that was made with another layout: the replay would be refused too.
    """
    opened = comparing.opened
    aggregates = sink.aggregates(opened.stream.fields)
    table = aggregate_table(opened.connections, sink.hbase, sink.table)
    block = sink.whole_blocks
    table.check(Layout(sink.key, aggregates, block))
    read = FirstWindows(comparing.view.windows).intact(comparing.offsets, block)
    units = _Units(read, block)
    keys = [key_name(number) for number, _ in enumerate(sink.key)]

    stored = outcomes.stored(comparing.messages)
    made = units.named(_made(sink, aggregates, stored, read, block))
    steady = SteadyRows.of(opened.book, table, comparing.view)
    in_table = all_contributions(comparing.spark, steady, units, units, len(keys), aggregates)
    both = _joined(made, in_table.where(F.col(QUALIFIER).isNotNull()), keys)
    changed = (F.when(~same, F.lit(one.name)) for one, same in zip(aggregates, _same_values(aggregates), strict=True))
    before, after = _right(QUALIFIER), _left(QUALIFIER)
    rows = both.select(
        F.coalesce(before, after).alias(QUALIFIER),
        before.alias(BEFORE),
        after.alias(AFTER),
        F.array_compact(F.array(*changed)).alias(COLUMNS),
    )
    names = [aggregate.name for aggregate in aggregates]
    return counted(sink.name, rows, names, _because(WAS_NOT_GIVEN), _because(NOT_GIVEN_NOW), _units_of)


def _because(why: str) -> Callable[[DataFrame, DataFrame], DataFrame]:
    return lambda rows, _: rows.withColumn(BECAUSE, F.lit(why))


def _units_of(rows: DataFrame) -> tuple[Example, ...]:
    """The first units of contributions, each with the number of its keys that have the same columns and reason."""
    units = rows.groupBy(QUALIFIER, COLUMNS, BECAUSE).count()
    # Topic, partition and first offset.
    parts = F.split(QUALIFIER, "/")
    order = (parts[0], parts[1].cast("int"), parts[2].cast("long"), F.col(COLUMNS))
    return tuple(
        Example(
            at=f"block {_unit(row[QUALIFIER])}",
            index=0,
            keys=row["count"],
            columns=tuple(row[COLUMNS]),
            why=row[BECAUSE],
        )
        for row in units.orderBy(*order).limit(MOST_EXAMPLES).collect()
    )


def _made(
    sink: HBaseAggregatesSink,
    aggregates: Sequence[Aggregate],
    stored: DataFrame,
    whole: FirstWindows,
    block: int,
) -> DataFrame:
    """The contributions of whole units by these rows: their unit's columns, key, values, ROWS, ACK."""
    given = with_units(chosen(stored, sink.key, aggregates), whole, block).where(F.col(START).isNotNull())
    made = contributions(given, len(sink.key), aggregates, scales=True)
    return made.withColumn(ACK, F.lpad(F.lower(F.hex(ROWS_ACK)), 16, "0"))


def _joined(made: DataFrame, stored: DataFrame, keys: Sequence[str]) -> DataFrame:
    """The contributions made now (`_left`) and those stored (`_right`), by unit and key."""
    same_place = reduce(and_, (_left(name).eqNullSafe(_right(name)) for name in [QUALIFIER, *keys]))
    return made.alias("left").join(stored.alias("right"), same_place, "full_outer")


class _Units:
    """The units of a table by blocks of `size` offsets. Called with a column's qualifier: whether it is that of one of them."""

    def __init__(self, windows: FirstWindows, size: int) -> None:
        self._windows = windows
        self._size = size

    def __call__(self, name: bytes) -> bool:
        block = block_of(name)
        return block is not None and self._windows.at(*block) is not None

    def named(self, rows: DataFrame) -> DataFrame:
        """Contributions with QUALIFIER."""
        incarnation = F.when(F.col(INCARNATION) == FIRST_INCARNATION, "").otherwise(F.concat(F.lit("#"), INCARNATION))
        start = F.lpad(F.col(START).cast("string"), 19, "0")
        slash = F.lit("/")
        return rows.withColumn(QUALIFIER, F.concat(TOPIC, incarnation, slash, PARTITION, slash, start))

    def offsets(self, name: str) -> RangeSet:
        block = block_of(name.encode())
        if block is None:
            return RangeSet()
        at, start = block
        return self._windows.whole(RangeSet([OffsetRange(at, start, start + 1)]), [self._size])


def _left(name: str) -> Column:
    return F.col(f"left.{name}")


def _right(name: str) -> Column:
    return F.col(f"right.{name}")


def _same_values(aggregates: Sequence[Aggregate]) -> list[Column]:
    return [
        same_state(one, _left(name), _right(name), _left(scale_name(number)) if one.sums_doubles else None)
        for number, one in enumerate(aggregates)
        for name in [value_name(number)]
    ]


def same_state(one: Aggregate, left: Column, right: Column, scale: Column | None = None) -> Column:
    """Whether two states, as `contributions` has them, are the same; never null.

    `scale` is the sum of the absolute values behind a sum of doubles.
    """
    same = left.eqNullSafe(right)
    if one.kind != "double" or one.function == "count":
        return same
    numbers = [side.cast("string").try_cast("double") for side in (left, right)]
    if scale is None:
        # Older contributions have -0.0 as well.
        return same | F.coalesce((numbers[0] == 0) & (numbers[1] == 0), F.lit(False))
    # To Spark, NaN equals itself and is larger than all numbers.
    near = (scale < F.lit(float("inf"))) & (F.abs(numbers[0] - numbers[1]) <= scale * _TOLERANCE)
    return same | F.coalesce(near, F.lit(False))


def _named(rows: DataFrame, keys: list[str]) -> tuple[str, ...]:
    """Contributions as the report shows them: `logs/0@12000 host, minute`."""
    shown = rows.orderBy(QUALIFIER, *keys).limit(SHOWN_COORDINATES).collect()
    return tuple(f"{_unit(row[QUALIFIER])} {', '.join(_shown(row[name]) for name in keys)}" for row in shown)


def _unit(name: str) -> str:
    block = block_of(name.encode())
    return name if block is None else str(Coordinate(*block))


def _shown(part: bytes | None) -> str:
    return "null" if part is None else bytes(part).decode(errors="backslashreplace")
