"""Between Spark and its Python workers: rows go there and back as Arrow's batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

# What runs in a task: batches in, batches out. It is pickled.
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# As many rows of some hundred bytes go to Spark in one piece, and fewer of large ones.
_BATCH_ROWS = 2_000
_BATCH_BYTES = 16 << 20


def in_workers(rows: DataFrame, task: Task, schema: StructType) -> DataFrame:
    """What `task` makes of the rows of each task, in Spark's Python workers; its batches have `schema`."""
    return rows.mapInArrow(Sparing(task), schema)


@dataclass(frozen=True)
class Sparing:
    """A task, and no quarter of a second of processor time before the next one in the same worker.

    Spark has Python look again for modules before each task. Python before 3.12 reads the lists of all files in archives
    then, once for each folder in them that it ever looked at: Spark puts two of its own and a jar with some thousand classes
    on Python's path. These stay as they are for as long as a worker lives.
    """

    task: Task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for finder in sys.path_importer_cache.values():
            if isinstance(finder, zipimporter):
                finder.invalidate_caches = _nothing  # type: ignore[method-assign]
        return self.task(batches)


def _nothing() -> None:
    pass


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
