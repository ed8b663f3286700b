"""Aggregates by key in HBase: one contribution of each unit to each key, which replaces the unit's older one.

A unit is a window, or what it has read of a block of offsets (see `first_reads`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from tidemark.clients.connections import Connections
from tidemark.errors import LedgerContradiction, WrongUse
from tidemark.ledger.book import Book
from tidemark.ledger.records import SinkReceipt, reads_again
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.aggregates.rows import TYPE, block_qualifier, encode, qualifier, row_key
from tidemark.sinks.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.aggregates.table import AggregateTable, Layout, place_of
from tidemark.sinks.first_reads import FirstWindows, Name, units
from tidemark.sinks.hbase.table import WRITE_ROWS, make_with_regions
from tidemark_spark.columns import AT
from tidemark_spark.sinks.acknowledging import Prepared, acknowledged, write_pieces
from tidemark_spark.sinks.aggregates.aggregating import (
    PARTS,
    ROWS,
    ROWS_ACK,
    START,
    WINDOW,
    chosen,
    contributions,
    key_name,
    value_name,
    with_unit_of_one,
    with_units,
)
from tidemark_spark.sinks.contract import WriteContext
from tidemark_spark.sinks.sizes import is_long, key_size, keyed_too_large, packed_size

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
        make_with_regions(self._connections, self._config)
        self._table.prepare(stream, ledger, Layout(self._config.key, self._aggregates, self._block))

    def refusal(self, fields: Fields) -> Column:
        long = {one.field: fields[one.field] for one in self._aggregates if one.field and is_long(fields[one.field])}
        # A field may be in two values, as minimum and as maximum.
        cell = packed_size(long) * 2 + _BESIDE_BYTES + 64 * len(self._aggregates)
        # One more byte for the salt.
        return keyed_too_large(self.name, key_size(self._config.key) + 1, cell, self._config.max_cell_bytes)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        given = chosen(rows, self._config.key, self._aggregates)
        covers = self._covers(context)
        windows: tuple[Name, ...] = ((context.lane, context.seq),)
        if reads_again(context.lane):
            first, erased = self._replayed(context, covers)
            # A block keeps its column, also if its first offset was erased.
            covers |= erased
            given, windows = with_units(given, first, self._block), first.names
        else:
            given = with_unit_of_one(given, self._block)
        keys, values = len(self._config.key), tuple(one.name for one in self._aggregates)
        columns = _Windows(windows) if self._block is None else _Blocks(covers)
        writer = _Writer(self._table, values, keys, columns, context)
        return acknowledged(contributions(given, keys, self._aggregates, self._block), writer, few=context.few)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = place_of(self._config.hbase, self._config.table, self._block)
        return SinkReceipt(name=self.name, type=TYPE, place=place)

    def _covers(self, context: WriteContext) -> RangeSet:
        """The offsets of the window that is written."""
        found = self._book.head(context.lane)
        # With at_most_once the window is committed before it is written.
        for one in (found.head.pending, found.head.last) if found is not None else ():
            if one is not None and one.window.seq == context.seq:
                return self._book.covers(one.window)
        raise LedgerContradiction(
            f"{self._book.stream}/{context.lane} has no window {context.seq}, and an attempt at it is writing"
        )

    def _replayed(self, context: WriteContext, covers: RangeSet) -> tuple[FirstWindows, RangeSet]:
        """The windows that a replay reads again, and what was erased before. Raises WrongUse for a part of some unit."""
        windows = self._book.committed()
        first = FirstWindows(windows)
        # The replay was planned in whole units, unless the sink came into the stream file later.
        if lacking := first.whole(covers, [self._block]) - covers - first.erased:
            raise WrongUse(
                f"sink {self.name} makes aggregates of {units([self._block])}, and {context.lane}/{context.seq} reads only "
                f"a part of some: without {', '.join(map(str, lacking))}. Give it up (tidemark ledger abandon), and ask for "
                "a new one"
            )
        touched = {first.names[number] for number in first.touched(covers)}
        return FirstWindows(one for one in windows if (one.record.lane, one.record.seq) in touched), first.erased


@dataclass(frozen=True)
class _Windows:
    """The columns of a table by windows. `names`: the windows by number."""

    names: tuple[Name, ...]

    def __call__(self, contribution: dict[str, Any]) -> bytes:
        return qualifier(*self.names[contribution[WINDOW]])


@dataclass(frozen=True)
class _Blocks:
    """The columns of a table by blocks. `covers`: the offsets of the window that is written."""

    covers: RangeSet

    def __call__(self, contribution: dict[str, Any]) -> bytes:
        topic, incarnation, partition = (contribution[name] for name in AT)
        at = TopicPartition(topic, partition, incarnation)
        # A block may begin below the window.
        start = self.covers.at_or_above(at, contribution[START])
        if start is None:
            raise ValueError(f"the window has no offsets of {at} from {contribution[START]} on")
        return block_qualifier(at, start)


@dataclass(frozen=True)
class _Writer:
    """Runs in Spark's Python workers: contributions in, acknowledgements out."""

    table: AggregateTable
    values: tuple[str, ...]
    keys: int
    column: Callable[[dict[str, Any]], bytes]
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
        return row_key(key), self.column(row), cell


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
