"""Rows of HBase whose key consists of fields, to the byte. All sinks by key use this layout.

    key        salt         1 byte: XXH64 of the rest modulo 16
               rest         as the sink says, with its fields in their order: for null a byte 0; otherwise a byte 1, the
                            length in 4 bytes, the bytes

All numbers are unsigned and big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import xxhash

from tidemark.errors import ProcessingFailed
from tidemark.sinks.hbase.rows import SALTS

# Half of the longest row key of HBase (32,767 bytes): leaves room for filters and tools that lengthen keys.
MAX_KEY_BYTES = 16_384

_NULL, _VALUE = b"\x00", b"\x01"
_LENGTH = struct.Struct(">I")


def encode_fields(key: Sequence[bytes | None]) -> bytes:
    return b"".join(_NULL if part is None else _VALUE + _LENGTH.pack(len(part)) + part for part in key)


def decode_fields(encoded: bytes) -> tuple[bytes | None, ...]:
    """Raises ValueError for bytes that `encode_fields` does not give."""
    fields: list[bytes | None] = []
    at = 0
    while at < len(encoded):
        if encoded[at : at + 1] == _NULL:
            fields.append(None)
            at += 1
            continue
        behind = at + 1 + _LENGTH.size
        if encoded[at : at + 1] != _VALUE or behind > len(encoded):
            raise ValueError(f"not a row of this layout: its key ends with {encoded!r}")
        at = behind + int(_LENGTH.unpack_from(encoded, at + 1)[0])
        fields.append(encoded[behind:at])
    if at != len(encoded):
        raise ValueError(f"not a row of this layout: its key ends with {encoded!r}")
    return tuple(fields)


def salted(key: bytes, whose: str, sink_type: str) -> bytes:
    """A key with its salt before it. Raises ProcessingFailed for a key of more than MAX_KEY_BYTES."""
    if len(key) > MAX_KEY_BYTES:
        raise ProcessingFailed(
            f"{whose} takes {len(key)} bytes, and {MAX_KEY_BYTES} is the most of the sink {sink_type}; "
            "make such messages dead letters with a check, or choose other fields for the key"
        )
    return _salt(key) + key


def unsalted(row: bytes) -> bytes:
    """The key of a row. Raises ValueError for a row whose salt is not that of its key."""
    if row[:1] != _salt(row[1:]):
        raise ValueError(f"not a row of this layout: {row!r}")
    return row[1:]


def _salt(key: bytes) -> bytes:
    return bytes([xxhash.xxh64_intdigest(key) % SALTS])
