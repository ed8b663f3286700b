"""The columns of an Iceberg table of results: Tidemark's, the stream's fields, and the generation that wrote a row."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from tidemark.functions.types import FieldType

GENERATION = "_generation"

_OURS: Mapping[str, IcebergType] = {
    "_topic": StringType(),
    "_incarnation": IntegerType(),
    "_partition": IntegerType(),
    "_offset": LongType(),
    "_index": IntegerType(),
    "_tombstone": BooleanType(),
    "_digest": LongType(),
}
_TYPES: Mapping[FieldType, IcebergType] = {
    "string": StringType(),
    "integer": LongType(),
    "double": DoubleType(),
    "timestamp": TimestamptzType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
}


def iceberg_type(kind: FieldType) -> IcebergType:
    return _TYPES[kind]


def columns(fields: Mapping[str, FieldType]) -> Schema:
    """The table's columns, all of them optional: files of an older stream file lack some."""
    types = {**_OURS, **{name: iceberg_type(kind) for name, kind in fields.items()}, GENERATION: LongType()}
    return Schema(
        *(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(types.items(), 1))
    )
