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
    scheme = stream.scheme
    if not isinstance(scheme, AvroScheme) or message is None or message.value is None:
        return None
    if len(message.value) > MOST_BYTES:
        return AvroRecord(
            "", None, f"a value of more than {MOST_BYTES:_} bytes is read by runs alone".replace("_", " ")
        )
    if scheme.registry is None:
        return _read(str(scheme.schema_file), scheme.writer, message.value)
    if len(message.value) < _MAGIC or message.value[0] != 0:
        return AvroRecord("", None, "not in the wire format of a schema registry")
    number = int.from_bytes(message.value[1:_MAGIC], "big")
    named = f"schema {number} of the registry"
    try:
        endpoint = registry_endpoint(connections(scheme.registry))
        schema = SchemaRegistry(endpoint, timeout_seconds=_REGISTRY_SECONDS).schema(number)
    except TidemarkError as away:
        return AvroRecord(named, None, f"{type(away).__name__}: {away}")
    if schema is None:
        return AvroRecord(named, None, f"schema {number} is not an Avro schema of the registry")
    if isinstance(schema, RefusedSchema):
        return AvroRecord(named, None, f"schema {number}: {schema.why}")
    return _read(named, schema, message.value[_MAGIC:])


def _read(named: str, schema: str, value: bytes) -> AvroRecord:
    answer = asked_with_limits({"kind": "avro", "schema": schema, "value": value.hex(), "most": MOST_BYTES})
    return AvroRecord(named, answer.get("json"), answer.get("problem", ""))
