"""Aggregates by key in HBase: one contribution of each window to each key, which replaces the window's older one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.clients.connections import Connections
from tidemark.errors import LedgerContradiction, WrongUse
from tidemark.ledger.book import Book
from tidemark.ledger.records import SinkReceipt, replays
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.rows import TYPE, encode, qualifier, row_key
from tidemark.sinks.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.aggregates.table import AggregateTable, Layout
from tidemark.sinks.first_reads import FirstWindows, Name
from tidemark.sinks.hbase.table import WRITE_ROWS, make_with_regions
from tidemark_spark.columns import AT
from tidemark_spark.sinks.acknowledging import Prepared, acknowledged, write_pieces
from tidemark_spark.sinks.aggregates.aggregating import (
    PARTS,
    ROWS,
    ROWS_ACK,
    WINDOW,
    chosen,
    contributions,
    with_windows,
)
from tidemark_spark.sinks.contract import WriteContext
from tidemark_spark.sinks.sizes import is_long, key_size, keyed_too_large, packed_size

# Bytes of a cell besides key and values: mark with the longest name of a lane, qualifier, timestamp, lengths, counts.
_BESIDE_BYTES = 512


class HBaseAggregates:
    """The sink `hbase_aggregates`: a row for each key, a column for each window that has rows of the key."""

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
        self._connections = connections

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        make_with_regions(self._connections, self._config)
        self._table.prepare(stream, ledger, Layout(self._config.key, self._aggregates))

    def refusal(self, fields: Fields) -> Column:
        long = {one.field: fields[one.field] for one in self._aggregates if one.field and is_long(fields[one.field])}
        # A field may be in two values, as minimum and as maximum.
        cell = packed_size(long) * 2 + _BESIDE_BYTES + 64 * len(self._aggregates)
        # One more byte for the salt.
        return keyed_too_large(self.name, key_size(self._config.key) + 1, cell, self._config.max_cell_bytes)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        given = chosen(rows, self._config.key, self._aggregates)
        names: tuple[Name, ...]
        if replays(context.lane):
            windows = self._replayed(context)
            given, names = with_windows(given, windows), windows.names
        else:
            given, names = given.withColumn(WINDOW, F.lit(0)), ((context.lane, context.seq),)
        writer = _Writer(
            self._table, tuple(one.name for one in self._aggregates), len(self._config.key), names, context
        )
        return acknowledged(contributions(given, len(self._config.key), self._aggregates), writer)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = {"connection": self._config.hbase, "table": self._config.table}
        return SinkReceipt(name=self.name, type=TYPE, place=place)

    def _replayed(self, context: WriteContext) -> FirstWindows:
        """The windows that a replay reads again. Raises WrongUse when it reads only a part of some window."""
        head = self._book.head(context.lane)
        if head is None or head.head.pending is None:
            raise LedgerContradiction(
                f"{self._book.stream}/{context.lane} has no pending window, and one of it was taken"
            )
        covers = self._book.covers(head.head.pending.window)
        windows = self._book.committed()
        first = FirstWindows(windows)
        # The replay was planned in whole windows, unless the sink came into the stream file later.
        if lacking := first.whole(covers) - covers:
            raise WrongUse(
                f"sink {self.name} makes aggregates of whole windows, and {context.lane}/{context.seq} reads only a part of "
                f"some: without {', '.join(map(str, lacking))}. Give it up (tidemark ledger abandon), and ask for a new one"
            )
        touched = {first.names[number] for number in first.touched(covers)}
        return FirstWindows(one for one in windows if (one.record.lane, one.record.seq) in touched)


@dataclass(frozen=True)
class _Writer:
    """Runs in Spark's Python workers: contributions in, acknowledgements out. `names`: the windows by number."""

    table: AggregateTable
    values: tuple[str, ...]
    keys: int
    names: tuple[Name, ...]
    context: WriteContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_pieces(batches, WRITE_ROWS, self.context, self._prepare)

    def _prepare(self, piece: pa.RecordBatch) -> Prepared:
        rows = piece.to_pylist()
        cells = list(map(self._cell, rows))
        return partial(self.table.write, cells, self.context.generation), _parts(rows)

    def _cell(self, row: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        found = list(row.values())
        key, states = found[1 : 1 + self.keys], found[1 + self.keys : 1 + self.keys + len(self.values)]
        cell = encode(
            self.context.generation,
            self.context.lane,
            self.context.seq,
            row[ROWS],
            row[ROWS_ACK],
            list(zip(self.values, states, strict=True)),
        )
        return row_key(key), qualifier(*self.names[row[WINDOW]]), cell


def _parts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Counts per partition of Kafka: messages and their XOR, rows, their XOR, their digests' XOR."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for part in (part for row in rows for part in row[PARTS]):
        sums = found.setdefault((part[AT[0]], part[AT[1]], part[AT[2]]), [0, 0, 0, 0, 0])
        sums[0] += part["messages"]
        sums[1] ^= part["messages_ack"]
        sums[2] += part["written"]
        sums[3] ^= part["written_ack"]
        sums[4] ^= part["content"]
    return [(*place, *sums) for place, sums in found.items()]
