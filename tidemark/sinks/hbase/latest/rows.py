"""The newest value of each key in HBase: keys, versions and cells, to the byte.

    key        topic        1 byte length, then UTF-8. Offsets of two topics have no order, so each topic has own keys
               fields       of the key; with a salt before all this (see keyed_rows.py)
    qualifier  incarnation 2 bytes, partition 4, index of the row in its message 4
    version    order epoch 7 bits, offset 42, ordinal of the attempt 14: the cell's timestamp
    cell       mark and all fields (see keyed_rows.py)

All numbers are unsigned and big-endian. The newest cell of a row is its newest value, whenever it was written: an old
message has an old version. For one message, a later attempt writes a higher version; the generation in the mark
decides which attempt counts. The qualifier has the partition, because two messages of one epoch may share their key
and their offset. Without the partition, both would be one cell.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidemark.errors import TooLarge
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.hbase.keyed_rows import encode_fields, salted, unsalted
from tidemark.sinks.stored_rows import Place

TYPE = "hbase_latest"

# A scan for each: of scattered offsets, it is cheaper to be given what lies between some of them.
_MOST_SPANS = 8

EPOCH_BITS, OFFSET_BITS, ORDINAL_BITS = 7, 42, 14

_QUALIFIER = struct.Struct(">HII")


@dataclass(frozen=True, order=True, slots=True)
class ValueVersion:
    """Which value of a key is the newer one."""

    epoch: int
    offset: int
    ordinal: int

    def encode(self) -> int:
        """As a cell's timestamp. Raises TooLarge when a number has more bits than there are."""
        # The largest epoch stays unused: HBase takes a timestamp with all bits set for 'now'.
        if not 0 < self.epoch < (1 << EPOCH_BITS) - 1:
            raise TooLarge(_too_large("order epoch", self.epoch, (1 << EPOCH_BITS) - 2))
        if not 0 <= self.offset < 1 << OFFSET_BITS:
            raise TooLarge(_too_large("offset", self.offset, (1 << OFFSET_BITS) - 1))
        if not 0 <= self.ordinal < 1 << ORDINAL_BITS:
            raise TooLarge(_used_up(self.ordinal, (1 << ORDINAL_BITS) - 1))
        return (self.epoch << OFFSET_BITS | self.offset) << ORDINAL_BITS | self.ordinal

    @classmethod
    def decode(cls, timestamp: int) -> ValueVersion:
        place = timestamp >> ORDINAL_BITS
        return cls(place >> OFFSET_BITS, place & ((1 << OFFSET_BITS) - 1), timestamp & ((1 << ORDINAL_BITS) - 1))


def spans(offsets: Iterable[tuple[int, int]], epochs: int) -> list[tuple[int, int]]:
    """Ranges of versions, ascending: at least all that messages with some offsets, [start, until), have in any epoch.

    `epochs`: the highest that the ledger knows. One that was restored may not know all, so all above are in too.
    """
    epochs, wanted = min(epochs, (1 << EPOCH_BITS) - 2), list(offsets)
    known = [
        (
            (epoch << OFFSET_BITS | start) << ORDINAL_BITS,
            ((epoch << OFFSET_BITS) + min(until, 1 << OFFSET_BITS)) << ORDINAL_BITS,
        )
        for epoch in range(1, epochs + 1)
        for start, until in wanted
        if start < 1 << OFFSET_BITS
    ]
    above = ((epochs + 1) << OFFSET_BITS << ORDINAL_BITS, (1 << 63) - 1)
    spans_: list[tuple[int, int]] = []
    for start, until in sorted([*known, above]):
        if spans_ and start <= spans_[-1][1]:
            spans_[-1] = (spans_[-1][0], max(spans_[-1][1], until))
        else:
            spans_.append((start, until))
    return _fewer(spans_, max(_MOST_SPANS, epochs + 1))


def _fewer(spans_: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """At most this many spans: those go together between which the least lies."""
    between = sorted(range(1, len(spans_)), key=lambda at: spans_[at][0] - spans_[at - 1][1], reverse=True)
    cuts = [0, *sorted(between[: most - 1]), len(spans_)]
    return [(spans_[first][0], spans_[last - 1][1]) for first, last in pairwise(cuts)]


def _too_large(what: str, number: int, most: int) -> str:
    return (
        f"the {what} {number} does not fit into a version of the sink {TYPE}, which has room up to {most}. "
        "Read this topic with a new stream, or keep it in a sink of type hbase"
    )


def _used_up(ordinal: int, most: int) -> str:
    return (
        f"the attempt's ordinal {ordinal} does not fit into a version of the sink {TYPE}, which has room up to {most}: so many "
        "replays and backfills have written the sink. The ingest goes on, and so do replays into the other sinks alone. To "
        "replay into this one again, read the topic with a new stream, into a table of another name"
    )


def row_key(topic: str, key: Sequence[bytes | None]) -> bytes:
    """The row of a key. Raises ProcessingFailed for a key of more than MOST_KEY_BYTES."""
    encoded = topic.encode()
    return salted(bytes([len(encoded)]) + encoded + encode_fields(key), f"a key of {topic}", TYPE)


def topic_of(row: bytes) -> str:
    """The topic that a row's key names. Raises ValueError for a key that is not of this layout."""
    key = unsalted(row)
    length = key[0] if key else 0
    if length < 1 or len(key) < 1 + length:
        raise ValueError(f"not a row of this layout: {row!r}")
    return key[1 : 1 + length].decode()


def qualifier(at: TopicPartition, index: int) -> bytes:
    return _QUALIFIER.pack(at.incarnation, at.partition, index)


def place_of(topic: str, column: bytes, version: ValueVersion) -> Place:
    """The coordinate that a cell is from. Raises struct.error for a column that is not of this layout."""
    incarnation, partition, index = _QUALIFIER.unpack(column)
    return Place(TopicPartition(topic, partition, incarnation), version.offset, index)
