"""Whether the rows of a user's function have the stream's fields, each with its type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

from tidemark.types.ddl import Type
from tidemark.types.fields import FieldType, type_of

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_FLOAT = struct.Struct("<f")


class TypeMismatch(Exception):
    """Raised for a result that does not fit the stream's fields. Its text says why the message is invalid."""


def checked(rows: Sequence[Any], fields: Mapping[str, FieldType]) -> list[tuple[Any, ...]]:
    """The fields of each row, in their order and as Arrow takes them. Raises Unfit."""
    return [_row(row, fields) for row in rows]


def _row(row: Any, fields: Mapping[str, FieldType]) -> tuple[Any, ...]:
    if not isinstance(row, Mapping):
        raise TypeMismatch(f"the function gave {type(row).__name__}, not a mapping of fields")
    values = []
    for name, kind in fields.items():
        if name not in row:
            raise TypeMismatch(f"{name} is missing")
        value = row[name]
        values.append(_value(name, value, type_of(kind)))
    if len(row) > len(fields):
        others = sorted(str(name) for name in row if name not in fields)
        raise TypeMismatch(f"{others[0]} is not a field of the stream")
    return tuple(values)


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _not(name, "a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TypeMismatch(f"{name} is not text that UTF-8 can hold") from None
    return value


def _integer(name: str, value: object, bits: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _not(name, "an integer", value)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise TypeMismatch(f"{name} does not fit in {bits} bits")
    return int(value)


def _double(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _not(name, "a number", value)
    try:
        return float(value)
    except OverflowError:
        raise TypeMismatch(f"{name} is too large for a double") from None


def _float(name: str, value: object) -> float:
    number = _double(name, value)
    try:
        return float(_FLOAT.unpack(_FLOAT.pack(number))[0])
    except OverflowError:
        raise TypeMismatch(f"{name} is too large for a float") from None


def _decimal(name: str, value: object, kind: Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        # A float has other digits than its text: decimal.Decimal(str(number)) says which are meant.
        raise _not(name, "a decimal.Decimal", value)
    exactly = Context(prec=kind.precision, traps=[Inexact, InvalidOperation])
    try:
        number = exactly.quantize(Decimal(value), Decimal((0, (1,), -kind.scale)))
    except (Inexact, InvalidOperation):
        raise TypeMismatch(f"{name} does not fit in {kind}") from None
    if number.is_nan():
        raise TypeMismatch(f"{name} does not fit in {kind}")
    return number


def _boolean(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise _not(name, "a boolean", value)
    return value


def _timestamp(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise _not(name, "a time", value)
    # A zone may have no offset. Python would take the machine's zone then.
    if value.utcoffset() is None:
        raise TypeMismatch(f"{name} is a time without a zone")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise TypeMismatch(f"{name} is not a time of the years 1 to 9999 in UTC") from None


def _timestamp_ntz(name: str, value: object) -> datetime:
    if not isinstance(value, datetime):
        raise _not(name, "a time", value)
    if value.tzinfo is not None:
        raise TypeMismatch(f"{name} is a time with a zone")
    return value


def _date(name: str, value: object) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _not(name, "a date", value)
    return value


def _binary(name: str, value: object) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _not(name, "bytes", value)
    return bytes(value)


def _not(name: str, expected: str, value: object) -> TypeMismatch:
    return TypeMismatch(f"{name} is not {expected} but {type(value).__name__}")


_FLAT: Mapping[str, Callable[[str, object], Any]] = {
    "string": _string,
    "float": _float,
    "double": _double,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp_ntz,
    "binary": _binary,
}


def _value(name: str, value: object, kind: Type) -> Any:
    if value is None:
        return None
    if kind.name in _BITS:
        return _integer(name, value, _BITS[kind.name])
    if kind.name == "decimal":
        return _decimal(name, value, kind)
    if kind.of is not None and kind.name == "array":
        return _array(name, value, kind.of)
    if kind.of is not None:
        return _map(name, value, kind.of)
    return _struct(name, value, kind) if kind.name == "struct" else _FLAT[kind.name](name, value)


def _array(name: str, value: object, of: Type) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _not(name, "a list", value)
    return [_value(f"{name}[]", element, of) for element in value]


def _map(name: str, value: object, of: Type) -> list[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        raise _not(name, "a mapping", value)
    return [(_string(f"a key of {name}", key), _value(f"{name}{{}}", element, of)) for key, element in value.items()]


def _struct(name: str, value: object, kind: Type) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _not(name, "a mapping of its members", value)
    names = [member.name for member in kind.members]
    if wrong := [name for name in names if name not in value]:
        raise TypeMismatch(f"{name}.{wrong[0]} is missing")
    if others := sorted(str(name) for name in value if name not in names):
        raise TypeMismatch(f"{name}.{others[0]} is not a member of {name}")
    return {member.name: _value(f"{name}.{member.name}", value[member.name], member.type) for member in kind.members}
