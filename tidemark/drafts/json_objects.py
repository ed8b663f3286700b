"""JSON objects: their keys are the fields. What has several types is kept as JSON, and so is what differs within objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from tidemark.drafts.columns import VARIANT, Column, WrittenNumber
from tidemark.drafts.format import Format, example, is_field_name, named, no_text, some, typed_as
from tidemark.drafts.json_types import ddl_of, json_type, misfit
from tidemark.offsets.counting import number_of
from tidemark.schemes.json_depth import TOO_DEEP, too_deep
from tidemark.schemes.kinds import UNKNOWN
from tidemark.types.ddl import Type
from tidemark.types.fields import has_variant, text_of

# As many fields as a person can read through. Those rarer than one message in a hundred go to `unknown`.
_MOST_FIELDS, _RARE = 200, 0.01
_AS_JSON = "string, as JSON"


class _Twice(ValueError):
    pass


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Twice(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return fields


def _no_json(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _number(text: str) -> int | float:
    # A number of thousands of digits is a number, and Python would not read it as an integer.
    return int(text) if len(text) < 21 else WrittenNumber(text)


_JSON = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_no_json, parse_int=_number, parse_float=WrittenNumber)


def _parsed(value: bytes) -> Any:
    """Raises ValueError with the reason."""
    if too_deep(value):
        raise ValueError(TOO_DEEP)
    try:
        return _JSON.decode(value.decode())
    except _Twice as problem:
        raise ValueError(f"the key {str(problem)!r} occurs twice") from None
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None


def json_in(value: bytes) -> Any:
    """The JSON of a message; None if it is not JSON."""
    try:
        return _parsed(value)
    except ValueError:
        return None


def objects_in(value: bytes) -> list[bytes] | None:
    """The elements of a JSON array of objects, as they stand in it; None for anything else."""
    parsed = json_in(value)
    if not isinstance(parsed, list) or not parsed or not all(isinstance(element, dict) for element in parsed):
        return None
    text, pieces, at = value.decode(), [], 0
    for _ in parsed:
        # No brace stands between two objects.
        start = text.index("{", at)
        _, at = _JSON.raw_decode(text, start)
        pieces.append(text[start:at].encode())
    return pieces


def unnamed(values: Sequence[bytes], named: Collection[str]) -> list[Column]:
    """The keys of JSON objects that are not among the named ones, as fields. VARIANT: of several types, at some depth.

    Left out are rare keys, and those that differ from a named one in case alone, as in a draft.
    """
    objects = [object_ for value in values if isinstance(object_ := json_in(value), dict)]
    taken = {name.lower() for name in named}
    columns = []
    for name in filter(is_field_name, _keys(objects)):
        given = [object_[name] for object_ in objects if object_.get(name) is not None]
        if name.lower() not in taken and given:
            columns.append(_column(name, json_type(given), given))
    return columns


def json_format(values: Sequence[bytes]) -> Format:
    """The scheme `json` for some values, of which most are objects."""
    objects = [object_ for value in values if isinstance(object_ := json_in(value), dict)]
    given = {name: [object_[name] for object_ in objects if object_.get(name) is not None] for name in _keys(objects)}
    types = {name: json_type(values) for name, values in given.items()}
    if mixed := any(has_variant(kind) for kind in types.values()):
        # A schema in DDL has no other names for keys.
        types = {name: kind for name, kind in types.items() if is_field_name(name)}
    others = list(dict.fromkeys(name for object_ in objects for name in object_ if name not in types))
    if mixed and others:
        types = {name: kind for name, kind in types.items() if name.lower() != UNKNOWN}
        others = list(dict.fromkeys(name for object_ in objects for name in object_ if name not in types))
    if not types:
        return Format("JSON objects", {"type": "string"}, no_text, notes=("no key can be the name of a field",))
    names = named(types, [UNKNOWN] if others else [])
    fields = {name: text_of(kind) for name, kind in types.items()}
    typed = {names[name]: typed_as(names[name], name, kind) for name, kind in fields.items()}
    scheme: dict[str, Any] = {"type": "json", "fields": typed}
    if mixed:
        # Between backticks a name may be any word of SQL.
        scheme = {"type": "json", "schema": ",\n".join(f"`{name}` {ddl_of(kind)}" for name, kind in fields.items())}
    notes: tuple[str, ...] = ()
    if others:
        scheme["unknown"] = "keep"
        kept = number_of(len(others), "key", "has no field of its own, and is", "have no field of their own, and are")
        notes = (f"{kept} kept in `unknown`: {some(others)}",)
    if any("struct<" in kind for kind in fields.values()):
        notes = (*notes, "a struct has the keys that it names: others within it are passed over")

    def refusal(value: bytes) -> str | None:
        try:
            parsed = _parsed(value)
        except ValueError as problem:
            return str(problem)
        if not isinstance(parsed, dict):
            return "not a JSON object"
        return next(
            (why for name, kind in types.items() if (why := misfit(parsed.get(name), kind, names[name])) is not None),
            None,
        )

    columns = [_column(names[name], kind, given[name]) for name, kind in types.items()]
    shown = tuple(replace(one, type=_AS_JSON) if one.type == VARIANT else one for one in columns)
    return Format("JSON objects", scheme, refusal, shown, notes=notes)


def _column(name: str, kind: Type, values: Sequence[Any]) -> Column:
    return Column(name, text_of(kind), len(values), example(values, lambda value: misfit(value, kind, name) is None))


def _keys(objects: Sequence[dict[str, Any]]) -> list[str]:
    """The keys that become fields, in the order of the messages. If some differ only in case, the most frequent."""
    counts = Counter(name for object_ in objects for name in object_)
    spellings: dict[str, str] = {}
    for name, number in counts.most_common():
        if number >= _RARE * len(objects) and len(spellings) < _MOST_FIELDS:
            spellings.setdefault(name.lower(), name)
    return [*named(name for name in counts if spellings.get(name.lower()) == name)]
