"""Protobuf messages in the wire format of a schema registry: their fields are those of the schemas that they name."""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Mapping, Sequence

from tidemark.drafts.columns import Column
from tidemark.drafts.format import Format, example, is_field_name, some
from tidemark.schemes.protobuf_schema import behind_indexes, drafted, message_of

_FRAME = 5
# The word for a field that is no part of another.
_ALONE = {"bigint": "integer"}


def protobuf_format(values: Sequence[bytes], name: str, schemas: Mapping[int, str]) -> Format:
    """The scheme `protobuf` with the registry of the connection `name`, for the message that most values are.

    `schemas`: the sets of descriptors in base64, by number. Raises ValueError where no value names a message of theirs.
    """
    from google.protobuf import json_format, message_factory

    kinds = Counter(found for value in values if (found := _message_of(value, schemas)) is not None)
    if not kinds:
        raise ValueError("no value names a message of these schemas")
    message = kinds.most_common(1)[0][0]
    numbers = sorted({_number(value) for value in values if _message_of(value, schemas) == message})
    known = {number: message_of(b64decode(schemas[number]), message) for number in numbers}
    types: dict[str, set[str | None]] = {}
    for one in known.values():
        for field, kind in drafted(one).items():
            types.setdefault(field, set()).add(kind)
    fields = {
        field: _ALONE.get(kind, kind)
        for field, found in types.items()
        if len(found) == 1 and is_field_name(field) and (kind := next(iter(found))) is not None
    }
    left = [field for field in types if field not in fields]

    def read(value: bytes) -> dict[str, object]:
        kind = message_factory.GetMessageClass(known[_number(value)])
        _, written = behind_indexes(schemas[_number(value)], value[_FRAME:])
        found: dict[str, object] = json_format.MessageToDict(
            kind.FromString(written), preserving_proto_field_name=True, always_print_fields_with_no_presence=True
        )
        return found

    def refusal(value: bytes) -> str | None:
        if value[:1] != b"\0" or len(value) < _FRAME:
            return "not in the registry's wire format"
        if _number(value) not in schemas:
            return f"the registry has no Protobuf schema {_number(value)}"
        if (found := _message_of(value, schemas)) != message:
            return f"a message {found}, and not {message}" if found else "it has the index of no message of its schema"
        try:
            read(value)
        # Whatever a reader of Protobuf makes of other bytes.
        except Exception:
            return f"not a message {message}"
        return None

    rows = [read(value) for value in values if refusal(value) is None]
    given = {one: [_text(row[one]) for row in rows if row.get(one) is not None] for one in fields}
    columns = tuple(Column(one, kind, len(given[one]), example(given[one])) for one, kind in fields.items())
    said = f"{len(left)} fields hold themselves, are empty, or have several types: {some(left)}"
    scheme = {"type": "protobuf", "registry": name, "message": message, "fields": fields}
    what = "Protobuf messages by a schema registry"
    return Format(what, scheme, refusal, columns, notes=(said,) if left else ())


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _message_of(value: bytes, schemas: Mapping[int, str]) -> str | None:
    """The message that a value names; None for one of no schema of these."""
    if len(value) < _FRAME or (number := _number(value)) not in schemas:
        return None
    try:
        return behind_indexes(schemas[number], value[_FRAME:])[0]
    except ValueError:
        return None


def _number(value: bytes) -> int:
    return int.from_bytes(value[1:_FRAME], "big")
