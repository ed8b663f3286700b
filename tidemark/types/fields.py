"""The type of a field: one text for each type, and what each target calls it.

A field's type is its text in lower case, as `canonical` gives it. `integer`, `string`, `double`, `timestamp`, `boolean` and
`binary` are the types of old, with their old words. All others are written as Spark's DDL has them, so that `decimal(12,2)`,
`array<bigint>` and `struct<a:date>` are types of fields too.

| type           | Spark         | Arrow, Parquet, Delta | JSON             | HBase               | Avro that fits         |
|----------------|---------------|-----------------------|------------------|---------------------|------------------------|
| string         | string        | string                | text             | UTF-8               | string, enum           |
| integer        | bigint        | int64                 | number           | digits              | int, long              |
| int            | int           | int32                 | number           | digits              | int                    |
| float          | float         | float                 | number           | Java's text         | float                  |
| double         | double        | double                | number           | Java's text         | float, double          |
| decimal(p,s)   | decimal(p,s)  | decimal128(p, s)      | number           | digits, all s       | decimal                |
| boolean        | boolean       | bool                  | true, false      | true, false         | boolean                |
| date           | date          | date32                | 2026-11-27       | 2026-11-27          | date                   |
| timestamp      | timestamp     | timestamp(us, UTC)    | with Z           | 2026-11-27 01:02:03 | timestamp-millis, -micros |
| timestamp_ntz  | timestamp_ntz | timestamp(us)         | without a zone   | 2026-11-27 01:02:03 | local-timestamp-*      |
| binary         | binary        | binary                | base64           | the bytes           | bytes, fixed           |
| array, map, struct | the same  | list, map, struct     | the same         | JSON                | array, map, record     |

A new target, such as a table format, gets its mapping here, from `Type`: see `arrow_type`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from tidemark.types.ddl import Member, Type, quoted, type_alone

if TYPE_CHECKING:
    import pyarrow as pa

# In `tinyint`, `smallint`, `int` and `bigint`, in this order, each holds the values of those before it.
INTEGERS = ("tinyint", "smallint", "int", "bigint")
_FLOATING = ("float", "double")
NESTED = ("array", "map", "struct")
# Types of which a value has one text, and the text one value: what a key, a folder or an aggregate can be made of.
_OLD_WORDS = {"bigint": "integer"}


def canonical(text: str) -> str:
    """The type of a field, as its text is compared and kept. Raises ValueError for what is no type of a field."""
    type_ = type_alone(text)
    if has_variant(type_):
        raise ValueError("a variant is no type of a field; expected its parts by name, or string")
    return text_of(type_)


FieldType = Annotated[
    str,
    AfterValidator(canonical),
    Field(
        examples=["string", "integer", "decimal(12,2)", "date", "array<string>"],
        description="`string`, `integer` (64 bits, also `long`), `int` (32 bits), `float`, `double`, `decimal(p,s)`, "
        "`boolean`, `date`, `timestamp`, `timestamp_ntz`, `binary`, `array<...>`, `map<string, ...>`, `struct<name: ...>`.",
    ),
]


def text_of(kind: Type) -> FieldType:
    """The canonical text of a type."""
    return _OLD_WORDS.get(kind.name, str(kind))


@lru_cache(maxsize=10_000)
def type_of(kind: FieldType) -> Type:
    """The type that a canonical text says."""
    return type_alone(kind)


def has_variant(kind: Type) -> bool:
    return kind.name == "variant" or any(map(has_variant, _parts(kind)))


def is_nested(kind: FieldType) -> bool:
    return type_of(kind).name in NESTED


def is_decimal(kind: FieldType) -> bool:
    return type_of(kind).name == "decimal"


def is_long(kind: FieldType) -> bool:
    """Whether a value can be of any size."""
    return type_of(kind).name in ("string", "binary", *NESTED)


def spark_type(kind: FieldType | Type) -> str:
    """The type in Spark's DDL."""
    return str(type_of(kind) if isinstance(kind, str) else kind)


def columns_in_ddl(fields: Mapping[str, FieldType]) -> str:
    """Fields as a schema in Spark's DDL."""
    return ", ".join(f"{quoted(name)} {spark_type(kind)}" for name, kind in fields.items())


def holds(wanted: Type, given: Type) -> bool:
    """Whether each value of a type is one of another type, exactly: what a cast between them cannot change.

    Members of structs are the same, in the same order: a cast takes them by their place.
    """
    if wanted.name in INTEGERS and given.name in INTEGERS:
        return INTEGERS.index(given.name) <= INTEGERS.index(wanted.name)
    if wanted.name in _FLOATING and given.name in _FLOATING:
        return _FLOATING.index(given.name) <= _FLOATING.index(wanted.name)
    if wanted.name != given.name:
        return False
    if wanted.name == "decimal":
        return given.scale <= wanted.scale and given.precision - given.scale <= wanted.precision - wanted.scale
    names = [one.name for one in wanted.members]
    if names != [one.name for one in given.members]:
        return False
    return all(holds(mine, theirs) for mine, theirs in zip(_parts(wanted), _parts(given), strict=True))


def joined(one: FieldType, other: FieldType) -> FieldType | None:
    """The type that holds the values of two types, with their digests; None if there is none.

    Within arrays, maps and structs too, whose members are the same in the same order. Digests say whether a stored value is
    whole, so a type with other digests for the same value, such as a decimal for an integer, is another type of field.
    """
    type_ = _joined(type_of(one), type_of(other))
    return None if type_ is None else text_of(type_)


def _joined(one: Type, other: Type) -> Type | None:
    if one.name == other.name == "decimal" and one.scale != other.scale:
        return None
    if one.name in NESTED and one.name == other.name:
        parts = [_joined(mine, theirs) for mine, theirs in zip(_parts(one), _parts(other), strict=False)]
        if [each.name for each in one.members] != [each.name for each in other.members] or None in parts:
            return None
        return _of_parts(one, [each for each in parts if each is not None])
    return one if holds(one, other) else other if holds(other, one) else None


def _of_parts(kind: Type, parts: list[Type]) -> Type:
    if kind.of is not None:
        return replace(kind, of=parts[0])
    members = (replace(one, type=part) for one, part in zip(kind.members, parts, strict=True))
    return replace(kind, members=tuple(members))


def leaves(kind: Type, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Type]:
    """The flat types within a type, each by the names that lead to it, as Parquet and Iceberg have them."""
    if kind.of is not None:
        return leaves(kind.of, (*path, "element" if kind.name == "array" else "value"))
    if kind.name == "struct":
        return {at: one for each in kind.members for at, one in leaves(each.type, (*path, each.name)).items()}
    return {path: kind}


def _parts(kind: Type) -> list[Type]:
    return [kind.of] if kind.of is not None else [one.type for one in kind.members]


def arrow_type(kind: FieldType | Type) -> pa.DataType:
    """The type in Arrow, and so in the files of Parquet and Delta."""
    # Arrow takes a third of a second to load.
    import pyarrow as pa

    of = type_of(kind) if isinstance(kind, str) else kind
    match of.name:
        case "decimal":
            return pa.decimal128(of.precision, of.scale)
        case "array":
            return pa.list_(pa.field("element", arrow_type(_element(of))))
        case "map":
            return pa.map_(pa.string(), arrow_type(_element(of)))
        case "struct":
            return pa.struct([(one.name, arrow_type(one.type)) for one in of.members])
    flat = {
        "string": pa.string(),
        "tinyint": pa.int8(),
        "smallint": pa.int16(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "binary": pa.binary(),
    }
    return flat[of.name]


def of_arrow(type_: pa.DataType) -> Type:
    """The type of a column in a file. Raises ValueError for one that no field has."""
    import pyarrow.types as arrow

    if arrow.is_decimal(type_):
        return Type("decimal", type_.precision, type_.scale)
    if arrow.is_map(type_):
        return Type("map", of=of_arrow(type_.item_type))
    if arrow.is_list(type_) or arrow.is_large_list(type_):
        return Type("array", of=of_arrow(type_.value_type))
    if arrow.is_struct(type_):
        return Type("struct", members=tuple(Member(one.name, of_arrow(one.type)) for one in type_))
    if arrow.is_timestamp(type_):
        return Type("timestamp" if type_.tz else "timestamp_ntz")
    for holds_for, name in (
        (arrow.is_int8, "tinyint"),
        (arrow.is_int16, "smallint"),
        (arrow.is_int32, "int"),
        (arrow.is_int64, "bigint"),
        (arrow.is_float32, "float"),
        (arrow.is_float64, "double"),
        (arrow.is_boolean, "boolean"),
        (arrow.is_date32, "date"),
        (arrow.is_binary, "binary"),
        (arrow.is_large_binary, "binary"),
        (arrow.is_string, "string"),
        (arrow.is_large_string, "string"),
    ):
        if holds_for(type_):
            return Type(name)
    raise ValueError(f"{type_} is no type of a field")


def _element(of: Type) -> Type:
    if of.of is None:
        raise ValueError(f"{of} has no elements")
    return of.of
