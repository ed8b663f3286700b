"""JSON objects: their keys are the fields. What has several types is kept as JSON, and so is what differs within objects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
_MAX_FIELDS, _RARE = 200, 0.01
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


def unnamed(values: Sequence[bytes], keys: Collection[str], fields: Collection[str]) -> dict[str, Column]:
    """The keys of JSON objects that are not among `keys`, as fields. VARIANT: of several types, at some depth.

    Rare keys are left out, as in a draft. No field has the name of one of `fields`, in whatever case.
    """
    objects = [object_ for value in values if isinstance(object_ := json_in(value), dict)]
    given = {
        key: found
        for key in _keys(objects)
        if key not in keys and (found := [object_[key] for object_ in objects if object_.get(key) is not None])
    }
    return {key: _column(name, json_type(given[key]), given[key]) for key, name in _named(given, fields).items()}


def json_format(values: Sequence[bytes]) -> Format:
    """The scheme `json` for some values, of which most are objects."""
    objects = [object_ for value in values if isinstance(object_ := json_in(value), dict)]
    given = {name: [object_[name] for object_ in objects if object_.get(name) is not None] for name in _keys(objects)}
    types = {name: json_type(values) for name, values in given.items()}
    if mixed := any(has_variant(kind) for kind in types.values()):
        # A schema in DDL has no other names for keys.
        spellings = {name.lower(): name for name in reversed([*types])}
        types = {name: kind for name, kind in types.items() if is_field_name(name) and spellings[name.lower()] == name}
    others = list(dict.fromkeys(name for object_ in objects for name in object_ if name not in types))
    if mixed and others:
        types = {name: kind for name, kind in types.items() if name.lower() != UNKNOWN}
        others = list(dict.fromkeys(name for object_ in objects for name in object_ if name not in types))
    if not types:
        return Format("JSON objects", {"type": "string"}, no_text, notes=("no key can be the name of a field",))
    names = _named(types, [UNKNOWN] if others else [])
    fields = {name: text_of(kind) for name, kind in types.items()}
    typed = {names[name]: typed_as(names[name], name, kind) for name, kind in fields.items()}
    scheme: dict[str, Any] = {"type": "json", "fields": typed}
    if mixed:
        # Between backticks a name may be any word of SQL.
        scheme = {"type": "json", "schema": ",\n".join(f"`{name}` {ddl_of(kind)}" for name, kind in fields.items())}
    if others:
        scheme["unknown"] = "keep"

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
    return Format("JSON objects", scheme, refusal, shown, notes=tuple(_notes(fields, others)))


def _notes(fields: Mapping[str, str], others: Sequence[str]) -> Iterator[str]:
    """What to say of the types of keys, and of the keys that have no field."""
    if others:
        kept = number_of(len(others), "key", "has no field of its own, and is", "have no field of their own, and are")
        yield f"{kept} kept in `unknown`: {some(others)}"
    spellings = Counter(key.lower() for key in fields)
    if twins := [key for key in fields if spellings[key.lower()] > 1]:
        yield f"keys that differ in case alone, of which each is a field of its own: {some(twins)}"
    if any("struct<" in kind for kind in fields.values()):
        yield "a struct has the keys that it names: others within it are passed over"


def _column(name: str, kind: Type, values: Sequence[Any]) -> Column:
    return Column(name, text_of(kind), len(values), example(values, lambda value: misfit(value, kind, name) is None))


def _named(keys: Iterable[str], taken: Iterable[str] = ()) -> dict[str, str]:
    """The fields' names. Spark's columns have one name in whatever case, and JSON's keys do not."""
    return named(keys, taken, any_case=True)


def _keys(objects: Sequence[dict[str, Any]]) -> list[str]:
    """The keys that become fields, in the order of the messages."""
    counts = Counter(name for object_ in objects for name in object_)
    usual = {name for name, number in counts.most_common(_MAX_FIELDS) if number >= _RARE * len(objects)}
    return [*_named(name for name in counts if name in usual)]
