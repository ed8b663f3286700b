"""The Avro schema of the values that a sink in Kafka writes, from the fields of its stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tidemark.types.ddl import Type
from tidemark.types.fields import FieldType, type_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLAT: Mapping[str, object] = {
    "string": "string",
    "binary": "bytes",
    "boolean": "boolean",
    **dict.fromkeys(("tinyint", "smallint", "int"), "int"),
    "bigint": "long",
    "float": "float",
    "double": "double",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def schema_of(stream: str, fields: Mapping[str, FieldType]) -> str:
    """The schema of a stream's rows: a record named after the stream, of which each field may be null."""
    return json.dumps(_record(stream, "tidemark", {name: type_of(kind) for name, kind in fields.items()}))


def subject_of(topic: str) -> str:
    """The subject of a topic's values, as Confluent's programs name it."""
    return f"{topic}-value"


def not_a_name(fields: Mapping[str, FieldType]) -> str | None:
    """The first field, or member of a struct, that cannot have its name in Avro."""
    return next((name for name in _names({name: type_of(kind) for name, kind in fields.items()})), None)


def _names(members: Mapping[str, Type]) -> Iterator[str]:
    for name, kind in members.items():
        if not _NAME.fullmatch(name):
            yield name
        inner = kind
        while inner.of is not None:
            inner = inner.of
        yield from _names({member.name: member.type for member in inner.members})


def _record(name: str, within: str, members: Mapping[str, Type]) -> dict[str, Any]:
    own = f"{within}.{name}"
    fields = [{"name": one, "type": ["null", _avro(kind, one, own)], "default": None} for one, kind in members.items()]
    return {"type": "record", "name": name, "namespace": within, "fields": fields}


def _avro(kind: Type, name: str, within: str) -> object:
    """A type in Avro. A record in it is named after its field, within the record that has the field."""
    if kind.name == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if kind.of is not None:
        of = ["null", _avro(kind.of, name, within)]
        return {"type": "array", "items": of} if kind.name == "array" else {"type": "map", "values": of}
    if kind.name == "struct":
        return _record(name, within, {member.name: member.type for member in kind.members})
    return _FLAT[kind.name]
