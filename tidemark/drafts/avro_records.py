"""Avro records in the wire format of a schema registry: their fields are those of the schemas that they name."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.clients.registry_answers import FRAME, NOT_FRAMED, number_in
from tidemark.drafts.columns import Column
from tidemark.drafts.format import Format, example, field_names, some
from tidemark.offsets.counting import number_of
from tidemark.schemes.avro_schema import record
from tidemark.types.ddl import DEEPEST, Parts, TooManyParts, quoted

_LOGICAL = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "date": "date",
    "uuid": "string",
}
_AVRO = {
    "string": "string",
    "enum": "string",
    "int": "integer",
    "long": "integer",
    "float": "double",
    "double": "double",
    "boolean": "boolean",
    "bytes": "binary",
    "fixed": "binary",
}
# Inside an array, a map or a record, numbers have as many bits as in Avro.
_INSIDE = {**_AVRO, "int": "int", "long": "bigint", "float": "float"}
_MOST_DIGITS = 38


def is_framed(value: bytes) -> bool:
    """Whether a value begins as one in the registry's wire format does."""
    return number_in(value) is not None and len(value) > FRAME


def avro_format(values: Sequence[bytes], name: str, texts: Mapping[int, str]) -> Format:
    """The scheme `avro` with the registry of the connection `name`, for its schemas by number. Raises ValueError."""
    import fastavro

    schemas: dict[int | None, Any] = {}
    types: dict[str, set[str | None]] = {}
    for number, text in texts.items():
        schemas[number], named = _parsed(number, text)
        for one in schemas[number]["fields"]:
            types.setdefault(one["name"], set()).add(_type_of_field(one["type"], named))
    fields, notes = _fields(types)
    if not fields:
        raise ValueError("no field of theirs has a type that scheme avro reads")

    def read(value: bytes) -> Any:
        return fastavro.schemaless_reader(io.BytesIO(value[FRAME:]), schemas[number_in(value)], None)

    def refusal(value: bytes) -> str | None:
        if (number := number_in(value)) is None:
            return NOT_FRAMED
        if number not in schemas:
            return f"the registry has no Avro schema {number}"
        try:
            read(value)
        # Whatever an Avro reader makes of bytes that are not Avro.
        except Exception:
            return f"not a record of schema {number}"
        return None

    rows = [read(value) for value in values if refusal(value) is None]
    given = {one: [str(row[one]) for row in rows if row.get(one) is not None] for one in fields}
    columns = tuple(Column(one, kind, len(given[one]), example(given[one])) for one, kind in fields.items())
    scheme = {"type": "avro", "registry": name, "fields": fields}
    return Format("Avro records by a schema registry", scheme, refusal, columns, notes=notes)


def _parsed(number: int, text: str) -> tuple[Any, Mapping[str, Any]]:
    """A schema, and its own types by full name. Raises ValueError, also for one whose messages can become of any size."""
    import fastavro

    named: dict[str, Any] = {}
    try:
        schema = fastavro.parse_schema(record(text), named_schemas=named)
    except Exception as problem:  # whatever somebody has registered
        raise ValueError(f"schema {number}: {type(problem).__name__}: {problem}") from problem
    if _has_empty_items(schema, named):
        # A message of ten bytes could be a billion of them.
        raise ValueError(
            f"schema {number} has an array whose items take no bytes, of which a message can have any number"
        )
    return schema, named


def _has_empty_items(type_: Any, named: Mapping[str, Any]) -> bool:
    """Whether a type has an array, at any depth, whose items take no bytes. All else is no longer than the message."""
    if isinstance(type_, list):
        return any(_has_empty_items(one, named) for one in type_)
    if isinstance(type_, str):
        return False
    if type_["type"] == "array" and _is_empty(type_["items"], named):
        return True
    inner = [type_[name] for name in ("type", "items", "values") if name in type_]
    return any(_has_empty_items(one, named) for one in (*inner, *(one["type"] for one in type_.get("fields", ()))))


def _is_empty(type_: Any, named: Mapping[str, Any], around: tuple[str, ...] = ()) -> bool:
    """Whether a type's values take no bytes. `around`: the named types that hold it."""
    if isinstance(type_, list) or type_ in around:
        return False
    if isinstance(type_, str):
        return type_ == "null" or (type_ in named and _is_empty(named[type_], named, (*around, type_)))
    kind = type_["type"]
    if kind in ("record", "error"):
        return all(_is_empty(one["type"], named, around) for one in type_["fields"])
    return bool(type_["size"] == 0) if kind == "fixed" else _is_empty(kind, named, around)


def _fields(types: Mapping[str, set[str | None]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The fields that have one type in all schemas, and what to say of the others."""
    known = {name: next(iter(types[name])) for name in field_names(types) if len(types[name]) == 1}
    fields = {name: kind for name, kind in known.items() if kind is not None}
    left = [name for name in types if name not in fields]
    have = number_of(len(left), "field", "has", "have")
    said = f"{have} a type that scheme avro does not read, or several, or another field's name: {some(left)}"
    return fields, (said,) if left else ()


def _type_of_field(type_: Any, named: Mapping[str, Any]) -> str | None:
    """The field type for an Avro type; None for one that the scheme does not read, that holds itself, or is too large."""
    try:
        return _avro_type(type_, named, Parts())
    except TooManyParts:
        return None


def _avro_type(type_: Any, named: Mapping[str, Any], parts: Parts, depth: int = 0) -> str | None:
    """As `_type_of_field`. Raises TooManyParts.

    `named`: the schema's own types by full name. `depth`: how many arrays, maps and records are around it.
    """
    if isinstance(type_, list):
        others = [one for one in type_ if one != "null"]
        return _avro_type(others[0], named, parts, depth) if len(others) == 1 else None
    if isinstance(type_, str):
        if type_ in named and depth < DEEPEST:
            return _avro_type(named[type_], named, parts, depth)
        return (_INSIDE if depth else _AVRO).get(type_)
    if type_.get("logicalType") is not None:
        return _logical(type_)
    kind = type_.get("type")
    if kind not in ("array", "map", "record"):
        return _avro_type(kind, named, parts, depth)
    if depth == DEEPEST:
        return None
    inner = (
        [one["type"] for one in type_["fields"]]
        if kind == "record"
        else [type_["items" if kind == "array" else "values"]]
    )
    parts.add(len(inner))
    types = [_avro_type(one, named, parts, depth + 1) for one in inner]
    if None in types or not types:
        return None
    if kind == "record":
        names = [one["name"] for one in type_["fields"]]
        if len({*map(str.lower, names)}) < len(names):
            return None
        pairs = zip(names, types, strict=True)
        return f"struct<{', '.join(f'{quoted(name)}: {one}' for name, one in pairs)}>"
    return f"array<{types[0]}>" if kind == "array" else f"map<string, {types[0]}>"


def _logical(type_: Mapping[str, Any]) -> str | None:
    if type_["logicalType"] == "decimal":
        # Without a precision, Avro takes them for bytes.
        precision = type_.get("precision", 0)
        return f"decimal({precision},{type_.get('scale', 0)})" if 0 < precision <= _MOST_DIGITS else None
    return _LOGICAL.get(str(type_["logicalType"]))
