"""Rows at many ranges of offsets: found as a set finds them, at a cost that does not grow with the offsets."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.spark.columns import INCARNATION, OFFSET, PARTITION, TOPIC
from tidemark.spark.rows import selecting
from tidemark.spark.rows.selecting import marked, only, without_lost

GENERATION = "_generation"
# No topic of Kafka has the third name, but what is given is what is found.
TOPICS = ("orders", "über", r"a'b\\'c\d")
PARTITIONS = [TopicPartition(topic, number, 1) for topic in TOPICS for number in range(40)]


def scattered(chance: random.Random) -> RangeSet:
    """Short and long ranges close together, of some partitions and not of others, and one as far away as can be."""
    ranges = [OffsetRange(PARTITIONS[0], MAX_OFFSET - 1, MAX_OFFSET)]
    for at in PARTITIONS[::2]:
        start = chance.randrange(30)
        while start < 900:
            until = start + chance.choice((1, 2, 100))
            ranges.append(OffsetRange(at, start, until))
            start = until + chance.choice((1, 3, 50))
    return RangeSet(ranges)


def whole(chance: random.Random) -> RangeSet:
    """Billions of offsets: what is joined with rows is not each of them."""
    return RangeSet(OffsetRange(at, chance.randrange(500), 10**12) for at in PARTITIONS[1:])


def close(chance: random.Random) -> RangeSet:
    """So many that are so close that they are bits."""
    ends = OffsetRange(PARTITIONS[0], MAX_OFFSET - 1, MAX_OFFSET)
    every = (OffsetRange(at, offset, offset + 1) for at in PARTITIONS for offset in range(0, 1_000, 2))
    return RangeSet([ends, *(one for one in every if chance.random() < 0.9)])


def close_in_a_topic(chance: random.Random) -> RangeSet:
    """As `close`, where a partition and 64 offsets are one number."""
    return RangeSet(one for one in close(chance) if one.partition.topic == "orders" and one.start < 1_000)


def few(chance: random.Random) -> RangeSet:
    """So few that they are conditions, several of each partition."""
    starts = [(at, start) for at in PARTITIONS[::15] for start in range(0, 900, 300)]
    return RangeSet(OffsetRange(at, start, start + chance.choice((1, 2, 100))) for at, start in starts)


@pytest.mark.full
@pytest.mark.parametrize(
    ("chosen", "least", "most"),
    [
        (few, 1, 50),
        pytest.param(scattered, 51, 15_000, marks=pytest.mark.full),
        (whole, 51, 15_000),
        pytest.param(close, 15_001, 100_000, marks=pytest.mark.full),
        pytest.param(close_in_a_topic, 15_001, 100_000, marks=pytest.mark.full),
    ],
)
def test_rows_inside_and_outside(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    chosen: Callable[[random.Random], RangeSet],
    least: int,
    most: int,
) -> None:
    monkeypatch.setattr(selecting, "_PIECES_MADE", 10_000)
    ranges = chosen(random.Random(7))
    assert least <= len(list(ranges)) <= most
    places = [(at, offset) for at in PARTITIONS for offset in range(1_000)]
    inside = {place for place in places if place in ranges}
    assert 0 < len(inside) < len(places)
    partitions = spark.createDataFrame(
        [(at.topic, at.incarnation, at.partition) for at in PARTITIONS],
        f"{TOPIC} string, {INCARNATION} int, {PARTITION} int",
    )
    rows = partitions.crossJoin(spark.range(1_000).withColumnRenamed("id", OFFSET)).cache()
    # The partition of a topic that was made anew is another one.
    renewed = rows.withColumn(INCARNATION, F.lit(2))
    assert found(only(rows, ranges)) == inside
    assert only(renewed, ranges).count() == 0
    written = rows.withColumn(GENERATION, F.col(OFFSET) % 3)
    # Two generations have lost these offsets, each some of them, and the third has lost nothing.
    lost = {0: ranges, 1: ranges.only(PARTITIONS[:40])}
    rest = {(at, offset) for at, offset in places if (at, offset) not in lost.get(offset % 3, RangeSet())}
    assert found(without_lost(written, GENERATION, lost)) == rest
    assert without_lost(renewed.withColumn(GENERATION, F.lit(0)), GENERATION, lost).count() == len(places)
    assert without_lost(written, GENERATION, lost).columns == written.columns
    both = marked(rows, ranges, "_inside")
    assert both.columns == [*rows.columns, "_inside"]
    assert found(both.where("_inside")) == inside
    assert found(both.where("not _inside")) == set(places) - inside
    rows.unpersist()


def test_rows_at_no_offset(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("orders", 1, 0, 7)], f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {OFFSET} long"
    )
    assert found(only(rows, RangeSet())) == set()
    assert without_lost(rows, OFFSET, {7: RangeSet()}) is rows
    assert found(marked(rows, RangeSet(), "_inside").where("_inside")) == set()


def found(rows: DataFrame) -> set[tuple[TopicPartition, int]]:
    columns = rows.select(TOPIC, PARTITION, INCARNATION, OFFSET).toArrow().columns
    every = [(TopicPartition(*at), offset) for *at, offset in zip(*(one.to_pylist() for one in columns), strict=True)]
    assert len(set(every)) == len(every)
    return set(every)
