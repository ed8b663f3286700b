"""Aggregates by key in HBase: keys, qualifiers and cells, to the byte.

    key        salt         1 byte: XXH64 of the rest modulo 16
               fields       of the key, in its order: a byte 0 for null; else a 1, the length in 4 bytes, the bytes
    qualifier  lane and number of the first window that covered what the cell is made of: `ingest/0000000000000000012`
    timestamp  the generation of the attempt that wrote the cell
    cell       length of the mark 2 bytes, the mark (see hbase_rows.py) of the attempt and the window that wrote it, then
               packed (see packed.py): `_rows`, how many rows it is made of; `_ack`, the XOR of their ack values, 16 hexadecimal
               digits; and each value that is not null. The mark's digest is XXH64 of what is packed

All numbers are unsigned and big-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import xxhash

from tidemark.errors import ProcessingFailed
from tidemark.hashing import unsigned
from tidemark.ledger.store import sortable
from tidemark.results.hbase_rows import SALTS, Mark
from tidemark.results.latest_rows import MOST_KEY_BYTES, encode_cell, fields_of, mark_of
from tidemark.results.packed import pack

TYPE = "hbase_aggregates"

ROWS, ACK = "_rows", "_ack"

_NULL, _VALUE = b"\x00", b"\x01"
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one window gives to a key: states that merge, of how many rows, and the XOR of these rows' ack values.

    `whole` is false when the cell does not hold what its mark says.
    """

    mark: Mark
    rows: int
    ack: str
    states: Mapping[str, bytes]
    whole: bool = True


def row_key(key: Sequence[bytes | None]) -> bytes:
    """The row of a key. Raises ProcessingFailed for one that is longer than HBase's rows may be."""
    body = b"".join(_NULL if one is None else _VALUE + _LENGTH.pack(len(one)) + one for one in key)
    if len(body) > MOST_KEY_BYTES:
        raise ProcessingFailed(f"a key takes {len(body)} bytes, and {MOST_KEY_BYTES} is the most of the sink {TYPE}")
    return bytes([xxhash.xxh64_intdigest(body) % SALTS]) + body


def key_of(row: bytes) -> tuple[bytes | None, ...]:
    """The fields of the key that a row is of. Raises ValueError for a row that is not of this layout."""
    found: list[bytes | None] = []
    at = 1
    while at < len(row):
        if row[at : at + 1] == _NULL:
            found.append(None)
            at += 1
            continue
        behind = at + 1 + _LENGTH.size
        if row[at : at + 1] != _VALUE or behind > len(row):
            raise ValueError(f"not a row of this layout: {row!r}")
        until = behind + int(_LENGTH.unpack_from(row, at + 1)[0])
        found.append(row[behind:until])
        at = until
    if at != len(row) or row_key(found) != row:
        raise ValueError(f"not a row of this layout: {row!r}")
    return tuple(found)


def qualifier(lane: str, seq: int) -> bytes:
    return f"{lane}/{sortable(seq)}".encode()


def encode(
    generation: int, lane: str, seq: int, rows: int, ack: int, states: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """The cell of a contribution; `lane` and `seq` are those of the window whose attempt writes it, `ack` has 64 bits."""
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
    whole = mark.digest == xxhash.xxh64_intdigest(cell[2 + len(mark.encode()) :])
    return Contribution(mark, rows, ack, found, whole)
