"""The 64-bit hashes of coordinates, rows and contents, specified to the byte.

The function is XXH64. In a chain of values, the hash so far is the seed of the next value. The first seed is 42:

    coordinate   topic as UTF-8, incarnation as int32, partition as int32, offset as int64     (little-endian)
    row          the coordinate, then the index of the row in its message as int32
    content      the row, then its columns as text, or bytes where they are binary
    source       the coordinate, then the length of the key as int32 and the key, the length of the value as int32 and the
                 value (for null: -1, and nothing), then for each header its name as UTF-8 and, unless it is null, its value

Spark's `xxhash64(topic, incarnation, partition, offset, ...)` computes the same, so both sides agree without sharing
code (`tests/unit/test_hashing.py` holds the vectors). Hashes are unsigned here; Spark shows them signed.

The text of a row's columns is a netstring for each column, in the order of the stream file. A netstring is the number
of bytes in decimal, a colon, and the bytes. Text gives its UTF-8, a binary column its own bytes. Null is a single `-`.
No two rows with different columns give the same text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import xxhash

from tidemark.offsets.ranges import TopicPartition

SPARK_SEED = 42
NULL_COLUMN = b"-"

_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")


def partition_seed(partition: TopicPartition) -> int:
    """The part of the coordinate's hash that all offsets of a partition share."""
    seed = xxhash.xxh64_intdigest(partition.topic.encode(), SPARK_SEED)
    seed = xxhash.xxh64_intdigest(_INT.pack(partition.incarnation), seed)
    return xxhash.xxh64_intdigest(_INT.pack(partition.partition), seed)


def coordinate_hash(partition: TopicPartition, offset: int) -> int:
    """The ack value of one message: 64 bits, unsigned."""
    return offset_hash(partition_seed(partition), offset)


def offset_hash(seed: int, offset: int) -> int:
    """As `coordinate_hash`, from a `partition_seed`: for many offsets of one partition."""
    return xxhash.xxh64_intdigest(_LONG.pack(offset), seed)


def row_hash(coordinate: int, index: int) -> int:
    """The ack value of one row: the hash of (coordinate, index), from the coordinate's hash."""
    return xxhash.xxh64_intdigest(_INT.pack(index), coordinate)


def content_hash(row: int, columns: Iterable[bytes | None]) -> int:
    """The digest of a row's contents, from the row's hash and its columns' UTF-8 text or bytes (None for null)."""
    return xxhash.xxh64_intdigest(content_text(columns), row)


def source_hash(
    coordinate: int, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> int:
    """The digest of a message as it was read, from the coordinate's hash."""
    found = coordinate
    for part in (key, value):
        found = xxhash.xxh64_intdigest(_INT.pack(-1 if part is None else len(part)), found)
        found = found if part is None else xxhash.xxh64_intdigest(part, found)
    for name, content in headers:
        found = xxhash.xxh64_intdigest(name.encode(), found)
        found = found if content is None else xxhash.xxh64_intdigest(content, found)
    return found


def content_text(columns: Iterable[bytes | None]) -> bytes:
    return b"".join(NULL_COLUMN if text is None else b"%d:%b" % (len(text), text) for text in columns)


def unsigned(signed: int) -> int:
    """A 64-bit hash as Spark shows it (signed), made unsigned."""
    return signed & 0xFFFF_FFFF_FFFF_FFFF
