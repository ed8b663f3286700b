"""Results in HBase, by coordinate, and what else has their layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.encoding import encode_rows
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.dead_letters import DIGESTED
from tidemark.sinks.hbase.cells import CellLayout
from tidemark.sinks.hbase.columns import RowPlaces, marks
from tidemark.sinks.hbase.keyed.keys import MAX_KEY_BYTES
from tidemark.sinks.hbase.rows import MARK
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.hbase.table import FAMILIES, WRITE_ROWS, ResultTable, make_with_regions
from tidemark.spark.columns import TOMBSTONE, TOPIC, text
from tidemark.spark.sinks.acknowledging import COUNTED, Prepared, acknowledged, counts_by_partition, write_pieces
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.sizes import first_too_large, packed_size, size_of, too_large
from tidemark.types.fields import FieldType, is_long

_ROW = (*COUNTED, TOMBSTONE)
# Columns for what a dead letter has of DIGESTED.
_PARTS = tuple(f"_part_{number}" for number, _ in enumerate(DIGESTED))

# The row key without the topic; then lengths, family, timestamp and type of a cell (org.apache.hadoop.hbase.KeyValue);
# then the total length, which HBase's servers count too.
_CELL_BYTES = 20 + 8 + 2 + 1 + 1 + 8 + 1 + 4


class HBaseResults:
    """The sink `hbase`: a row of cells for each result row."""

    def __init__(self, config: HBaseSink, table: ResultTable, fields: Fields, connections: Connections) -> None:
        self._config = config
        self._table = table
        self._fields = fields
        self._layout = CellLayout(dict(config.columns), config.packed)
        self._connections = connections

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        make_with_regions(self._connections, self._config, FAMILIES)
        self._table.prepare(stream, ledger, self._layout)

    def refusal(self, fields: Fields) -> Column | None:
        most = self._config.max_cell_bytes
        if self._config.packed:
            return too_large(f"sink {self.name}: the cell of the row", _size(fields), F.lit(most))
        return cells_too_large(self.name, fields, most)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        # The columns get plain names, because a stream's field may have any name.
        texts = [text(name, kind).alias(f"field_{number}") for number, (name, kind) in enumerate(self._fields.items())]
        return write(rows.select(*_ROW, *texts), self._table, tuple(self._fields), context, self._layout)

    def discard(self, context: WriteContext) -> None:
        """Nothing: the same attempt writes each row again, and those of another one never count."""

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return _receipt(self.name, self._config.hbase, self._config.table)


def write(
    rows: DataFrame, table: ResultTable, fields: Sequence[str], context: WriteContext, layout: CellLayout | None = None
) -> Acknowledgements:
    """Write rows from Spark's tasks: COUNTED, TOMBSTONE, and a binary column for each field.

    The result counts what HBase has acknowledged.
    """
    return acknowledged(rows, _RowWriter(table, tuple(fields), layout or CellLayout(), context), few=context.few)


@dataclass(frozen=True)
class _RowWriter:
    """Runs in Spark's Python workers: batches of rows in, acknowledgements out."""

    table: ResultTable
    fields: tuple[str, ...]
    layout: CellLayout
    context: WriteContext

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_pieces(batches, WRITE_ROWS, self.context, self._prepare)

    def _prepare(self, piece: pa.RecordBatch) -> Prepared:
        topics, incarnations, partitions, offsets, indexes, messages, hashes, digests, tombstones, *texts = (
            piece.columns
        )
        places = RowPlaces(topics, incarnations, partitions, offsets, indexes)
        mark = marks(self.context.generation, self.context.lane, self.context.seq, digests, tombstones)
        rows = encode_rows(places.keys(), [(MARK, mark), *self.layout.cells(self.fields, texts)])
        counts = counts_by_partition(places, indexes, messages, hashes, digests)
        return partial(self.table.write, rows, self.context.generation), counts


def cells_too_large(sink: str, fields: Fields, most: int, key: Column | None = None) -> Column | None:
    """The refusal of a row with a cell of more than `most` bytes. `key`: the bytes of the row's key, if fields are in it."""
    long = [name for name, kind in fields.items() if is_long(kind)]
    of_key = F.lit(0) if key is None else key
    each = [(f"sink {sink}: the cell of {name}", _cell_size(name, fields[name]) + of_key, most) for name in long]
    where = _size(fields) + of_key > most
    if key is not None:
        each, where = [(f"sink {sink}: the key", key, MAX_KEY_BYTES), *each], where | (key > MAX_KEY_BYTES)
    return first_too_large(each, where) if each else None


def _size(fields: Fields) -> Column:
    """The size of one cell for all fields: larger than any cell of one field."""
    return packed_size(fields) + F.octet_length(TOPIC) + _CELL_BYTES


def _cell_size(name: str, kind: FieldType) -> Column:
    """The bytes of a field's cell as HBase counts them: with row key, family, qualifier, timestamp, type, lengths."""
    return size_of(name, kind) + F.octet_length(TOPIC) + len(name.encode()) + _CELL_BYTES


def _receipt(name: str, connection: str, table: str) -> SinkReceipt:
    return SinkReceipt(name=name, type="hbase", place={"connection": connection, "table": table})
