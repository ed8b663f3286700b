"""Random types of fields, values of them, and the JSON that says these: for the properties of types."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

from hypothesis import strategies as st

from tidemark.types.ddl import Member, Type

AT = datetime(2026, 11, 26, 1, 2, 3, 456789, tzinfo=UTC)
# A type, a value, its canonical bytes, and their XXH64 with the seed 42: they must never change.
VECTORS: list[tuple[str, Any, str, str]] = [
    ("decimal(12,2)", Decimal("-1.10"), "01029c4925f0c2d4715d", "8cf24fe6dbc9b851"),
    ("array<int>", [1, None], "010000000201000000000000000100", "aeabf0d64644853b"),
    (
        "map<string,int>",
        {"b": 2, "a": None},
        "010000000201000000016100010000000162010000000000000002",
        "20080e149f52673c",
    ),
    (
        "array<float>",
        [math.nan, 0.10000000149011612],
        "010000000201d4974f72d7833f320106b41c810dee1d58",
        "fdee40b2e49aef94",
    ),
    (
        "struct<m: map<string, array<decimal(9,3)>>, t: timestamp>",
        {"m": [("é", [Decimal("0.001"), None])], "t": AT},
        "0101000000010100000002c3a9010000000201035c8a87f68bc4934a0001000661237dda1115",
        "9a5ca4db1b3c656d",
    ),
]

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EXACT = Context(prec=60)
_FLAT = [*_BITS, "string", "boolean", "float", "double", "date", "timestamp", "timestamp_ntz", "binary"]


@st.composite
def _decimals(draw: st.DrawFn) -> Type:
    precision = draw(st.integers(1, 38))
    return Type("decimal", precision, draw(st.integers(0, precision)))


def _nested(inner: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    members = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        inner.map(lambda of: Type("array", of=of)),
        inner.map(lambda of: Type("map", of=of)),
        members.map(
            lambda kinds: Type("struct", members=tuple(Member(f"M-{at}", one) for at, one in enumerate(kinds)))
        ),
    )


def types() -> st.SearchStrategy[Type]:
    flat = st.one_of(st.sampled_from(_FLAT).map(Type), _decimals())
    return st.recursive(flat, _nested, max_leaves=4)


def values(of: Type) -> st.SearchStrategy[Any]:
    """Values that JSON can say, and null."""
    return st.one_of(st.none(), _there(of))


def _there(of: Type) -> st.SearchStrategy[Any]:
    if of.name == "array" and of.of is not None:
        return st.lists(values(of.of), max_size=3)
    if of.of is not None:
        return st.dictionaries(st.text(max_size=3), values(of.of), max_size=3)
    if of.name == "struct":
        return st.fixed_dictionaries({one.name: values(one.type) for one in of.members})
    if of.name in _BITS:
        most = 2 ** (_BITS[of.name] - 1)
        return st.integers(-most, most - 1)
    if of.name == "decimal":
        most = 10**of.precision - 1
        return st.integers(-most, most).map(lambda number: Decimal(number).scaleb(-of.scale, _EXACT))
    return _OF[of.name]


_OF: Mapping[str, st.SearchStrategy[Any]] = {
    "string": st.text(max_size=5),
    "boolean": st.booleans(),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "binary": st.binary(max_size=4),
}


def json_of(value: Any) -> str:
    """A value as JSON, whatever its type: decimals with their digits, times in ISO 8601, bytes in base64."""
    match value:
        case Decimal():
            return f"{value:f}"
        case datetime():
            return json.dumps(value.isoformat(timespec="microseconds").replace("+00:00", "Z"))
        case date():
            return json.dumps(value.isoformat())
        case bytes():
            return json.dumps(base64.b64encode(value).decode())
        case list():
            return f"[{','.join(map(json_of, value))}]"
        case dict():
            return "{" + ",".join(f"{json.dumps(name)}:{json_of(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def plain(of: Type, value: Any) -> Any:
    """A value with the whole numbers that stand for dates and times in the texts of sinks."""
    if value is None:
        return None
    if of.name == "array" and of.of is not None:
        element = of.of
        return [plain(element, one) for one in value]
    if of.of is not None:
        return [(key, plain(of.of, one)) for key, one in value.items()]
    if of.name == "struct":
        return {one.name: plain(one.type, value[one.name]) for one in of.members}
    return _PLAIN.get(of.name, lambda one: one)(value)


_PLAIN: Mapping[str, Callable[[Any], Any]] = {
    "date": lambda at: (at - date(1970, 1, 1)).days,
    "timestamp": lambda at: _micros(at - datetime(1970, 1, 1, tzinfo=UTC)),
    "timestamp_ntz": lambda at: _micros(at - datetime(1970, 1, 1)),
}


def _micros(since: Any) -> int:
    return (since.days * 86_400 + since.seconds) * 1_000_000 + int(since.microseconds)
