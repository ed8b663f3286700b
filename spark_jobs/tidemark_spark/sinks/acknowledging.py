"""Writing rows from Spark's tasks, and adding up what a server has acknowledged there."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.ranges import TopicPartition
from tidemark.tallies import Acknowledged, Acknowledgements
from tidemark_spark.arrow import Task, in_workers
from tidemark_spark.columns import AT, COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH, message_hash, row_hash
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.tallying import count_of

# What a written row begins with, for `acknowledge`.
COUNTED = (*COORDINATE, INDEX, MESSAGE_HASH, ROW_HASH)

_ACKNOWLEDGED = pa.schema(
    [
        (AT[0], pa.string()),
        (AT[1], pa.int32()),
        (AT[2], pa.int32()),
        ("messages", pa.int64()),
        ("messages_ack", pa.int64()),
        ("written", pa.int64()),
        ("written_ack", pa.int64()),
    ]
)

# Rows in, what `acknowledge` gives out.
Writer = Task

# What writes a piece of rows and returns when the server has acknowledged it; and for each partition of Kafka in the piece:
# AT, messages, the XOR of their ack values, rows, the XOR of theirs.
Prepared = tuple[Callable[[], None], list[tuple[Any, ...]]]


def acknowledged(rows: DataFrame, writer: Writer) -> Acknowledgements:
    """Have all rows written; what comes back is counted from what the writer says was acknowledged."""
    return _collected(
        in_workers(rows, writer, from_arrow_schema(_ACKNOWLEDGED))
        .groupBy(*AT)
        .agg(
            F.sum("messages").alias("messages"),
            F.bit_xor("messages_ack").alias("messages_ack"),
            F.sum("written").alias("written"),
            F.bit_xor("written_ack").alias("written_ack"),
        )
    )


def held_by(rows: DataFrame) -> Acknowledgements:
    """What rows that were read back are, by their coordinates and INDEX: of a sink whose server acknowledges no rows."""
    hashed = rows.withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash()})
    return _collected(
        hashed.groupBy(*AT).agg(
            F.count_if(F.col(INDEX) == 0).alias("messages"),
            F.bit_xor(F.when(F.col(INDEX) == 0, F.col(MESSAGE_HASH))).alias("messages_ack"),
            F.count("*").alias("written"),
            F.bit_xor(ROW_HASH).alias("written_ack"),
        )
    )


def _collected(counted: DataFrame) -> Acknowledgements:
    return {
        TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]): Acknowledged(
            count_of(row["messages"], row["messages_ack"]), count_of(row["written"], row["written_ack"])
        )
        for row in counted.collect()
    }


def write_pieces(
    batches: Iterable[pa.RecordBatch],
    rows: int,
    mission: Mission,
    prepare: Callable[[pa.RecordBatch], Prepared],
) -> Iterator[pa.RecordBatch]:
    """Have batches written in pieces of at most `rows`, and say of each that it has been acknowledged, as a `Writer` does.

    While one piece is on its way, the next is prepared.
    """
    with _no_collections(), ThreadPoolExecutor(1) as sender:
        on_its_way: tuple[Future[None], list[tuple[Any, ...]]] | None = None
        for batch in batches:
            for start in range(0, batch.num_rows, rows):
                mission.fence.check_now_and_then()
                write, counts = prepare(batch.slice(start, rows))
                if on_its_way is not None:
                    yield _acknowledged(*on_its_way, mission)
                on_its_way = sender.submit(write), counts
        if on_its_way is not None:
            yield _acknowledged(*on_its_way, mission)


def _acknowledged(written: Future[None], counts: list[tuple[Any, ...]], mission: Mission) -> pa.RecordBatch:
    written.result()
    return _counted(counts, mission)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Without Python's search for cycles: the rows and cells, of which there are many, are in none."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def acknowledge(columns: list[list[Any]], mission: Mission) -> pa.RecordBatch:
    """Say that a piece of rows, as columns that begin with COUNTED, has been acknowledged by the server."""
    return _counted(counts_of(columns), mission)


def _counted(counts: list[tuple[Any, ...]], mission: Mission) -> pa.RecordBatch:
    for topic, incarnation, partition, messages, *_ in counts:
        mission.report(TopicPartition(topic, partition, incarnation), messages)
    return pa.RecordBatch.from_pylist(
        [dict(zip(_ACKNOWLEDGED.names, count, strict=True)) for count in counts], schema=_ACKNOWLEDGED
    )


def counts_of(columns: list[list[Any]]) -> list[tuple[Any, ...]]:
    """Per partition of a written piece: messages and their XOR (counted at index 0), rows and their XOR."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for topic, incarnation, partition, index, message, row in zip(*columns[:3], *columns[4:7], strict=True):
        sums = found.setdefault((topic, incarnation, partition), [0, 0, 0, 0])
        if index == 0:
            sums[0] += 1
            sums[1] ^= message
        sums[2] += 1
        sums[3] ^= row
    return [(*place, *sums) for place, sums in found.items()]
