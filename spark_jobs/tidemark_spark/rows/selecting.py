"""Rows at given offsets, and rows elsewhere."""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.offsets.blocks import count_blocks, in_blocks
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark_spark.columns import AT, BLOCK, INCARNATION, OFFSET, PARTITION, TOPIC
from tidemark_spark.rows.tallying import block_of

# Up to this many ranges are conditions in the plan. More are joined, since Spark compiles every condition.
_MOST_CONDITIONS = 50
# Ranges are cut at the borders of blocks, so that Spark finds a row's ranges by equal keys. There are about this many
# pieces, or as many as ranges, so that few pieces share a row's key.
_PIECES_MADE = 20_000

_IN = tuple(f"_in{name}" for name in (*AT, BLOCK))
_START, _UNTIL = "_start", "_until"
_KEY = f"{_IN[0]} string, {_IN[1]} int, {_IN[2]} int, {_IN[3]} long"
_PIECE = f"{_KEY}, {_START} long, {_UNTIL} long"
# Where ranges are many and close, a number with a bit for each of 64 offsets takes the place of the ranges there.
_WORD, _MARKS = 64, "_marks"
_MARKED = f"{_KEY}, {_MARKS} long"


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
    number = len(list(ranges))
    spark = rows.sparkSession
    if number > _PIECES_MADE and count_blocks(ranges, _WORD) < number:
        size, listed = _WORD, spark.createDataFrame(_words(ranges), _MARKED)
        inside = [F.expr(f"shiftright({_MARKS}, cast({OFFSET} % {_WORD} as int)) & 1L = 1L")]
    else:
        size = max(1, ranges.hull().count() // max(_PIECES_MADE, number))
        pieces = [
            (at.topic, at.incarnation, at.partition, block, start, until)
            for at, block, start, until in in_blocks(ranges, size)
        ]
        listed = spark.createDataFrame(pieces, _PIECE)
        inside = [F.col(OFFSET) >= F.col(_START), F.col(OFFSET) < F.col(_UNTIL)]
    same = [F.col(name) == F.col(of_piece) for name, of_piece in zip((*AT, BLOCK), _IN, strict=True)]
    return rows.select("*", block_of(size)).join(F.broadcast(listed), [*same, *inside], how).drop(BLOCK)


def _words(ranges: RangeSet) -> list[tuple[str, int, int, int, int]]:
    """Each 64 offsets that hold any of the ranges, with a bit for each offset, as a signed number."""
    marks: dict[tuple[TopicPartition, int], int] = {}
    for at, word, start, until in in_blocks(ranges, _WORD):
        bits = (1 << until - start) - 1 << start % _WORD
        marks[at, word] = marks.get((at, word), 0) | bits
    return [
        (at.topic, at.incarnation, at.partition, word, found - (1 << _WORD) if found >> _WORD - 1 else found)
        for (at, word), found in marks.items()
    ]


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
