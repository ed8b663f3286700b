"""The 64-bit hashes of coordinates, rows and contents, specified to the byte.

The function is XXH64. In a chain of values, the hash so far is the seed of the next value. The first seed is 42:

    coordinate   topic as UTF-8, incarnation as int32, partition as int32, offset as int64     (little-endian)
    row          the coordinate, then the index of the row in its message as int32
    content      the row, then which of its columns are null, then each column that is not, by its type
    source       the coordinate, then the length of the key as int32 and the key, the length of the value as int32 and the
                 value (for null: -1, and nothing), then for each header its name as UTF-8 and its value; where the value is
                 null, -1 as int32, which begins no UTF-8, and the name alone

Spark's `xxhash64(topic, incarnation, partition, offset, ...)` computes the same, so both sides agree without sharing
code (`tests/unit/test_hashing.py` holds the vectors). Hashes are unsigned here; Spark shows them signed.

Which columns are null is an int64 for each 64 columns, in the order of the stream file. Its lowest bit is the first column;
a bit is set for a null. The columns are hashed by their types:

    string     UTF-8                                  integer    int64
    binary     its bytes                              timestamp  microseconds since 1970, UTC, as int64
    boolean    int32: 1 for true, 0 for false         double     its 64 bits by IEEE 754 as int64; -0.0 as 0.0, one NaN

`tidemark.types.digests` says what the other types have here.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence

import xxhash

from tidemark.offsets.ranges import TopicPartition

# Columns whose nulls are told by one number.
NULL_BITS = 64
# A column's value: text or bytes, or a whole number, a double or a boolean. A time is its microseconds.
Value = bytes | int | float | bool | None

_SPARK_SEED = 42
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_DOUBLE = struct.Struct("<d")
_NAN = struct.pack("<Q", 0x7FF8_0000_0000_0000)


def partition_seed(partition: TopicPartition) -> int:
    """The part of the coordinate's hash that all offsets of a partition share."""
    seed = xxhash.xxh64_intdigest(partition.topic.encode(), _SPARK_SEED)
    seed = xxhash.xxh64_intdigest(_INT.pack(partition.incarnation), seed)
    return xxhash.xxh64_intdigest(_INT.pack(partition.partition), seed)


def coordinate_hash(partition: TopicPartition, offset: int) -> int:
    """The ack value of one message: 64 bits, unsigned."""
    return offset_hash(partition_seed(partition), offset)


def offset_hash(seed: int, offset: int) -> int:
    """`coordinate_hash` from a `partition_seed`: for many offsets of one partition."""
    return xxhash.xxh64_intdigest(_LONG.pack(offset), seed)


def row_hash(coordinate: int, index: int) -> int:
    """The ack value of one row: the hash of (coordinate, index), from the coordinate's hash."""
    return xxhash.xxh64_intdigest(_INT.pack(index), coordinate)


def content_hash(row: int, columns: Sequence[Value]) -> int:
    """The digest of a row's contents, from the row's hash and its columns in their types: text as UTF-8."""
    digest = row
    for start in range(0, len(columns), NULL_BITS):
        nulls = sum(1 << bit for bit, value in enumerate(columns[start : start + NULL_BITS]) if value is None)
        digest = xxhash.xxh64_intdigest(nulls.to_bytes(8, "little"), digest)
    for value in columns:
        if value is not None:
            digest = xxhash.xxh64_intdigest(_bytes(value), digest)
    return digest


def _bytes(value: bytes | int | float | bool) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return _INT.pack(value)
    if isinstance(value, int):
        return _LONG.pack(value)
    return _NAN if math.isnan(value) else _DOUBLE.pack(value or 0.0)


def source_hash(
    coordinate: int, key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()
) -> int:
    """The digest of a message as it was read, from the coordinate's hash."""
    digest = coordinate
    for part in (key, value):
        digest = xxhash.xxh64_intdigest(_INT.pack(-1 if part is None else len(part)), digest)
        digest = digest if part is None else xxhash.xxh64_intdigest(part, digest)
    for name, content in headers:
        digest = digest if content is not None else xxhash.xxh64_intdigest(_INT.pack(-1), digest)
        digest = xxhash.xxh64_intdigest(name.encode(), digest)
        digest = digest if content is None else xxhash.xxh64_intdigest(content, digest)
    return digest


def unsigned(signed: int) -> int:
    """A 64-bit hash as Spark shows it (signed), made unsigned."""
    return signed & 0xFFFF_FFFF_FFFF_FFFF
