"""Dead letters into a database, from Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame

from tidemark.clients.connections import Connections
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL
from tidemark.sinks.dead_letters.sql.publishing import publish
from tidemark.sinks.dead_letters.sql.settings import SQLDeadLetters
from tidemark.sinks.hbase.columns import RowPlaces
from tidemark.sinks.stored_rows import Mark
from tidemark.spark.sinks.acknowledging import Prepared, acknowledged, counts_by_partition, write_pieces
from tidemark.spark.sinks.contract import WriteContext

# Those of one transaction. Each may hold a message of some megabytes.
_PIECE = 200


class InSQL:
    def __init__(self, config: SQLDeadLetters, letters: LettersInSQL, connections: Connections) -> None:
        self._receipt = config.receipt(connections)
        self._letters = letters

    def prepare(self, stream: str, ledger: str) -> None:
        self._letters.prepare(stream, ledger)

    def column(self, number: int, name: str, said: str) -> str:
        return f"binary({said}) AS field_{number}"

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        held = acknowledged(rows, _LetterWriter(self._letters, context), few=context.few)
        # With `at_most_once`, what comes after the commit is published now.
        ledger = self._letters.ledger
        committed = ledger.record(context.lane, context.seq) if ledger is not None else None
        if ledger is not None and committed is not None and committed[1].attempt.generation == context.generation:
            context.fence.check()
            publish(ledger, self._letters, committed[1])
        return held

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return self._receipt


@dataclass(frozen=True)
class _LetterWriter:
    """Runs in Spark's Python workers: batches of rows in, acknowledgements out."""

    letters: LettersInSQL
    context: WriteContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_pieces(batches, _PIECE, self.context, self._prepare)

    def _prepare(self, piece: pa.RecordBatch) -> Prepared:
        topics, incarnations, partitions, offsets, indexes, messages, hashes, digests, _, *fields = piece.columns
        said = (topics, incarnations, partitions, offsets, digests, *fields)
        rows = [
            self.letters.row(
                TopicPartition(topic, partition, incarnation),
                offset,
                Mark(self.context.generation, unsigned(digest), self.context.lane, self.context.seq, False),
                contents,
            )
            for topic, incarnation, partition, offset, digest, *contents in zip(
                *(one.to_pylist() for one in said), strict=True
            )
        ]
        places = RowPlaces(topics, incarnations, partitions, offsets, indexes)
        counts = counts_by_partition(places, indexes, messages, hashes, digests)
        return partial(self.letters.write, rows), counts
