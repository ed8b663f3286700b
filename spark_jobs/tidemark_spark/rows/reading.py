"""Step 3: exactly the pinned ranges, from Kafka into Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.clients.kafka.clients import java_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.splitting import Read, min_partitions, reads
from tidemark.streams.fetch import FetchSettings
from tidemark_spark.columns import (
    BEYOND_TIME,
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
from tidemark_spark.rows.selecting import only
from tidemark_spark.runtime.compiling import compiled

log = logging.getLogger(__name__)

Found = TypeVar("Found")

_USUAL = FetchSettings()
_COORDINATE = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {OFFSET} long"
_HEADERS = f"{HEADERS} array<struct<key: string, value: binary>>"
_ANY_TIME = Path(__file__).with_name("AnyTime.java")
_KAFKA_RECORDS = "org.apache.spark.sql.kafka010.KafkaSourceRDD"
# Java's error for a time in ms that does not fit in microseconds.
_NOT_A_TIME = "ArithmeticException: long overflow"
_COLUMNS = f"{_COORDINATE}, {KEY} binary, {VALUE} binary, {TIMESTAMP} timestamp, {TIMESTAMP_TYPE} int, {_HEADERS}"


def read_offsets(
    spark: SparkSession,
    cluster: KafkaEndpoint,
    isolation: str,
    wanted: RangeSet,
    incarnations: Mapping[str, int],
    fetch: FetchSettings = _USUAL,
    *,
    any_time: bool = False,
) -> DataFrame:
    """The messages at the wanted offsets that Kafka still holds and that are visible under `isolation`.

    Columns: coordinate, key, value, timestamp with its type, headers. Fails for offsets below the log start, and at a message
    whose time Spark cannot hold. With `any_time`, which is slower, such a time is in BEYOND_TIME.
    """
    incarnation = _incarnation(incarnations)
    frames = []
    for one in reads(wanted):
        found = _read(spark, cluster, isolation, one, fetch)
        beyond = [F.col(BEYOND_TIME)] if any_time else []
        messages = (_with_any_time(found) if any_time else found).select(
            F.col("topic").alias(TOPIC),
            incarnation.alias(INCARNATION),
            F.col("partition").alias(PARTITION),
            F.col("offset").alias(OFFSET),
            F.col("key").alias(KEY),
            F.col("value").alias(VALUE),
            # Kafka gives -1 for a message without a time, as in old formats.
            F.when(F.unix_millis("timestamp") != -1, F.col("timestamp")).alias(TIMESTAMP),
            F.col("timestampType").alias(TIMESTAMP_TYPE),
            F.col("headers").alias(HEADERS),
            *beyond,
        )
        frames.append(messages if one.exact else only(messages, RangeSet(one.ranges) & wanted))
    return reduce(DataFrame.unionAll, frames) if frames else no_messages(spark)


def whatever_time(read: Callable[[bool], Found]) -> Found:
    """The result of `read`, which takes `any_time`: first without it, and again with it if Spark could not hold a time."""
    try:
        return read(False)
    except (Py4JError, PySparkException) as problem:
        # The stack has to name the Kafka source: other sums overflow too.
        if _NOT_A_TIME not in str(problem) or "kafka010" not in str(problem):
            raise
    log.warning("Kafka has messages here with times that Spark cannot hold: reading all of them again, another way")
    return read(True)


def no_messages(spark: SparkSession) -> DataFrame:
    """An empty frame with the columns of messages."""
    return spark.createDataFrame([], _COLUMNS)


def _read(spark: SparkSession, cluster: KafkaEndpoint, isolation: str, read: Read, fetch: FetchSettings) -> DataFrame:
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
        .options(**{f"kafka.{name}": value for name, value in java_settings(cluster).items()})
        .option("kafka.isolation.level", isolation)
        # `assign` and both ends are explicit, so a task looks up nothing, also when it runs again.
        .option("assign", json.dumps(partitions))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
        .option("minPartitions", str(min_partitions(read)))
        .load()
    )


def _with_any_time(messages: DataFrame) -> DataFrame:
    """The messages of Spark's Kafka source, made from its records: the source's own rows cannot hold every time."""
    spark = messages.sparkSession
    query: Any = messages._jdf
    records = query.queryExecution().toRdd()
    while records.getClass().getName() != _KAFKA_RECORDS:
        records = records.dependencies().head().rdd()
    row = compiled(spark.sparkContext, _ANY_TIME).newInstance(_no_arguments(spark))
    schema = T.StructType([*messages.schema, T.StructField(BEYOND_TIME, T.LongType())])
    java: Any = spark._jsparkSession
    return DataFrame(java.createDataFrame(records.toJavaRDD().map(row), java.parseDataType(schema.json())), spark)


def _no_arguments(spark: SparkSession) -> Any:
    gateway: Any = spark.sparkContext._gateway
    return gateway.new_array(gateway.jvm.java.lang.Object, 0)


def _incarnation(incarnations: Mapping[str, int]) -> Column:
    """The incarnation of each row's topic. In one window, every topic has exactly one."""
    numbers = set(incarnations.values())
    if len(numbers) == 1:
        return F.lit(numbers.pop()).cast("int")
    pairs = [F.lit(word) for pair in sorted(incarnations.items()) for word in pair]
    return F.create_map(*pairs)[F.col("topic")].cast("int")
