"""Protobuf messages in the wire format of a schema registry: their fields are those of the schemas that they name."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence

from tidemark.clients.registry_answers import FRAME, NOT_FRAMED, number_in
from tidemark.drafts.columns import Column
from tidemark.drafts.format import Format, example, named, some, typed_as
from tidemark.schemes.protobuf_projection import projected
from tidemark.schemes.protobuf_schema import behind_indexes, drafted, message_of

# The word for a field that is no part of another.
_ALONE = {"bigint": "integer"}


def protobuf_format(values: Sequence[bytes], name: str, schemas: Mapping[int, str]) -> Format:
    """The scheme `protobuf` with the registry of the connection `name`, for the message that most values are.

    `schemas`: the sets of descriptors in base64, by number. Raises ValueError where no value names a message of theirs, and
    where that message has no field that the scheme reads.
    """
    from google.protobuf import message_factory

    from tidemark.schemes.protobuf_json import as_json

    found_names = [found for value in values if (found := _named_by(value, schemas)) is not None]
    if not found_names:
        raise ValueError("no value names a message of these schemas")
    message = Counter(one for _, one, _ in found_names).most_common(1)[0][0]
    numbers = sorted({number for number, one, _ in found_names if one == message})
    sets = {number: b64decode(schemas[number]) for number in numbers}
    fields, notes = _fields([drafted(message_of(one, message)) for one in sets.values()])
    if not fields:
        raise ValueError(f"no field of {message} has a type that scheme protobuf reads")
    known = {number: message_of(projected(one, message, fields), message) for number, one in sets.items()}

    def read(value: bytes) -> dict[str, object] | str:
        """A value's message; or why it is no such message."""
        if (number := number_in(value)) is None:
            return NOT_FRAMED
        if number not in schemas:
            return f"the registry has no Protobuf schema {number}"
        if (found := _named_by(value, schemas)) is None:
            return "it has the index of no message of its schema"
        _, other, written = found
        if other != message:
            return f"a message {other}, and not {message}"
        try:
            row: dict[str, object] = as_json(message_factory.GetMessageClass(known[number]).FromString(written))
        # Whatever a reader of Protobuf makes of other bytes.
        except Exception:
            return f"not a message {message}"
        return row

    def refusal(value: bytes) -> str | None:
        row = read(value)
        return row if isinstance(row, str) else None

    rows = [row for value in values if isinstance(row := read(value), dict)]
    given = {one: [_text(row[one]) for row in rows if row.get(one) is not None] for one in fields}
    names = named(fields)
    columns = tuple(Column(names[one], kind, len(given[one]), example(given[one])) for one, kind in fields.items())
    typed = {names[one]: typed_as(names[one], one, kind) for one, kind in fields.items()}
    scheme = {"type": "protobuf", "registry": name, "message": message, "fields": typed}
    what = "Protobuf messages by a schema registry"
    return Format(what, scheme, refusal, columns, notes=notes)


def _fields(drafts: Sequence[Mapping[str, str | None]]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The fields that have one type in all schemas, and what to say of the others."""
    types: dict[str, set[str | None]] = {}
    for draft in drafts:
        for field, kind in draft.items():
            types.setdefault(field, set()).add(kind)
    known = {field: next(iter(types[field])) for field in named(types) if len(types[field]) == 1}
    fields = {field: _ALONE.get(kind, kind) for field, kind in known.items() if kind is not None}
    left = [field for field in types if field not in fields]
    why = "hold themselves, are empty or too large, or have several types or another field's name"
    said = f"{len(left)} fields {why}: {some(left)}"
    return fields, (said,) if left else ()


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _named_by(value: bytes, schemas: Mapping[int, str]) -> tuple[int, str, bytes] | None:
    """The schema and the message that a value names, and the message's bytes; None where these schemas have none such."""
    number = number_in(value)
    if number is None or number not in schemas:
        return None
    try:
        return (number, *behind_indexes(schemas[number], value[FRAME:]))
    except ValueError:
        return None
