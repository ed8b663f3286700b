"""From messages to rows: what the sinks, the dead letters, the tallies and the audit all work on."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from tidemark.streams.model import Stream
from tidemark_spark import outcomes
from tidemark_spark.reading import no_messages
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


def rows_of(messages: DataFrame, stream: Stream) -> Rows:
    """The rows that a stream makes of messages; where nothing is exploded or transformed, computed when first used.

    Raises WrongUse for a transform that does not give what it has to, TransformRefused for rows that it cannot have made.
    """
    fields = outcomes.field_names(stream)
    rows = outcomes.with_outcomes(messages, stream)
    if stream.transform is None:
        rows = outcomes.hashed(rows, fields)
    kept = [rows.persist(StorageLevel.MEMORY_AND_DISK)]
    try:
        if stream.explode is not None:
            rows = outcomes.settled(rows)
        if stream.transform is not None:
            rows = outcomes.hashed(transformed(rows, stream.scheme.fields, stream.transform), fields)
            # What a function of the user's own gives is kept too: computed anew, it could be something else.
            kept.append(rows.persist(StorageLevel.MEMORY_AND_DISK))
            rows = refuse_invented(rows)
            kept.pop(0).unpersist()
    except BaseException:
        Rows(rows, tuple(kept)).close()
        raise
    return Rows(rows, tuple(kept))


def check_rows(spark: SparkSession, stream: Stream) -> None:
    """Raises WrongUse for a transform that Spark cannot carry out, before any message is read."""
    if stream.transform is not None:
        transformed(outcomes.with_outcomes(no_messages(spark), stream), stream.scheme.fields, stream.transform)
