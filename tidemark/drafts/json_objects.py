"""JSON objects: their keys are the fields, and what has several types, or is nested, is kept as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any

from tidemark.drafts.columns import OF_JSON, VARIANT, Column, type_of
from tidemark.drafts.format import A_VALUE, Format, example, is_field_name, no_text, some
from tidemark.offsets.counting import number_of
from tidemark.schemes.json_depth import TOO_DEEP, too_deep
from tidemark.schemes.kinds import UNKNOWN

# As many fields as a person can read through. Those rarer than one message in a hundred go to `unknown`.
_MOST_FIELDS, _RARE = 200, 0.01
_AS_JSON = "string, as JSON"
_DDL = {
    "boolean": "BOOLEAN",
    "integer": "BIGINT",
    "double": "DOUBLE",
    "timestamp": "TIMESTAMP",
    "string": "STRING",
    VARIANT: "VARIANT",
}


class _Twice(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Twice(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return fields


def _no_json(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _parsed(value: bytes) -> Any:
    """Raises ValueError with the reason."""
    if too_deep(value):
        raise ValueError(TOO_DEEP)
    try:
        # A number of thousands of digits is a number, and Python would not read it as an integer.
        return json.loads(value.decode(), object_pairs_hook=_once, parse_constant=_no_json, parse_int=_number)
    except _Twice as problem:
        raise ValueError(f"the key {str(problem)!r} occurs twice") from None
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None


def _number(text: str) -> int | float:
    return int(text) if len(text) < 21 else float(text)


def json_in(value: bytes) -> Any:
    """The JSON of a message; None if it is not JSON."""
    try:
        return _parsed(value)
    except ValueError:
        return None


def objects_in(value: bytes) -> list[bytes] | None:
    """The elements of a JSON array of objects; None for anything else."""
    parsed = json_in(value)
    if not isinstance(parsed, list) or not parsed or not all(isinstance(element, dict) for element in parsed):
        return None
    return [json.dumps(element).encode() for element in parsed]


def unnamed(values: Sequence[bytes], named: Collection[str]) -> list[Column]:
    """The keys of JSON objects that are not among the named ones, as fields. VARIANT: of several types, or nested.

    Left out are rare keys, and those that differ from a named one in case alone, as in a draft.
    """
    objects = [object_ for value in values if isinstance(object_ := json_in(value), dict)]
    taken = {name.lower() for name in named}
    columns = []
    for name in _fields(objects):
        given = [object_[name] for object_ in objects if object_.get(name) is not None]
        if name.lower() not in taken and given:
            kind = type_of(given, OF_JSON, VARIANT)
            columns.append(Column(name, kind, len(given), example(given, dict(OF_JSON).get(kind))))
    return columns


def json_format(values: Sequence[bytes]) -> Format:
    """The scheme `json` for some values, of which most are objects."""
    objects = [object_ for value in values if isinstance(object_ := json_in(value), dict)]
    given = {name: [object_[name] for object_ in objects if object_.get(name) is not None] for name in _fields(objects)}
    if not given:
        return Format("JSON objects", {"type": "string"}, no_text, notes=("no key can be the name of a field",))
    types = {name: type_of(texts, OF_JSON, VARIANT) for name, texts in given.items()}
    tests = dict(OF_JSON)
    scheme: dict[str, Any] = {"type": "json", "fields": types}
    if VARIANT in types.values():
        # Between backticks a name may be any word of SQL.
        scheme = {"type": "json", "schema": ",\n".join(f"`{name}` {_DDL[kind]}" for name, kind in types.items())}
    others = list(dict.fromkeys(name for object_ in objects for name in object_ if name not in types))
    notes: tuple[str, ...] = ()
    if others and UNKNOWN not in map(str.lower, types):
        scheme["unknown"] = "keep"
        kept = number_of(len(others), "key", "has no field of its own, and is", "have no field of their own, and are")
        notes = (f"{kept} kept in `unknown`: {some(others)}",)

    def refusal(value: bytes) -> str | None:
        try:
            parsed = _parsed(value)
        except ValueError as problem:
            return str(problem)
        if not isinstance(parsed, dict):
            return "not a JSON object"
        for name, kind in types.items():
            if kind != VARIANT and parsed.get(name) is not None and not tests[kind](parsed[name]):
                return f"{name} is not {A_VALUE[kind]}"
        return None

    columns = tuple(
        Column(name, _AS_JSON if kind == VARIANT else kind, len(given[name]), example(given[name], tests.get(kind)))
        for name, kind in types.items()
    )
    return Format("JSON objects", scheme, refusal, columns, notes=notes)


def _fields(objects: Sequence[dict[str, Any]]) -> list[str]:
    """The keys that become fields, in the order of the messages. If some differ only in case, the most frequent."""
    counts = Counter(name for object_ in objects for name in object_ if is_field_name(name))
    spellings: dict[str, str] = {}
    for name, number in counts.most_common():
        if number >= _RARE * len(objects) and len(spellings) < _MOST_FIELDS:
            spellings.setdefault(name.lower(), name)
    return [name for name in counts if spellings.get(name.lower()) == name]
