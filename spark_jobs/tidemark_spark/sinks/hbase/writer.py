"""Results and dead letters in HBase, by coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.encoding import rows_of
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements, Outcome
from tidemark.schemes.kinds import Fields
from tidemark.sinks.dead_letters import DIGESTED, FIELDS
from tidemark.sinks.hbase.cells import CellLayout
from tidemark.sinks.hbase.columns import Places, marks
from tidemark.sinks.hbase.rows import MARK
from tidemark.sinks.hbase.settings import HBaseSink
from tidemark.sinks.hbase.table import WRITE_ROWS, ResultTable, make_with_regions
from tidemark.streams.model import DeadLetters
from tidemark_spark.columns import (
    COORDINATE,
    DIGEST,
    FAILURE,
    KEY,
    OUTCOME,
    REASON,
    REDRIVES,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    VALUE,
    content_digest,
    literal,
    text,
)
from tidemark_spark.rows.outcomes import BYTES_OF_AT_MOST
from tidemark_spark.schemes.kept import HEADERS_JSON
from tidemark_spark.sinks.acknowledging import COUNTED, Prepared, acknowledged, counts_by_partition, write_pieces
from tidemark_spark.sinks.contract import WriteContext
from tidemark_spark.sinks.sizes import first_too_large, is_long, packed_size, size_of, too_large

_ROW = (*COUNTED, TOMBSTONE)
# Columns for what a dead letter has of DIGESTED.
_PARTS = tuple(f"_part_{number}" for number, _ in enumerate(DIGESTED))

# The row key without the topic; then lengths, family, timestamp and type of a cell (org.apache.hadoop.hbase.KeyValue);
# then the total length, which HBase's servers count too.
_CELL_BYTES = 20 + 8 + 2 + 1 + 1 + 8 + 1 + 4


class HBaseResults:
    """The sink `hbase`: a row of cells for each result row."""

    def __init__(self, config: HBaseSink, table: ResultTable, fields: Sequence[str], connections: Connections) -> None:
        self._config = config
        self._table = table
        self._fields = tuple(fields)
        self._layout = CellLayout(dict(config.columns), config.packed)
        self._connections = connections

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        make_with_regions(self._connections, self._config)
        self._table.prepare(stream, ledger, self._layout)

    def refusal(self, fields: Fields) -> Column | None:
        most = self._config.max_cell_bytes
        # The size of one cell for all fields: larger than any cell of one field.
        size = packed_size(fields) + F.octet_length(TOPIC) + _CELL_BYTES
        if self._config.packed:
            return too_large(f"sink {self.name}: the cell of the row", size, F.lit(most))
        long = [name for name, kind in fields.items() if is_long(kind)]
        each = [(f"sink {self.name}: the cell of {name}", _cell_size(name), most) for name in long]
        return first_too_large(each, size > most) if each else None

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        # The columns get plain names, because a stream's field may have any name.
        texts = [text(name).alias(f"field_{number}") for number, name in enumerate(self._fields)]
        return write(rows.select(*_ROW, *texts), self._table, self._fields, context, self._layout)

    def discard(self, context: WriteContext) -> None:
        """Nothing: the same attempt writes each row again, and those of another one never count."""

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return _receipt(self.name, self._config.hbase, self._config.table)


class HBaseDeadLetters:
    """The table of dead letters, with the fields of `tidemark.sinks.dead_letters`."""

    def __init__(self, config: DeadLetters, table: ResultTable) -> None:
        self._config = config
        self._table = table

    def prepare(self, stream: str, ledger: str) -> None:
        self._table.prepare(stream, ledger)

    def store(
        self, messages: DataFrame, context: WriteContext, code_version: str, now: int, earlier: DataFrame | None = None
    ) -> Acknowledgements:
        """Store messages as dead letters. A message without a time of failure gets `now` (ms since 1970).

        `earlier` has the messages that were dead letters before, with REDRIVES: how often they were read again,
        including this time.
        """
        if earlier is not None:
            messages = messages.join(earlier, list(COORDINATE), "left")
        most = self._config.most_bytes
        # As a text. A number would stand in the code that Spark generates, and have it compiled for each window.
        at = literal(f"{datetime.fromtimestamp(now / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{now % 1000:03}Z")
        redrives = "0" if earlier is None else f"coalesce({REDRIVES}, 0)"
        contents = {
            **dict(zip(DIGESTED, _PARTS, strict=True)),
            "outcome": f"if({OUTCOME} = {Outcome.FAILED.value}, 'failed', 'invalid')",
            "error": f"{FAILURE}.error",
            "detail": _beginning(_details(f"{FAILURE}.detail", _cut(most)), most),
            "attempts": f"string(coalesce({FAILURE}.attempts, 1))",
            "first_failed_at": f"coalesce({_time(f'timestamp_millis({FAILURE}.first_at)')}, {at})",
            "last_failed_at": f"coalesce({_time(f'timestamp_millis({FAILURE}.last_at)')}, {at})",
            "code_version": literal(code_version),
            "redrives": f"string({redrives})",
        }
        columns = [f"binary({contents[name]}) AS field_{number}" for number, name in enumerate(FIELDS)]
        return write(_with_parts(messages, most).selectExpr(*_ROW, *columns), self._table, FIELDS, context)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return _receipt("dead_letters", self._config.hbase, self._config.table)


def with_dead_letter_digest(messages: DataFrame, config: DeadLetters) -> DataFrame:
    """Messages with the digest of their dead letters."""
    return _with_parts(messages, config.most_bytes).drop(*_PARTS)


def _with_parts(messages: DataFrame, most: int) -> DataFrame:
    """Messages with what their dead letters have of DIGESTED, and the digest."""
    parts = (REASON, KEY, VALUE, _time(TIMESTAMP), HEADERS_JSON)
    # A part too large for a cell is left out: a dead letter that cannot be stored would block the stream for ever.
    fitting = (
        f"if(octet_length({one}) <= {most}, {one}, NULL) AS {name}" for one, name in zip(parts, _PARTS, strict=True)
    )
    return messages.selectExpr("*", *fitting).withColumn(DIGEST, content_digest(_PARTS))


# What follows is SQL, as text: each function of Spark that Python calls takes up to a third of a millisecond.


def _beginning(said: str, most: int) -> str:
    """A text, or as many of its first characters as fit for certain."""
    return f"if(octet_length({said}) <= {most}, {said}, substring({said}, 1, {most // 4}))"


def _details(*texts: str) -> str:
    both = ", ".join(texts)
    return f"if(coalesce({both}) IS NOT NULL, concat_ws('; ', {both}), NULL)"


def _cut(most: int) -> str:
    """The parts that a dead letter lacks, as text for users; null when it lacks nothing."""
    sizes = {name: f"octet_length({one})" for name, one in (("key", KEY), ("value", VALUE), ("headers", HEADERS_JSON))}
    return _details(
        *(
            f"if({size} > {most}, concat('left out: the {name} has ', {size}, '{BYTES_OF_AT_MOST}', {most}), NULL)"
            for name, size in sizes.items()
        )
    )


def _time(time: str) -> str:
    form = literal("yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    return f"date_format({time}, {form})"


def write(
    rows: DataFrame, table: ResultTable, fields: Sequence[str], context: WriteContext, layout: CellLayout | None = None
) -> Acknowledgements:
    """Write rows from Spark's tasks: COUNTED, TOMBSTONE, and a binary column for each field.

    The result counts what HBase has acknowledged.
    """
    return acknowledged(rows, _Writer(table, tuple(fields), layout or CellLayout(), context), few=context.few)


@dataclass(frozen=True)
class _Writer:
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
        places = Places(topics, incarnations, partitions, offsets, indexes)
        mark = marks(self.context.generation, self.context.lane, self.context.seq, digests, tombstones)
        rows = rows_of(places.keys(), [(MARK, mark), *self.layout.cells(self.fields, texts)])
        counts = counts_by_partition(places, indexes, messages, hashes, digests)
        return partial(self.table.write, rows, self.context.generation), counts


def _cell_size(name: str) -> Column:
    """The bytes of a field's cell as HBase counts them: with row key, family, qualifier, timestamp, type, lengths."""
    return size_of(name) + F.octet_length(TOPIC) + len(name.encode()) + _CELL_BYTES


def _receipt(name: str, connection: str, table: str) -> SinkReceipt:
    return SinkReceipt(name=name, type="hbase", place={"connection": connection, "table": table})
