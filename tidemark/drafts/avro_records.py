"""Avro records in the wire format of a schema registry: their fields are those of the schemas that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.clients.registry_answers import FRAME, NOT_FRAMED, number_in
from tidemark.drafts.avro_values import NoRecord, values_of
from tidemark.drafts.columns import Column
from tidemark.drafts.format import Format, example, named, some, text_in, typed_as
from tidemark.offsets.counting import number_of
from tidemark.schemes.avro_projection import MAX_DIGITS, Schema, decimal_of, schema_of, takes_no_bytes
from tidemark.types.ddl import DEEPEST, TooManyParts, TypePartCounter, quoted

_LOGICAL = {
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
    "date": "date",
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
_IN_MILLISECONDS = ("timestamp-millis", "local-timestamp-millis")
# The milliseconds of a time whose microseconds are a number of 64 bits.
_MAX_MILLISECONDS = 2**63 // 1000


def is_framed(value: bytes) -> bool:
    """Whether a value begins as one in the registry's wire format does."""
    return number_in(value) is not None and len(value) > FRAME


def avro_format(values: Sequence[bytes], name: str, texts: Mapping[int, str]) -> Format:
    """The scheme `avro` with the registry of the connection `name`, for its schemas by number. Raises ValueError."""
    schemas = {number: _schema(number, text) for number, text in texts.items()}
    types: dict[str, set[str | None]] = {}
    odd = set()
    for schema in schemas.values():
        for one, type_ in schema.fields.items():
            types.setdefault(one, set()).add(_type_of_field(schema, type_))
            odd |= {one} if _is_odd_decimal(schema, type_) else set()
    fields, notes = _fields(types)
    if not fields:
        raise ValueError("no field of theirs has a type that scheme avro reads")
    if kept := [one for one in fields if one in odd]:
        have = number_of(len(kept), "field", "is a decimal", "are decimals")
        notes = (*notes, f"{have} that no type holds: binary has the unscaled number: {some(kept)}")

    def read(value: bytes) -> dict[str, Any] | str:
        """The named fields of a value; or why it is no row."""
        if (number := number_in(value)) is None:
            return NOT_FRAMED
        if number not in schemas:
            return f"the registry has no Avro schema {number}"
        schema = schemas[number]
        try:
            row = values_of(schema, value[FRAME:], fields)
            why = next(
                (why for one in row if (why := _misfit(schema, schema.fields[one], row[one], one)) is not None), None
            )
        except NoRecord:
            return f"not a record of schema {number}"
        return row if why is None else why

    def refusal(value: bytes) -> str | None:
        row = read(value)
        return row if isinstance(row, str) else None

    rows = [row for value in values if isinstance(row := read(value), dict)]
    given = {one: [_shown(row[one]) for row in rows if row.get(one) is not None] for one in fields}
    names = named(fields)
    columns = tuple(Column(names[one], kind, len(given[one]), example(given[one])) for one, kind in fields.items())
    typed = {names[one]: typed_as(names[one], one, kind) for one, kind in fields.items()}
    scheme = {"type": "avro", "registry": name, "fields": typed}
    return Format("Avro records by a schema registry", scheme, refusal, columns, notes=notes)


def _schema(number: int, text: str) -> Schema:
    try:
        return schema_of(text)
    except ValueError as problem:
        raise ValueError(f"schema {number}: {problem}") from problem


def _shown(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _misfit(schema: Schema, type_: Any, value: Any, path: str) -> str | None:
    """Why a field's value, or a part of it, is none of its type; None for one that fits."""
    body = schema.body(type_)
    if isinstance(body, list):
        others = [one for one in body if one != "null"]
        return _misfit(schema, others[0], value, path) if len(others) == 1 and value is not None else None
    match body["type"]:
        case "array":
            inner = [(body["items"], one) for one in value]
        case "map":
            inner = [*(("string", key) for key in value), *((body["values"], one) for one in value.values())]
        case "record":
            inner = [(of, value[name]) for name, of in body["fields"]]
        case "string":
            return f"{path} is not UTF-8" if text_in(value) is None else None
        case "long" if (
            body.get("logicalType") in _IN_MILLISECONDS and not -_MAX_MILLISECONDS <= value <= _MAX_MILLISECONDS
        ):
            return f"{path} is not a time"
        case "bytes" | "fixed" if (digits := decimal_of(body)) is not None and digits[0] <= MAX_DIGITS:
            number = int.from_bytes(value, "big", signed=True)
            return None if abs(number) < 10 ** digits[0] else f"{path} is not decimal({digits[0]},{digits[1]})"
        case _:
            return None
    return next((why for one in inner if (why := _misfit(schema, *one, path)) is not None), None)


def _is_odd_decimal(schema: Schema, type_: Any) -> bool:
    """Whether a field is a decimal, as its schema says, that no type of a field holds."""
    body = schema.body(type_)
    if isinstance(body, list):
        return any(_is_odd_decimal(schema, one) for one in body)
    digits = decimal_of(body)
    return body.get("logicalType") == "decimal" and (digits is None or digits[0] > MAX_DIGITS)


def _fields(types: Mapping[str, set[str | None]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The fields that have one type in all schemas, and what to say of the others."""
    known = {name: next(iter(types[name])) for name in named(types) if len(types[name]) == 1}
    fields = {name: kind for name, kind in known.items() if kind is not None}
    left = [name for name in types if name not in fields]
    have = number_of(len(left), "field", "has", "have")
    said = f"{have} a type that scheme avro does not read, or several, or another field's name: {some(left)}"
    return fields, (said,) if left else ()


def _type_of_field(schema: Schema, type_: Any) -> str | None:
    """The field type for an Avro type; None for one that the scheme does not read, that holds itself, or is too large."""
    try:
        return _avro_type(schema, type_, TypePartCounter())
    except TooManyParts:
        return None


def _avro_type(schema: Schema, type_: Any, parts: TypePartCounter, depth: int = 0) -> str | None:
    """As `_type_of_field`. Raises TooManyParts. `depth`: how many arrays, maps and records are around it."""
    body = schema.body(type_)
    if isinstance(body, list):
        others = [one for one in body if one != "null"]
        return _avro_type(schema, others[0], parts, depth) if len(others) == 1 else None
    kind = body["type"]
    if kind in ("array", "map", "record"):
        return None if depth == DEEPEST else _nested(schema, body, parts, depth)
    digits = decimal_of(body)
    if digits is not None and digits[0] <= MAX_DIGITS:
        return f"decimal({digits[0]},{digits[1]})"
    logical = body.get("logicalType")
    if kind in ("int", "long") and isinstance(logical, str):
        return _LOGICAL.get(logical)
    return (_INSIDE if depth else _AVRO).get(kind)


def _nested(schema: Schema, body: Mapping[str, Any], parts: TypePartCounter, depth: int) -> str | None:
    kind = body["type"]
    inner = [one for _, one in body["fields"]] if kind == "record" else [body["items" if kind == "array" else "values"]]
    if kind == "array" and takes_no_bytes(schema, inner[0]):
        return None
    parts.add(len(inner))
    types = [_avro_type(schema, one, parts, depth + 1) for one in inner]
    if None in types or not types:
        return None
    if kind == "record":
        names = [name for name, _ in body["fields"]]
        if len({*map(str.lower, names)}) < len(names):
            return None
        pairs = zip(names, types, strict=True)
        return f"struct<{', '.join(f'{quoted(name)}: {one}' for name, one in pairs)}>"
    return f"array<{types[0]}>" if kind == "array" else f"map<string, {types[0]}>"
