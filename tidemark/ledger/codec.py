"""Stored values as bytes and back: JSON with a format number; newer ones are refused, older ones migrated."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from tidemark.errors import LedgerUnreadable
from tidemark.ledger.records import FORMAT

T = TypeVar("T", bound=msgspec.Struct)

CURRENT_FORMAT = FORMAT

# From each older format to the next one: {format: {type name: change}}.
# 1 to 2: what was added (guarantee, accepted changes of topics, hulls of lanes) has a value that means what 1 meant.
# 2 to 3: so has what was added to receipts (blocks, digest of the fields).
# 3 to 4: so has the source digest of tallies; older ones have none.
MIGRATIONS: dict[int, dict[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {}

# Values with a format that stand inside another one: {type name: {field: its type name}}.
_HOLDS = {"Head": {"last": "Record"}}

# Enough of a value to recognise it by, in an error.
_SHOWN_BYTES = 300


def encode(value: msgspec.Struct) -> bytes:
    """The one byte form of a value: fields in the order of their declaration, keys of maps sorted, no spaces."""
    return msgspec.json.encode(value, order="deterministic")


def decode(stored: bytes, kind: type[T], where: str) -> T:
    """The value in `stored`. Raises LedgerUnreadable, which shows the place, the reason and the value."""
    try:
        formats = msgspec.json.decode(stored, type=_Formats)
        if formats.format > CURRENT_FORMAT:
            raise LedgerUnreadable(
                f"{where} has format {formats.format}; this version of Tidemark knows formats up to {CURRENT_FORMAT}. "
                "Use the version that wrote it, or a newer one. Nothing was changed."
            )
        if formats.current:
            # Straight into its type, in a tenth of the time: heads of a thousand partitions are large.
            return msgspec.json.decode(stored, type=kind)
        return msgspec.convert(_migrated(msgspec.json.decode(stored), kind.__name__), kind)
    except (msgspec.DecodeError, msgspec.ValidationError) as problem:
        shown = stored[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        raise LedgerUnreadable(
            f"{where} cannot be read: {problem}. It holds {len(stored)} bytes: {shown!r}. It was left as it is; "
            "restore it from a backup of the ledger, never delete it."
        ) from problem


class _Formats(msgspec.Struct):
    """The format of a value, and of the record that a head holds; whatever else there is is passed over."""

    format: int
    last: _Formats | None = None

    @property
    def current(self) -> bool:
        return self.format == CURRENT_FORMAT and (self.last is None or self.last.current)


def _migrated(plain: dict[str, Any], kind: str) -> dict[str, Any]:
    """A value in today's format, with the one that it holds."""
    for step in range(_format_of(plain), CURRENT_FORMAT):
        change = MIGRATIONS.get(step, {}).get(kind)
        plain = {**(change(plain) if change else plain), "format": step + 1}
    for name, held in _HOLDS.get(kind, {}).items():
        if isinstance(plain.get(name), dict):
            plain = {**plain, name: _migrated(plain[name], held)}
    return plain


def _format_of(plain: Any) -> int:
    found = plain.get("format") if isinstance(plain, dict) else None
    if type(found) is not int:
        raise msgspec.ValidationError("it has no format number")
    return found


def digest(stored: bytes) -> str:
    """SHA-256 of a value's bytes, in hexadecimal: what the next record of a lane says of the one before."""
    return hashlib.sha256(stored).hexdigest()
