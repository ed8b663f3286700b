"""What a sink has to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame

from tidemark.attempts import HeadFence
from tidemark.ledger.records import SinkReceipt
from tidemark.ranges import TopicPartition
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledgements


@dataclass(frozen=True)
class Mission:
    """The attempt that a sink writes for: every row carries its generation, lane and window number.

    `ordinal` is higher than that of every attempt that may have written the same rows before.

    `fence` is looked at before the first row and every few seconds, in every task. `report` hears how many messages of
    a partition have been acknowledged; it is for Spark's workers.
    """

    lane: str
    seq: int
    generation: int
    fence: HeadFence
    report: Callable[[TopicPartition, int], None]
    ordinal: int = 0


class Sink(Protocol):
    """Stores rows so that writing them again with the same generation changes nothing."""

    @property
    def name(self) -> str: ...

    def prepare(self, stream: str, ledger: str) -> None:
        """Make what is missing and check what is there. Raises OwnedByAnother, WrongUse, Unreachable."""
        ...

    def refusal(self, fields: Fields) -> Column | None:
        """Why the sink can never take a row, because of its size or for want of a place, naming the sink; or null.

        `fields` are the stream's. It is asked before anything is written, by an audit too. None: the sink takes any row.
        """
        ...

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        """Store the rows and say, per partition, what is stored: acknowledged by the server, or read back.

        Rows carry the coordinate, INDEX, TOMBSTONE, MESSAGE_HASH, ROW_HASH, DIGEST and the stream's fields.
        """
        ...

    def receipt(self, mission: Mission) -> SinkReceipt:
        """Where the rows of an attempt are."""
        ...
