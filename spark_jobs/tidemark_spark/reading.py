"""Step 3: exactly the pinned ranges, from Kafka into Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark_spark.columns import INCARNATION, KEY, OFFSET, PARTITION, TIMESTAMP, TOPIC, VALUE
from tidemark_spark.selecting import only

# Scattered records are read together with what lies between them, and filtered: one read of 50,000 records is faster
# than many small ones (each has a consumer to start and to seek).
_GAP = 50_000
# An interval this long is read alone, exactly.
_LONG = 10_000
# Small enough that a partition with most of the lag keeps all cores busy, large enough that tasks do real work.
_RECORDS_PER_TASK = 50_000


_COORDINATE = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {OFFSET} long"
_COLUMNS = f"{_COORDINATE}, {KEY} binary, {VALUE} binary, {TIMESTAMP} timestamp"


@dataclass(frozen=True)
class Read:
    """One read of Spark's Kafka source, which takes one range per partition. `exact`: everything in them is wanted."""

    ranges: tuple[OffsetRange, ...]
    exact: bool


def read_offsets(
    spark: SparkSession, bootstrap_servers: str, isolation: str, wanted: RangeSet, incarnations: Mapping[str, int]
) -> DataFrame:
    """The messages at the wanted offsets that Kafka still holds and that are visible under `isolation`.

    Columns: coordinate, key, value, timestamp. Fails when offsets below the log start are asked for.
    """
    incarnation = _incarnation(incarnations)
    frames = []
    for one in reads(wanted):
        messages = _read(spark, bootstrap_servers, isolation, one).select(
            F.col("topic").alias(TOPIC),
            incarnation.alias(INCARNATION),
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            F.col("timestamp").alias(TIMESTAMP),
        )
        frames.append(messages if one.exact else only(messages, RangeSet(one.ranges) & wanted))
    return reduce(DataFrame.unionAll, frames) if frames else spark.createDataFrame([], _COLUMNS)


def reads(wanted: RangeSet) -> list[Read]:
    """How to read a set of offsets in few reads: the n-th piece of each partition goes into the n-th read."""
    queues: dict[bool, dict[TopicPartition, list[OffsetRange]]] = {True: {}, False: {}}
    for at in wanted.partitions:
        for piece, exact in _pieces(wanted, at):
            queues[exact].setdefault(at, []).append(piece)
    return [
        Read(tuple(pieces[turn] for pieces in queue.values() if turn < len(pieces)), exact)
        for exact, queue in queues.items()
        for turn in range(max(map(len, queue.values()), default=0))
    ]


def _pieces(wanted: RangeSet, at: TopicPartition) -> Iterator[tuple[OffsetRange, bool]]:
    short: list[tuple[int, int]] = []
    for start, until in wanted.of(at):
        if until - start >= _LONG:
            yield OffsetRange(at, start, until), True
        elif short and start - short[-1][1] <= _GAP:
            short[-1] = (short[-1][0], until)
        else:
            short.append((start, until))
    for start, until in short:
        piece = OffsetRange(at, start, until)
        yield piece, RangeSet([piece]) & wanted == RangeSet([piece])


def _read(spark: SparkSession, servers: str, isolation: str, read: Read) -> DataFrame:
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in read.ranges:
        topic, partition = one.partition.topic, one.partition.partition
        partitions.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = one.start
        ends.setdefault(topic, {})[str(partition)] = one.until
    records = sum(len(one) for one in read.ranges)
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", isolation)
        # `assign` and both ends explicit: nothing is looked up when a task runs, or runs again.
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("minPartitions", str(max(len(read.ranges), math.ceil(records / _RECORDS_PER_TASK))))
        .load()
    )


def _incarnation(incarnations: Mapping[str, int]) -> Column:
    """The incarnation of each row's topic; of a window, every topic has exactly one."""
    numbers = set(incarnations.values())
    if len(numbers) == 1:
        return F.lit(numbers.pop()).cast("int")
    pairs = [F.lit(word) for pair in sorted(incarnations.items()) for word in pair]
    return F.create_map(*pairs)[F.col("topic")].cast("int")
