"""spark-submit starts this: the job on a window, with a sink that misbehaves, one way after the other. For tests.

First ways that must not be committed, each as a try of the same run; then a sink that does its work, under Spark's own
trouble: a task that dies after it has written, and one that is so slow that Spark starts a second copy of it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame

from tidemark.errors import EXIT_DONE, EXIT_FAILED, VerificationFailed
from tidemark.offsets.tallies import Acknowledgements
from tidemark.planning import splitting
from tidemark.spark.jobs import entry, window_work
from tidemark.spark.jobs import window as window_job
from tidemark.spark.sinks import Sink, make_sinks
from tidemark.spark.sinks.acknowledging import Writer, acknowledge
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.hbase import writer as hbase

Batches = Iterable[pa.RecordBatch]
Way = Callable[[Batches, Writer], Iterator[pa.RecordBatch]]


def loses_one(batches: Batches, write: Writer) -> Iterator[pa.RecordBatch]:
    rest = iter(batches)
    yield from write(chain((first.slice(1) for first in [*_first(rest)]), rest))


def writes_one_twice(batches: Batches, write: Writer) -> Iterator[pa.RecordBatch]:
    rest = iter(batches)
    yield from write(chain((part for first in [*_first(rest)] for part in (first, first.slice(0, 1))), rest))


def ends_too_early(batches: Batches, write: Writer) -> Iterator[pa.RecordBatch]:
    """Ends, as if it had done its work, while its buffer still holds rows that it has not written."""
    for batch in batches:
        yield from write([batch.slice(0, max(0, batch.num_rows - 7))])


def says_done_too_early(batches: Batches, write: Writer) -> Iterator[pa.RecordBatch]:
    """Acknowledges all rows before they are written, and ends while its buffer still holds the last of each batch.

    What it acknowledges is right, so that no count can tell: see `test_audit.py`.
    """
    for batch in batches:
        yield acknowledge([column.to_pylist() for column in batch.columns], write.context)  # type: ignore[attr-defined]
        kept = max(0, batch.num_rows - 7)
        for _ in write([batch.slice(0, kept)]):
            pass


def in_trouble(batches: Batches, write: Writer) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    said = list(write(batches))
    if context.attemptNumber() == 0 and said:
        if context.partitionId() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        elif context.partitionId() == 1:
            # As long as it takes until the copy that Spark starts of it has ended: then this one is killed.
            time.sleep(300)
    yield from said


def _first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first batch with rows, in the task that has the first rows only."""
    context = TaskContext.get()
    assert context is not None
    if context.partitionId() == 0:
        yield from (batch for batch in batches if batch.num_rows)


@dataclass(frozen=True)
class Misbehaving:
    """A writer of the sink `hbase`, in another's hands."""

    way: Way
    writer: Writer

    def __call__(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        yield from self.way(batches, self.writer)


class MisbehavingSink:
    """The sink `hbase` with such a writer. Dead letters go by the same way as ever."""

    def __init__(self, sink: Sink, way: Way) -> None:
        self._sink = sink
        self._way = way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        honest = hbase.acknowledged  # type: ignore[attr-defined]
        hbase.acknowledged = lambda rows, writer, **how: honest(rows, Misbehaving(self._way, writer), **how)  # type: ignore[attr-defined]
        try:
            return self._sink.store(rows, context)
        finally:
            hbase.acknowledged = honest  # type: ignore[attr-defined]


def with_sinks_that(way: Way) -> None:
    window_job.make_sinks = lambda opened: [MisbehavingSink(sink, way) for sink in make_sinks(opened)]  # type: ignore[attr-defined]


def in_several_tasks(patched: pytest.MonkeyPatch) -> None:
    """The ways stand between Spark and its workers: no row is written from the driver, and there are several tasks."""
    patched.setattr(window_work, "_FEW", -1)
    for name in ("_SHORT", "RECORDS_PER_TASK", "_MAX_PER_TASK"):
        patched.setattr(splitting, name, 50)


def main(arguments: list[str]) -> int:
    in_several_tasks(pytest.MonkeyPatch())
    for way in (loses_one, writes_one_twice, ends_too_early):
        with_sinks_that(way)
        try:
            window_job.main(arguments)
        except VerificationFailed as problem:
            print(f"refused, {way.__name__}: {problem}", file=sys.stderr, flush=True)
        else:
            return EXIT_FAILED
    with_sinks_that(in_trouble)
    window_job.main(arguments)
    return EXIT_DONE


if __name__ == "__main__":
    entry.run(main)
