"""An Avro message as JSON, by the schema of its registry or of the stream's file: for people who look at one message.

All other messages are shown as they are. Avro may say that a list has a billion entries, so it is read in a process of its
own, which has limits (`limited.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.clients.connections import Connections
from tidemark.clients.kafka.slots import KafkaMessage
from tidemark.clients.registry_answers import RefusedSchema
from tidemark.clients.schema_registry import SchemaRegistry, registry_endpoint
from tidemark.errors import TidemarkError
from tidemark.schemes.kinds import AvroScheme
from tidemark.streams.model import Stream
from tidemark.views.messages.sandbox import asked_with_limits

# A larger value is not read.
MOST_BYTES = 1_000_000
_REGISTRY_SECONDS = 3.0
_MAGIC = 5


@dataclass(frozen=True)
class AvroRecord:
    """The schema of a record, in a few words; the record as JSON, or why there is none."""

    by: str
    json: str | None
    problem: str = ""


def is_avro(stream: Stream) -> bool:
    """Whether the messages of a stream are Avro records."""
    return isinstance(stream.scheme, AvroScheme)


def avro_record(stream: Stream, connections: Connections, message: KafkaMessage | None) -> AvroRecord | None:
    """The record of a message; None without a value, and in a stream of another scheme. Raises nothing that depends on it."""
    if not is_avro(stream) or message is None or message.value is None:
        return None
    if len(message.value) > MOST_BYTES:
        return AvroRecord(
            "", None, f"a value of more than {MOST_BYTES:_} bytes is read by runs alone".replace("_", " ")
        )
    written = written_by(stream, connections, message.value)
    if isinstance(written, AvroRecord):
        return written
    return _read(written.by, written.schema, written.record)


@dataclass(frozen=True)
class Written:
    """A record as it was written, by a schema of this text. `by` says which one, in a few words."""

    by: str
    schema: str
    record: bytes


def written_by(
    stream: Stream, connections: Connections, value: bytes, known: dict[int, str | AvroRecord] | None = None
) -> Written | AvroRecord:
    """The record in a value of an Avro stream; or why there is none. `known` keeps the schemas that were asked for."""
    scheme = stream.scheme
    if not isinstance(scheme, AvroScheme):
        return AvroRecord("", None, "the stream's messages are no Avro records")
    if scheme.registry is None:
        return Written(str(scheme.schema_file), scheme.writer, value)
    if len(value) < _MAGIC or value[0] != 0:
        return AvroRecord("", None, "not in the wire format of a schema registry")
    number = int.from_bytes(value[1:_MAGIC], "big")
    known = {} if known is None else known
    if number not in known:
        known[number] = _registered(connections, scheme.registry, number)
    schema = known[number]
    return schema if isinstance(schema, AvroRecord) else Written(_named(number), schema, value[_MAGIC:])


def _named(number: int) -> str:
    return f"schema {number} of the registry"


def _registered(connections: Connections, registry: str, number: int) -> str | AvroRecord:
    try:
        endpoint = registry_endpoint(connections(registry))
        schema = SchemaRegistry(endpoint, timeout_seconds=_REGISTRY_SECONDS).schema(number)
    except TidemarkError as away:
        return AvroRecord(_named(number), None, f"{type(away).__name__}: {away}")
    if schema is None:
        return AvroRecord(_named(number), None, f"schema {number} is not an Avro schema of the registry")
    if isinstance(schema, RefusedSchema):
        return AvroRecord(_named(number), None, f"schema {number}: {schema.why}")
    return schema


def _read(named: str, schema: str, value: bytes) -> AvroRecord:
    answer = asked_with_limits({"kind": "avro", "schema": schema, "value": value.hex(), "most": MOST_BYTES})
    return AvroRecord(named, answer.get("json"), answer.get("problem", ""))
