"""The values of one Avro record, read as Avro's library for Java reads them, which the scheme `avro` uses."""

from __future__ import annotations

import struct
from collections.abc import Collection
from typing import Any

from tidemark.schemes.avro_projection import Schema, takes_no_bytes

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
# As `tidemark.spark.runtime.session` has them for Avro's library.
_MAX_BYTES, _MAX_ITEMS = 64 * 1024 * 1024, 16 * 1024 * 1024


class NoRecord(ValueError):
    """Raised for bytes that are no record of the schema."""


def values_of(schema: Schema, data: bytes, named: Collection[str]) -> dict[str, Any]:
    """The named fields of a record, with texts as bytes. Raises NoRecord."""
    reading = _Reading(schema, data)
    try:
        found = [(name, reading.value(type_)) for name, type_ in schema.fields.items()]
    except (IndexError, struct.error, RecursionError):
        raise NoRecord from None
    return {name: value for name, value in found if name in named}


class _Reading:
    def __init__(self, schema: Schema, data: bytes) -> None:
        self._schema, self._data, self._at = schema, data, 0

    def value(self, type_: Any) -> Any:  # noqa: C901  (a case for each type)
        body = self._schema.body(type_)
        if isinstance(body, list):
            return self.value(body[self._index(len(body))])
        match body["type"]:
            case "null":
                return None
            case "boolean":
                return self._bytes(1) == b"\1"
            case "int":
                return self._integer(32)
            case "long":
                return self._integer(64)
            case "float":
                return _FLOAT.unpack(self._bytes(4))[0]
            case "double":
                return _DOUBLE.unpack(self._bytes(8))[0]
            case "fixed":
                return self._bytes(body["size"])
            case "enum":
                return body["symbols"][self._index(len(body["symbols"]))].encode()
            case "array":
                return self._items(body["items"], keyed=False)
            case "map":
                return dict(self._items(body["values"], keyed=True))
            case "record":
                return {name: self.value(of) for name, of in body["fields"]}
        return self._bytes(self._integer(64))

    def _items(self, type_: Any, *, keyed: bool) -> list[Any]:
        found: list[Any] = []
        number = 0
        while count := self._integer(64):
            if count < 0:
                # The size of the block, for who passes over it.
                count = -count
                self._integer(64)
            number += count
            if number > _MAX_ITEMS:
                raise NoRecord
            if not keyed and takes_no_bytes(self._schema, type_):
                continue
            for _ in range(count):
                found.append((self._bytes(self._integer(64)), self.value(type_)) if keyed else self.value(type_))
        return found

    def _index(self, number: int) -> int:
        index = self._integer(32)
        if not 0 <= index < number:
            raise NoRecord
        return index

    def _bytes(self, length: int) -> bytes:
        if not 0 <= length <= min(_MAX_BYTES, len(self._data) - self._at):
            raise NoRecord
        self._at += length
        return self._data[self._at - length : self._at]

    def _integer(self, bits: int) -> int:
        """A number in as many bytes as it needs, seven bits in each, its sign in the lowest bit."""
        number = 0
        for shift in range(0, 70 if bits == 64 else 35, 7):
            part = self._data[self._at]
            self._at += 1
            number |= (part & 0x7F) << shift
            if part < 0x80:
                number &= (1 << bits) - 1
                return (number >> 1) ^ -(number & 1)
        raise NoRecord
