"""Descriptors of Protobuf of which a reader checks the named fields alone.

A reader refuses a whole message for a text that is not UTF-8, for a required field that is missing, and for messages too
deep within each other, wherever that is. Fields that nobody named are made such that none of this is looked at: texts and
messages become bytes, enums become numbers, and none is required. They stay in the message, and in their `oneof`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidemark.schemes.protobuf_schema import is_map, message_of
from tidemark.types.ddl import Type
from tidemark.types.fields import FieldType, type_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_GOOGLE: Final = "google.protobuf."
# Of descriptor.proto: types, and the label of what may be missing.
_STRING, _GROUP, _MESSAGE, _BYTES, _ENUM, _INT32 = 9, 10, 11, 12, 14, 5
_AS: Final[Mapping[int, int]] = {_STRING: _BYTES, _MESSAGE: _BYTES, _ENUM: _INT32}
_OPTIONAL, _REQUIRED = 1, 2


def projected(data: bytes, message: str, fields: Mapping[str, FieldType]) -> bytes:
    """A set of descriptors for readers of these fields of a message. Raises ValueError."""
    from google.protobuf import descriptor_pb2

    wanted: dict[str, set[str]] = {}
    _want(message_of(data, message), {name: type_of(kind) for name, kind in fields.items()}, wanted)
    descriptors = descriptor_pb2.FileDescriptorSet.FromString(data)
    by_name = dict(one for file in descriptors.file for one in _messages(file.message_type, file.package))
    left = [*wanted]
    while left:
        name = left.pop()
        for field in by_name[name].field if name in by_name else ():
            if field.name not in wanted[name] and (group := _unnamed(field)) is not None and group not in wanted:
                wanted[group] = set()
                left.append(group)
    return bytes(descriptors.SerializeToString(deterministic=True))


def _messages(given: Any, within: str) -> list[tuple[str, Any]]:
    """All messages by their full names."""
    found = []
    for one in given:
        name = f"{within}.{one.name}" if within else one.name
        found += [(name, one), *_messages(one.nested_type, name)]
    return found


def _want(message: Descriptor, members: Mapping[str, Type], wanted: dict[str, set[str]]) -> None:
    """The names that are read of each message, at whatever depth. A message may be read at several places."""
    if message.full_name.startswith(_GOOGLE):
        return
    names = wanted.setdefault(message.full_name, set())
    for name, kind in members.items():
        field = message.fields_by_name.get(name)
        if field is None:
            continue
        names.add(name)
        inner: Type | None = kind
        of = field.message_type
        if of is not None and is_map(field):
            wanted.setdefault(of.full_name, set()).update(("key", "value"))
            of = of.fields_by_name["value"].message_type
            inner = kind.of
        elif field.is_repeated:
            inner = kind.of
        if of is not None and inner is not None and inner.name == "struct":
            _want(of, {one.name: one.type for one in inner.members}, wanted)


def _unnamed(field: Any) -> str | None:
    """Make a field one of which nothing is checked. The full name of a group, whose own fields are still to be made so."""
    if field.options.HasField("features"):
        return None
    if field.label == _REQUIRED:
        field.label = _OPTIONAL
    field.ClearField("default_value")
    if field.type in _AS:
        if field.type != _STRING:
            field.ClearField("type_name")
        field.type = _AS[field.type]
        field.ClearField("options")
    return str(field.type_name).removeprefix(".") if field.type == _GROUP else None
