"""Every message of a window gets exactly one outcome: stored as rows, skipped, or set aside with a reason.

Each message has exactly one row with index 0, which carries its key and time, whatever its outcome, and its value and
headers where it may become a dead letter. A message that is stored may have more, with indexes 1 to n - 1; of these only
`stored` is to be asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.attempts import HeadFence
from tidemark.coordinates import Coordinate
from tidemark.error_budget import Frequent
from tidemark.errors import WrongUse
from tidemark.ranges import TopicPartition
from tidemark.streams.model import Stream
from tidemark.streams.schemes import FunctionScheme
from tidemark.tallies import Outcome
from tidemark_spark.columns import (
    COORDINATE,
    DIGEST,
    FAILURE,
    FAILURE_TYPE,
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
    detail,
    failure_of,
    field,
    has,
    message_hash,
    row_hash,
)
from tidemark_spark.isolating import Cause
from tidemark_spark.pieces import EMPTY, in_pieces, of_pieces
from tidemark_spark.schemes import parse
from tidemark_spark.schemes.function import called
from tidemark_spark.schemes.kept import kept
from tidemark_spark.session import setting

_REFUSED, _TOO_LARGE = "_refused", "_too_large"
# Some ten megabytes in the driver and in every task.
_BROADCAST = 100_000


def with_outcomes(messages: DataFrame, stream: Stream, fence: HeadFence | None = None) -> DataFrame:
    """Rows with the scheme's fields, INDEX, TOMBSTONE, OUTCOME, REASON and FAILURE; VALUE is that of the message, at index 0.

    A tombstone (a message whose value is null) is stored as a row, without fields unless they are made of something else
    than the value: it is never taken for nothing. No check sees it. Where a message has several rows, OUTCOME and REASON are
    still those of each by itself: see `settled`. `fence` is for functions that take their time.
    """
    if isinstance(stream.scheme, FunctionScheme):
        found = _called(messages, stream, stream.scheme, fence)
    else:
        found = _parsed(messages, stream)
    # What of it a stream keeps is among its fields by now.
    return found.drop(TIMESTAMP_TYPE)


def _parsed(messages: DataFrame, stream: Stream) -> DataFrame:
    explode = stream.explode
    pieces = messages.withColumn(INDEX, F.lit(0)) if explode is None else in_pieces(messages, explode)
    found = parse(pieces, stream.scheme)
    with _null_where_not_computable(messages.sparkSession):
        refused = F.when(F.col(VALUE).isNotNull(), _first_check(stream))
        found = found.withColumn(REASON, F.coalesce(F.col(REASON), refused))
    nothing = F.lit(None).cast(FAILURE_TYPE)
    found = found.withColumn(FAILURE, nothing) if explode is None else of_pieces(found)
    outcome = F.when(F.col(REASON).isNull(), code(Outcome.STORED)).otherwise(code(Outcome.INVALID))
    if explode is not None:
        outcome = F.when(F.col(EMPTY), code(Outcome.SKIPPED)).otherwise(outcome)
    tombstone = (F.col(INDEX) == 0) & F.col(VALUE).isNull()
    return found.withColumns({OUTCOME: outcome, TOMBSTONE: tombstone}).drop(EMPTY)


def _called(messages: DataFrame, stream: Stream, scheme: FunctionScheme, fence: HeadFence | None) -> DataFrame:
    found = called(messages, scheme, stream.retry.chosen(), fence).withColumns(kept(scheme.keep))
    seen = has(Outcome.STORED) & ~F.col(TOMBSTONE)
    with _null_where_not_computable(messages.sparkSession):
        return _refused(found, F.when(seen, _first_check(stream)), F.col(FAILURE), Outcome.INVALID)


def _first_check(stream: Stream) -> Column:
    checks = [F.when(F.expr(check.invalid_when), F.lit(check.reason)) for check in stream.checks]
    return F.coalesce(*checks, F.lit(None).cast("string"))


def _null_where_not_computable(spark: SparkSession) -> AbstractContextManager[None]:
    """Conditions are null where one cannot be computed, as for a division by zero, so that no message stops the stream.

    Spark decides that when an expression becomes part of a plan. Values that are stored are never computed so: there a number
    that does not fit would become a wrong one.
    """
    return setting(spark, "spark.sql.ansi.enabled", "false")


def check_checks(rows: DataFrame, stream: Stream) -> None:
    """Raises WrongUse for a check that is no condition on the columns of `rows`, which no check has been applied to."""
    for number, check in enumerate(stream.checks):
        try:
            with _null_where_not_computable(rows.sparkSession):
                rows.select(F.when(F.expr(check.invalid_when), F.lit(1)))
        except PySparkException as problem:
            why = " ".join(str(problem).split("SQLSTATE")[0].split())
            raise WrongUse(
                f"checks.{number}.invalid_when: {check.invalid_when!r} is no condition on the fields "
                f"{', '.join(stream.scheme.fields)}: {why}"
            ) from problem


def _refused(rows: DataFrame, reason: Column, failure: Column, outcome: Outcome) -> DataFrame:
    """Rows, of which those with a reason get an outcome and FAILURE for it."""
    refused = F.col(_REFUSED).isNotNull()
    return (
        rows.withColumn(_REFUSED, reason)
        .withColumns(
            {
                REASON: F.coalesce(F.col(REASON), F.col(_REFUSED)),
                FAILURE: F.when(refused, failure).otherwise(F.col(FAILURE)),
                OUTCOME: F.when(refused, code(outcome)).otherwise(F.col(OUTCOME)),
            }
        )
        .drop(_REFUSED)
    )


def settled(rows: DataFrame) -> DataFrame:
    """A message of which one row is set aside is set aside as a whole, and has one row.

    `rows` are kept, since they are looked at twice. Those that are set aside are mostly few and go to every task; nothing of
    the others is moved, unless there are too many.
    """
    first = F.min(F.struct(INDEX, OUTCOME, REASON, FAILURE)).alias(_REFUSED)
    refused = set_aside(rows).groupBy(*COORDINATE).agg(first)
    number = refused.count()
    if number == 0:
        return rows
    return _set_whole_aside(rows, F.broadcast(refused) if number <= _BROADCAST else refused)


def failed(rows: DataFrame, causes: Mapping[Coordinate, Cause]) -> DataFrame:
    """Rows, of which the messages that the transform fails on are set aside."""
    listed = [
        (at.partition.topic, at.partition.incarnation, at.partition.partition, at.offset, cause.error, cause.detail)
        for at, cause in causes.items()
    ]
    kinds = ("string", "int", "int", "long", "string", "string")
    columns = (*COORDINATE, "error", "detail")
    refused = rows.sparkSession.createDataFrame(
        listed, ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
    )
    reason = F.concat(F.lit("transform: "), F.col("error"))
    found = F.struct(
        code(Outcome.FAILED).alias(OUTCOME),
        reason.alias(REASON),
        failure_of(F.col("error"), F.col("detail")).alias(FAILURE),
    )
    return _set_whole_aside(rows, F.broadcast(refused.select(*COORDINATE, found.alias(_REFUSED))))


def _set_whole_aside(rows: DataFrame, refused: DataFrame) -> DataFrame:
    """Rows, of which messages in `refused` have one, with the OUTCOME, REASON and FAILURE that it says."""
    is_refused = F.col(_REFUSED).isNotNull()
    said = {
        name: F.when(is_refused, F.col(_REFUSED)[name]).otherwise(F.col(name)) for name in (OUTCOME, REASON, FAILURE)
    }
    joined = rows.join(refused, list(COORDINATE), "left").where(~is_refused | (F.col(INDEX) == 0))
    return joined.withColumns(said).drop(_REFUSED)


def hashed(rows: DataFrame, fields: Iterable[str]) -> DataFrame:
    """Rows with the hashes of message, row and contents."""
    digest = content_digest([field(name) for name in fields])
    return rows.withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash(), DIGEST: digest})


def within_limits(rows: DataFrame, refusals: Sequence[Column]) -> DataFrame:
    """Rows, of which none that is stored is larger than a sink takes: its message has failed, see docs/adr/0010.

    `refusals` say of a row why a sink cannot take it, as `sinks.sizes.refusal` does, or are null.
    """
    if not refusals:
        return rows
    rows = rows.withColumn(_TOO_LARGE, F.when(has(Outcome.STORED), F.coalesce(*refusals)))
    found = F.col(_TOO_LARGE)
    both = sizes(found["size"], found["most"])
    return _refused(rows, found["reason"], detail(both), Outcome.FAILED).drop(_TOO_LARGE)


def sizes(size: Column, most: Column) -> Column:
    """What is said of a size that is beyond the most; null where there is none."""
    return F.concat(size.cast("string"), F.lit(" bytes, the most is "), most.cast("string"))


def slimmed(rows: DataFrame, *, several: bool) -> DataFrame:
    """Rows with value and headers only where a dead letter may need them.

    With one row a message, it is known by now whether it does; otherwise, any row of it may still be refused.
    """
    needed = F.col(INDEX) == 0 if several else has(Outcome.INVALID) | has(Outcome.FAILED)
    return rows.withColumns({VALUE: F.when(needed, F.col(VALUE)), HEADERS: F.when(needed, F.col(HEADERS))})


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
