"""Every message of a window gets exactly one outcome: stored as rows, skipped, or set aside with a reason.

Each message has exactly one row with index 0, which carries its key, value and time, whatever its outcome. A message that
is stored may have more, with indexes 1 to n - 1; of these only `stored` is to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable

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
from tidemark_spark.pieces import EMPTY, in_pieces, of_pieces
from tidemark_spark.schemes import parse

_INVALID = "_invalid"
# Some ten megabytes in the driver and in every task.
_BROADCAST = 100_000


def with_outcomes(messages: DataFrame, stream: Stream) -> DataFrame:
    """Rows with the scheme's fields, INDEX, TOMBSTONE, OUTCOME and REASON; VALUE is that of the message, at index 0.

    A tombstone (a message whose value is null) is stored as a row, without fields unless they are made of something else
    than the value: it is never taken for nothing. No check sees it. Where messages are exploded, OUTCOME and REASON are
    still those of each piece by itself: see `settled`.
    """
    explode = stream.explode
    pieces = messages.withColumn(INDEX, F.lit(0)) if explode is None else in_pieces(messages, explode)
    parsed = parse(pieces, stream.scheme)
    checks = [F.when(F.expr(check.invalid_when), F.lit(check.reason)) for check in stream.checks]
    first_check = F.when(F.col(VALUE).isNotNull(), F.coalesce(*checks, F.lit(None).cast("string")))
    found = parsed.withColumn(REASON, F.coalesce(F.col(REASON), first_check))
    if explode is not None:
        found = of_pieces(found)
    outcome = F.when(F.col(REASON).isNull(), code(Outcome.STORED)).otherwise(code(Outcome.INVALID))
    if explode is not None:
        outcome = F.when(F.col(EMPTY), code(Outcome.SKIPPED)).otherwise(outcome)
    tombstone = (F.col(INDEX) == 0) & F.col(VALUE).isNull()
    # What of the last ones a stream keeps is among its fields by now.
    return found.withColumns({OUTCOME: outcome, TOMBSTONE: tombstone}).drop(EMPTY, HEADERS, TIMESTAMP_TYPE)


def settled(pieces: DataFrame) -> DataFrame:
    """Pieces into rows: a message of which one piece is invalid is invalid as a whole, and has one row.

    `pieces` are kept, since they are looked at twice. Those that are invalid are mostly few and go to every task; nothing
    of the others is moved, unless there are too many.
    """
    invalid = (
        pieces.where(has(Outcome.INVALID)).groupBy(*COORDINATE).agg(F.min(F.struct(INDEX, REASON)).alias(_INVALID))
    )
    number = invalid.count()
    if number == 0:
        return pieces
    joined = pieces.join(F.broadcast(invalid) if number <= _BROADCAST else invalid, list(COORDINATE), "left")
    refused = F.col(_INVALID).isNotNull()
    return (
        joined.where(~refused | (F.col(INDEX) == 0))
        .withColumn(OUTCOME, F.when(refused, code(Outcome.INVALID)).otherwise(F.col(OUTCOME)))
        .withColumn(REASON, F.when(refused, F.col(_INVALID)[REASON]).otherwise(F.col(REASON)))
        .drop(_INVALID)
    )


def hashed(rows: DataFrame, fields: Iterable[str]) -> DataFrame:
    """Rows with the hashes of message, row and contents."""
    return (
        rows.withColumn(MESSAGE_HASH, message_hash())
        .withColumn(ROW_HASH, row_hash())
        .withColumn(DIGEST, content_digest([text(name) for name in fields]))
    )


def field_names(stream: Stream) -> tuple[str, ...]:
    """The stream's fields in the order of its file, which is the order that digests are taken in."""
    return tuple(stream.fields)


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
