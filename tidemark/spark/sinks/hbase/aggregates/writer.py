"""Aggregates by key in HBase: one contribution of each unit to each key, which replaces the unit's older one.

A unit is what a window has read of a block of offsets (see `first_reads`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Book
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.hbase.aggregates import columns
from tidemark.sinks.hbase.aggregates.columns import BlockColumns
from tidemark.sinks.hbase.aggregates.rows import TYPE, encode, row_key
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.table import AggregateTable, Layout, place_of
from tidemark.sinks.hbase.table import FAMILIES, WRITE_ROWS, make_with_regions
from tidemark.spark.columns import AT
from tidemark.spark.sinks.acknowledging import Prepared, acknowledged, write_pieces
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.hbase.aggregates.aggregating import (
    PARTS,
    ROWS,
    ROWS_ACK,
    START,
    chosen,
    contributions,
    key_name,
    value_name,
    with_unit_of_one,
    with_units,
)
from tidemark.spark.sinks.sizes import key_size, keyed_too_large, packed_size
from tidemark.types.fields import is_long

# Bytes of a cell besides key and values: mark with the longest name of a lane, qualifier with the longest name of a topic,
# timestamp, lengths, counts.
_BESIDE_BYTES = 768


class HBaseAggregates:
    """The sink `hbase_aggregates`: a row for each key, a column for each unit that has rows of the key."""

    def __init__(
        self,
        config: HBaseAggregatesSink,
        table: AggregateTable,
        book: Book,
        fields: Fields,
        connections: Connections,
    ) -> None:
        self._config = config
        self._table = table
        self._book = book
        self._aggregates = config.aggregates(fields)
        self._block = config.whole_blocks
        self._connections = connections

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        make_with_regions(self._connections, self._config, FAMILIES)
        self._table.prepare(stream, ledger, Layout(self._config.key, self._aggregates, self._block))

    def refusal(self, fields: Fields) -> Column:
        long = {
            aggregate.field: fields[aggregate.field]
            for aggregate in self._aggregates
            if aggregate.field and is_long(fields[aggregate.field])
        }
        # A field may be in two values, as minimum and as maximum.
        cell = packed_size(long) * 2 + _BESIDE_BYTES + 64 * len(self._aggregates)
        # One more byte for the salt.
        return keyed_too_large(self.name, key_size(self._config.key) + 1, cell, self._config.max_cell_bytes)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        given = chosen(rows, self._config.key, self._aggregates)
        written = columns.written(self._book, context.lane, context.seq, context.generation, self._block, self.name)
        if written.first is not None:
            given = with_units(given, written.first, self._block)
        else:
            given = with_unit_of_one(given, self._block)
        # One task needs no shuffle.
        given = given.coalesce(1) if context.few else given
        keys, values = len(self._config.key), tuple(aggregate.name for aggregate in self._aggregates)
        writer = _ContributionWriter(self._table, values, keys, written.columns, context)
        return acknowledged(contributions(given, keys, self._aggregates), writer, few=context.few)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = place_of(self._config.hbase, self._config.table, self._block)
        return SinkReceipt(name=self.name, type=TYPE, place=place)


@dataclass(frozen=True)
class _ContributionWriter:
    """Runs in Spark's Python workers: contributions in, acknowledgements out."""

    table: AggregateTable
    values: tuple[str, ...]
    keys: int
    columns: BlockColumns
    context: WriteContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_pieces(batches, WRITE_ROWS, self.context, self._prepare)

    def _prepare(self, piece: pa.RecordBatch) -> Prepared:
        rows = piece.to_pylist()
        cells = list(map(self._cell, rows))
        return partial(self.table.write, cells, self.context.generation), _parts(rows)

    def _cell(self, row: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        key = [row[key_name(number)] for number in range(self.keys)]
        states = [row[value_name(number)] for number, _ in enumerate(self.values)]
        cell = encode(
            self.context.generation,
            self.context.lane,
            self.context.seq,
            row[ROWS],
            row[ROWS_ACK],
            list(zip(self.values, states, strict=True)),
        )
        return row_key(key), self._column(row), cell

    def _column(self, row: dict[str, Any]) -> bytes:
        topic, incarnation, partition = (row[name] for name in AT)
        return self.columns.column(TopicPartition(topic, partition, incarnation), row[START])


def _parts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Counts per partition of Kafka: messages and their XOR, rows, their XOR, their digests' XOR."""
    sums_of: dict[tuple[str, int, int], list[int]] = {}
    for part in (part for row in rows for part in row[PARTS]):
        sums = sums_of.setdefault((part[AT[0]], part[AT[1]], part[AT[2]]), [0, 0, 0, 0, 0])
        sums[0] += part["messages"]
        sums[1] ^= part["messages_ack"]
        sums[2] += part["written"]
        sums[3] ^= part["written_ack"]
        sums[4] ^= part["content"]
    return [(*place, *sums) for place, sums in sums_of.items()]
