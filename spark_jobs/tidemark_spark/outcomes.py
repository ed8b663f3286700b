"""Every message of a window gets exactly one outcome: stored as rows, skipped, or set aside with a reason.

Each message has exactly one row with index 0, which carries its key, value and time, whatever its outcome. A message that
is stored may have more, with indexes 1 to n - 1; of these only `stored` is to be asked.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.coordinates import Coordinate
from tidemark.error_budget import Frequent
from tidemark.ranges import TopicPartition
from tidemark.streams.model import Stream
from tidemark.tallies import Outcome
from tidemark_spark.columns import (
    COORDINATE,
    DIGEST,
    HEADERS,
    INDEX,
    MESSAGE_HASH,
    OUTCOME,
    REASON,
    ROW_HASH,
    TIMESTAMP_TYPE,
    TOMBSTONE,
    VALUE,
    code,
    content_digest,
    has,
    message_hash,
    row_hash,
    text,
)
from tidemark_spark.schemes import parse


def with_outcomes(messages: DataFrame, stream: Stream) -> DataFrame:
    """Rows with the stream's fields, OUTCOME, REASON, TOMBSTONE, INDEX, and the hashes of message, row and contents.

    A tombstone (a message whose value is null) is stored as a row, without fields unless they are made of something else
    than the value: it is never taken for nothing. No check sees it.
    """
    parsed = parse(messages, stream.scheme)
    checks = [F.when(F.expr(check.invalid_when), F.lit(check.reason)) for check in stream.checks]
    first_check = F.when(F.col(VALUE).isNotNull(), F.coalesce(*checks, F.lit(None).cast("string")))
    return (
        parsed.withColumn(REASON, F.coalesce(F.col(REASON), first_check))
        .withColumn(OUTCOME, F.when(F.col(REASON).isNull(), code(Outcome.STORED)).otherwise(code(Outcome.INVALID)))
        .withColumn(TOMBSTONE, F.col(VALUE).isNull())
        .withColumn(INDEX, F.lit(0))
        .withColumn(MESSAGE_HASH, message_hash())
        .withColumn(ROW_HASH, row_hash())
        .withColumn(DIGEST, content_digest([text(name) for name in field_names(stream)]))
        # What of these a stream keeps is among its fields by now.
        .drop(HEADERS, TIMESTAMP_TYPE)
    )


def field_names(stream: Stream) -> tuple[str, ...]:
    """The stream's fields in the order of its file, which is the order that digests are taken in."""
    return tuple(stream.scheme.fields)


def stored(rows: DataFrame) -> DataFrame:
    """The rows of the messages that are stored."""
    return rows.where(has(Outcome.STORED))


def set_aside(rows: DataFrame) -> DataFrame:
    """The messages that become dead letters, a row for each."""
    return rows.where(has(Outcome.INVALID) | has(Outcome.FAILED))


def each_message(rows: DataFrame) -> DataFrame:
    """A row for each message, whatever became of it."""
    return rows.where(F.col(INDEX) == 0)


def frequent_reasons(messages: DataFrame, most: int) -> list[Frequent]:
    """The reasons for which most messages were set aside, the most frequent first, each with its first coordinate."""
    counted = (
        set_aside(messages)
        .groupBy(REASON)
        .agg(F.count("*").alias("number"), F.min(F.struct(*COORDINATE)).alias("first"))
        .orderBy(F.col("number").desc(), REASON)
        .limit(most)
    )
    found = []
    for row in counted.collect():
        topic, incarnation, partition, offset = row["first"]
        example = Coordinate(TopicPartition(topic, partition, incarnation), offset)
        found.append(Frequent(row[REASON], row["number"], example))
    return found
