"""From messages to rows: what the sinks, the dead letters, the tallies and the audit all work on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame

from tidemark.attempts import HeadFence
from tidemark.streams.model import Stream
from tidemark.streams.schemes import FunctionScheme
from tidemark_spark import outcomes


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
    """
    several = stream.explode is not None or isinstance(stream.scheme, FunctionScheme)
    rows = outcomes.within_limits(outcomes.with_outcomes(messages, stream, fence), refusals)
    rows = outcomes.without_headers(rows, several=several)
    kept = outcomes.hashed(rows, outcomes.field_names(stream)).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        return Rows(outcomes.settled(kept) if several else kept, (kept,))
    except BaseException:
        kept.unpersist()
        raise
