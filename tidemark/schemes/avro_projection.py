"""What a stream reads of Avro records: their schema, and that of the named fields alone.

Avro and Spark check all of a schema that they are given, and make a value of each field that the reader's schema has: a
default of another type, a decimal of more digits than Spark has, or a type that holds itself stops them, wherever it is. So
they are given schemas with nothing in them that nobody has named: no defaults, no names of one's own, no logical types
beside those of named fields. Within a named record, these are the members that its struct names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeGuard

from tidemark.schemes.avro_schema import record
from tidemark.types.ddl import Member, Type
from tidemark.types.fields import FieldType, text_of, type_of

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = ("record", "error", "enum", "fixed")
# What Avro takes for a name, whatever its version.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# The logical types that Spark makes another type of; all others are the numbers, texts or bytes that they are made of.
_LOGICAL = frozenset(
    {
        "date",
        "time-micros",
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    }
)
# Of a decimal of a field.
MAX_DIGITS = 38
# What is read and belongs to no field.
_BESIDE = Type("")
# Items that take no bytes, as Spark has a type for them.
_EMPTY = {"type": "fixed", "name": "tidemark.Empty", "size": 0}


@dataclass(frozen=True)
class Schema:
    """A record's schema, whose types are named in full. `definitions`: its own types by these names; `root` is the record's."""

    root: str
    definitions: Mapping[str, dict[str, Any]]

    def body(self, type_: Any) -> Any:
        """A type with what it is made of: a union's list, a definition, or an object of a primitive type."""
        if isinstance(type_, str):
            return self.definitions.get(type_, {"type": type_})
        return type_

    @property
    def fields(self) -> dict[str, Any]:
        """The types of the record's fields by their names."""
        return dict(self.definitions[self.root]["fields"])


@dataclass(frozen=True)
class Projection:
    """The schemas of a writer and of the reader of named fields, as Avro takes them.

    `columns`: the reader's name of each field that the record has. `read`: a field that only a record has which was read.
    `names`: names in the record for those that stand for them in the reader; None for what the record lacks.
    """

    writer: dict[str, Any]
    reader: dict[str, Any]
    columns: Mapping[str, str]
    read: str
    names: Mapping[str, str | None]


def schema_of(text: str) -> Schema:
    """A record's schema. Raises ValueError, also for a schema with a type that it does not have."""
    definitions: dict[str, dict[str, Any]] = {}
    root = _resolved(record(text), "", definitions)
    return Schema(root, definitions)


def projected(text: str, fields: Mapping[str, FieldType], *, may_lack: bool) -> Projection:
    """The named fields of a record. `may_lack`: what it does not have, at any depth, is null. Raises ValueError."""
    schema = schema_of(text)
    return _Projecting(schema, text, may_lack=may_lack).projection({name: type_of(one) for name, one in fields.items()})


def decimal_of(body: Mapping[str, Any]) -> tuple[int, int] | None:
    """The digits of a decimal, and those behind its point; None for what is none, as Avro ignores a decimal that cannot be."""
    if body.get("logicalType") != "decimal" or body["type"] not in ("bytes", "fixed"):
        return None
    precision, scale = body.get("precision"), body.get("scale", 0)
    if not _is_count(precision) or not _is_count(scale) or precision == 0 or scale > precision:
        return None
    size = body.get("size")
    if size is not None and precision > fixed_digits(size):
        return None
    return precision, scale


def fixed_digits(size: int) -> int:
    """How many digits a decimal in so many bytes may have."""
    return len(str(2 ** (8 * size - 1) - 1)) - 1 if size > 0 else 0


def takes_no_bytes(schema: Schema, type_: Any) -> bool:
    """Whether a type's values take no bytes."""
    return _is_empty(schema, type_, ())


def may_have_any_number(schema: Schema, type_: Any) -> bool:
    """Whether a type has an array, at any depth, whose items take no bytes: ten bytes of a message can be a billion of them."""
    return _has_empty_items(schema, type_, set())


def _is_count(given: Any) -> TypeGuard[int]:
    return isinstance(given, int) and not isinstance(given, bool) and given >= 0


def _resolved(type_: Any, within: str, definitions: dict[str, dict[str, Any]]) -> Any:
    """A type with the full names of those that it names. Definitions go to `definitions`; `within`: the namespace."""
    if isinstance(type_, list):
        return [_resolved(one, within, definitions) for one in type_]
    if isinstance(type_, str):
        return type_ if type_ in PRIMITIVES else _known(type_, within, definitions)
    if not isinstance(type_, dict) or "type" not in type_:
        raise ValueError(f"the schema has {str(type_)[:40]!r} where a type is expected")
    kind = type_["type"]
    if kind == "array" or kind == "map":
        of = "items" if kind == "array" else "values"
        if of not in type_:
            raise ValueError(f"the schema has an {kind} without {of}")
        return {"type": kind, of: _resolved(type_[of], within, definitions)}
    if kind in _NAMED:
        return _defined(type_, within, definitions)
    if isinstance(kind, str) and kind in PRIMITIVES:
        return {**_logical_of(type_), "type": kind}
    return _resolved(kind, within, definitions)


def _defined(type_: Mapping[str, Any], within: str, definitions: dict[str, dict[str, Any]]) -> str:
    kind, name = type_["type"], type_.get("name")
    if not isinstance(name, str) or not name:
        raise ValueError(f"the schema has a type {kind} without a name")
    namespace, _, last = name.rpartition(".")
    namespace = namespace or (type_["namespace"] if isinstance(type_.get("namespace"), str) else within)
    full = f"{namespace}.{last}" if namespace else last
    if full in definitions or full in PRIMITIVES:
        raise ValueError(f"the schema has two types {full}")
    # Before its fields, which may be of the type itself.
    body = definitions[full] = {**_logical_of(type_), "type": "record" if kind == "error" else kind}
    if kind == "enum":
        symbols = type_.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(one, str) for one in symbols):
            raise ValueError(f"the schema has an enum {full} without symbols")
        body["symbols"] = symbols
    elif kind == "fixed":
        if not _is_count(type_.get("size")):
            raise ValueError(f"the schema has a fixed {full} without a size")
        body["size"] = type_["size"]
    else:
        given = type_.get("fields")
        if not isinstance(given, list) or not all(
            isinstance(one, dict) and isinstance(one.get("name"), str) for one in given
        ):
            raise ValueError(f"the schema has a record {full} without fields that have names")
        names = [one["name"] for one in given]
        if len(set(names)) < len(names):
            raise ValueError(f"the schema has a record {full} with two fields of one name")
        body["fields"] = [(one["name"], _resolved(one.get("type"), namespace, definitions)) for one in given]
    return full


def _symbols(given: list[str]) -> list[str]:
    """The symbols of an enum as Avro takes them: other texts have names of ours, and are no values of fields."""
    known = len(set(given)) == len(given) and all(map(_NAME.fullmatch, given))
    return given if known else [f"S{number}" for number in range(len(given))]


def _check_symbols(given: list[str], path: str) -> None:
    if _symbols(given) != given:
        wrong = next((one for one in given if not _NAME.fullmatch(one)), "one that stands twice")
        raise ValueError(f"{path} is an enum with the symbol {wrong!r}, which Avro does not allow")


def _known(name: str, within: str, definitions: Mapping[str, Any]) -> str:
    for full in (f"{within}.{name}" if within and "." not in name else name, name):
        if full in definitions:
            return full
    raise ValueError(f"the schema names a type {name!r} that it does not have")


def _logical_of(type_: Mapping[str, Any]) -> dict[str, Any]:
    return {one: type_[one] for one in ("logicalType", "precision", "scale") if one in type_}


def _inner(body: Any) -> list[Any]:
    """The types within a type."""
    if isinstance(body, list):
        return body
    if body["type"] == "record":
        return [one for _, one in body["fields"]]
    return [body[of] for of in ("items", "values") if of in body]


def _has_empty_items(schema: Schema, type_: Any, seen: set[str]) -> bool:
    if isinstance(type_, str):
        if type_ in seen or type_ in PRIMITIVES:
            return False
        seen.add(type_)
    body = schema.body(type_)
    if isinstance(body, dict) and body["type"] == "array" and takes_no_bytes(schema, body["items"]):
        return True
    return any(_has_empty_items(schema, one, seen) for one in _inner(body))


def _is_empty(schema: Schema, type_: Any, around: tuple[str, ...]) -> bool:
    """Whether a type's values take no bytes. `around`: the named types that hold it."""
    body = schema.body(type_)
    if isinstance(body, list) or type_ in around:
        return False
    if body["type"] == "record":
        return all(_is_empty(schema, one, (*around, str(type_))) for _, one in body["fields"])
    return bool(body["type"] == "null" or body.get("size") == 0)


class _Projecting:
    """Makes both schemas of one projection."""

    def __init__(self, schema: Schema, text: str, *, may_lack: bool) -> None:
        self._schema, self._may_lack = schema, may_lack
        self._numbers = {name: number for number, name in enumerate(schema.definitions)}
        # What no name of the schema begins with.
        self._mark = next(f"_tidemark{one or ''}" for one in count() if f"_tidemark{one or ''}" not in text)
        self._stand_ins: dict[str, str] = {}
        self._names: dict[str, str | None] = {}
        self._next = count()
        self._read_types: set[str] = set()

    def projection(self, wanted: Mapping[str, Type]) -> Projection:
        columns, members = {}, []
        for name, type_ in sorted(self._schema.fields.items(), key=lambda field: field[0] in wanted):
            if name in wanted:
                columns[name] = self._name(name)
                members.append({"name": columns[name], "type": self._read(type_, wanted[name], name, ())})
            elif may_have_any_number(self._schema, type_):
                # Read, so that Avro's limit for the items of an array holds: it skips them one by one, without any limit.
                # A name that differs from all others in more than case, as Spark wants it.
                at = self._stand_ins[name] = self._lone_name(name)
                members.append({"name": at, "type": self._read(type_, _BESIDE, name, ())})
        read = f"{self._mark}_read"
        # It has its default only if a record was read: Spark makes a record of nulls from bytes that are no record.
        members.append({"name": read, "type": "boolean", "default": True})
        reader = {"type": "record", "name": "tidemark.Read", "fields": members}
        return Projection(self._written(self._schema.root, set()), reader, columns, read, self._names)

    def _written(self, type_: Any, done: set[str]) -> Any:
        """A type as bytes have it."""
        body = self._schema.body(type_)
        if isinstance(body, list):
            return [self._written(one, done) for one in body]
        match body["type"]:
            case "array":
                return {
                    "type": "array",
                    "items": self._items(body["items"], done) or self._written(body["items"], done),
                }
            case "map":
                return {"type": "map", "values": self._written(body["values"], done)}
            case "record" | "enum" | "fixed":
                return self._definition(type_, body, done, {})
        return body["type"]

    def _items(self, type_: Any, done: set[str]) -> Any:
        """What stands for items that take no bytes; None for others."""
        if not takes_no_bytes(self._schema, type_):
            return None
        if _EMPTY["name"] in done:
            return _EMPTY["name"]
        done.add(str(_EMPTY["name"]))
        return _EMPTY

    def _definition(self, type_: str, body: Mapping[str, Any], done: set[str], more: Mapping[str, Any]) -> Any:
        name = f"tidemark.T{self._numbers[type_]}"
        if type_ in done:
            return name
        done.add(type_)
        named = {"type": body["type"], "name": name, **more}
        if body["type"] != "record":
            part = {"size": body["size"]} if body["type"] == "fixed" else {"symbols": _symbols(body["symbols"])}
            return {**named, **part}
        members = [{"name": self._name(one), "type": self._written(of, done)} for one, of in body["fields"]]
        return {**named, "fields": members}

    def _read(self, type_: Any, kind: Type | None, path: str, around: tuple[str, ...]) -> Any:
        """A type as a value of `kind` is read; all of it where `kind` is None. `around`: the records that hold it."""
        body = self._schema.body(type_)
        if isinstance(body, list):
            alone = sum(one != "null" for one in body) == 1
            return [self._read(one, kind if alone or kind is _BESIDE else None, path, around) for one in body]
        of = kind.of if kind is not None and kind.name == body["type"] else _BESIDE if kind is _BESIDE else None
        match body["type"]:
            case "array" if (empty := self._items(body["items"], self._read_types)) is not None:
                if kind is not _BESIDE:
                    raise ValueError(f"{path} is an array whose items take no bytes")
                return {"type": "array", "items": empty}
            case "array":
                return {"type": "array", "items": self._read(body["items"], of, f"{path}[]", around)}
            case "map":
                return {"type": "map", "values": self._read(body["values"], of, f"{path}[]", around)}
            case "record":
                return self._read_record(type_, body, kind, path, around)
            case "enum" | "fixed":
                if body["type"] == "enum" and kind is not _BESIDE:
                    _check_symbols(body["symbols"], path)
                more = self._logical(body, kind, path)
                return self._definition(type_, body, self._read_types, more)
        return {"type": body["type"], **self._logical(body, kind, path)}

    def _read_record(
        self, type_: str, body: Mapping[str, Any], kind: Type | None, path: str, around: tuple[str, ...]
    ) -> Any:
        given = dict(body["fields"])
        wanted = self._wanted(given, kind, path)
        if wanted is None and type_ in around:
            raise ValueError(f"{path} holds itself, to whatever depth: name its members, as struct<...>")
        # Each has a name of its own, as each may have other members; of the last part, Avro tells which is which.
        name = f"tidemark{next(self._next)}.T{self._numbers[type_]}"
        members = []
        for one in wanted if wanted is not None else [Member(each, _BESIDE) for each in given]:
            if one.name not in given:
                members.append({"name": self._lone_name(None), "type": "null", "default": None})
                continue
            inner = one.type if wanted is not None or kind is _BESIDE else None
            of = self._read(
                given[one.name], inner, f"{path}.{one.name}", (*around, type_) if wanted is None else around
            )
            members.append({"name": self._name(one.name), "type": of})
        return {"type": "record", "name": name, "fields": members}

    def _wanted(self, given: Mapping[str, Any], kind: Type | None, path: str) -> tuple[Member, ...] | None:
        """The members of a record that a struct names; None where all are read, to say what it is instead."""
        if kind is None or kind is _BESIDE:
            return None
        if kind.name != "struct":
            raise ValueError(f"{path} is a record, and not {text_of(kind)}: its members are a struct<...>")
        named = [one.name for one in kind.members]
        if not self._may_lack and (missing := [one for one in named if one not in given]):
            raise ValueError(f"{path} has no member {missing[0]}; it has {', '.join(given)}")
        others = (type_ for name, type_ in given.items() if name not in named)
        return None if any(may_have_any_number(self._schema, one) for one in others) else kind.members

    def _logical(self, body: Mapping[str, Any], kind: Type | None, path: str) -> dict[str, Any]:
        """The logical type of a value, if it makes another type of it."""
        if (digits := decimal_of(body)) is not None:
            if kind is _BESIDE or (kind is not None and kind.name == "binary"):
                return {}
            precision, scale = digits
            if precision > MAX_DIGITS:
                wanted = "" if kind is None else f", and not {text_of(kind)}"
                raise ValueError(f"{path} is decimal({precision},{scale}){wanted}: binary has its unscaled number")
            return {"logicalType": "decimal", "precision": precision, "scale": scale}
        name = body.get("logicalType")
        return {"logicalType": name} if isinstance(name, str) and name in _LOGICAL else {}

    def _name(self, name: str) -> str:
        """A field's name as Avro takes it."""
        if name not in self._stand_ins:
            self._stand_ins[name] = name if _NAME.fullmatch(name) else self._lone_name(name)
        return self._stand_ins[name]

    def _lone_name(self, name: str | None) -> str:
        made = f"{self._mark}_{next(self._next)}"
        self._names[made] = name
        return made
