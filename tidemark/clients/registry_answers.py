"""A schema registry's reasons against a schema. Imports little: stream files are read with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

SchemaKind = Literal["AVRO", "PROTOBUF"]
# What a registry calls the schemas of a scheme.
KINDS: Mapping[str, SchemaKind] = {"avro": "AVRO", "protobuf": "PROTOBUF"}
# The same for people.
CALLED: Mapping[SchemaKind, str] = {"AVRO": "an Avro schema", "PROTOBUF": "a Protobuf schema"}


@dataclass(frozen=True)
class RefusedSchema:
    """A schema of a registry that is not read, and why: what was written with it becomes dead letters."""

    why: str
