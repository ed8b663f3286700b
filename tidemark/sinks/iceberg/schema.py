"""The columns of an Iceberg table of results: Tidemark's, the stream's fields, and the generation that wrote a row."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import pyarrow as pa
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from tidemark.types.ddl import Member, Type
from tidemark.types.fields import FieldType, arrow_type, text_of, type_of

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
_FLAT: Mapping[str, IcebergType] = {
    "string": StringType(),
    "tinyint": IntegerType(),
    "smallint": IntegerType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
    "boolean": BooleanType(),
    "binary": BinaryType(),
}


def iceberg_type(kind: FieldType | Type) -> IcebergType:
    """A type in Iceberg. The ids of nested fields stand for nothing: the table draws its own."""
    of = type_of(kind) if isinstance(kind, str) else kind
    if of.name == "decimal":
        return DecimalType(of.precision, of.scale)
    if of.of is not None and of.name == "array":
        return ListType(element_id=-1, element=iceberg_type(of.of), element_required=False)
    if of.of is not None:
        return MapType(
            key_id=-1, key_type=StringType(), value_id=-2, value_type=iceberg_type(of.of), value_required=False
        )
    if of.name == "struct":
        members = ((member.name, iceberg_type(member.type)) for member in of.members)
        return StructType(
            *(NestedField(-1 - at, name, kind, required=False) for at, (name, kind) in enumerate(members))
        )
    return _FLAT[of.name]


def same(type_: IcebergType, kind: FieldType) -> bool:
    """Whether a column of a table has the type of a field. Ids of nested fields are the table's own."""
    try:
        return _of_iceberg(type_) == _of_iceberg(iceberg_type(kind))
    except KeyError:
        return False


def field_type(type_: IcebergType) -> FieldType | None:
    """The type of a field that a column has; None for one that no field has."""
    try:
        return text_of(_of_iceberg(type_))
    except KeyError:
        return None


def arrow_schema(schema: Schema) -> pa.Schema:
    """A table's columns as files have them that Spark or Arrow has written."""
    return pa.schema([(field.name, arrow_type(_of_iceberg(field.field_type))) for field in schema.fields])


def names_today(metadata: TableMetadata) -> dict[str, str]:
    """Today's names of columns, by all that files have for them. Reads the table's mapping of names as a whole, so once."""
    # The library reads its text each time, and a schema has hundreds of columns.
    mapping, schema = metadata.name_mapping(), metadata.schema()
    named: dict[str, str] = {}
    for one in mapping.root if mapping else ():
        column = None if one.field_id is None else schema.find_column_name(one.field_id)
        for name in one.names:
            named.setdefault(name, name if column is None else column)
    return named


def older_names(metadata: TableMetadata) -> dict[str, list[str]]:
    """The names that columns had before, by those of today."""
    older: dict[str, list[str]] = {}
    for old, name in names_today(metadata).items():
        if name != old:
            older.setdefault(name, []).append(old)
    return older


def _of_iceberg(type_: IcebergType) -> Type:
    """Raises KeyError for a type that no field has."""
    if isinstance(type_, DecimalType):
        return Type("decimal", type_.precision, type_.scale)
    if isinstance(type_, ListType):
        return Type("array", of=_of_iceberg(type_.element_type))
    if isinstance(type_, MapType):
        return Type("map", of=_of_iceberg(type_.value_type))
    if isinstance(type_, StructType):
        return Type(
            "struct", members=tuple(Member(field.name, _of_iceberg(field.field_type)) for field in type_.fields)
        )
    return Type(_NAMES[str(type_)])


_NAMES = {str(one): name for name, one in _FLAT.items()}


def columns(
    fields: Mapping[str, FieldType], more: Mapping[str, IcebergType] = MappingProxyType({}), *, of_messages: bool = True
) -> Schema:
    """The table's columns, all of them optional: files of an older stream file lack some.

    `of_messages`: whether each row is of one message, and says which.
    """
    types = {name: iceberg_type(kind) for name, kind in fields.items()}
    types = {**_OURS, **types, GENERATION: LongType(), **more} if of_messages else {**types, **more}
    return assign_fresh_schema_ids(
        Schema(
            *(NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(types.items(), 1))
        )
    )
