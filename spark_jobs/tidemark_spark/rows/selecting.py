"""Rows at given offsets, and rows elsewhere."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.offsets.blocks import in_blocks
from tidemark.offsets.ranges import RangeSet
from tidemark_spark.columns import AT, BLOCK, INCARNATION, OFFSET, PARTITION, TOPIC
from tidemark_spark.rows.tallying import block_of

# Up to this many ranges are conditions in the plan. More are joined, since Spark compiles every condition.
_MOST_CONDITIONS = 50
# Ranges are cut at the borders of blocks, so that Spark finds a row's ranges by equal keys. There are about this many
# pieces, or as many as ranges, so that few pieces share a row's key.
_PIECES_MADE = 20_000

_IN = tuple(f"_in{name}" for name in (*AT, BLOCK))
_START, _UNTIL = "_start", "_until"
_PIECE = f"{_IN[0]} string, {_IN[1]} int, {_IN[2]} int, {_IN[3]} long, {_START} long, {_UNTIL} long"


def only(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is in `ranges`."""
    if len(list(ranges)) <= _MOST_CONDITIONS:
        return rows.where(_condition(ranges))
    return _joined(rows, ranges, "left_semi")


def without(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is not in `ranges`."""
    if len(list(ranges)) <= _MOST_CONDITIONS:
        return rows.where(~_condition(ranges))
    return _joined(rows, ranges, "left_anti")


def marked(rows: DataFrame, ranges: RangeSet, name: str) -> DataFrame:
    """The rows with a column that says whether their coordinate is in `ranges`."""
    if len(list(ranges)) <= _MOST_CONDITIONS:
        return rows.withColumn(name, _condition(ranges))
    inside = F.coalesce(F.col(_START) <= F.col(OFFSET), F.lit(False)).alias(name)
    return _joined(rows, ranges, "left").select(*rows.columns, inside)


def _joined(rows: DataFrame, ranges: RangeSet, how: str) -> DataFrame:
    """Join rows with ranges. The cost grows with the number of ranges, never with their offsets."""
    size = max(1, ranges.hull().count() // max(_PIECES_MADE, len(list(ranges))))
    pieces = [
        (at.topic, at.incarnation, at.partition, block, start, until)
        for at, block, start, until in in_blocks(ranges, size)
    ]
    listed = rows.sparkSession.createDataFrame(pieces, _PIECE)
    same = [F.col(name) == F.col(of_piece) for name, of_piece in zip((*AT, BLOCK), _IN, strict=True)]
    inside = [F.col(OFFSET) >= F.col(_START), F.col(OFFSET) < F.col(_UNTIL)]
    return rows.select("*", block_of(size)).join(F.broadcast(listed), [*same, *inside], how).drop(BLOCK)


def _condition(ranges: RangeSet) -> Column:
    conditions = [
        (F.col(TOPIC) == one.partition.topic)
        & (F.col(INCARNATION) == one.partition.incarnation)
        & (F.col(PARTITION) == one.partition.partition)
        & (F.col(OFFSET) >= one.start)
        & (F.col(OFFSET) < one.until)
        for one in ranges
    ]
    return reduce(or_, conditions, F.lit(False))
