"""A schema registry's names for schemas, and how a value names one. Imports little: stream files are read with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SchemaKind = Literal["AVRO", "PROTOBUF"]
# What a registry calls the schemas of a scheme.
KINDS: Mapping[str, SchemaKind] = {"avro": "AVRO", "protobuf": "PROTOBUF"}
# The same for people.
CALLED: Mapping[SchemaKind, str] = {"AVRO": "an Avro schema", "PROTOBUF": "a Protobuf schema"}

# Of a value in Confluent's wire format: a byte 0, and the number of a schema in four bytes.
FRAME = 5
# Where the newer serializers of Confluent name the schema of a value, if they are set so.
SCHEMA_HEADER = "__value_schema_id"
NOT_FRAMED = "not in the wire format of a schema registry"


def number_in(value: bytes) -> int | None:
    """The number of the schema that a value names; None for a value in another form."""
    return int.from_bytes(value[1:FRAME], "big") if value[:1] == b"\0" and len(value) >= FRAME else None


@dataclass(frozen=True)
class RefusedSchema:
    """A schema of a registry that is not read, and why: what was written with it becomes dead letters."""

    why: str
