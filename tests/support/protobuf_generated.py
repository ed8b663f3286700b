"""Random schemas of Protocol Buffers, and messages of them that Google's library for Python writes."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

from tidemark.types.ddl import Type

PACKAGE, TOP = "made", "made.Top"
_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 2047, 2048, 18_999, 20_000, 2**29 - 1)
_ENUM, _MESSAGE = FieldDescriptor.TYPE_ENUM, FieldDescriptor.TYPE_MESSAGE


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


_SCALARS: Mapping[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    FieldDescriptor.TYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.TYPE_INT64: _signed(64),
    FieldDescriptor.TYPE_UINT64: _unsigned(64),
    FieldDescriptor.TYPE_INT32: _signed(32),
    FieldDescriptor.TYPE_FIXED64: _unsigned(64),
    FieldDescriptor.TYPE_FIXED32: _unsigned(32),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=4),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=4),
    FieldDescriptor.TYPE_UINT32: _unsigned(32),
    FieldDescriptor.TYPE_SFIXED32: _signed(32),
    FieldDescriptor.TYPE_SFIXED64: _signed(64),
    FieldDescriptor.TYPE_SINT32: _signed(32),
    FieldDescriptor.TYPE_SINT64: _signed(64),
    # Some have no name.
    _ENUM: st.sampled_from([0, 1, -1, 7, -(2**31)]),
}
_NO_KEYS = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_BYTES, _ENUM}
_KEYS = sorted(_SCALARS.keys() - _NO_KEYS)
_UNSIGNED = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)


@st.composite
def schemas(draw: st.DrawFn) -> bytes:
    """A set of descriptors, as `protoc` makes it, whose message `made.Top` has fields of any kind."""
    file = descriptor_pb2.FileDescriptorProto(name="made.proto", package=PACKAGE, syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    for name, number in (("NONE", 0), ("ONE", 1), ("LESS", -1)):
        kind.value.add(name=name, number=number)
    _fill(draw, file.message_type.add(name="Top"), TOP, 2)
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


def _fill(draw: st.DrawFn, message: descriptor_pb2.DescriptorProto, full: str, levels: int) -> None:
    numbers = draw(st.permutations(_NUMBERS))[: draw(st.integers(1, 6))]
    forms = [draw(st.sampled_from(["plain", "optional", "repeated", "map", "oneof"])) for _ in numbers]
    if "oneof" in forms:
        message.oneof_decl.add(name="one_of")
    for place, (form, number) in enumerate(zip(forms, numbers, strict=True)):
        field = message.field.add(name=f"f{place}", number=number, label=FieldDescriptor.LABEL_OPTIONAL)
        if form == "oneof":
            field.oneof_index = 0
        if form == "map":
            field.label, field.type, field.type_name = (
                FieldDescriptor.LABEL_REPEATED,
                _MESSAGE,
                f".{full}.F{place}Entry",
            )
            entry = message.nested_type.add(name=f"F{place}Entry")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=FieldDescriptor.LABEL_OPTIONAL)
            key.type = draw(st.sampled_from(_KEYS))
            field = entry.field.add(name="value", number=2, label=FieldDescriptor.LABEL_OPTIONAL)
        _typed(draw, message, field, full, f"M{place}", levels)
        if form == "repeated":
            field.label = FieldDescriptor.LABEL_REPEATED
    # What proto3 calls optional is a part of a choice of its own, behind the others.
    for place, form in enumerate(forms):
        field = message.field[place]
        if form == "optional" and field.type != _MESSAGE:
            field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
            message.oneof_decl.add(name=f"_f{place}")


def _typed(
    draw: st.DrawFn,
    message: descriptor_pb2.DescriptorProto,
    field: descriptor_pb2.FieldDescriptorProto,
    full: str,
    name: str,
    levels: int,
) -> None:
    field.type = draw(st.sampled_from([*sorted(_SCALARS), *[_MESSAGE] * (4 if levels else 0)]))
    if field.type == _ENUM:
        field.type_name = f".{PACKAGE}.Kind"
    if field.type == _MESSAGE:
        field.type_name = f".{full}.{name}"
        _fill(draw, message.nested_type.add(name=name), f"{full}.{name}", levels - 1)


def top_of(data: bytes) -> Any:
    """The class of the message `made.Top`, of Google's library."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(TOP))


def fill(draw: st.DrawFn, message: Any) -> Any:
    """Give some fields of a message values."""
    for field in message.DESCRIPTOR.fields:
        if not draw(st.booleans()):
            continue
        there = getattr(message, field.name)
        if _is_map(field):
            key, value = (field.message_type.fields_by_name[one] for one in ("key", "value"))
            for one in draw(st.lists(_SCALARS[key.type], max_size=3, unique=True)):
                if value.type == _MESSAGE:
                    fill(draw, there[one])
                else:
                    there[one] = draw(_SCALARS[value.type])
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                if field.type == _MESSAGE:
                    fill(draw, there.add())
                else:
                    there.append(draw(_SCALARS[field.type]))
        elif field.type == _MESSAGE:
            there.SetInParent()
            fill(draw, there)
        else:
            setattr(message, field.name, draw(_SCALARS[field.type]))
    return message


def row_of(message: Any, kinds: Mapping[str, Type]) -> dict[str, Any]:
    """The fields of a message as a row of these types has them, by Google's library."""
    fields = message.DESCRIPTOR.fields_by_name
    return {name: _member(message, fields[name], kind) for name, kind in kinds.items()}


def _member(message: Any, field: Any, kind: Type) -> Any:
    there = getattr(message, field.name)
    if _is_map(field):
        assert kind.of is not None
        value = field.message_type.fields_by_name["value"]
        return {
            str(key).lower() if isinstance(key, bool) else str(key): _value(value, there[key], kind.of) for key in there
        }
    if field.is_repeated:
        assert kind.of is not None
        return [_value(field, one, kind.of) for one in there]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _value(field, there, kind)


def _value(field: Any, value: Any, kind: Type) -> Any:
    if field.type == _MESSAGE:
        return row_of(value, {one.name: one.type for one in kind.members})
    if field.type == _ENUM:
        named = field.enum_type.values_by_number.get(value)
        return str(value) if named is None else named.name
    return Decimal(value) if field.type in _UNSIGNED else value


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def comparable(value: Any) -> Any:
    """A value that equals another one only if they are the same: NaN is itself, and -0.0 is not 0.0. Maps have no order."""
    if isinstance(value, dict):
        return sorted((key, comparable(one)) for key, one in value.items())
    if isinstance(value, list):
        return [comparable(one) for one in value]
    return value.hex() if isinstance(value, float) else value
