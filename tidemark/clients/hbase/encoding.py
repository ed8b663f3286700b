"""A call of HBase's Thrift interface that puts many rows, as bytes: encoded column by column.

Thrift's library makes an object of each cell and writes them one by one. Here Arrow joins whole columns of them. The bytes are
those of Thrift's binary protocol, as the library would write them:

    call       0x80010001, name, 0; then its arguments: 1 table, 2 rows, 3 timestamp (i64), 4 attributes (none)
    row        1 its key, 2 its mutations, 0
    mutation   1 isDelete (false), 2 column with family, 3 value, 4 writeToWAL (true), 0

An argument or a part begins with its type (1 byte) and its number (2). A text is its length (4) and its bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CALL = "mutateRowsTs"
_BOOL, _I64, _TEXT, _STRUCT, _MAP, _LIST = 2, 10, 11, 12, 13, 15
_STOP = b"\x00"
_BEGIN = 0x8001_0001
_NOTHING = pa.scalar(b"", pa.binary())


@dataclass(frozen=True)
class EncodedRows:
    """The rows of a call: how many, and their bytes."""

    number: int
    encoded: memoryview


def encode_rows(keys: pa.Array, cells: Sequence[tuple[bytes | pa.Array, pa.Array]]) -> EncodedRows:
    """Rows by their keys, with a cell for each column (with its family) and value. A null value is no cell.

    A column is the same for all rows, or an array with one for each.
    """
    mutations = [_mutation(column, values) for column, values in cells]
    numbers = sum((pc.cast(values.is_valid(), pa.int32()).to_numpy(zero_copy_only=False) for _, values in cells), 0)
    row = [
        _part(_TEXT, 1),
        _lengths(keys),
        keys,
        _part(_LIST, 2) + bytes([_STRUCT]),
        _numbers(np.broadcast_to(numbers, len(keys))),
        *mutations,
        _STOP,
    ]
    return EncodedRows(len(keys), _bytes(_joined(row)))


def call_of(table: bytes, rows: EncodedRows, timestamp: int) -> bytes:
    """The call that puts rows into a table, with one timestamp for all cells."""
    name = CALL.encode()
    begin = struct.pack(">Ii", _BEGIN, len(name)) + name + struct.pack(">i", 0)
    begin += _part(_TEXT, 1) + struct.pack(">i", len(table)) + table
    begin += _part(_LIST, 2) + struct.pack(">Bi", _STRUCT, rows.number)
    end = _part(_I64, 3) + struct.pack(">q", timestamp)
    end += _part(_MAP, 4) + struct.pack(">BBi", _TEXT, _TEXT, 0) + _STOP
    return b"".join([begin, rows.encoded, end])


def _part(kind: int, number: int) -> bytes:
    return struct.pack(">BH", kind, number)


def _mutation(column: bytes | pa.Array, values: pa.Array) -> pa.Array:
    """The mutations that put a column's values; null where the value is."""
    length = struct.pack(">i", len(column)) if isinstance(column, bytes) else _lengths(column)
    begin = [_part(_BOOL, 1) + b"\x00" + _part(_TEXT, 2), length, column, _part(_TEXT, 3)]
    end = _part(_BOOL, 4) + b"\x01" + _STOP
    return pc.binary_join_element_wise(*begin, _lengths(values), values, end, _NOTHING, null_handling="emit_null")


def _joined(parts: Sequence[pa.Array | bytes]) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement=b"")


def _lengths(values: pa.Array) -> pa.Array:
    lengths = pc.binary_length(values)
    return _numbers(lengths.fill_null(0).to_numpy(zero_copy_only=False))


def _numbers(numbers: np.ndarray) -> pa.Array:
    """Numbers as big-endian int32."""
    return fixed(numbers.astype(">i4"))


def fixed(values: np.ndarray) -> pa.Array:
    """An array of numbers, or of records of numbers, as the bytes of each."""
    width = values.dtype.itemsize
    offsets = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _bytes(joined: pa.Array) -> memoryview:
    """All values one after the other, as Arrow has them."""
    _, offsets, data = joined.buffers()
    bounds = np.frombuffer(offsets, np.int32)[joined.offset : joined.offset + len(joined) + 1]
    return memoryview(data)[bounds[0] : bounds[-1]] if len(joined) else memoryview(b"")
