"""The contents of one offset of a partition's log: a message, or why there is none. Takes Kafka's answer as values.

A consumer passes over markers, aborted transactions and compacted offsets without telling them apart. So one answer to
a fetch is read here, batch by batch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidemark.errors import Unreachable


class Slot(StrEnum):
    """The contents of an offset in Kafka now."""

    MESSAGE = "message"
    # A message at or above the start of a transaction that has not ended: readers of committed messages do not get it yet.
    HELD_BACK = "held back"
    ABORTED = "aborted"
    # A transaction's mark: it ends the transaction, and is no message.
    MARKER = "marker"
    # Kafka holds the offsets around it, and not this one.
    COMPACTED = "compacted"
    EXPIRED = "expired"
    BEYOND = "not yet"


@dataclass(frozen=True)
class KafkaMessage:
    """A message in Kafka. `timestamp` is in milliseconds since 1970, or None.

    `appended`: the broker has set the timestamp, and not the producer.
    """

    timestamp: int | None
    appended: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class OffsetContents:
    """The contents of an offset, with the log's bounds at that moment; `message` even if it is aborted or not committed yet."""

    slot: Slot
    log_start: int
    end: int
    message: KafkaMessage | None = None


def at_offset(
    batches: Iterable[Any], offset: int, aborted: Collection[tuple[int, int]], stable: int
) -> tuple[Slot, KafkaMessage | None]:
    """The contents of an offset by some batches of a log, which begin with the first one that ends at or above it.

    `aborted`: (producer id, first offset) of the aborted transactions that end at or above the offset. `stable`: the
    last stable offset. Raises Unreachable for a batch that was damaged on its way.
    """
    for batch in batches:
        if batch.magic == 2 and batch.last_offset < offset:
            continue
        if not batch.validate_crc():
            raise Unreachable(f"the batch of messages at offset {batch.base_offset} arrived damaged; ask again")
        if batch.magic == 2 and batch.base_offset > offset:
            return Slot.COMPACTED, None
        if batch.magic == 2 and batch.is_control_batch:
            return Slot.MARKER, None
        for record in batch:
            if record.offset == offset:
                return _slot(batch, offset, aborted, stable), message_of(record)
            if record.offset > offset:
                return Slot.COMPACTED, None
    return Slot.COMPACTED, None


def _slot(batch: Any, offset: int, aborted: Collection[tuple[int, int]], stable: int) -> Slot:
    if offset >= stable:
        return Slot.HELD_BACK
    if batch.magic != 2 or not batch.is_transactional:
        return Slot.MESSAGE
    # The transactions of one producer follow one another. So one that began at or below the offset, and ends at or above
    # it, is the message's own.
    gone = any(producer == batch.producer_id and first <= offset for producer, first in aborted)
    return Slot.ABORTED if gone else Slot.MESSAGE


def message_of(record: Any) -> KafkaMessage:
    """A record as kafka-python has it: one of a batch, or of a consumer."""
    return KafkaMessage(
        None if record.timestamp is None or record.timestamp < 0 else record.timestamp,
        record.timestamp_type == 1,
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
    )
