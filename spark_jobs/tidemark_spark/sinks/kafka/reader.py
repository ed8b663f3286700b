"""The messages of a sink `kafka` that count, as a Spark DataFrame."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.errors import WrongUse
from tidemark.ledger.book import Book
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.kafka.messages import FORMAT, HEADER_NAMES
from tidemark_spark.columns import (
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
from tidemark_spark.rows.reading import read_offsets

# A message's generation; and a segment's offsets [start, until) with the generation that counts there.
_GENERATION, _START, _UNTIL = "_generation", "_start", "_until"
_SEGMENT = f"{TOPIC} string, {INCARNATION} int, {PARTITION} int, {_START} long, {_UNTIL} long, {_GENERATION} long"


def messages_that_count(
    spark: SparkSession, book: Book, cluster: KafkaEndpoint, topics: Sequence[str], sink: str
) -> DataFrame:
    """Like `messages.kafka_messages`: coordinate, INDEX, TOMBSTONE, and the message's `topic`, `key` and `value`.

    Raises WrongUse, Unreachable.
    """
    # As there, the reader takes the ledger first, then the ends of the topics.
    authority = book.authority(sink)
    messages = read_offsets(spark, cluster, READ_UNCOMMITTED, _everything(cluster, topics), dict.fromkeys(topics, 1))
    found = messages.where(_header("stream") == book.stream).select(
        _header("topic").alias(TOPIC),
        _header("incarnation").cast("int").alias(INCARNATION),
        _header("partition").cast("int").alias(PARTITION),
        _header("offset").cast("long").alias(OFFSET),
        _header("index").cast("int").alias(INDEX),
        _header("generation").cast("long").alias(_GENERATION),
        F.col(VALUE).isNull().alias(TOMBSTONE),
        F.col(TOPIC).alias("topic"),
        F.col(KEY).alias("key"),
        F.col(VALUE).alias("value"),
    )
    segments = F.broadcast(_segments(spark, authority))
    within = (F.col(OFFSET) >= F.col(_START)) & (F.col(OFFSET) < F.col(_UNTIL))
    counting = found.join(segments, [*AT, _GENERATION]).where(within)
    # Messages that a task has written twice agree in all these columns.
    return counting.drop(_GENERATION, _START, _UNTIL).dropDuplicates([*COORDINATE, INDEX])


def _everything(cluster: KafkaEndpoint, topics: Sequence[str]) -> RangeSet:
    """All offsets that the topics hold now."""
    logs = KafkaLog(cluster).topics(topics, READ_UNCOMMITTED)
    if missing := [topic for topic in topics if topic not in logs]:
        raise WrongUse(f"Kafka at {cluster} has no topic {missing[0]}")
    return RangeSet(
        OffsetRange(TopicPartition(topic, number), log.start, log.end)
        for topic, found in logs.items()
        for number, log in found.partitions.items()
        if log.start < log.end
    )


def _header(name: str) -> Column:
    """The text of a header; null for a message of another program. Spark fails at headers of another format."""

    def last(name: str) -> Column:
        named = F.filter(HEADERS, lambda one: one["key"] == f"tidemark.{name}")
        return F.try_element_at(named, F.lit(-1))["value"].cast("string")

    ours = F.exists(HEADERS, lambda one: one["key"].isin(*HEADER_NAMES))
    problem = F.raise_error(F.lit(f"a message has headers that are not of format {FORMAT}"))
    return F.when(last("format") == FORMAT, last(name)).when(ours, problem)


def _segments(spark: SparkSession, authority: Authority) -> DataFrame:
    rows = [
        (at.topic, at.incarnation, at.partition, one.start, one.until, one.generation)
        for at in authority.partitions
        for one in authority.segments(at)
    ]
    return spark.createDataFrame(rows, _SEGMENT)
