"""The contents of a message's value, for people who look at one: an Avro or Protobuf record as JSON, or what was compressed.

Other values are shown as they are. Avro may say that a list has a billion entries, and some bytes decompress to gigabytes. So
values are read in a process of their own, which has limits (`sandbox.py`).
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tidemark.clients.connections import Connections
from tidemark.clients.kafka.slots import KafkaMessage
from tidemark.clients.registry_answers import CALLED, FRAME, KINDS, NOT_FRAMED, RefusedSchema, number_in
from tidemark.clients.schema_registry import SchemaRegistry, registry_endpoint
from tidemark.errors import TidemarkError
from tidemark.schemes.kinds import JsonScheme, ProtobufScheme, SchemeWithSchemas
from tidemark.schemes.protobuf_schema import behind_indexes
from tidemark.streams.model import Stream
from tidemark.views.messages.sandbox import asked_with_limits

# A larger value is not read.
MAX_BYTES = 1_000_000
_REGISTRY_SECONDS = 3.0


@dataclass(frozen=True)
class RecordRead:
    """The schema that a value was read by, in a few words; its text, JSON where it has a schema, or why there is none."""

    by: str
    text: str | None
    problem: str = ""


@dataclass(frozen=True)
class WrittenValue:
    """A value as it was written: by a schema, and compressed, or one of these. `by` says it in a few words.

    `schema` is the text of an Avro schema, or the set of descriptors in base64, of which `message` is the name of the message.
    """

    by: str
    value: bytes
    kind: Literal["avro", "protobuf", "plain"] = "plain"
    schema: str = ""
    decompress: str | None = None
    message: str = ""


def asked(written: Iterable[WrittenValue]) -> dict[str, Any]:
    """Values as the process takes them. Each schema stands there once: it may be a thousand times as long as a value."""
    schemas: dict[tuple[str, str, str], int] = {}
    values = []
    for one in written:
        by = (one.kind, one.schema, one.message)
        number = schemas.setdefault(by, len(schemas)) if one.schema else None
        values.append({"value": b64encode(one.value).decode(), "schema": number, "decompress": one.decompress})
    return {"schemas": [*schemas], "values": values}


def has_records(stream: Stream) -> bool:
    """Whether the values of a stream are to be read before people see what they say."""
    scheme = stream.scheme
    framed = isinstance(scheme, JsonScheme) and scheme.wire_format is not None
    return isinstance(scheme, SchemeWithSchemas) or framed or stream.decompress is not None


def record_of(stream: Stream, connections: Connections, message: KafkaMessage | None) -> RecordRead | None:
    """A message's record; None without a value, and in a stream whose values say it. Raises nothing that depends on it."""
    if not has_records(stream) or message is None or message.value is None:
        return None
    if len(message.value) > MAX_BYTES:
        return RecordRead("", None, f"a value of more than {MAX_BYTES:_} bytes is read by runs alone".replace("_", " "))
    written = written_by(stream, connections, message.value)
    if isinstance(written, RecordRead):
        return written
    answer = asked_with_limits({"kind": "record", "most": MAX_BYTES, **asked([written])})
    return RecordRead(written.by, answer.get("text"), answer.get("problem", ""))


def written_by(
    stream: Stream, connections: Connections, value: bytes, known: dict[int, str | RecordRead] | None = None
) -> WrittenValue | RecordRead:
    """The value of a stream of records as it was written; or why there is none. `known` keeps schemas that were asked for."""
    scheme, how = stream.scheme, stream.decompress
    unpacked = "" if how is None else f"decompressed by {how}"
    if not isinstance(scheme, SchemeWithSchemas):
        if not isinstance(scheme, JsonScheme) or scheme.wire_format is None:
            return WrittenValue(unpacked, value, decompress=how)
        number = number_in(value)
        return RecordRead("", None, NOT_FRAMED) if number is None else WrittenValue(_named(number), value[FRAME:])
    if scheme.registry is None:
        by = ", ".join(filter(None, (str(scheme.schema_file), unpacked)))
        return _by_schema(scheme, scheme.writer, by, value, how)
    number = number_in(value)
    if number is None:
        return RecordRead("", None, NOT_FRAMED)
    known = {} if known is None else known
    if number not in known:
        known[number] = _registered(connections, scheme, scheme.registry, number)
    schema = known[number]
    return schema if isinstance(schema, RecordRead) else _by_schema(scheme, schema, _named(number), value[FRAME:], None)


def _by_schema(
    scheme: SchemeWithSchemas, schema: str, by: str, value: bytes, how: str | None
) -> WrittenValue | RecordRead:
    if not isinstance(scheme, ProtobufScheme):
        return WrittenValue(by, value, "avro", schema, how)
    try:
        name = scheme.message
        if scheme.registry is not None:
            name, value = behind_indexes(schema, value)
        return WrittenValue(by, value, "protobuf", schema, how, name)
    except ValueError as problem:
        return RecordRead("", None, str(problem))


def _named(number: int) -> str:
    return f"schema {number} of the registry"


def _registered(connections: Connections, scheme: SchemeWithSchemas, registry: str, number: int) -> str | RecordRead:
    kind = KINDS[scheme.type]
    try:
        endpoint = registry_endpoint(connections(registry))
        schema = SchemaRegistry(endpoint, timeout_seconds=_REGISTRY_SECONDS).schema(number, kind)
    except TidemarkError as away:
        return RecordRead(_named(number), None, f"{type(away).__name__}: {away}")
    if schema is None:
        return RecordRead(_named(number), None, f"schema {number} is not {CALLED[kind]} of the registry")
    if isinstance(schema, RefusedSchema):
        return RecordRead(_named(number), None, f"schema {number}: {schema.why}")
    return schema
