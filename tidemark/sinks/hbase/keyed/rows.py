"""The rows of a table with a row for each key: keys and cells, to the byte.

    key        topic        1 byte length, then UTF-8. In tables of newest rows each topic has keys of its own, as offsets of
                            two topics have no order. Elsewhere it is empty
               fields       of the key, as texts; with a salt before all this (see keys.py)
    d:FIELD    the field as UTF-8 text, or its bytes if it is binary; empty for null. No such cell where the key is gone
    t:null     the names of the fields that are null, with a space between two
    t:at       the message: length of the topic 1 byte, topic, incarnation 2, partition 4, offset 8, index of the row 4
    t:m        format 1 byte (1), flags 1 (1: tombstone, 2: the key is gone), generation 8, digest of the contents 8, hash of
               the key 8
    t:in       aggregates alone: the windows that are counted and were not settled when the row was written, as JSON:
               [[lane, number, generation], ...]

All numbers are big-endian; the hash is signed. The cells of a row have the number of the publication that wrote them as
their timestamp. A null is an empty cell, so that one put replaces all of a row at once.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.hbase.keyed.keys import decode_fields, encode_fields, salted, unsalted
from tidemark.sinks.hbase.rows import DATA_PREFIX
from tidemark.sinks.stored_rows import FLAG_TOMBSTONE, MARK_FORMAT, Place
from tidemark.types.fields import FieldType
from tidemark.types.renamed_fields import Names, by_today

if TYPE_CHECKING:
    import pyarrow as pa

AT, MARK, NULLS, WINDOWS = b"t:at", b"t:m", b"t:null", b"t:in"
FLAG_GONE = 2

_MARK = struct.Struct(">BBQQq")
_PARTITION, _PLACE, _OFFSET = struct.Struct(">HI"), struct.Struct(">QI"), struct.Struct(">Q")


class KeyedMark(NamedTuple):
    """What a row says of itself besides its message. `key_hash`: as the history has it."""

    generation: int
    digest: int
    key_hash: int
    tombstone: bool
    gone: bool

    def encode(self) -> bytes:
        flags = (FLAG_TOMBSTONE if self.tombstone else 0) | (FLAG_GONE if self.gone else 0)
        return _MARK.pack(MARK_FORMAT, flags, self.generation, self.digest, self.key_hash)

    @classmethod
    def decode(cls, stored: bytes) -> KeyedMark:
        """Raises ValueError for bytes that are not of this layout."""
        if len(stored) != _MARK.size or stored[0] != MARK_FORMAT:
            raise ValueError(f"not a mark of format {MARK_FORMAT}: {stored[:40]!r}")
        _, flags, generation, digest, key_hash = _MARK.unpack(stored)
        return cls(generation, digest, key_hash, bool(flags & FLAG_TOMBSTONE), bool(flags & FLAG_GONE))


@dataclass(frozen=True)
class KeyedRow:
    """A row as the table has it: its key, and all cells of one publication. Raises ValueError for other layouts.

    `was`: the older names of fields.
    """

    key: bytes
    cells: Mapping[bytes, bytes]
    was: Names = field(default_factory=dict)

    @cached_property
    def place(self) -> Place:
        return decode_place(self.cells[AT])

    @cached_property
    def mark(self) -> KeyedMark:
        return KeyedMark.decode(self.cells[MARK])

    @property
    def windows(self) -> frozenset[tuple[str, int, int]]:
        """The windows that are counted here and may not be settled: lane, number, generation."""
        return frozenset(
            (lane, seq, generation) for lane, seq, generation in json.loads(self.cells.get(WINDOWS, b"[]"))
        )

    def key_fields(self, names: Sequence[str]) -> dict[str, bytes]:
        """The fields of the key that are not null, by their names in its order."""
        key = unsalted(self.key)
        values = zip(names, decode_fields(key[1 + key[0] :]), strict=True)
        return {name: value for name, value in values if value is not None}

    @property
    def fields(self) -> dict[str, bytes]:
        """The fields that are not null, by today's names."""
        nulls = {*self.cells.get(NULLS, b"").decode().split()}
        names = {
            column[len(DATA_PREFIX) :].decode(): value
            for column, value in self.cells.items()
            if column.startswith(DATA_PREFIX)
        }
        return by_today(self.was, {name: value for name, value in names.items() if name not in nulls})


def encode_place(place: Place) -> bytes:
    return _before_offset(place.partition) + _PLACE.pack(place.offset, place.index)


def decode_place(stored: bytes) -> Place:
    """Raises ValueError for bytes that are not of this layout."""
    length = stored[0] if stored else 0
    if length < 1 or len(stored) != 1 + length + _PARTITION.size + _PLACE.size:
        raise ValueError(f"not the place of a message: {stored!r}")
    incarnation, partition = _PARTITION.unpack_from(stored, 1 + length)
    offset, index = _PLACE.unpack_from(stored, 1 + length + _PARTITION.size)
    return Place(TopicPartition(stored[1 : 1 + length].decode(), partition, incarnation), offset, index)


def places_within(wanted: OffsetRange) -> tuple[bytes, bytes]:
    """The places of a range of offsets, as (the first, what comes after the last)."""
    before = _before_offset(wanted.partition)
    return before + _OFFSET.pack(wanted.start), before + _OFFSET.pack(wanted.until)


def _before_offset(at: TopicPartition) -> bytes:
    topic = at.topic.encode()
    return bytes([len(topic)]) + topic + _PARTITION.pack(at.incarnation, at.partition)


def row_key(topic: str, key: Sequence[bytes | None], sink_type: str) -> bytes:
    """The row of a key; `topic` is empty where keys are of all topics.

    Raises ProcessingFailed for a key of more than MAX_KEY_BYTES.
    """
    encoded = topic.encode()
    whose = f"a key of {topic}" if topic else "a key"
    return salted(bytes([len(encoded)]) + encoded + encode_fields(key), whose, sink_type)


def key_text(kind: FieldType, text: bytes | None) -> bytes | None:
    """A field of a key as the row's key has it: -0.0 is the key 0.0, as in every comparison."""
    return b"0.0" if text == b"-0.0" and kind in ("double", "float") else text


class EncodedCells(NamedTuple):
    """Rows of a history as the table holds them, column by column. A null is no cell."""

    keys: list[bytes]
    cells: list[tuple[bytes, pa.Array]]
    gone: list[bool]

    def only(self, chosen: Sequence[int]) -> EncodedCells:
        """Some of them, by their numbers."""
        import pyarrow as pa

        if len(chosen) == len(self.keys):
            return self
        numbers = pa.array(chosen, pa.int64())
        cells = [(column, values.take(numbers)) for column, values in self.cells]
        return EncodedCells([self.keys[one] for one in chosen], cells, [self.gone[one] for one in chosen])

    def rows(self) -> Iterator[KeyedRow]:
        """The same, row by row."""
        columns = [(column, values.to_pylist()) for column, values in self.cells]
        for number, key in enumerate(self.keys):
            cells = {column: values[number] for column, values in columns if values[number] is not None}
            yield KeyedRow(key, cells)
