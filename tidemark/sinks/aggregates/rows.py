"""Aggregates by key in HBase: keys, qualifiers and cells, to the byte.

    key        fields of the key, with a salt before them (see keyed_rows.py)
    qualifier  lane and number of the window that first read the cell's messages: `ingest/0000000000000000012`
    timestamp  the generation of the attempt that wrote the cell
    cell       the mark of the attempt and the window that wrote it, then packed (see keyed_rows.py): `_rows`, the
               number of rows in the contribution; `_ack`, the XOR of their ack values, 16 hexadecimal digits; and
               each value that is not null. The mark's digest is XXH64 of the packed bytes

All numbers are unsigned and big-endian.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xxhash

from tidemark.ledger.store import sortable
from tidemark.offsets.hashing import unsigned
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
from tidemark.sinks.hbase.packed import pack
from tidemark.sinks.hbase.rows import Mark

TYPE = "hbase_aggregates"

ROWS, ACK = "_rows", "_ack"


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one window contributes to a key: states that merge, the number of rows, and the XOR of their ack values.

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


def qualifier(lane: str, seq: int) -> bytes:
    return f"{lane}/{sortable(seq)}".encode()


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
        found = fields_of(cell)
        rows, ack = int(found.pop(ROWS)), found.pop(ACK).decode()
    except (ValueError, KeyError):
        return Contribution(mark, 0, "", {}, whole=False)
    whole = mark.digest == xxhash.xxh64_intdigest(packed_of(cell))
    return Contribution(mark, rows, ack, found, whole)
