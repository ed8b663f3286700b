"""Rows of Python as Arrow's batches, in which they go to Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa

# As many rows of some hundred bytes go to Spark in one piece, and fewer of large ones.
_BATCH_ROWS = 2_000
_BATCH_BYTES = 16 << 20


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """One batch; of no rows an empty one."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows, as soon as there are enough for a batch."""
    waiting: list[Sequence[Any]] = []
    size = 0
    for row in rows:
        waiting.append(row)
        size += sum(len(value) for value in row if type(value) is bytes)
        if len(waiting) == _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch_of(waiting, schema)
            waiting, size = [], 0
    if waiting:
        yield batch_of(waiting, schema)
