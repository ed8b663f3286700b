"""Step 3: exactly the pinned ranges, from Kafka into Spark."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar, cast

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.clients.kafka.clients import java_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
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
_ANY_TIME, _RANGES = (Path(__file__).with_name(f"{name}.java") for name in ("AnyTime", "Ranges"))
_KAFKA_RECORDS = "org.apache.spark.sql.kafka010.KafkaSourceRDD"
_INTERNAL_ROW = "org.apache.spark.sql.catalyst.InternalRow"
# How much is fetched at once for short ranges that share tasks. By Kafka's default it is 1 MB, which the consumer also
# fetches behind each range, and throws away.
_FETCH_FOR_SHORT = 64 * 1024
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
    sizes: Mapping[TopicPartition, float] | None = None,
) -> DataFrame:
    """The messages at the wanted offsets that Kafka still holds and that are visible under `isolation`.

    Columns: coordinate, key, value, timestamp with its type, headers. Fails for offsets below the log start, and at a message
    whose time Spark cannot hold. With `any_time`, which is slower, such a time is in BEYOND_TIME. `sizes`, in bytes per
    record, tell which offsets between scattered ones are better read too.
    """
    incarnation = _incarnation(incarnations)
    frames = []
    for one in reads(wanted, sizes):
        beyond = [F.col(BEYOND_TIME)] if any_time else []
        messages = _read(spark, cluster, isolation, one, fetch, any_time=any_time).select(
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


def _read(
    spark: SparkSession, cluster: KafkaEndpoint, isolation: str, read: Read, fetch: FetchSettings, *, any_time: bool
) -> DataFrame:
    """One read, with the columns of Spark's Kafka source, and BEYOND_TIME if asked for."""
    if read.shared is None:
        found = _source(spark, cluster, isolation, read.ranges, min_partitions(read), fetch)
        return _with_any_time(found, _records(found).toJavaRDD()) if any_time else found
    if read.shared < len(read.ranges) and fetch.max_partition_fetch_bytes is None:
        fetch = fetch.model_copy(update={"max_partition_fetch_bytes": _FETCH_FOR_SHORT})
    # Never computed: it says how to read, and which columns there are.
    hull = tuple(RangeSet(read.ranges).hull())
    pattern = _source(spark, cluster, isolation, hull, len(hull), fetch)
    records = _records_of(spark, _records(pattern), read.ranges).toJavaRDD().coalesce(read.shared)
    return _with_any_time(pattern, records) if any_time else _as_source_rows(pattern, records)


def _source(
    spark: SparkSession,
    cluster: KafkaEndpoint,
    isolation: str,
    ranges: Iterable[OffsetRange],
    least_tasks: int,
    fetch: FetchSettings,
) -> DataFrame:
    """Spark's Kafka source, over one range per partition."""
    partitions: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in ranges:
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
        .option("minPartitions", str(least_tasks))
        .load()
    )


def _records(messages: DataFrame) -> Any:
    """The records of Kafka of which Spark's Kafka source makes its rows."""
    query: Any = messages._jdf
    records = query.queryExecution().toRdd()
    while records.getClass().getName() != _KAFKA_RECORDS:
        records = records.dependencies().head().rdd()
    return records


def _records_of(spark: SparkSession, records: Any, ranges: Iterable[OffsetRange]) -> Any:
    """The records of other ranges, read in the same way. The source's reader takes any number of ranges of a partition.

    Only its options cannot name them.
    """
    jvm: Any = spark.sparkContext._jvm
    text = "\n".join(f"{one.partition.topic} {one.partition.partition} {one.start} {one.until}" for one in ranges)
    made = compiled(spark.sparkContext, _RANGES).newInstance(_arguments(spark, text)).ranges()
    return getattr(jvm, _KAFKA_RECORDS)(
        spark.sparkContext._jsc.sc(),
        _given(records, "executorKafkaParams"),
        jvm.scala.jdk.javaapi.CollectionConverters.asScala(made).toList(),
        _given(records, "org$apache$spark$sql$kafka010$KafkaSourceRDD$$pollTimeoutMs"),
        _given(records, "org$apache$spark$sql$kafka010$KafkaSourceRDD$$failOnDataLoss"),
    )


def _given(records: Any, name: str) -> Any:
    """What a reader of Spark's Kafka source was given."""
    field = records.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(records)


def _as_source_rows(messages: DataFrame, records: Any) -> DataFrame:
    """Records of Kafka as the rows that Spark's Kafka source makes of them. `messages` has its columns."""
    spark = messages.sparkSession
    jvm: Any = spark.sparkContext._jvm
    row = jvm.org.apache.spark.sql.kafka010.KafkaRecordToRowConverter().toInternalRowWithHeaders()
    tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName(_INTERNAL_ROW))
    java, query = cast("Any", spark._jsparkSession), cast("Any", messages._jdf)
    return DataFrame(java.internalCreateDataFrame(records.rdd().map(row, tag), query.schema(), False), spark)


def _with_any_time(messages: DataFrame, records: Any) -> DataFrame:
    """Records of Kafka as rows whose time may be any: the source's own rows cannot hold every one."""
    spark = messages.sparkSession
    row = compiled(spark.sparkContext, _ANY_TIME).newInstance(_arguments(spark))
    schema = T.StructType([*messages.schema, T.StructField(BEYOND_TIME, T.LongType())])
    java: Any = spark._jsparkSession
    return DataFrame(java.createDataFrame(records.map(row), java.parseDataType(schema.json())), spark)


def _arguments(spark: SparkSession, *given: str) -> Any:
    gateway: Any = spark.sparkContext._gateway
    found = gateway.new_array(gateway.jvm.java.lang.Object, len(given))
    for number, one in enumerate(given):
        found[number] = one
    return found


def _incarnation(incarnations: Mapping[str, int]) -> Column:
    """The incarnation of each row's topic. In one window, every topic has exactly one."""
    numbers = set(incarnations.values())
    if len(numbers) == 1:
        return F.lit(numbers.pop()).cast("int")
    pairs = [F.lit(word) for pair in sorted(incarnations.items()) for word in pair]
    return F.create_map(*pairs)[F.col("topic")].cast("int")
