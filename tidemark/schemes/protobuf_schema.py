"""Schemas of Protobuf messages: sets of descriptors, and which fields of a stream fit a message.

Google's package `protobuf` reads the descriptors. It is loaded for streams of this scheme alone.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tidemark.clients.registry_answers import NOT_FRAMED
from tidemark.errors import PROTOBUF, PackageMissing, install
from tidemark.types.ddl import DEEPEST, TooManyParts, Type, TypePartCounter, quoted
from tidemark.types.fields import FieldType, text_of, type_of

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

# In what google.protobuf calls the types of fields; see descriptor.proto.
_OF_SCALARS: Final[Mapping[int, tuple[str, ...]]] = {
    1: ("double",),
    2: ("float", "double"),
    3: ("bigint", "decimal"),
    4: ("decimal", "bigint"),
    5: ("int", "bigint", "decimal"),
    6: ("decimal", "bigint"),
    7: ("bigint", "decimal"),
    8: ("boolean",),
    9: ("string",),
    12: ("binary",),
    13: ("bigint", "decimal"),
    14: ("string", "int", "bigint"),
    15: ("int", "bigint", "decimal"),
    16: ("bigint", "decimal"),
    17: ("int", "bigint", "decimal"),
    18: ("bigint", "decimal"),
}
_SCALARS: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_GOOGLE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_GOOGLE}{one}Value"
    for one in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
# What Google's own types may be, beside structs of their members. All digits of a Duration are a decimal of its seconds.
_OF_GOOGLE: Final[Mapping[str, tuple[str, ...]]] = {
    f"{_GOOGLE}Timestamp": ("timestamp", "decimal"),
    f"{_GOOGLE}Duration": ("decimal",),
    **{f"{_GOOGLE}{one}": ("string",) for one in ("Struct", "Value", "ListValue")},
}
# The type that a draft gives: the first, and a decimal that holds every duration.
_DRAFTED: Final[Mapping[str, str]] = {
    **{name: kinds[0] for name, kinds in _OF_GOOGLE.items()},
    f"{_GOOGLE}Duration": "decimal(21,9)",
}
_OF_UNSIGNED: Final = "decimal(20,0)"


def normal(data: bytes) -> bytes:
    """A FileDescriptorSet that a file or `protoc` gives, as readers take it. Raises ValueError, PackageMissing.

    Comments are left out. Texts are checked to be UTF-8, as proto2 does not ask for.
    """
    try:
        from google.protobuf import descriptor_pb2
        from google.protobuf.message import DecodeError
    except ImportError as problem:
        raise PackageMissing(f"the scheme protobuf needs the package protobuf: {install(*PROTOBUF)}") from problem
    descriptors = descriptor_pb2.FileDescriptorSet()
    try:
        descriptors.ParseFromString(data)
    except DecodeError:
        descriptors.Clear()
    if not descriptors.file:
        raise ValueError("it is no set of descriptors; make it with protoc --include_imports --descriptor_set_out=FILE")
    given = set()
    for file in descriptors.file:
        file.ClearField("source_code_info")
        file.options.java_string_check_utf8 = True
        if missing := [one for one in file.dependency if one not in given]:
            raise ValueError(f"{file.name} imports {missing[0]}, which is not in it; protoc needs --include_imports")
        given.add(file.name)
    return bytes(descriptors.SerializeToString(deterministic=True))


def message_of(data: bytes, name: str) -> Descriptor:
    """The message of this full name in a set. Raises ValueError that says which ones there are."""
    pool, names = _pool(data)
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ValueError(f"it has no message {name}; it has {', '.join(names[:10]) or 'none'}") from None


def behind_indexes(schema: str, value: bytes) -> tuple[str, bytes]:
    """The full name of the message that a value's first bytes name by its indexes, and the bytes behind them.

    `schema`: the set in base64, whose last file has the messages. Raises ValueError.
    """
    count, at = _index(value, 0)
    file = _last_file(schema)
    names, kinds = [file.package] if file.package else [], file.message_type
    # No index stands for one index of 0.
    for _ in range(max(count, 1)):
        index, at = _index(value, at) if count else (0, at)
        if index >= len(kinds):
            raise ValueError("it has the index of a message that its schema does not have")
        names.append(kinds[index].name)
        kinds = kinds[index].nested_type
    return ".".join(names), value[at:]


@lru_cache(maxsize=100)
def _last_file(schema: str) -> Any:
    from google.protobuf import descriptor_pb2

    return descriptor_pb2.FileDescriptorSet.FromString(b64decode(schema)).file[-1]


def _index(value: bytes, at: int) -> tuple[int, int]:
    """A number in as many bytes as it needs, seven bits in each, its sign in the lowest bit; and where it ends."""
    number = 0
    for place, part in enumerate(value[at : at + 4]):
        number |= (part & 0x7F) << 7 * place
        if part < 0x80 and not number & 1:
            return number >> 1, at + place + 1
        if part < 0x80:
            break
    raise ValueError(NOT_FRAMED)


@lru_cache(maxsize=100)
def _pool(data: bytes) -> tuple[Any, tuple[str, ...]]:
    """The messages of a set, and the names of those that are its files' own."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    names = []
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        try:
            pool.Add(file)
            pool.FindFileByName(file.name)
        # The pool raises TypeError for what does not fit together, and KeyError where that was used.
        except (TypeError, KeyError) as problem:
            raise ValueError(f"{file.name} cannot be used: {' '.join(str(problem).split())[:200]}") from None
        prefix = f"{file.package}." if file.package else ""
        if not file.name.startswith("google/protobuf/"):
            names += [f"{prefix}{one.name}" for one in file.message_type]
    return pool, tuple(names)


def problem_with(message: Descriptor, fields: Mapping[str, FieldType], *, may_lack: bool) -> str | None:
    """Why a message cannot give fields in their types; None where it can. `may_lack`: a field that it lacks is null."""
    return next(
        filter(None, (_member(message, name, type_of(kind), "", may_lack) for name, kind in fields.items())), None
    )


def _member(message: Descriptor, name: str, kind: Type, within: str, may_lack: bool) -> str | None:
    field = message.fields_by_name.get(name)
    if field is None:
        known = ", ".join(one.name for one in message.fields)
        return None if may_lack else f"{within or message.full_name} has no field {name}; it has {known}"
    path = f"{within}.{name}" if within else name
    if not field.is_repeated:
        return _value(field, kind, path, may_lack)
    wanted, inner = ("map", field.message_type.fields_by_name["value"]) if is_map(field) else ("array", field)
    if kind.name != wanted or kind.of is None:
        return _other(field, kind, path)
    return _value(inner, kind.of, f"{path}[]", may_lack)


def _value(field: FieldDescriptor, kind: Type, path: str, may_lack: bool) -> str | None:
    of = field.message_type
    if of is None:
        return None if kind.name in _OF_SCALARS[field.type] else _other(field, kind, path)
    if kind.name == "struct":
        each = (_member(of, one.name, one.type, path, may_lack) for one in kind.members)
        return next(filter(None, each), None)
    if of.full_name in _WRAPPERS:
        return _value(of.fields_by_name["value"], kind, path, may_lack)
    return None if kind.name in _OF_GOOGLE.get(of.full_name, ()) else _other(field, kind, path)


def _other(field: FieldDescriptor, kind: Type, path: str) -> str:
    return f"{path} is {_words(field)}, and not {text_of(kind)}"


def _words(field: FieldDescriptor) -> str:
    """The type of a field, as a .proto file has it."""
    if is_map(field):
        key, value = (field.message_type.fields_by_name[one] for one in ("key", "value"))
        return f"map<{_words(key)}, {_words(value)}>"
    of = field.message_type or field.enum_type
    name = _SCALARS[field.type] if of is None else of.full_name
    return f"repeated {name}" if field.is_repeated else str(name)


def is_map(field: FieldDescriptor) -> bool:
    """Whether a field is a map, which is written as messages of a key and a value."""
    of = field.message_type
    return field.is_repeated and of is not None and bool(of.GetOptions().map_entry)


def drafted(message: Descriptor) -> dict[str, str | None]:
    """The type of each field of a message; None for one that holds itself, is too large, or has nothing that is read."""
    return {field.name: _drafted_field(field, message) for field in message.fields}


def _drafted_field(field: FieldDescriptor, message: Descriptor) -> str | None:
    try:
        return _drafted(field, (message.full_name,), TypePartCounter())
    except TooManyParts:
        return None


def _drafted(field: FieldDescriptor, within: tuple[str, ...], parts: TypePartCounter) -> str | None:
    if is_map(field):
        of = _drafted_value(field.message_type.fields_by_name["value"], within, parts)
        return None if of is None else f"map<string, {of}>"
    type_ = _drafted_value(field, within, parts)
    return None if type_ is None else f"array<{type_}>" if field.is_repeated else type_


def _drafted_value(field: FieldDescriptor, within: tuple[str, ...], parts: TypePartCounter) -> str | None:
    of = field.message_type
    if of is None:
        first = _OF_SCALARS[field.type][0]
        return _OF_UNSIGNED if first == "decimal" else first
    if of.full_name in _WRAPPERS:
        return _drafted_value(of.fields_by_name["value"], within, parts)
    if of.full_name in _DRAFTED:
        return _DRAFTED[of.full_name]
    if of.full_name in within or len(within) >= DEEPEST // 2:
        return None
    parts.add(len(of.fields))
    members: dict[str, str] = {}
    for one in of.fields:
        if (kind := _drafted(one, (*within, of.full_name), parts)) is not None:
            # Of names that differ in case alone, a struct has the first.
            members.setdefault(one.name.lower(), f"{quoted(one.name)}: {kind}")
    return f"struct<{', '.join(members.values())}>" if members else None
