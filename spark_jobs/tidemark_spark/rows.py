"""From messages to rows: what the sinks, the dead letters, the tallies and the audit all work on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.attempts import HeadFence
from tidemark.connections import Connections, from_environment, registry_endpoint
from tidemark.coordinates import Coordinate
from tidemark.ranges import OffsetRange, RangeSet
from tidemark.registry import SchemaRegistry
from tidemark.streams.model import Stream
from tidemark.streams.schemes import AvroScheme, FunctionScheme
from tidemark.streams.transform import Transform
from tidemark.tallies import PartitionTally
from tidemark_spark import outcomes
from tidemark_spark.isolating import Cause, cause_of, failing
from tidemark_spark.reading import no_messages
from tidemark_spark.schemes.avro_record import schemas_of
from tidemark_spark.schemes.function import check_function
from tidemark_spark.selecting import only
from tidemark_spark.tallying import AS_READ, as_read, read_tallies
from tidemark_spark.transforming import refuse_invented, transformed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rows:
    """The rows of some messages, as `outcomes` describes them, and what Spark keeps so that Kafka is read once.

    `read` is what was counted of the messages before anything was made of them; None where each row is an expression of its
    one message, so that counting the rows is counting the messages.
    """

    frame: DataFrame
    kept: tuple[DataFrame, ...]
    read: tuple[PartitionTally, ...] | None = None

    def close(self) -> None:
        """Give back the memory that the rows take in Spark."""
        for one in self.kept:
            one.unpersist()


def rows_of(
    messages: DataFrame,
    stream: Stream,
    refusals: Sequence[Column] = (),
    fence: HeadFence | None = None,
    connections: Connections = from_environment,
) -> Rows:
    """The rows that a stream makes of messages; where each has one at most, they are computed when they are first used.

    `refusals` are those of the sinks. `fence` is looked at while a function of the user's own takes its time. Raises WrongUse
    for a transform that does not give what it has to, TransformRefused for rows that it cannot have made.
    """
    messages = as_read(messages)
    registered = (
        isinstance(stream.scheme, AvroScheme) and stream.scheme.registry is not None and not stream.scheme.asked
    )
    if not registered and not _several(stream):
        return _rows_of(messages, stream, refusals)
    # Kept for as long as they are needed: counted, asked for their schemas, made into rows.
    raw = _kept(messages)
    try:
        read = read_tallies(raw)
        if registered:
            stream = _with_schemas(stream, raw, connections)
        rows = _rows_of(raw.drop(*AS_READ), stream, refusals, fence, read)
    except BaseException:
        raw.unpersist()
        raise
    if not _several(stream) and stream.transform is None:
        return Rows(rows.frame, (*rows.kept, raw), read)
    # All of it is in what is kept by now.
    raw.unpersist()
    return rows


def _several(stream: Stream) -> bool:
    """Whether a message may have more than one row before the transform."""
    return stream.explode is not None or isinstance(stream.scheme, FunctionScheme)


def _with_schemas(stream: Stream, messages: DataFrame, connections: Connections) -> Stream:
    """The stream with the registry's schemas, as soon as it is known which ones the messages name."""
    scheme = cast("AvroScheme", stream.scheme)
    registry = SchemaRegistry(registry_endpoint(connections(scheme.registry or "")))
    return stream.model_copy(update={"scheme": scheme.with_writers(schemas_of(messages, registry))})


def _rows_of(
    messages: DataFrame,
    stream: Stream,
    refusals: Sequence[Column],
    fence: HeadFence | None = None,
    read: tuple[PartitionTally, ...] | None = None,
) -> Rows:
    several = _several(stream)
    rows = outcomes.with_outcomes(messages, stream, fence)
    if stream.transform is not None:
        return _transformed(rows, stream, stream.transform, refusals, read)
    rows = outcomes.slimmed(outcomes.within_limits(rows, refusals), several=several)
    kept = _kept(outcomes.hashed(rows, outcomes.field_names(stream)))
    try:
        return Rows(outcomes.settled(kept) if several else kept, (kept,), read)
    except BaseException:
        kept.unpersist()
        raise


def _transformed(
    rows: DataFrame,
    stream: Stream,
    transform: Transform,
    refusals: Sequence[Column],
    read: tuple[PartitionTally, ...] | None,
) -> Rows:
    given = _kept(outcomes.slimmed(rows, several=True))
    try:
        if read is None:
            read = read_tallies(given)
        whole = outcomes.settled(given) if _several(stream) else given.drop(*AS_READ)

        def made_of(rows: DataFrame) -> DataFrame:
            made = outcomes.within_limits(transformed(rows, stream.scheme.fields, transform), refusals)
            return outcomes.hashed(made, outcomes.field_names(stream))

        try:
            return _kept_and_settled(made_of(whole), read)
        except PySparkException as problem:
            if cause_of(problem) is None:
                raise
            failed = _failing(whole, read, made_of)
            if not failed:
                raise
        return _kept_and_settled(made_of(outcomes.failed(whole, failed)), read)
    finally:
        # All of it is in what is kept by now.
        given.unpersist()


def _kept_and_settled(made: DataFrame, read: tuple[PartitionTally, ...]) -> Rows:
    # Kept too: what a function of the user's own gives, computed anew, could be something else.
    kept = _kept(made)
    try:
        return Rows(outcomes.settled(refuse_invented(kept)), (kept,), read)
    except BaseException:
        kept.unpersist()
        raise


def _failing(
    rows: DataFrame, read: tuple[PartitionTally, ...], made_of: Callable[[DataFrame], DataFrame]
) -> dict[Coordinate, Cause]:
    """The messages that the transform fails on, found by computing it on fewer and fewer of them."""
    offsets = RangeSet(OffsetRange(one.at, one.first or 0, (one.last or 0) + 1) for one in read)
    log.warning("the transform fails on messages of this window; they are being looked for")
    return failing(
        "transform",
        offsets,
        # All columns are computed, and none goes anywhere.
        lambda part: made_of(only(rows, part)).write.format("noop").mode("overwrite").save(),
    )


def _kept(rows: DataFrame) -> DataFrame:
    return rows.persist()


def check_rows(spark: SparkSession, stream: Stream) -> None:
    """Before any message is read: raises WrongUse for a function, policy, check, transform or schema file that is no use."""
    check_function(stream)
    if not stream.checks and stream.transform is None and not isinstance(stream.scheme, AvroScheme):
        return
    rows = outcomes.with_outcomes(no_messages(spark), stream.model_copy(update={"checks": ()}))
    outcomes.check_checks(rows, stream)
    if stream.transform is not None:
        transformed(rows, stream.scheme.fields, stream.transform)
