"""The part of a row's digest for a value, to the byte: see `tidemark.offsets.hashing` for the chain of a row's fields.

A field's part of the chain, where it is not null:

    string, binary            UTF-8, or its bytes
    boolean                   int32: 1 for true, 0 for false
    integers of any size      int64
    float, double             its 64 bits by IEEE 754 as a double, as int64; -0.0 as 0.0, one NaN
    date                      days since 1970 as int64
    timestamp, timestamp_ntz  microseconds since 1970 (on the clock that it shows) as int64
    decimal(p,s)              the unscaled value, as the fewest bytes of a two's complement, big-endian
    array, map, struct        its canonical bytes, below

So a wider integer, a double for a float and a larger p have the digests of before. A larger s, or a decimal for an integer,
has others. Canonical bytes of a value: 00 for null; otherwise 01, and by its type (numbers are big-endian)

    boolean                   1 byte
    integers, date, times     8 bytes, as above
    float, double             8 bytes: XXH64 of its 64 bits, with the seed 42
    decimal(p,s)              s in 1 byte, then 8 bytes: XXH64 of the bytes above, with the seed 42
    string, binary            its length in 4 bytes, then the bytes
    array                     the number of elements in 4 bytes, then the canonical bytes of each
    struct                    the canonical bytes of each member, in their order, without names
    map                       the number of entries in 4 bytes, then of each entry those of key and value; sorted as bytes

Spark's own hash of an array or struct skips nulls, so that [1, null] and [null, 1] would be the same, and it has none of a map.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import xxhash

from tidemark.offsets.hashing import Value
from tidemark.types.ddl import Type
from tidemark.types.fields import INTEGERS, NESTED, FieldType, type_of

_SEED = 42
_LONG, _LENGTH, _HASH = struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">Q")
_DOUBLE = struct.Struct("<d")
_NAN = struct.pack("<Q", 0x7FF8_0000_0000_0000)
_NULL, _THERE = b"\0", b"\1"
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MICROSECOND = timedelta(microseconds=1)


def digested(kind: FieldType, value: Any) -> Value:
    """A field's value as `content_hash` takes it.

    Values are Python's own, as Arrow gives them. Days and microseconds since 1970 stand for dates and times too, which may
    be beyond what Python's can hold.
    """
    if value is None:
        return None
    of = type_of(kind)
    if of.name in NESTED:
        return canonical(of, value)
    if of.name == "decimal":
        return unscaled(value, of.scale)
    if of.name == "string":
        return _bytes(value)
    if of.name == "date":
        return _days(value)
    if of.name in ("timestamp", "timestamp_ntz"):
        return _microseconds(value)
    number: bytes | int | float | bool = value
    return number


def canonical(of: Type, value: Any) -> bytes:
    """The canonical bytes of a value, which may be null."""
    return _NULL if value is None else _THERE + _body(of, value)


def unscaled(value: Decimal, scale: int) -> bytes:
    """The unscaled value of a decimal, as Java's `BigInteger.toByteArray`. Raises ValueError where digits would be lost."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is no decimal")
    number: int = int("".join(map(str, digits)))
    shift = exponent + scale
    power: int = 10 ** abs(shift)
    if shift < 0 and number % power:
        raise ValueError(f"{value} has more than {scale} digits behind the point")
    number = number * power if shift >= 0 else number // power
    number = -number if sign else number
    length = ((number if number >= 0 else ~number).bit_length() + 8) // 8
    return number.to_bytes(length, "big", signed=True)


def _body(of: Type, value: Any) -> bytes:
    name = of.name
    if of.of is not None:
        return _map(of.of, value) if name == "map" else _counted([canonical(of.of, one) for one in value])
    if name == "struct":
        return b"".join(canonical(one.type, value[one.name]) for one in of.members)
    if name in ("string", "binary"):
        content = _bytes(value)
        return _LENGTH.pack(len(content)) + content
    if name == "boolean":
        return bytes([value])
    if name in INTEGERS:
        return _LONG.pack(value)
    if name in ("float", "double"):
        return _hashed(_NAN if math.isnan(value) else _DOUBLE.pack(value or 0.0))
    if name == "date":
        return _LONG.pack(_days(value))
    if name in ("timestamp", "timestamp_ntz"):
        return _LONG.pack(_microseconds(value))
    if name == "decimal":
        return bytes([of.scale]) + _hashed(unscaled(value, of.scale))
    raise AssertionError(of)


def _map(of: Type, value: Any) -> bytes:
    entries = value.items() if isinstance(value, Mapping) else value
    return _counted(sorted(_THERE + _body(_KEY, key) + canonical(of, one) for key, one in entries))


_KEY = Type("string")


def _counted(parts: list[bytes]) -> bytes:
    return _LENGTH.pack(len(parts)) + b"".join(parts)


def _hashed(content: bytes) -> bytes:
    return _HASH.pack(xxhash.xxh64_intdigest(content, _SEED))


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _days(value: date | int) -> int:
    return value if isinstance(value, int) else value.toordinal() - _EPOCH_DAY


def _microseconds(value: datetime | int) -> int:
    if isinstance(value, int):
        return value
    epoch = datetime(1970, 1, 1, tzinfo=UTC if value.tzinfo is not None else None)
    return (value - epoch) // _MICROSECOND
