"""Stored values as bytes and back: JSON with a format number; newer ones are refused, older ones migrated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tidemark.errors import LedgerUnreadable

T = TypeVar("T", bound=msgspec.Struct)

CURRENT_FORMAT = 1

# From each older format to the next one: {format: {type name: change}}. Empty until there is a second format.
MIGRATIONS: dict[int, dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {}

# Enough of a value to recognise it by, in an error.
_SHOWN_BYTES = 300


def encode(value: msgspec.Struct) -> bytes:
    """The one byte form of a value: fields in the order of their declaration, keys of maps sorted, no spaces."""
    return msgspec.json.encode(value, order="deterministic")


def decode(stored: bytes, kind: type[T], where: str) -> T:
    """The value in `stored`. Raises LedgerUnreadable, which shows the place, the reason and the value."""
    try:
        plain = msgspec.json.decode(stored)
        found = plain.get("format") if isinstance(plain, dict) else None
        if type(found) is not int:
            raise msgspec.ValidationError("it has no format number")
        if found > CURRENT_FORMAT:
            raise LedgerUnreadable(
                f"{where} has format {found}; this version of Tidemark knows formats up to {CURRENT_FORMAT}. "
                "Use the version that wrote it, or a newer one. Nothing was changed."
            )
        for step in range(found, CURRENT_FORMAT):
            change = MIGRATIONS.get(step, {}).get(kind.__name__)
            plain = {**(change(plain) if change else plain), "format": step + 1}
        return msgspec.convert(plain, kind, strict=True)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        shown = stored[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        raise LedgerUnreadable(
            f"{where} cannot be read: {problem}. It holds {len(stored)} bytes: {shown!r}. It was left as it is; "
            "restore it from a backup of the ledger, never delete it."
        ) from problem


def digest(stored: bytes) -> str:
    """SHA-256 of a value's bytes, in hexadecimal: what the next record of a lane says of the one before."""
    return hashlib.sha256(stored).hexdigest()
