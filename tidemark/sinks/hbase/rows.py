"""Rows of results and dead letters in HBase: their keys and their marks, to the byte.

    key    salt            1 byte
           topic           1 byte length, then UTF-8 (a name is at most 249 bytes: `a` and `a-b` cannot mix)
           incarnation     2 bytes, partition 4, offset 8, index of the row in its message 4: unsigned, big-endian
    mark   cell `t:m`      format 1 byte (1), flags 1, generation 8, content
                           digest 8, window number 8: unsigned, big-endian; then the lane's name
    data   cells `d:FIELD` the field as UTF-8 text, or its bytes if it is binary; no cell for null

All cells of a row also have the generation as their timestamp. Offsets have a fixed width, so rows sort by offset.
The salt changes every 65,536 offsets. So one scan finds consecutive writes together, and a growing partition does not
always write to the same region.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import xxhash

from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.stored_rows import Place

SALTS = 16
BLOCK_BITS = 16

MARK = b"t:m"
DATA_FAMILY = "d"
DATA_PREFIX = b"d:"
MARK_FAMILY = "t"

_TAIL = struct.Struct(">HI")
_PLACE = struct.Struct(">QI")
_OFFSET = struct.Struct(">Q")


class PartitionKeys:
    """Row keys of one partition. Their shared part is made once."""

    def __init__(self, partition: TopicPartition) -> None:
        topic = partition.topic.encode()
        self.partition = partition
        self._shared = bytes([len(topic)]) + topic + _TAIL.pack(partition.incarnation, partition.partition)
        self._block = -1
        self._prefix = b""

    def key(self, offset: int, index: int) -> bytes:
        return self.prefix(offset >> BLOCK_BITS) + _PLACE.pack(offset, index)

    def scans(self, wanted: OffsetRange) -> Iterator[tuple[bytes, bytes]]:
        """The scans that together read a range, in the order of its offsets, as (first key, key after the last)."""
        at = wanted.start
        while at < wanted.until:
            start, stop, at = self.scan(at, wanted.until)
            yield start, stop

    def scan(self, at: int, until: int) -> tuple[bytes, bytes, int]:
        """The scan that reads [at, until) as far as one can: its first key, the key after its last, the offset after it."""
        block = at >> BLOCK_BITS
        until = min(until, (block + 1) << BLOCK_BITS)
        prefix = self.prefix(block)
        return prefix + _OFFSET.pack(at), prefix + _OFFSET.pack(until), until

    def prefix(self, block: int) -> bytes:
        """How the keys of a block of 2 ** BLOCK_BITS offsets begin."""
        if block != self._block:
            salt = xxhash.xxh64_intdigest(self._shared, block & 0xFFFF_FFFF_FFFF_FFFF) % SALTS
            self._block, self._prefix = block, bytes([salt]) + self._shared
        return self._prefix


def split_keys(regions: int) -> list[bytes]:
    """The keys that split a table into regions; with about equally many salts in each region."""
    return [bytes([SALTS * number // regions]) for number in range(1, regions)]


def parse_key(key: bytes) -> Place:
    """The place in a row key. Raises ValueError for a key that is not of this layout."""
    length = key[1] if len(key) > 1 else -1
    if length < 1 or len(key) != 2 + length + _TAIL.size + _PLACE.size:
        raise ValueError(f"not a row of this layout: {key!r}")
    topic = key[2 : 2 + length].decode()
    incarnation, partition = _TAIL.unpack_from(key, 2 + length)
    offset, index = _PLACE.unpack_from(key, 2 + length + _TAIL.size)
    return Place(TopicPartition(topic, partition, incarnation), offset, index)
