"""From messages to rows: what the sinks, the dead letters, the tallies and the audit all work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.attempts import HeadFence
from tidemark.connections import Connections, from_environment, registry_endpoint
from tidemark.registry import SchemaRegistry
from tidemark.streams.model import Stream
from tidemark.streams.schemes import AvroScheme, FunctionScheme
from tidemark.streams.transform import Transform
from tidemark_spark import outcomes
from tidemark_spark.reading import no_messages
from tidemark_spark.schemes.avro_record import schemas_of
from tidemark_spark.schemes.function import check_function
from tidemark_spark.transforming import refuse_invented, transformed


@dataclass(frozen=True)
class Rows:
    """The rows of some messages, as `outcomes` describes them, and what Spark keeps so that Kafka is read once."""

    frame: DataFrame
    kept: tuple[DataFrame, ...]

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
    if isinstance(stream.scheme, AvroScheme) and stream.scheme.registry is not None and not stream.scheme.asked:
        return _registered(messages, stream, stream.scheme, refusals, connections)
    several = stream.explode is not None or isinstance(stream.scheme, FunctionScheme)
    rows = outcomes.with_outcomes(messages, stream, fence)
    if stream.transform is not None:
        return _transformed(rows, stream, stream.transform, refusals, several=several)
    rows = outcomes.slimmed(outcomes.within_limits(rows, refusals), several=several)
    kept = _kept(outcomes.hashed(rows, outcomes.field_names(stream)))
    try:
        return Rows(outcomes.settled(kept) if several else kept, (kept,))
    except BaseException:
        kept.unpersist()
        raise


def _registered(
    messages: DataFrame, stream: Stream, scheme: AvroScheme, refusals: Sequence[Column], connections: Connections
) -> Rows:
    """Rows by a registry's schemas, which are asked for first: as soon as it is known which ones the messages name."""
    registry = SchemaRegistry(registry_endpoint(connections(scheme.registry or "")))
    raw = _kept(messages)
    try:
        known = scheme.with_writers(schemas_of(raw, registry))
        rows = rows_of(raw, stream.model_copy(update={"scheme": known}), refusals, connections=connections)
    except BaseException:
        raw.unpersist()
        raise
    return Rows(rows.frame, (*rows.kept, raw))


def _transformed(
    rows: DataFrame, stream: Stream, transform: Transform, refusals: Sequence[Column], *, several: bool
) -> Rows:
    given = _kept(outcomes.slimmed(rows, several=True))
    try:
        whole = outcomes.settled(given) if several else given
        made = outcomes.within_limits(transformed(whole, stream.scheme.fields, transform), refusals)
        # Kept too: what a function of the user's own gives, computed anew, could be something else.
        kept = _kept(outcomes.hashed(made, outcomes.field_names(stream)))
        try:
            return Rows(outcomes.settled(refuse_invented(kept)), (kept,))
        except BaseException:
            kept.unpersist()
            raise
    finally:
        # All of it is in what is kept by now.
        given.unpersist()


def _kept(rows: DataFrame) -> DataFrame:
    return rows.persist()


def check_rows(spark: SparkSession, stream: Stream) -> None:
    """Before any message is read: raises WrongUse for a function, retry policy, transform or schema file that is no use."""
    check_function(stream)
    if stream.transform is None and not isinstance(stream.scheme, AvroScheme):
        return
    rows = outcomes.with_outcomes(no_messages(spark), stream)
    if stream.transform is not None:
        transformed(rows, stream.scheme.fields, stream.transform)
