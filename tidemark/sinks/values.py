"""A field's value from the text that HBase stores for it: what digests are computed from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tidemark.offsets.hashing import Value
from tidemark.sinks.double_texts import as_float, is_double_text
from tidemark.sinks.json_texts import value_of_json
from tidemark.sinks.time_texts import date_of, date_text, micros_of, time_text
from tidemark.types.ddl import Type
from tidemark.types.digests import digested
from tidemark.types.fields import INTEGERS, NESTED, FieldType, type_of

_BOOLEANS = {"true": True, "false": False}
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d*)(?:\.(\d+))?")


def value_of(kind: FieldType, stored: bytes | None) -> Value:
    """The value of a stored text in Spark's form for its type. A text that Spark does not write is its own bytes.

    So a stored value that was damaged has another digest, even where it could be read as the same number.
    """
    if stored is None or kind in ("string", "binary"):
        return stored
    of = type_of(kind)
    try:
        return digested(kind, _value(of, stored.decode()))
    except ValueError:
        return stored


def _value(of: Type, text: str) -> Any:
    """Raises ValueError for a text that Spark does not write."""
    if of.name in NESTED:
        return value_of_json(of, text)
    if of.name == "boolean":
        return _of(_BOOLEANS.get(text), text)
    if of.name in ("float", "double"):
        number = _of(float(text) if is_double_text(text) else None, text)
        return number if of.name == "double" else as_float(number)
    if of.name == "decimal":
        return _decimal(text, of.scale)
    read, written = _WHOLE[of.name]
    value = read(text)
    return _of(value if written(value) == text and -(2**63) <= value < 2**63 else None, text)


def _decimal(text: str, scale: int) -> Decimal:
    parts = _DECIMAL.fullmatch(text)
    return _of(Decimal(text) if parts is not None and len(parts[1] or "") == scale else None, text)  # type: ignore[no-any-return]


def _of(value: Any, text: str) -> Any:
    if value is None:
        raise ValueError(f"Spark does not write {text!r}")
    return value


# How a text becomes a whole number, and a whole number a text.
_WHOLE: Mapping[str, tuple[Callable[[str], int], Callable[[int], str]]] = {
    **dict.fromkeys(INTEGERS, (int, str)),
    "date": (date_of, date_text),
    "timestamp": (micros_of, time_text),
    "timestamp_ntz": (micros_of, time_text),
}
