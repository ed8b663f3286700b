"""Aggregates by key in HBase: keys, qualifiers and cells, to the byte.

    key        fields of the key, with a salt before them (see keyed_rows.py)
    qualifier  partition and first offset of the block, or of the part of it that a window read first:
               `logs/0/0000000000000012000`, `logs#2/0/...` for incarnation 2
    timestamp  the generation of the attempt that wrote the cell
    cell       the mark of the attempt and the window that wrote it, then packed (see keyed_rows.py): `_rows`, the
               number of rows in the contribution; `_ack`, the XOR of their ack values, 16 hexadecimal digits; and
               each value that is not null. The mark's digest is XXH64 of the packed bytes

All numbers are unsigned and big-endian.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import xxhash

from tidemark.ledger.stores.contract import sortable
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import FIRST_INCARNATION, TopicPartition
from tidemark.sinks.hbase.keyed_rows import (
    decode_fields,
    encode_cell,
    encode_fields,
    fields_of,
    mark_of,
    packed_of,
    salted,
    unsalted,
)
from tidemark.sinks.hbase.netstrings import pack
from tidemark.sinks.stored_rows import Mark

TYPE = "hbase_aggregates"

ROWS, ACK = "_rows", "_ack"

_BLOCK = re.compile(rb"([^/#]+)(?:#(\d+))?/(\d+)/(\d{19})")


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of one block to a key: states that merge, the number of rows, and the XOR of their ack values.

    `whole` is false when the cell does not match its mark.
    """

    mark: Mark
    rows: int
    ack: str
    states: Mapping[str, bytes]
    whole: bool = True


def row_key(key: Sequence[bytes | None]) -> bytes:
    """The row of a key. Raises ProcessingFailed for a key of more than MOST_KEY_BYTES."""
    return salted(encode_fields(key), "a key", TYPE)


def key_of(row: bytes) -> tuple[bytes | None, ...]:
    """The key fields of a row. Raises ValueError for a row that is not of this layout."""
    return decode_fields(unsalted(row))


def block_qualifier(at: TopicPartition, start: int) -> bytes:
    """The column of a block of offsets. `start`: the first offset."""
    return f"{at}/{sortable(start)}".encode()


def block_of(name: bytes) -> tuple[TopicPartition, int] | None:
    """Partition and first offset of the block that a column stands for; None for a column of no block."""
    parts = _BLOCK.fullmatch(name)
    if parts is None:
        return None
    topic, incarnation, partition, start = parts.groups()
    return TopicPartition(topic.decode(), int(partition), int(incarnation or FIRST_INCARNATION)), int(start)


def columns_filter(wanted: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The filter that asks HBase for columns from a qualifier on, up to another one, in its language of filters.

    No qualifier of a block has a quotation mark: no topic's name has one.
    """
    return b" OR ".join(b"ColumnRangeFilter ('%b', true, '%b', false)" % one for one in wanted)


def encode(
    generation: int, lane: str, seq: int, rows: int, ack: int, states: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """The cell of a contribution. `lane` and `seq` name the window whose attempt writes it; `ack` has 64 bits."""
    packed = [(ROWS, b"%d" % rows), (ACK, b"%016x" % unsigned(ack)), *states]
    return encode_cell(Mark(generation, xxhash.xxh64_intdigest(pack(packed)), lane, seq), packed)


def decode(cell: bytes) -> Contribution:
    """Raises ValueError for a cell whose mark cannot be read."""
    mark = mark_of(cell)
    try:
        fields = fields_of(cell)
        rows, ack = int(fields.pop(ROWS)), fields.pop(ACK).decode()
    except (ValueError, KeyError):
        return Contribution(mark, 0, "", {}, whole=False)
    whole = mark.digest == xxhash.xxh64_intdigest(packed_of(cell))
    return Contribution(mark, rows, ack, fields, whole)
