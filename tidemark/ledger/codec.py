"""Stored values as bytes and back: JSON with a format number. Other formats are refused."""

from __future__ import annotations

import hashlib
import threading
from typing import Any, TypeVar

import msgspec

from tidemark.errors import LedgerUnreadable
from tidemark.ledger.records import FORMAT

T = TypeVar("T", bound=msgspec.Struct)

_DECODERS: dict[type[msgspec.Struct], msgspec.json.Decoder[Any]] = {}
_MAKING = threading.Lock()

# What earlier versions wrote and nobody needs any more, each with a field that stood beside it: numbers, null, selections.
_NO_MORE = {
    "token": {"ordinal", "least_ordinal"},
    # In a window, and in the request of a run.
    "isolation": {"named"},
    "fields": {"named"},
    # In the report of an audit, and in a comparison.
    "debris": {"unproven"},
    "index": {"keys"},
}

# The beginning of each value: `format` is the first field of all.
_THIS_FORMAT = b'{"format":%d,' % FORMAT

# Enough of a value to recognise it by, in an error.
_SHOWN_BYTES = 300

# A version that adds a field need not change the format.
_NEWER = "A newer version of Tidemark may have written it: then use that version. Otherwise: "

# The errors of decoding for bytes that nobody has encoded: no UTF-8 (ValueError), too deep, numbers beyond 64 bits.
_DAMAGED = (msgspec.MsgspecError, ValueError, RecursionError, OverflowError)

# The remedy for a ledger that is not whole.
RESTORE = "Restore the ledger from a backup, into an empty place: tidemark ledger restore STREAM FILE"


def encode(value: msgspec.Struct) -> bytes:
    """The one byte form of a value: fields in the order of their declaration, keys of maps sorted, no spaces."""
    return msgspec.json.encode(value, order="deterministic")


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The decoder of a type, made by one thread alone.

    msgspec learns the fields of a type when it is first used. Two threads that do so at once end the process with a
    segmentation fault (msgspec 0.22): for the pages, that is Airflow's API server.
    """
    if kind not in _DECODERS:
        with _MAKING:
            _DECODERS[kind] = msgspec.json.Decoder(kind)
    return _DECODERS[kind]


def decode(stored: bytes, kind: type[T], where: str) -> T:
    """The value in `stored`. Raises LedgerUnreadable, which shows the place, the reason and the value."""
    try:
        # As `encode` writes it. Any other value is read once more for its format, before its other fields.
        if not stored.startswith(_THIS_FORMAT):
            _check_format(decoder(_Format).decode(stored).format, where)
        return _decoded(stored, kind)
    except _DAMAGED as problem:
        newer = _NEWER if "unknown field" in str(problem) else ""
        shown = stored[:_SHOWN_BYTES].decode("utf-8", "backslashreplace")
        raise LedgerUnreadable(
            f"{where} cannot be read: {problem}. It holds {len(stored)} bytes: {shown!r}. It was left as it is; "
            f"never delete it. {newer}{RESTORE}"
        ) from problem


def _decoded(stored: bytes, kind: type[T]) -> T:
    try:
        return decoder(kind).decode(stored)
    except msgspec.ValidationError:
        if not any(f'"{name}":'.encode() in stored for names in _NO_MORE.values() for name in names):
            raise
        return converted(_without_no_more(msgspec.json.decode(stored)), kind)


def _without_no_more(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_no_more(one) for one in value]
    if not isinstance(value, dict):
        return value
    gone = {name for beside, names in _NO_MORE.items() if beside in value for name in names}
    # A topic or a lane may have such a name.
    return {name: _without_no_more(one) for name, one in value.items() if name not in gone or not _was_written(one)}


def _was_written(value: Any) -> bool:
    return (
        value is None or isinstance(value, int) or (isinstance(value, dict) and value.keys() == {"digest", "offsets"})
    )


def _check_format(format_: int, where: str) -> None:
    if format_ < FORMAT:
        raise msgspec.ValidationError(f"format {format_}: there is no such format")
    if format_ > FORMAT:
        raise LedgerUnreadable(
            f"{where} has format {format_}; this version of Tidemark knows formats up to {FORMAT}. "
            "Use the version that wrote it, or a newer one. Nothing was changed."
        )


def decode_what_is_known(stored: bytes, kind: type[T]) -> T | None:
    """The fields that this version knows of a value on which nothing depends, whichever version wrote it.

    None for a damaged value. What the ledger depends on is decoded strictly: see `decode`.
    """
    try:
        plain = msgspec.json.decode(stored)
        known = {field.encode_name for field in msgspec.structs.fields(kind)} - {"format"}
        return converted({name: value for name, value in plain.items() if name in known}, kind)
    except (msgspec.MsgspecError, AttributeError, ValueError, RecursionError):
        return None


def converted(values: Any, kind: type[T]) -> T:
    """`msgspec.convert`, safe for threads: see `decoder`."""
    decoder(kind)
    return msgspec.convert(values, kind)


class _Format(msgspec.Struct):
    """The format of a value; all other fields are ignored. No value inside it has a newer format."""

    format: int


def digest(stored: bytes) -> str:
    """SHA-256 of a value's bytes, in hexadecimal. Each record of a lane holds the digest of the record before it."""
    return hashlib.sha256(stored).hexdigest()
