"""The contract of a sink with Spark: its writer, and its type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame, SparkSession

from tidemark.audit.comparison import PlaceComparison
from tidemark.commit.fence import HeadFence
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.contract import CompactionRequest
from tidemark.spark.audit.differences import Audit, AuditedPlace
from tidemark.spark.audit.replay_comparison import RowsToCompare


@dataclass(frozen=True)
class WriteContext:
    """The attempt that a sink writes for: every row carries its generation, lane and window number.

    `few`: the window has so few rows that a sink may write them from the driver.

    A sink checks `fence` before the first row and every few seconds, in every task. Spark's workers call `report` with
    the number of acknowledged messages of a partition.
    """

    lane: str
    seq: int
    generation: int
    fence: HeadFence
    report: Callable[[TopicPartition, int], None]
    few: bool = False


class Sink(Protocol):
    """Stores rows so that writing them again with the same generation changes nothing."""

    @property
    def name(self) -> str: ...

    def prepare(self, stream: str, ledger: str) -> None:
        """Make what is missing there, and check what exists. Raises OwnedByAnother, WrongUse, Unreachable."""
        ...

    def refusal(self, fields: Fields) -> Column | None:
        """Why the sink can never take a row, because of its size or because it has no place for the row; or null.

        The reason names the sink. `fields` are the stream's. A window's job asks before any write; an audit asks too.
        None: the sink takes any row.
        """
        ...

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        """Store the rows. Give, per partition, what the server acknowledged or what was read back, with its contents.

        Rows carry the coordinate, INDEX, TOMBSTONE, MESSAGE_HASH, ROW_HASH, DIGEST and the stream's fields.
        """
        ...

    def receipt(self, context: WriteContext) -> SinkReceipt:
        """The place of an attempt's rows."""
        ...


@runtime_checkable
class OnePassSink(Sink, Protocol):
    """A sink that can store the rows of a window while they are read and made, if the window has no other sink.

    Its `store` computes the rows in exactly one job, and without a shuffle: see `rows.one_pass`.
    """

    def discard(self, context: WriteContext) -> None:
        """Remove what a `store` of this attempt has written: it is stored again, or refused."""
        ...


@runtime_checkable
class FileSink(OnePassSink, Protocol):
    """A sink that can do so for a window with other sinks too: they take its rows from what it has written."""

    def written(self, spark: SparkSession, context: WriteContext) -> DataFrame:
        """The rows that `store` has written for this attempt, with the columns that it was given."""
        ...


@runtime_checkable
class NeedsMessageColumns(Protocol):
    """A sink whose rows may need columns of the message itself, as `columns.KEY`, which no other sink keeps."""

    @property
    def needs_messages(self) -> bool: ...


class SparkSink(Protocol):
    """A type of sink, as Spark's jobs use it. `settings` come from the stream file, for one sink of this type."""

    def writer(self, opened: OpenStream, settings: Any) -> Sink:
        """The sink that stores the rows of a window."""
        ...

    def results(self, spark: SparkSession, opened: OpenStream, settings: Any) -> DataFrame:
        """The rows that count, for users: coordinate, `_index`, `_tombstone`, and the fields with their types."""
        ...

    def audit(self, audit: Audit, settings: Any) -> AuditedPlace | None:
        """Compare what the sink holds with what it should hold. None: audits skip this type."""
        ...


def audits_by_sums(sink: SparkSink) -> bool:
    """Whether a type's audit is `Audit.rows_of`: then it asks for rows only where the digests of a block differ."""
    return getattr(sink, "by_sums", False)


class ComparingSink(SparkSink, Protocol):
    """A type of sink whose rows can be compared before a replay. Comparisons name the other sinks as not compared."""

    def compare(self, comparing: RowsToCompare, settings: Any) -> PlaceComparison | None:
        """Compare the rows that count with those that a replay would make: see `RowsToCompare.rows_of`.

        None if the sink cannot be read. The comparison then names it as not compared.
        """
        ...


class CompactingSink(SparkSink, Protocol):
    """A type of sink whose Kind names a `compaction`: it can rewrite the output of many windows into fewer files."""

    def compact(self, opened: OpenStream, settings: Any, run: str, asked: CompactionRequest) -> object:
        """Compact what is asked for, and finish what an earlier compaction left. The rows that count stay the same.

        Raises Fenced when another compaction of the sink has begun meanwhile.
        """
        ...
