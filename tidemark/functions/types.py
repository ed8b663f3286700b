"""Whether the rows of a user's function have the stream's fields, each with its type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

# The types that a field of a row can have.
FieldType = Literal["string", "integer", "double", "timestamp", "boolean", "binary"]

_MOST_INTEGER = 2**63


class Unfit(Exception):
    """Raised for a result that does not fit the stream's fields. Its text says why the message is invalid."""


def checked(rows: Sequence[Any], fields: Mapping[str, FieldType]) -> list[tuple[Any, ...]]:
    """The fields of each row, in their order and as Arrow takes them. Raises Unfit."""
    return [_row(row, fields) for row in rows]


def _row(row: Any, fields: Mapping[str, FieldType]) -> tuple[Any, ...]:
    if not isinstance(row, Mapping):
        raise Unfit(f"the function gave {type(row).__name__}, not a mapping of fields")
    found = []
    for name, kind in fields.items():
        if name not in row:
            raise Unfit(f"{name} is missing")
        value = row[name]
        found.append(None if value is None else _TYPES[kind](name, value))
    if len(row) > len(fields):
        others = sorted(str(name) for name in row if name not in fields)
        raise Unfit(f"{others[0]} is not a field of the stream")
    return tuple(found)


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _not(name, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unfit(f"{name} is not text that UTF-8 can hold") from None
    return value


def _integer(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _not(name, "an integer", value)
    if not -_MOST_INTEGER <= value < _MOST_INTEGER:
        raise Unfit(f"{name} does not fit in 64 bits")
    return int(value)


def _double(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _not(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise Unfit(f"{name} is too large for a double") from None


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _not(name, "a boolean", value)
    return value


def _timestamp(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise _not(name, "a time", value)
    if value.tzinfo is None:
        raise Unfit(f"{name} is a time without a zone")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Unfit(f"{name} is not a time of the years 1 to 9999 in UTC") from None


def _binary(name: str, value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _not(name, "bytes", value)
    return bytes(value)


def _not(name: str, expected: str, value: object) -> Unfit:
    return Unfit(f"{name} is not {expected} but {type(value).__name__}")


_TYPES: Mapping[FieldType, Callable[[str, object], Any]] = {
    "string": _string,
    "integer": _integer,
    "double": _double,
    "boolean": _boolean,
    "timestamp": _timestamp,
    "binary": _binary,
}
