"""Rows at given offsets, and rows elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.offsets.blocks import count_blocks, in_blocks
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.spark.columns import AT, BLOCK, INCARNATION, OFFSET, PARTITION, TOPIC, literal
from tidemark.spark.rows.tallying import block_of

# Up to this many ranges are conditions in the plan. More are joined, since Spark compiles every condition.
_MAX_CONDITIONS = 50
# Ranges are cut at the borders of blocks, so that Spark finds a row's ranges by equal keys. There are about this many
# pieces, or as many as ranges, so that few pieces share a row's key.
_PIECES_MADE = 20_000

_IN = tuple(f"_in{name}" for name in (*AT, BLOCK))
_START, _UNTIL = "_start", "_until"
# What a range is of: the generation that has lost it.
_OF = "_of"
_KEY = f"{_OF} long, {_IN[0]} string, {_IN[1]} int, {_IN[2]} int, {_IN[3]} long"
_PIECE = f"{_KEY}, {_START} long, {_UNTIL} long"
# Where ranges are many and close, a number with a bit for each of 64 offsets takes the place of the ranges there.
_WORD, _MARKS = 64, "_marks"
# With fewer words in each partition, 2 ** 46 offsets, partition and word of one topic are one number.
_FEW_WORDS, _FEW_PARTITIONS = 2**40, 2**22
_MARKED = f"{_KEY}, {_MARKS} long"


def only(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is in `ranges`."""
    if _number(ranges) <= _MAX_CONDITIONS:
        return rows.where(_condition(ranges))
    return _joined(rows, ranges, "left_semi")


def marked(rows: DataFrame, ranges: RangeSet, name: str) -> DataFrame:
    """The rows with a column that says whether their coordinate is in `ranges`."""
    if _number(ranges) <= _MAX_CONDITIONS:
        return rows.withColumn(name, _condition(ranges))
    # Whatever takes the place of the ranges, it has this column.
    inside = F.col(_IN[-1]).isNotNull().alias(name)
    return _joined(rows, ranges, "left").select(*rows.columns, inside)


def without_lost(rows: DataFrame, generation: str, lost: Mapping[int, RangeSet]) -> DataFrame:
    """The rows at whose coordinate the generation in a column of theirs has not `lost` its authority.

    The plan has one join, however many generations have lost something, and how much.
    """
    if not any(lost.values()):
        return rows
    listed, size, inside = _listed(rows.sparkSession, lost)
    same = [F.col(generation) == F.col(_OF), *_same_block(), *inside]
    return rows.select("*", block_of(size)).join(F.broadcast(listed), same, "left_anti").drop(BLOCK)


def _joined(rows: DataFrame, ranges: RangeSet, how: str) -> DataFrame:
    """Join rows with ranges. The cost grows with the number of ranges, never with their offsets."""
    number = _number(ranges)
    spark = rows.sparkSession
    if number > _PIECES_MADE and count_blocks(ranges, _WORD) < number:
        marks = _words(ranges)
        (topic, incarnation), *others = {(at.topic, at.incarnation) for at in ranges.partitions}
        if not others and all(word < _FEW_WORDS and at.partition < _FEW_PARTITIONS for at, word in marks):
            # Spark finds a number faster than four values, one of them a text.
            listed = spark.createDataFrame(
                [(at.partition * _FEW_WORDS + word, marked) for (at, word), marked in marks.items()],
                f"{_IN[3]} long, {_MARKS} long",
            )
            place = F.col(PARTITION) * F.lit(_FEW_WORDS) + F.expr(f"{OFFSET} div {_WORD}L")
            here = (F.col(TOPIC) == topic) & (F.col(INCARNATION) == incarnation) & (F.col(OFFSET) < _FEW_WORDS * _WORD)
            key = F.when(here, place).otherwise(F.lit(-1)).alias(BLOCK)
            joined = rows.select("*", key).join(F.broadcast(listed), [F.col(BLOCK) == F.col(_IN[3]), _is_marked()], how)
            return joined.drop(BLOCK)
    listed, size, inside = _listed(spark, {0: ranges})
    return rows.select("*", block_of(size)).join(F.broadcast(listed), [*_same_block(), *inside], how).drop(BLOCK)


def _listed(spark: SparkSession, by: Mapping[int, RangeSet]) -> tuple[DataFrame, int, list[Column]]:
    """Ranges as rows with a key: what they are of, and a block of their partition.

    Also returns the size of the blocks, and the condition that an offset with that key is in the range.
    """
    number = sum(map(_number, by.values()))
    if number > _PIECES_MADE and sum(count_blocks(ranges, _WORD) for ranges in by.values()) < number:
        marks = [
            (of, at.topic, at.incarnation, at.partition, word, bits)
            for of, ranges in by.items()
            for (at, word), bits in _words(ranges).items()
        ]
        return spark.createDataFrame(marks, _MARKED), _WORD, [_is_marked()]
    size = max(1, sum(ranges.hull().count() for ranges in by.values()) // max(_PIECES_MADE, number))
    pieces = [
        (of, at.topic, at.incarnation, at.partition, block, start, until)
        for of, ranges in by.items()
        for at, block, start, until in in_blocks(ranges, size)
    ]
    inside = [F.col(OFFSET) >= F.col(_START), F.col(OFFSET) < F.col(_UNTIL)]
    return spark.createDataFrame(pieces, _PIECE), size, inside


def _is_marked() -> Column:
    return F.expr(f"shiftright({_MARKS}, cast({OFFSET} % {_WORD} as int)) & 1L = 1L")


def _same_block() -> list[Column]:
    return [F.col(name) == F.col(of_piece) for name, of_piece in zip((*AT, BLOCK), _IN, strict=True)]


def _number(ranges: RangeSet) -> int:
    return sum(len(ranges.of(at)) for at in ranges.partitions)


def _words(ranges: RangeSet) -> dict[tuple[TopicPartition, int], int]:
    """Each 64 offsets that hold any of the ranges, with a bit for each offset, as a signed number."""
    marks: dict[tuple[TopicPartition, int], int] = {}
    for at, word, start, until in in_blocks(ranges, _WORD):
        bits = (1 << until - start) - 1 << start % _WORD
        marks[at, word] = marks.get((at, word), 0) | bits
    return {place: word_ - (1 << _WORD) if word_ >> _WORD - 1 else word_ for place, word_ in marks.items()}


def _condition(ranges: RangeSet) -> Column:
    """As a text: each function of Spark that Python calls takes half a millisecond."""
    within = [
        f"{TOPIC} = {literal(at.topic)} AND {INCARNATION} = {at.incarnation} AND {PARTITION} = {at.partition} AND "
        f"({' OR '.join(f'{OFFSET} >= {start}L AND {OFFSET} < {until}L' for start, until in ranges.of(at))})"
        for at in ranges.partitions
    ]
    return F.expr(" OR ".join(within) or "false")
