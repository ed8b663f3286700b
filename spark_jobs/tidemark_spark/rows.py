"""From messages to rows: what the sinks, the dead letters, the tallies and the audit all work on."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark import StorageLevel
from pyspark.sql import DataFrame

from tidemark.streams.model import Stream
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


def rows_of(messages: DataFrame, stream: Stream) -> Rows:
    """The rows that a stream makes of messages. They are computed when they are first used."""
    frame = outcomes.with_outcomes(messages, stream).persist(StorageLevel.MEMORY_AND_DISK)
    return Rows(frame, (frame,))
