"""Step 3: exactly the pinned ranges, from Kafka into Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.planning.splitting import Read, min_partitions, reads
from tidemark.ranges import RangeSet
from tidemark.streams.fetch import FetchSettings
from tidemark_spark.columns import (
    HEADERS,
    INCARNATION,
    KEY,
    OFFSET,
    PARTITION,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    TOPIC,
    VALUE,
)
from tidemark_spark.selecting import only

_USUAL = FetchSettings()
_COORDINATE = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {OFFSET} long"
_HEADERS = f"{HEADERS} array<struct<key: string, value: binary>>"
_COLUMNS = f"{_COORDINATE}, {KEY} binary, {VALUE} binary, {TIMESTAMP} timestamp, {TIMESTAMP_TYPE} int, {_HEADERS}"


def read_offsets(
    spark: SparkSession,
    bootstrap_servers: str,
    isolation: str,
    wanted: RangeSet,
    incarnations: Mapping[str, int],
    fetch: FetchSettings = _USUAL,
) -> DataFrame:
    """The messages at the wanted offsets that Kafka still holds and that are visible under `isolation`.

    Columns: coordinate, key, value, timestamp with its type, headers. Fails when offsets below the log start are asked for.
    """
    incarnation = _incarnation(incarnations)
    frames = []
    for one in reads(wanted):
        messages = _read(spark, bootstrap_servers, isolation, one, fetch).select(
            F.col("topic").alias(TOPIC),
            incarnation.alias(INCARNATION),
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            # Kafka's word for a message without a time, as the old formats have them, is -1.
            F.when(F.unix_millis("timestamp") != -1, F.col("timestamp")).alias(TIMESTAMP),
            F.col("timestampType").alias(TIMESTAMP_TYPE),
            F.col("headers").alias(HEADERS),
        )
        frames.append(messages if one.exact else only(messages, RangeSet(one.ranges) & wanted))
    return reduce(DataFrame.unionAll, frames) if frames else no_messages(spark)


def no_messages(spark: SparkSession) -> DataFrame:
    """The columns of messages, without any."""
    return spark.createDataFrame([], _COLUMNS)


def _read(spark: SparkSession, servers: str, isolation: str, read: Read, fetch: FetchSettings) -> DataFrame:
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in read.ranges:
        topic, partition = one.partition.topic, one.partition.partition
        partitions.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = one.start
        ends.setdefault(topic, {})[str(partition)] = one.until
    return (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in fetch.settings().items()})
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", isolation)
        # `assign` and both ends explicit: nothing is looked up when a task runs, or runs again.
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("minPartitions", str(min_partitions(read)))
        .load()
    )


def _incarnation(incarnations: Mapping[str, int]) -> Column:
    """The incarnation of each row's topic; of a window, every topic has exactly one."""
    numbers = set(incarnations.values())
    if len(numbers) == 1:
        return F.lit(numbers.pop()).cast("int")
    pairs = [F.lit(word) for pair in sorted(incarnations.items()) for word in pair]
    return F.create_map(*pairs)[F.col("topic")].cast("int")
