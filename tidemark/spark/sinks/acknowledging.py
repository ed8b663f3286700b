"""Writing rows from Spark's tasks, and adding up what the server has acknowledged to them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledged, Acknowledgements
from tidemark.sinks.hbase.columns import RowPlaces
from tidemark.spark.columns import AT, COORDINATE, DIGEST, INDEX, MESSAGE_HASH, ROW_HASH, message_hash, row_hash
from tidemark.spark.rows.tallying import count_of, digest_of
from tidemark.spark.runtime.workers import Task, batch_of, in_workers
from tidemark.spark.sinks.contract import WriteContext

# The first columns of a written row, for `acknowledge`.
COUNTED = (*COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH, DIGEST)

_ACKNOWLEDGED = pa.schema(
    [
        (AT[0], pa.string()),
        (AT[1], pa.int32()),
        (AT[2], pa.int32()),
        ("messages", pa.int64()),
        ("messages_ack", pa.int64()),
        ("written", pa.int64()),
        ("written_ack", pa.int64()),
        ("content", pa.int64()),
    ]
)

# Takes rows, and yields what `acknowledge` returns.
Writer = Task

# A function that writes a piece of rows and returns when the server has acknowledged it; and the counts of the piece.
# There is one count for each partition of Kafka: AT, messages, the XOR of their ack values, rows, the XOR of theirs,
# the XOR of their digests.
Prepared = tuple[Callable[[], None], list[tuple[Any, ...]]]


def acknowledged(rows: DataFrame, writer: Writer, *, few: bool = False) -> Acknowledgements:
    """Write all rows, and add up what the server has acknowledged to the writer. One job, without a shuffle of its own.

    `few` rows are written from the driver: starting Spark's Python workers for them would take longer than all else.
    """
    counts: Sequence[tuple[Any, ...]]
    if few:
        batches = _Summed(writer)(rows.toArrow().to_batches())
        counts = [tuple(row.values()) for batch in batches for row in batch.to_pylist()]
    else:
        counts = in_workers(rows, _Summed(writer), from_arrow_schema(_ACKNOWLEDGED)).collect()
    return _acknowledgements(_sums((row[:3], row[3:]) for row in counts))


@dataclass(frozen=True)
class _Summed:
    """A writer that acknowledges at its end: one row for each partition that its task has written."""

    writer: Writer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (tuple(row.values()) for batch in self.writer(batches) for row in batch.to_pylist())
        yield batch_of([(*at, *sums) for at, sums in _sums((row[:3], row[3:]) for row in rows).items()], _ACKNOWLEDGED)


def _sums(counted: Iterable[tuple[tuple[Any, ...], tuple[Any, ...]]]) -> dict[tuple[Any, ...], list[int]]:
    """The sums of counts with the same place, in the order of `_ACKNOWLEDGED`."""
    sums_of: dict[tuple[Any, ...], list[int]] = {}
    for place, (messages, messages_ack, written, written_ack, content) in counted:
        sums = sums_of.setdefault(place, [0, 0, 0, 0, 0])
        sums[0] += messages
        sums[1] ^= messages_ack
        sums[2] += written
        sums[3] ^= written_ack
        sums[4] ^= content
    return sums_of


def held_by(rows: DataFrame) -> Acknowledgements:
    """Count rows that were read back, by coordinate, INDEX and DIGEST: for sinks whose server acknowledges no rows."""
    hashed = rows.withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash()})
    counted = hashed.groupBy(*AT).agg(
        F.count_if(F.col(INDEX) == 0),
        F.bit_xor(F.when(F.col(INDEX) == 0, F.col(MESSAGE_HASH))),
        F.count("*"),
        F.bit_xor(ROW_HASH),
        F.bit_xor(DIGEST),
    )
    return _acknowledgements({row[:3]: row[3:] for row in counted.collect()})


def _acknowledgements(sums: Mapping[tuple[Any, ...], Sequence[int]]) -> Acknowledgements:
    return {
        TopicPartition(topic, partition, incarnation): Acknowledged(
            count_of(messages, messages_ack), count_of(written, written_ack), digest_of(content)
        )
        for (topic, incarnation, partition), (messages, messages_ack, written, written_ack, content) in sums.items()
    }


def write_pieces(
    batches: Iterable[pa.RecordBatch],
    rows: int,
    context: WriteContext,
    prepare: Callable[[pa.RecordBatch], Prepared],
) -> Iterator[pa.RecordBatch]:
    """Write batches in pieces of at most `rows`, and yield the acknowledgement of each piece, as a `Writer` does.

    While one piece is being written, the next one is prepared.
    """
    with _no_collections(), ThreadPoolExecutor(1) as sender:
        on_its_way: tuple[Future[None], list[tuple[Any, ...]]] | None = None
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                context.fence.check_now_and_then()
                write, counts = prepare(batch.slice(start, rows))
                if on_its_way is not None:
                    yield _acknowledged(*on_its_way, context)
                on_its_way = sender.submit(write), counts
        if on_its_way is not None:
            yield _acknowledged(*on_its_way, context)


def _acknowledged(written: Future[None], counts: list[tuple[Any, ...]], context: WriteContext) -> pa.RecordBatch:
    written.result()
    return _counted(counts, context)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Switch off Python's search for cycles: there are many rows and cells, and none is part of a cycle."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def acknowledge(columns: list[list[Any]], context: WriteContext) -> pa.RecordBatch:
    """Report that the server has acknowledged a piece of rows, given as columns that begin with COUNTED."""
    return _counted(counts_of(columns), context)


def _counted(counts: list[tuple[Any, ...]], context: WriteContext) -> pa.RecordBatch:
    for topic, incarnation, partition, messages, *_ in counts:
        context.report(TopicPartition(topic, partition, incarnation), messages)
    return pa.RecordBatch.from_pylist(
        [dict(zip(_ACKNOWLEDGED.names, count, strict=True)) for count in counts], schema=_ACKNOWLEDGED
    )


def counts_by_partition(
    places: RowPlaces, indexes: pa.Array, messages: pa.Array, rows: pa.Array, digests: pa.Array
) -> list[tuple[Any, ...]]:
    """As `counts_of`, of Arrow's columns."""
    first, *others = (one.to_numpy(zero_copy_only=False) for one in (indexes, messages, rows, digests))
    of_message, of_row, of_content = others
    counts = []
    for at, mine in places.partitions():
        begins = mine & (first == 0)
        sums = (
            int(np.count_nonzero(begins)),
            _xor(of_message[begins]),
            int(np.count_nonzero(mine)),
            _xor(of_row[mine]),
        )
        counts.append((at.topic, at.incarnation, at.partition, *sums, _xor(of_content[mine])))
    return counts


def _xor(numbers: np.ndarray) -> int:
    return int(np.bitwise_xor.reduce(numbers))


def counts_of(columns: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Per partition of a piece: messages and their XOR (counted at index 0), rows, their XOR, their digests' XOR."""
    sums_of: dict[tuple[str, int, int], list[int]] = {}
    for topic, incarnation, partition, index, message, row, digest in zip(*columns[:3], *columns[4:8], strict=True):
        sums = sums_of.setdefault((topic, incarnation, partition), [0, 0, 0, 0, 0])
        if index == 0:
            sums[0] += 1
            sums[1] ^= message
        sums[2] += 1
        sums[3] ^= row
        sums[4] ^= digest
    return [(*place, *sums) for place, sums in sums_of.items()]
