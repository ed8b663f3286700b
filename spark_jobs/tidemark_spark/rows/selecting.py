"""Rows at given offsets, and rows elsewhere."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.offsets.blocks import count_blocks, in_blocks
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark_spark.columns import AT, BLOCK, INCARNATION, OFFSET, PARTITION, TOPIC, literal
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
# With fewer words in each partition, 2 ** 46 offsets, partition and word of one topic are one number.
_FEW_WORDS, _FEW_PARTITIONS = 2**40, 2**22
_MARKED = f"{_KEY}, {_MARKS} long"


def only(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is in `ranges`."""
    if _number(ranges) <= _MOST_CONDITIONS:
        return rows.where(_condition(ranges))
    return _joined(rows, ranges, "left_semi")


def without(rows: DataFrame, ranges: RangeSet) -> DataFrame:
    """The rows whose coordinate is not in `ranges`."""
    if _number(ranges) <= _MOST_CONDITIONS:
        return rows.where(~_condition(ranges))
    return _joined(rows, ranges, "left_anti")


def marked(rows: DataFrame, ranges: RangeSet, name: str) -> DataFrame:
    """The rows with a column that says whether their coordinate is in `ranges`."""
    if _number(ranges) <= _MOST_CONDITIONS:
        return rows.withColumn(name, _condition(ranges))
    # Whatever takes the place of the ranges, it has this column.
    inside = F.col(_IN[-1]).isNotNull().alias(name)
    return _joined(rows, ranges, "left").select(*rows.columns, inside)


def _joined(rows: DataFrame, ranges: RangeSet, how: str) -> DataFrame:
    """Join rows with ranges. The cost grows with the number of ranges, never with their offsets."""
    number = _number(ranges)
    spark = rows.sparkSession
    if number > _PIECES_MADE and count_blocks(ranges, _WORD) < number:
        marks = _words(ranges)
        marked = [F.expr(f"shiftright({_MARKS}, cast({OFFSET} % {_WORD} as int)) & 1L = 1L")]
        (topic, incarnation), *others = {(at.topic, at.incarnation) for at in ranges.partitions}
        if not others and all(word < _FEW_WORDS and at.partition < _FEW_PARTITIONS for at, word in marks):
            # Spark finds a number faster than four values, one of them a text.
            listed = spark.createDataFrame(
                [(at.partition * _FEW_WORDS + word, found) for (at, word), found in marks.items()],
                f"{_IN[3]} long, {_MARKS} long",
            )
            place = F.col(PARTITION) * F.lit(_FEW_WORDS) + F.expr(f"{OFFSET} div {_WORD}L")
            here = (F.col(TOPIC) == topic) & (F.col(INCARNATION) == incarnation) & (F.col(OFFSET) < _FEW_WORDS * _WORD)
            key = F.when(here, place).otherwise(F.lit(-1)).alias(BLOCK)
            joined = rows.select("*", key).join(F.broadcast(listed), [F.col(BLOCK) == F.col(_IN[3]), *marked], how)
            return joined.drop(BLOCK)
        size, inside = _WORD, marked
        listed = spark.createDataFrame(
            [(at.topic, at.incarnation, at.partition, word, found) for (at, word), found in marks.items()], _MARKED
        )
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


def _number(ranges: RangeSet) -> int:
    return sum(len(ranges.of(at)) for at in ranges.partitions)


def _words(ranges: RangeSet) -> dict[tuple[TopicPartition, int], int]:
    """Each 64 offsets that hold any of the ranges, with a bit for each offset, as a signed number."""
    marks: dict[tuple[TopicPartition, int], int] = {}
    for at, word, start, until in in_blocks(ranges, _WORD):
        bits = (1 << until - start) - 1 << start % _WORD
        marks[at, word] = marks.get((at, word), 0) | bits
    return {place: found - (1 << _WORD) if found >> _WORD - 1 else found for place, found in marks.items()}


def _condition(ranges: RangeSet) -> Column:
    """As a text: each function of Spark that Python calls takes half a millisecond."""
    within = [
        f"{TOPIC} = {literal(at.topic)} AND {INCARNATION} = {at.incarnation} AND {PARTITION} = {at.partition} AND "
        f"({' OR '.join(f'{OFFSET} >= {start}L AND {OFFSET} < {until}L' for start, until in ranges.of(at))})"
        for at in ranges.partitions
    ]
    return F.expr(" OR ".join(within) or "false")
