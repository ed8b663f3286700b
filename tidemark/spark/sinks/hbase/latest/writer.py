"""Results in HBase by key: the newest cell of a row is the value of the key's newest message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.errors import LedgerContradiction, ProcessingFailed, TidemarkError
from tidemark.ledger.book import Book
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.hbase.keyed_rows import encode_cell
from tidemark.sinks.hbase.latest.rows import TYPE, ValueVersion, qualifier, row_key
from tidemark.sinks.hbase.latest.settings import HBaseLatestSink
from tidemark.sinks.hbase.latest.table import LatestInHBase, Put
from tidemark.sinks.hbase.table import WRITE_ROWS
from tidemark.sinks.stored_rows import Mark
from tidemark.spark.columns import TOMBSTONE, TOPIC, text
from tidemark.spark.sinks.acknowledging import COUNTED, Prepared, acknowledged, counts_of, write_pieces
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.sizes import key_size, keyed_too_large, packed_size
from tidemark.spark.sinks.unsent import unsent

# Bytes of a cell besides key and fields: mark with the longest name of a lane, qualifier, timestamp, lengths.
_BESIDE_BYTES = 256


class HBaseLatest:
    """The sink `hbase_latest`: a cell for each result row, in the row of its key, with a version from its offset."""

    writes_ordinals = True

    def __init__(self, config: HBaseLatestSink, table: LatestInHBase, book: Book, fields: Fields) -> None:
        self._config = config
        self._table = table
        self._book = book
        self._fields = fields

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        self._table.prepare(stream, ledger, self._config.key, self._config.regions)

    def refusal(self, fields: Fields) -> Column:
        key = key_size(self._config.key) + F.octet_length(TOPIC) + 1
        cell = packed_size(fields) + _BESIDE_BYTES
        large = keyed_too_large(self.name, key, cell, self._config.max_cell_bytes)
        not_sent = unsent(self.name, self._config.unsent, fields)
        return large if not_sent is None else F.coalesce(large, not_sent)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        register = self._book.register()
        if register is None:
            raise LedgerContradiction(f"{self._book.stream} has no register, although a window of it was taken")
        # The columns get plain names, because a stream's field may have any name.
        texts = [text(name, kind).alias(f"field_{number}") for number, (name, kind) in enumerate(self._fields.items())]
        names = tuple(self._fields)
        key = tuple(map(names.index, self._config.key))
        if context.ordinal is None:
            raise RuntimeError(f"{self.name} needs the attempt's ordinal")
        self._table.note_ordinal(context.ordinal)
        writer = _ValueWriter(self._table, names, key, Epochs(register[1].topics), context, context.ordinal)
        return acknowledged(rows.select(*COUNTED, TOMBSTONE, *texts), writer, few=context.few)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = {"connection": self._config.hbase, "table": self._config.table}
        return SinkReceipt(name=self.name, type=TYPE, place=place)


@dataclass(frozen=True)
class _ValueWriter:
    """Runs in Spark's Python workers: rows in, acknowledgements out. `key`: the indexes of the key's fields."""

    table: LatestInHBase
    fields: tuple[str, ...]
    key: tuple[int, ...]
    epochs: Epochs
    context: WriteContext
    ordinal: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_pieces(batches, WRITE_ROWS, self.context, self._prepare)

    def _prepare(self, piece: pa.RecordBatch) -> Prepared:
        columns = [column.to_pylist() for column in piece.columns]
        return partial(self.table.write, list(self._cells(columns))), counts_of(columns)

    def _cells(self, columns: list[list[Any]]) -> Iterator[Put]:
        context = self.context
        for topic, incarnation, partition, offset, index, _, _, digest, tombstone, *texts in zip(*columns, strict=True):
            at = TopicPartition(topic, partition, incarnation)
            values = [value.encode() if isinstance(value, str) else value for value in texts]
            mark = Mark(context.generation, unsigned(digest), context.lane, context.seq, tombstone)
            try:
                row = row_key(topic, [values[number] for number in self.key])
                version = ValueVersion(self.epochs.of(at, offset), offset, self.ordinal).encode()
            except TidemarkError as problem:
                raise ProcessingFailed(f"{at}@{offset}: {problem}") from problem
            yield row, qualifier(at, index), version, encode_cell(mark, list(zip(self.fields, values, strict=True)))
