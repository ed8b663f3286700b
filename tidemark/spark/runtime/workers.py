"""Between Spark and its Python workers: rows go there and back as Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any
from zipimport import zipimporter

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

# What runs in a task: batches in, batches out. It is pickled.
Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

# The most rows that go to Spark in one batch; fewer of large rows.
_BATCH_ROWS = 2_000
_BATCH_BYTES = 16 << 20


def in_workers(rows: DataFrame, task: Task, schema: StructType) -> DataFrame:
    """Run `task` on the rows of each Spark task, in Python workers. The batches that `task` yields have `schema`."""
    return rows.mapInArrow(FastTaskRunner(task), schema)


@dataclass(frozen=True)
class FastTaskRunner:
    """Runs a task, and saves a quarter of a second of processor time before the next task in the same worker.

    Before each task, Spark has Python look for modules again. Python before 3.12 then reads the file lists of all archives
    on its path, once for each folder in them that it ever looked at. Spark puts two archives there, and a jar with some
    thousand classes. None of them changes while a worker lives.
    """

    task: Task

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for finder in sys.path_importer_cache.values():
            if isinstance(finder, zipimporter):
                finder.invalidate_caches = _nothing  # type: ignore[method-assign]
        return self.task(batches)


def _nothing() -> None:
    pass


def arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's types as those of Arrow."""
    # Spark 4.2 asks for the zone of times, which before it was this one.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """One batch; an empty one for no rows."""
    columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def in_batches(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All rows in batches, each as soon as it is full."""
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
