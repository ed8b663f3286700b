"""A row's fields in one cell. Each field that is not null is two netstrings, name and bytes: `4:host9:a.example`."""

from __future__ import annotations

from collections.abc import Iterable


def pack(fields: Iterable[tuple[str, bytes | None]]) -> bytes:
    """Pack fields, given as (name, bytes or None for null) in the order of the stream file."""
    packed = bytearray()
    for name, value in fields:
        if value is not None:
            encoded = name.encode()
            packed += b"%d:%b%d:%b" % (len(encoded), encoded, len(value), value)
    return bytes(packed)


def unpack(packed: bytes) -> dict[str, bytes]:
    """The fields that are not null. Raises ValueError for bytes that `pack` has not made."""
    parts = []
    at = 0
    while at < len(packed):
        colon = packed.index(b":", at)
        behind = colon + 1 + int(packed[at:colon])
        parts.append(packed[colon + 1 : behind])
        at = behind
    if at != len(packed) or len(parts) % 2:
        raise ValueError(f"not packed fields: {packed[:40]!r}")
    return {name.decode(): value for name, value in zip(parts[::2], parts[1::2], strict=True)}
