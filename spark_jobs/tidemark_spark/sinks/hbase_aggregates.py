"""Aggregates by key in HBase: of each window one contribution to each key, in the place of an older one of that window."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.errors import LedgerContradiction, WrongUse
from tidemark.first_windows import FirstWindows, Name
from tidemark.ledger.book import Book
from tidemark.ledger.records import SinkReceipt, replays
from tidemark.results.aggregate_rows import TYPE, encode, qualifier, row_key
from tidemark.results.aggregate_table import AggregateTable, Layout
from tidemark.results.hbase_rows import split_keys
from tidemark.results.hbase_table import FAMILIES, WRITE_ROWS
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledgements
from tidemark_spark.aggregating import PARTS, ROWS, ROWS_ACK, WINDOW, chosen, contributions, with_windows
from tidemark_spark.columns import AT
from tidemark_spark.sinks.acknowledging import Prepared, acknowledged, write_pieces
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.sinks.sizes import is_long, key_size, keyed_too_large, packed_size

if TYPE_CHECKING:
    from tidemark.hbase.thrift2 import Gateway2

# What a cell takes beside key and values: mark with the longest name of a lane, qualifier, timestamp, lengths, counts.
_BESIDE_BYTES = 512


class HBaseAggregates:
    """The sink `hbase_aggregates`: a row for each key, a column for each window that has rows of it."""

    def __init__(
        self,
        config: HBaseAggregatesSink,
        table: AggregateTable,
        book: Book,
        fields: Fields,
        regions: Gateway2 | None = None,
    ) -> None:
        """`regions`: where a table is made that has several from the beginning."""
        self._config = config
        self._table = table
        self._book = book
        self._aggregates = config.aggregates(fields)
        self._regions = regions

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        if self._regions is not None:
            # Thrift 2 takes a third of a second to load, and most streams do without it.
            from tidemark.hbase.regions import ensure_table

            ensure_table(self._regions, self._config.table, FAMILIES, split_keys(self._config.regions))
        self._table.prepare(stream, ledger, Layout(self._config.key, self._aggregates))

    def refusal(self, fields: Fields) -> Column:
        long = {one.field: fields[one.field] for one in self._aggregates if one.field and is_long(fields[one.field])}
        # A field may be in two values: its smallest and its largest.
        cell = packed_size(long) * 2 + _BESIDE_BYTES + 64 * len(self._aggregates)
        # With the salt.
        return keyed_too_large(self.name, key_size(self._config.key) + 1, cell, self._config.max_cell_bytes)

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        given = chosen(rows, self._config.key, self._aggregates)
        names: tuple[Name, ...]
        if replays(mission.lane):
            windows = self._replayed(mission)
            given, names = with_windows(given, windows), windows.names
        else:
            given, names = given.withColumn(WINDOW, F.lit(0)), ((mission.lane, mission.seq),)
        writer = _Writer(
            self._table, tuple(one.name for one in self._aggregates), len(self._config.key), names, mission
        )
        return acknowledged(contributions(given, len(self._config.key), self._aggregates), writer)

    def receipt(self, mission: Mission) -> SinkReceipt:
        place = {"connection": self._config.hbase, "table": self._config.table}
        return SinkReceipt(name=self.name, type=TYPE, place=place)

    def _replayed(self, mission: Mission) -> FirstWindows:
        """The windows that a replay reads again. Raises WrongUse for one that reads only a part of one."""
        head = self._book.head(mission.lane)
        if head is None or head.head.pending is None:
            raise LedgerContradiction(
                f"{self._book.stream}/{mission.lane} has no pending window, and one of it was taken"
            )
        covers = self._book.covers(head.head.pending.window)
        windows = self._book.committed()
        first = FirstWindows(windows)
        # Which has been seen to since before it was pinned, unless the sink came into the stream file later.
        if lacking := first.whole(covers) - covers:
            raise WrongUse(
                f"sink {self.name} makes aggregates of whole windows, and {mission.lane}/{mission.seq} reads only a part of "
                f"some: without {', '.join(map(str, lacking))}. Give it up (tidemark ledger abandon), and ask for a new one"
            )
        touched = {first.names[number] for number in first.touched(covers)}
        return FirstWindows(one for one in windows if (one.record.lane, one.record.seq) in touched)


@dataclass(frozen=True)
class _Writer:
    """Runs in Spark's Python workers: contributions in, acknowledgements out. `names` are the windows by their numbers."""

    table: AggregateTable
    values: tuple[str, ...]
    keys: int
    names: tuple[Name, ...]
    mission: Mission

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_pieces(batches, WRITE_ROWS, self.mission, self._prepare)

    def _prepare(self, piece: pa.RecordBatch) -> Prepared:
        rows = piece.to_pylist()
        cells = list(map(self._cell, rows))
        return partial(self.table.write, cells, self.mission.generation), _parts(rows)

    def _cell(self, row: dict[str, Any]) -> tuple[bytes, bytes, bytes]:
        found = list(row.values())
        key, states = found[1 : 1 + self.keys], found[1 + self.keys : 1 + self.keys + len(self.values)]
        cell = encode(
            self.mission.generation,
            self.mission.lane,
            self.mission.seq,
            row[ROWS],
            row[ROWS_ACK],
            list(zip(self.values, states, strict=True)),
        )
        return row_key(key), qualifier(*self.names[row[WINDOW]]), cell


def _parts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Per partition of Kafka what some contributions are made of: messages and their XOR, rows and their XOR."""
    found: dict[tuple[str, int, int], list[int]] = {}
    for part in (part for row in rows for part in row[PARTS]):
        sums = found.setdefault((part[AT[0]], part[AT[1]], part[AT[2]]), [0, 0, 0, 0])
        sums[0] += part["messages"]
        sums[1] ^= part["messages_ack"]
        sums[2] += part["written"]
        sums[3] ^= part["written_ack"]
    return [(*place, *sums) for place, sums in found.items()]
