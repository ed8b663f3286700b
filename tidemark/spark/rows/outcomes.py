"""Every message of a window gets exactly one outcome: stored as rows, skipped, or a dead letter with a reason.

Each message has exactly one row with index 0, which carries its key and time, whatever its outcome. That row also carries
value and headers while the message may become a dead letter. A stored message may have more rows, with indexes 1 to n - 1.
Only `stored` returns those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tidemark.commit.error_budget import FrequentReason
from tidemark.commit.fence import HeadFence
from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Outcome
from tidemark.schemes.kinds import Fields, FunctionScheme
from tidemark.spark.columns import (
    BEYOND_TIME,
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
from tidemark.spark.rows.constants import wrong_constant
from tidemark.spark.rows.explode import EMPTY, in_pieces, of_pieces
from tidemark.spark.rows.failing_messages import DETAIL, ERROR, FailureCause
from tidemark.spark.rows.fetching_functions import refuse_fetching
from tidemark.spark.rows.unwrapping import NOT_WRAPPED, WRAPPED, is_wrapped, unwrapped
from tidemark.spark.runtime.safe_expressions import null_if_it_alone_throws, null_if_it_throws
from tidemark.spark.runtime.session import setting
from tidemark.spark.runtime.single_computation import meets_others
from tidemark.spark.schemes import parse
from tidemark.spark.schemes.fields import not_utf8
from tidemark.spark.schemes.function import called
from tidemark.spark.schemes.kept_parts import kept
from tidemark.streams.model import Stream
from tidemark.types.fields import type_of

_NOT_A_TIME = "timestamp out of range"
_REFUSED, _TOO_LARGE = "_refused", "_too_large"
# Stands between a size and the most.
BYTES_OF_AT_MOST = " bytes, the most is "
# Some ten megabytes in the driver and in every task.
_BROADCAST = 100_000


def with_outcomes(
    messages: DataFrame, stream: Stream, fence: HeadFence | None = None, *, apart: bool = False
) -> DataFrame:
    """Rows with the scheme's fields, INDEX, TOMBSTONE, OUTCOME, REASON and FAILURE. Index 0 has the message's VALUE.

    A tombstone (a message whose value is null) is stored as a row. It has only fields that do not come from the value, and
    no check sees it. If a message has several rows, OUTCOME and REASON are still those of each row: see `settled`. A slow
    function looks at `fence`. What checks throw is caught, but may come from what Spark computes once for several of them;
    with `apart`, each is computed for itself, and slower.
    """
    if isinstance(stream.scheme, FunctionScheme):
        outcomes = _called(messages, stream, stream.scheme, fence)
    else:
        outcomes = _parsed(messages, stream, apart=apart)
    # If the stream keeps the type, it is among the fields by now.
    return _refused_for_time(outcomes).drop(TIMESTAMP_TYPE)


def _parsed(messages: DataFrame, stream: Stream, *, apart: bool) -> DataFrame:
    explode, wrapped = stream.explode, is_wrapped(stream)
    if wrapped:
        messages = unwrapped(messages, stream)
    if explode is None:
        pieces = messages.withColumn(INDEX, F.lit(0))
    else:
        keeps = "headers" in stream.scheme.keep.values()
        pieces = in_pieces(messages, explode, WRAPPED if wrapped else VALUE, keeps_headers=keeps)
    parsed = parse(pieces, stream.scheme)
    with _null_where_not_computable(messages.sparkSession):
        refused = F.when(F.col(VALUE).isNotNull(), _first_check(stream, apart=apart))
        parsed = parsed.withColumn(REASON, F.coalesce(F.col(REASON), refused))
    nothing = F.lit(None).cast(FAILURE_TYPE)
    parsed = parsed.withColumn(FAILURE, nothing) if explode is None else of_pieces(parsed)
    if wrapped:
        parsed = parsed.withColumn(REASON, F.coalesce(F.col(NOT_WRAPPED), F.col(REASON))).drop(NOT_WRAPPED)
        parsed = parsed if explode is not None else parsed.withColumn(VALUE, F.col(WRAPPED)).drop(WRAPPED)
    outcome = F.when(F.col(REASON).isNull(), code(Outcome.STORED)).otherwise(code(Outcome.INVALID))
    if explode is not None:
        outcome = F.when(F.col(EMPTY), code(Outcome.SKIPPED)).otherwise(outcome)
    tombstone = (F.col(INDEX) == 0) & F.col(VALUE).isNull()
    return parsed.withColumns({OUTCOME: outcome, TOMBSTONE: tombstone}).drop(EMPTY)


def _called(messages: DataFrame, stream: Stream, scheme: FunctionScheme, fence: HeadFence | None) -> DataFrame:
    beyond = F.col(BEYOND_TIME)
    fitting = called(messages.where(beyond.isNull()), scheme, stream.retry, fence)
    others = messages.where(beyond.isNotNull()).withColumns(
        {INDEX: F.lit(0), OUTCOME: code(Outcome.INVALID), TOMBSTONE: F.col(VALUE).isNull()}
    )
    whole = fitting.unionByName(others, allowMissingColumns=True).withColumns(kept(scheme.keep))
    seen = has(Outcome.STORED) & ~F.col(TOMBSTONE)
    with _null_where_not_computable(messages.sparkSession):
        return _refused(whole, F.when(seen, _first_check(stream, apart=True)), F.col(FAILURE), Outcome.INVALID)


def _refused_for_time(rows: DataFrame) -> DataFrame:
    """Make messages invalid whose time Spark cannot hold."""
    time = F.col(BEYOND_TIME)
    said = detail(F.concat(time.cast("string"), F.lit(" ms since 1970")))
    reason = F.when(time.isNotNull(), F.lit(_NOT_A_TIME))
    return _refused(rows, reason, said, Outcome.INVALID).drop(BEYOND_TIME)


def _first_check(stream: Stream, *, apart: bool) -> Column:
    """The reason of the first check that refuses a row. A condition that throws is null, whatever it throws."""
    caught = null_if_it_throws if apart else null_if_it_alone_throws
    checks = [F.when(caught(F.expr(check.invalid_when)), F.lit(check.reason)) for check in stream.checks]
    return F.coalesce(*checks, F.lit(None).cast("string"))


def _null_where_not_computable(spark: SparkSession) -> AbstractContextManager[None]:
    """A condition that cannot be computed is null, as for a division by zero, so that no message stops the stream.

    Spark applies the setting when an expression becomes part of a plan. Stored values are never computed under it: a number
    that does not fit would become a wrong number.
    """
    return setting(spark, "spark.sql.ansi.enabled", "false")


def check_checks(rows: DataFrame, stream: Stream) -> None:
    """Raises WrongUse for a check that is no condition on the columns of `rows`, which are the rows before any check.

    Also for one that looks at more than one row, or makes several of one, for a constant that is wrong for every row, and for a
    function that fetches what a message names.
    """
    for number, check in enumerate(stream.checks):
        try:
            checked = checked_alone(rows, [check.invalid_when])
            if meets_others(checked):
                raise WrongUse(
                    f"checks.{number}.invalid_when: {check.invalid_when!r} looks at other messages, or makes several rows of "
                    "one. A check looks at one message alone. Use a transform, or a key that a sink keeps once"
                )
            refuse_fetching(checked, f"checks.{number}.invalid_when")
            if (wrong := wrong_constant(checked)) is not None:
                raise WrongUse(f"checks.{number}.invalid_when: {wrong}")
        except PySparkException as problem:
            why = " ".join(str(problem).split("SQLSTATE")[0].split())
            raise WrongUse(
                f"checks.{number}.invalid_when: {check.invalid_when!r} is no condition on the fields "
                f"{', '.join(stream.scheme.fields)}: {why}"
            ) from problem


def checked_alone(rows: DataFrame, conditions: Sequence[str]) -> DataFrame:
    """Conditions on rows with these columns, in a plan that has nothing else."""
    nothing = rows.sparkSession.createDataFrame([], rows.schema)
    with _null_where_not_computable(rows.sparkSession):
        return nothing.select(*(F.when(F.expr(condition), F.lit(1)) for condition in conditions))


def _refused(rows: DataFrame, reason: Column, failure: Column, outcome: Outcome) -> DataFrame:
    """Give the rows with a reason an outcome and FAILURE."""
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
    """Make a message a dead letter as a whole, with one row, if one of its rows is refused.

    `rows` must be kept, since they are read twice. Refused rows are mostly few, and go to every task. The other rows are
    not moved, unless too many are refused.
    """
    first = F.min(F.struct(INDEX, OUTCOME, REASON, FAILURE)).alias(_REFUSED)
    refused = dead_letters(rows).groupBy(*COORDINATE).agg(first)
    number = refused.count()
    return _as_dead_letters(rows, refused, number) if number else rows


def failed(rows: DataFrame, causes: DataFrame, number: int) -> DataFrame:
    """Make the messages that the transform fails on dead letters. `causes` are as `listed` returns them, `number` of them."""
    cause = F.struct(
        code(Outcome.FAILED).alias(OUTCOME),
        F.concat(F.lit("transform: "), ERROR).alias(REASON),
        failure_of(F.col(ERROR), F.col(DETAIL)).alias(FAILURE),
    )
    return _as_dead_letters(rows, causes.select(*COORDINATE, cause.alias(_REFUSED)), number)


def without_failing(messages: DataFrame, causes: DataFrame, stream: Stream) -> DataFrame:
    """As `with_outcomes`, where the messages in `causes` are dead letters that nothing was made of."""
    rows = with_outcomes(messages.join(causes, list(COORDINATE), "left_anti"), stream, apart=True)
    what = "scheme or checks: " if stream.checks else "scheme: "
    failing = messages.join(causes.select(*COORDINATE, ERROR, DETAIL), list(COORDINATE)).withColumns(
        {
            INDEX: F.lit(0),
            TOMBSTONE: F.col(VALUE).isNull(),
            OUTCOME: code(Outcome.FAILED),
            REASON: F.concat(F.lit(what), ERROR),
            FAILURE: failure_of(F.col(ERROR), F.col(DETAIL)),
        }
    )
    return rows.unionByName(failing.select(*(set(failing.columns) & set(rows.columns))), allowMissingColumns=True)


def listed(spark: SparkSession, causes: Mapping[Coordinate, FailureCause]) -> DataFrame:
    """Coordinates of messages that fail, with ERROR and DETAIL."""
    rows = [
        (at.partition.topic, at.partition.incarnation, at.partition.partition, at.offset, cause.error, cause.detail)
        for at, cause in causes.items()
    ]
    kinds = ("string", "int", "int", "long", "string", "string")
    columns = (*COORDINATE, ERROR, DETAIL)
    return spark.createDataFrame(rows, ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True)))


def _as_dead_letters(rows: DataFrame, refused: DataFrame, number: int) -> DataFrame:
    """Leave the messages in `refused` (`number` of them) one row, with the OUTCOME, REASON and FAILURE from there."""
    if number <= _BROADCAST:
        refused = F.broadcast(refused)
    is_refused = F.col(_REFUSED).isNotNull()
    said = {
        name: F.when(is_refused, F.col(_REFUSED)[name]).otherwise(F.col(name)) for name in (OUTCOME, REASON, FAILURE)
    }
    joined = rows.join(refused, list(COORDINATE), "left").where(~is_refused | (F.col(INDEX) == 0))
    return joined.withColumns(said).drop(_REFUSED)


def hashed(rows: DataFrame, fields: Fields) -> DataFrame:
    """Rows with the hashes of message, row and contents."""
    digest = content_digest(fields)
    return rows.withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash(), DIGEST: digest})


def within_limits(rows: DataFrame, refusals: Sequence[Column]) -> DataFrame:
    """Make messages failed that have a row which a sink cannot take: see docs/adr/0010.

    `refusals` say why a sink cannot take a row, as `sinks.sizes.refusal` does, or are null.
    """
    if not refusals:
        return rows
    rows = rows.withColumn(_TOO_LARGE, F.when(has(Outcome.STORED), F.coalesce(*refusals)))
    too_large = F.col(_TOO_LARGE)
    both = sizes(too_large["size"], too_large["most"])
    return _refused(rows, too_large["reason"], detail(both), Outcome.FAILED).drop(_TOO_LARGE)


def in_utf8(rows: DataFrame, stream: Stream) -> DataFrame:
    """Mark messages as failed if a transform makes a text that is none, as `CAST(key AS STRING)` may.

    Readers of files fail at such a text, and JSON would hold another one. The schemes have looked at theirs.
    """
    if stream.transform is None:
        return rows
    each = {name: not_utf8(field(name), type_of(kind)) for name, kind in stream.fields.items()}
    reasons = [F.when(wrong, F.lit(f"{name} is not UTF-8")) for name, wrong in each.items() if wrong is not None]
    reason = F.coalesce(*reasons, F.lit(None).cast("string"))
    return _refused(rows, F.when(has(Outcome.STORED), reason), detail(F.lit(None).cast("string")), Outcome.FAILED)


def sizes(size: Column, most: Column) -> Column:
    """The detail for a size above the most; null where the size is null."""
    return F.concat(size.cast("string"), F.lit(BYTES_OF_AT_MOST), most.cast("string"))


def slimmed(rows: DataFrame, *, several: bool) -> DataFrame:
    """Rows with value and headers only where a dead letter may need them.

    With one row per message, that is known by now. Otherwise any row of a message may still be refused.
    """
    needed = F.col(INDEX) == 0 if several else has(Outcome.INVALID) | has(Outcome.FAILED)
    return rows.withColumns({VALUE: F.when(needed, F.col(VALUE)), HEADERS: F.when(needed, F.col(HEADERS))})


def field_names(stream: Stream) -> tuple[str, ...]:
    """The stream's fields in the order of its file. Digests use this order."""
    return tuple(stream.fields)


def stored(rows: DataFrame) -> DataFrame:
    """The rows of the messages that are stored."""
    return rows.where(has(Outcome.STORED))


def dead_letters(rows: DataFrame) -> DataFrame:
    """The dead letters, one row per message."""
    return rows.where(has(Outcome.INVALID) | has(Outcome.FAILED))


def each_message(rows: DataFrame) -> DataFrame:
    """One row per message, whatever its outcome."""
    return rows.where(F.col(INDEX) == 0)


def frequent_reasons(messages: DataFrame, most: int) -> list[FrequentReason]:
    """The most frequent reasons of dead letters, the most frequent first, each with its first coordinate."""
    counted = (
        dead_letters(messages)
        .groupBy(REASON)
        .agg(F.count("*").alias("number"), F.min(F.struct(*COORDINATE)).alias("first"))
        .orderBy(F.col("number").desc(), REASON)
        .limit(most)
    )
    reasons = []
    for row in counted.collect():
        topic, incarnation, partition, offset = row["first"]
        example = Coordinate(TopicPartition(topic, partition, incarnation), offset)
        reasons.append(FrequentReason(row[REASON], row["number"], example))
    return reasons
