"""The newest value of each key in HBase: keys, versions and cells, to the byte.

    key        salt         1 byte: XXH64 of the rest modulo 16
               topic        1 byte length, then UTF-8: offsets of two topics have no order, so a key is one of a topic
               fields       of the key, in its order: a byte 0 for null; else a 1, the length in 4 bytes, the bytes
    qualifier  incarnation 2 bytes, partition 4, index of the row in its message 4
    version    order epoch 7 bits, offset 42, ordinal of the attempt 14: the cell's timestamp
    cell       length of the mark 2 bytes, the mark (see hbase_rows.py), then all fields (see packed.py)

All numbers are unsigned and big-endian. The newest cell of a row is its newest value, whenever it was written: an old
message has an old version. Within one message, the attempt that wrote later has the higher version; which of them counts
says the generation in the mark. The partition is in the qualifier, because two messages of one epoch that have the same
key and the same offset in two partitions would otherwise be one cell.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from tidemark.errors import ProcessingFailed, TooLarge
from tidemark.ranges import TopicPartition
from tidemark.results.hbase_rows import SALTS, Mark, Place
from tidemark.results.packed import pack, unpack

TYPE = "hbase_latest"

EPOCH_BITS, OFFSET_BITS, ORDINAL_BITS = 7, 42, 14
# Half of what HBase takes as a row's key (32,767 bytes), for filters and tools that add to it.
MOST_KEY_BYTES = 16_384

_NULL, _VALUE = b"\x00", b"\x01"
_LENGTH = struct.Struct(">I")
_MARK_LENGTH = struct.Struct(">H")
_QUALIFIER = struct.Struct(">HII")


@dataclass(frozen=True, order=True, slots=True)
class Version:
    """Which value of a key is the newer one."""

    epoch: int
    offset: int
    ordinal: int

    def encode(self) -> int:
        """As a cell's timestamp. Raises TooLarge when a number has more bits than there are."""
        # The largest epoch is left free: with all bits set, HBase would take it for 'now'.
        if not 0 < self.epoch < (1 << EPOCH_BITS) - 1:
            raise TooLarge(_too_large("order epoch", self.epoch, (1 << EPOCH_BITS) - 2))
        if not 0 <= self.offset < 1 << OFFSET_BITS:
            raise TooLarge(_too_large("offset", self.offset, (1 << OFFSET_BITS) - 1))
        if not 0 <= self.ordinal < 1 << ORDINAL_BITS:
            raise TooLarge(_too_large("attempt's ordinal", self.ordinal, (1 << ORDINAL_BITS) - 1))
        return (self.epoch << OFFSET_BITS | self.offset) << ORDINAL_BITS | self.ordinal

    @classmethod
    def decode(cls, timestamp: int) -> Version:
        place = timestamp >> ORDINAL_BITS
        return cls(place >> OFFSET_BITS, place & ((1 << OFFSET_BITS) - 1), timestamp & ((1 << ORDINAL_BITS) - 1))


def _too_large(what: str, number: int, most: int) -> str:
    return (
        f"the {what} {number} does not fit into a version of the sink {TYPE}, which has room up to {most}. "
        "Read this topic with a new stream, or keep it in a sink of type hbase"
    )


def row_key(topic: str, key: Sequence[bytes | None]) -> bytes:
    """The row of a key. Raises ProcessingFailed for one that is longer than HBase's rows may be."""
    encoded = topic.encode()
    parts = [bytes([len(encoded)]), encoded]
    for value in key:
        parts += [_NULL] if value is None else [_VALUE, _LENGTH.pack(len(value)), value]
    body = b"".join(parts)
    if len(body) > MOST_KEY_BYTES:
        raise ProcessingFailed(
            f"a key of {topic} takes {len(body)} bytes, and {MOST_KEY_BYTES} is the most of the sink {TYPE}; "
            "set such messages aside with a check, or choose other fields for the key"
        )
    return bytes([xxhash.xxh64_intdigest(body) % SALTS]) + body


def topic_of(row: bytes) -> str:
    """The topic that a row's key names. Raises ValueError for a key that is not of this layout."""
    length = row[1] if len(row) > 1 else 0
    if length < 1 or row[0] >= SALTS or len(row) < 2 + length:
        raise ValueError(f"not a row of this layout: {row!r}")
    return row[2 : 2 + length].decode()


def salt_range(salt: int) -> tuple[bytes, bytes]:
    """(first key, key behind the last) of the rows with a salt."""
    return bytes([salt]), bytes([salt + 1])


def qualifier(at: TopicPartition, index: int) -> bytes:
    return _QUALIFIER.pack(at.incarnation, at.partition, index)


def place_of(topic: str, column: bytes, version: Version) -> Place:
    """The coordinate that a cell is from. Raises struct.error for a column that is not of this layout."""
    incarnation, partition, index = _QUALIFIER.unpack(column)
    return Place(TopicPartition(topic, partition, incarnation), version.offset, index)


def encode_cell(mark: Mark, fields: Sequence[tuple[str, bytes | None]]) -> bytes:
    encoded = mark.encode()
    return _MARK_LENGTH.pack(len(encoded)) + encoded + pack(fields)


def mark_of(cell: bytes) -> Mark:
    """Raises ValueError for a cell that is not of this layout."""
    return Mark.decode(cell[2 : 2 + _length_of_mark(cell)])


def fields_of(cell: bytes) -> dict[str, bytes]:
    """The fields that are not null. Raises ValueError for a cell that is not of this layout."""
    return unpack(cell[2 + _length_of_mark(cell) :])


def _length_of_mark(cell: bytes) -> int:
    if len(cell) < _MARK_LENGTH.size:
        raise ValueError(f"not a cell of this layout: {cell!r}")
    return int(_MARK_LENGTH.unpack_from(cell)[0])
