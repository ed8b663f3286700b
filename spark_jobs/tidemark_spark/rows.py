"""From messages to rows: what the sinks, the dead letters, the tallies and the audit all work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.attempts import HeadFence
from tidemark.streams.model import Stream
from tidemark.streams.schemes import FunctionScheme
from tidemark_spark import outcomes
from tidemark_spark.reading import no_messages
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
    messages: DataFrame, stream: Stream, refusals: Sequence[Column] = (), fence: HeadFence | None = None
) -> Rows:
    """The rows that a stream makes of messages; where each has one at most, they are computed when they are first used.

    `refusals` are those of the sinks. `fence` is looked at while a function of the user's own takes its time.
    Raises WrongUse for a transform that does not give what it has to, TransformRefused for rows that it cannot have made.
    """
    fields = outcomes.field_names(stream)
    several = stream.explode is not None or isinstance(stream.scheme, FunctionScheme)
    rows = outcomes.with_outcomes(messages, stream, fence)
    if stream.transform is None:
        rows = outcomes.hashed(outcomes.within_limits(rows, refusals), fields)
    rows = outcomes.without_headers(rows, several=several or stream.transform is not None)
    kept = [rows.persist(StorageLevel.MEMORY_AND_DISK)]
    try:
        if several:
            rows = outcomes.settled(rows)
        if stream.transform is not None:
            rows = transformed(rows, stream.scheme.fields, stream.transform)
            rows = outcomes.hashed(outcomes.within_limits(rows, refusals), fields)
            # What a function of the user's own gives is kept too: computed anew, it could be something else.
            kept.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
            rows = outcomes.settled(refuse_invented(rows))
            kept.pop(0).unpersist()
    except BaseException:
        Rows(rows, tuple(kept)).close()
        raise
    return Rows(rows, tuple(kept))


def check_rows(spark: SparkSession, stream: Stream) -> None:
    """Raises WrongUse for a function, a retry policy or a transform that cannot be carried out, before any message is read."""
    check_function(stream)
    if stream.transform is not None:
        transformed(outcomes.with_outcomes(no_messages(spark), stream), stream.scheme.fields, stream.transform)
