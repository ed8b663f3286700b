"""The messages of a sink `kafka` that count, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_UNCOMMITTED, TopicLog
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.kafka.messages import FORMAT, HEADER_NAMES
from tidemark.spark.columns import (
    AT,
    COORDINATE,
    HEADERS,
    INCARNATION,
    INDEX,
    KEY,
    OFFSET,
    PARTITION,
    TOMBSTONE,
    TOPIC,
    VALUE,
)
from tidemark.spark.readers.places import COUNTS
from tidemark.spark.rows.reading import read_offsets

# A message's generation; and a segment's offsets [start, until) with the generation that counts there.
GENERATION, _START, _UNTIL = "_generation", "_start", "_until"
_SEGMENT = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {_START} long, {_UNTIL} long, {GENERATION} long"


def messages_that_count(
    spark: SparkSession, ledger: Ledger, cluster: KafkaEndpoint, topics: Sequence[str], sink: str
) -> DataFrame:
    """Like `messages.kafka_messages`: coordinate, INDEX, TOMBSTONE, and the message's `topic`, `key` and `value`.

    Raises WrongUse, Unreachable.
    """
    # As there, the reader takes the ledger first, then the ends of the topics.
    authority = ledger.authority(sink)
    rows = with_counts(all_messages(spark, ledger.stream, cluster, topics_now(cluster, topics)), authority)
    # Messages that a task has written twice agree in all these columns.
    return rows.where(COUNTS).drop(GENERATION, COUNTS).dropDuplicates([*COORDINATE, INDEX])


def all_messages(spark: SparkSession, stream: str, cluster: KafkaEndpoint, logs: Mapping[str, TopicLog]) -> DataFrame:
    """Every message of a stream: as `messages_that_count` returns it, with its GENERATION, whether it counts or not."""
    everything = RangeSet(
        OffsetRange(TopicPartition(topic, number), log.start, log.end)
        for topic, found in logs.items()
        for number, log in found.partitions.items()
        if log.start < log.end
    )
    messages = read_offsets(spark, cluster, READ_UNCOMMITTED, everything, dict.fromkeys(logs, 1))
    return messages.where(_header("stream") == stream).select(
        _header("topic").alias(TOPIC),
        _header("incarnation").cast("int").alias(INCARNATION),
        _header("partition").cast("int").alias(PARTITION),
        _header("offset").cast("long").alias(OFFSET),
        _header("index").cast("int").alias(INDEX),
        _header("generation").cast("long").alias(GENERATION),
        F.col(VALUE).isNull().alias(TOMBSTONE),
        F.col(TOPIC).alias("topic"),
        F.col(KEY).alias("key"),
        F.col(VALUE).alias("value"),
    )


def with_counts(messages: DataFrame, authority: Authority) -> DataFrame:
    """Messages with COUNTS: whether their generation is the authority of their coordinate."""
    segments = F.broadcast(_segments(messages.sparkSession, authority))
    same = reduce(and_, (messages[name] == segments[name] for name in (*AT, GENERATION)))
    within = (messages[OFFSET] >= segments[_START]) & (messages[OFFSET] < segments[_UNTIL])
    joined = messages.join(segments, same & within, "left")
    return joined.select(*(messages[name] for name in messages.columns), segments[_START].isNotNull().alias(COUNTS))


def with_authority(rows: DataFrame, authority: Authority) -> DataFrame:
    """Rows with the generation that counts at their coordinate, as GENERATION."""
    segments = F.broadcast(_segments(rows.sparkSession, authority))
    within = (F.col(OFFSET) >= F.col(_START)) & (F.col(OFFSET) < F.col(_UNTIL))
    return rows.join(segments, [*AT]).where(within).drop(_START, _UNTIL)


def topics_now(cluster: KafkaEndpoint, topics: Sequence[str]) -> dict[str, TopicLog]:
    """The logs of a sink's topics. Raises WrongUse when Kafka lacks one."""
    logs = KafkaLog(cluster).topics(topics, READ_UNCOMMITTED)
    if missing := [topic for topic in topics if topic not in logs]:
        raise WrongUse(f"Kafka at {cluster} has no topic {missing[0]}")
    return logs


def _header(name: str) -> Column:
    """The text of a header; null for a message of another program. Spark fails at headers of another format."""

    def last(name: str) -> Column:
        named = F.filter(HEADERS, lambda header: header["key"] == f"tidemark.{name}")
        return F.try_element_at(named, F.lit(-1))["value"].cast("string")

    ours = F.exists(HEADERS, lambda header: header["key"].isin(*HEADER_NAMES))
    problem = F.raise_error(F.lit(f"a message has headers that are not of format {FORMAT}"))
    return F.when(last("format") == FORMAT, last(name)).when(ours, problem)


def _segments(spark: SparkSession, authority: Authority) -> DataFrame:
    rows = [
        (at.topic, at.incarnation, at.partition, segment.start, segment.until, segment.generation)
        for at in authority.partitions
        for segment in authority.segments(at)
    ]
    return spark.createDataFrame(rows, _SEGMENT)
