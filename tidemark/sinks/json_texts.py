"""Arrays, maps and structs as the JSON that Spark writes into HBase, and back to the values that digests are made of.

Numbers are JSON numbers, except for NaN and Infinity; a decimal has all its digits. Dates are `2026-11-27`, times
`2026-11-27T01:02:03.456789Z` (without the Z if they have no zone), bytes are base64. Each member of a struct is there,
even where it is null.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tidemark.sinks.double_texts import as_float, double_text, float_text, is_double_text
from tidemark.sinks.time_texts import date_of, date_text, micros_of, time_text
from tidemark.types.ddl import Type
from tidemark.types.fields import INTEGERS

_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
# What Spark's writer of JSON escapes; all else stands for itself.
_ESCAPED = re.compile(r'["\\\x00-\x1f]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_TIME = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)T(\d\d:\d\d:\d\d)\.(\d{6})")


class _Number(str):
    """A number as it stands in JSON."""


def json_text(of: Type, value: Any) -> str:
    """A value as Spark's JSON. Times are microseconds since 1970, dates are days."""
    if value is None:
        return "null"
    if isinstance(value, _Number):
        return value
    if of.name == "array" and of.of is not None:
        element = of.of
        return f"[{','.join(json_text(element, one) for one in value)}]"
    if of.of is not None:
        entries = value.items() if isinstance(value, Mapping) else value
        return _object((key, json_text(of.of, one)) for key, one in entries)
    if of.name == "struct":
        return _object((member.name, json_text(member.type, value[member.name])) for member in of.members)
    return _FLAT[of.name](value)


def value_of_json(of: Type, text: str) -> Any:
    """The value that a text of `json_text` says. Raises ValueError for another text."""
    try:
        read = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_refused, object_pairs_hook=list)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if json_text(of, _checked(of, read)) != text:
        raise ValueError(f"not the JSON of {of}")
    return _value(of, read)


def _object(members: Any) -> str:
    return "{" + ",".join(f"{_quoted(name)}:{text}" for name, text in members) + "}"


def _quoted(text: str) -> str:
    return '"' + _ESCAPED.sub(lambda one: _SHORT.get(one[0]) or f"\\u{ord(one[0]):04X}", text) + '"'


def _floating(text_of: Callable[[float], str]) -> Callable[[float], str]:
    return lambda value: text_of(value) if value - value == 0 else _quoted(text_of(value))


_FLAT: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(INTEGERS, str),
    "string": _quoted,
    "float": _floating(float_text),
    "double": _floating(double_text),
    "decimal": str,
    "boolean": lambda value: "true" if value else "false",
    "date": lambda value: _quoted(date_text(value)),
    "timestamp": lambda value: _quoted(_iso(value) + "Z"),
    "timestamp_ntz": lambda value: _quoted(_iso(value)),
    "binary": lambda value: _quoted(base64.b64encode(value).decode()),
}


def _iso(microseconds: int) -> str:
    day, _, clock = time_text(microseconds).partition(" ")
    seconds, _, fraction = clock.partition(".")
    return f"{day}T{seconds}.{fraction.ljust(6, '0')}"


def _checked(of: Type, read: Any) -> Any:
    """A read value as `json_text` takes it, numbers as they stand there. Raises ValueError where the kinds differ."""
    return _made(of, read, as_they_stand=True)


def _value(of: Type, read: Any) -> Any:
    return _made(of, read, as_they_stand=False)


def _made(of: Type, read: Any, *, as_they_stand: bool) -> Any:
    if read is None:
        return None
    if of.name == "array" and of.of is not None:
        element = of.of
        return [_made(element, one, as_they_stand=as_they_stand) for one in _of(read, list)]
    if of.of is not None:
        return [(key, _made(of.of, one, as_they_stand=as_they_stand)) for key, one in _pairs(read)]
    if of.name == "struct":
        pairs = _pairs(read)
        if [name for name, _ in pairs] != [member.name for member in of.members]:
            raise ValueError(f"not the members of {of}")
        return {
            member.name: _made(member.type, one, as_they_stand=as_they_stand)
            for member, (_, one) in zip(of.members, pairs, strict=True)
        }
    return _flat(of, read, as_they_stand=as_they_stand)


def _flat(of: Type, read: Any, *, as_they_stand: bool) -> Any:  # noqa: C901  (a case for each type)
    match of.name:
        case "boolean":
            if not isinstance(read, bool):
                raise ValueError("not a boolean")
            return read
        case "tinyint" | "smallint" | "int" | "bigint":
            return int(_of(read, _Number))
        case "decimal":
            decimal = Decimal(_of(read, _Number))
            if decimal.as_tuple().exponent != -of.scale:
                raise ValueError(f"not a {of}")
            return decimal
        case "float" | "double":
            if not isinstance(read, _Number):
                return _NO_NUMBERS[read] if read in _NO_NUMBERS else _refused(str(read))
            if not is_double_text(read):
                raise ValueError(f"{read} is not as Spark writes it")
            return read if as_they_stand else float(read) if of.name == "double" else as_float(float(read))
        case "binary":
            return base64.b64decode(_of(read, str), validate=True)
        case "date":
            return date_of(_of(read, str))
        case "timestamp" | "timestamp_ntz":
            parts = _TIME.fullmatch(_of(read, str).removesuffix("Z"))
            if parts is None:
                raise ValueError("not a time")
            return micros_of(f"{parts[1]} {parts[2]}.{parts[3]}")
    return _of(read, str)


def _of(read: Any, kind: type) -> Any:
    if not isinstance(read, kind) or (kind is str and isinstance(read, _Number)):
        raise ValueError(f"{read!r} is of another kind")
    return read


def _pairs(read: Any) -> list[tuple[str, Any]]:
    """The members of an object. An array is a list too, but not of pairs with a text first."""
    if isinstance(read, list) and all(isinstance(one, tuple) for one in read):
        return read
    raise ValueError("not an object")


def _refused(text: str) -> Any:
    raise ValueError(f"{text} is no number")
