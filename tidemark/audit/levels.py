"""How deep an audit looks. Its report says the level, and claims nothing about what the level leaves out."""

from __future__ import annotations

from enum import StrEnum

from tidemark.offsets.blocks import BLOCK_OFFSETS


class Level(StrEnum):
    """The depth of an audit. Each level has a price of its own."""

    # The ledger alone: neither Kafka nor a sink is asked.
    LEDGER = "ledger"
    # The ledger, and the offsets that Kafka has. No message is read.
    SOURCE = "source"
    # The ledger, and the rows of the sinks. Messages are not read, so rows are compared with tallies, by blocks.
    SINKS = "sinks"
    # The ledger, the messages that Kafka still holds, and the rows of the sinks. If messages are unchanged since a
    # window of today's code and stream file read them, its tallies stand for their rows.
    FULL = "full"
    # As full, and the rows of all messages are computed again.
    RECOMPUTE = "recompute"

    @property
    def needs_spark(self) -> bool:
        """Whether the audit reads rows or messages. Only such an audit has findings, or takes ranges and records."""
        return self is Level.SINKS or self.reads_messages

    @property
    def reads_messages(self) -> bool:
        """Whether the audit compares rows with messages, and so can name each record."""
        return self in (Level.FULL, Level.RECOMPUTE)

    @property
    def after_repair(self) -> Level:
        """The level of the audit that follows a repair: the replay has just read the messages."""
        return Level.RECOMPUTE if self is Level.RECOMPUTE else Level.FULL

    @property
    def piece(self) -> int:
        """The offsets of a block that a share takes or leaves. Rows have tallies for whole blocks alone."""
        return BLOCK_OFFSETS if self is Level.SINKS else 1_000

    @property
    def looked_at(self) -> str:
        return _LOOKED_AT[self]

    @property
    def left_out(self) -> str:
        """The things that this audit says nothing about."""
        return _LEFT_OUT[self]


_LOOKED_AT = {
    Level.LEDGER: "the ledger: the chain of its records, its heads, holes and overlaps",
    Level.SOURCE: "the ledger, and where the logs of Kafka begin and end",
    Level.SINKS: "the ledger, and the rows of the sinks against the tallies of their windows, block by block",
    Level.FULL: "the ledger, the messages that Kafka still holds, and the rows of the sinks",
    Level.RECOMPUTE: "the ledger, the rows that the messages in Kafka give today, and the rows of the sinks",
}
_LEFT_OUT = {
    Level.LEDGER: "Kafka and the sinks: rows may be missing, and offsets may be gone",
    Level.SOURCE: "the messages and the sinks: rows may be missing or different",
    Level.SINKS: "messages: rows are compared with what was stored, not with messages",
    Level.FULL: "messages that Kafka has deleted: their rows are compared with tallies",
    Level.RECOMPUTE: "messages that Kafka has deleted: their rows are compared with tallies",
}
