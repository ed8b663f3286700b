"""Results and dead letters in HBase, by coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tidemark.hashing import unsigned
from tidemark.hbase.thrift import Mutation
from tidemark.ledger.records import SinkReceipt
from tidemark.ranges import TopicPartition
from tidemark.results.cell_layout import CellLayout
from tidemark.results.dead_letters import DIGESTED, DIGESTED_IF_ANY, FIELDS
from tidemark.results.hbase_rows import Mark, PartitionKeys, split_keys
from tidemark.results.hbase_table import FAMILIES, WRITE_ROWS, ResultTable, cells_of
from tidemark.streams.model import DeadLetters, HBaseSink
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledgements, Outcome
from tidemark_spark.columns import (
    COORDINATE,
    DIGEST,
    FAILURE,
    KEY,
    REASON,
    REDRIVES,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    VALUE,
    content_digest,
    has,
    text,
)
from tidemark_spark.outcomes import sizes
from tidemark_spark.schemes.kept import headers_json
from tidemark_spark.sinks.acknowledging import COUNTED, Prepared, acknowledged, counts_of, write_pieces
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.sinks.sizes import first_too_large, is_long, packed_size, size_of, too_large

if TYPE_CHECKING:
    from tidemark.hbase.thrift2 import Gateway2

_ROW = (*COUNTED, DIGEST, TOMBSTONE)

# Of a row key all but the topic, then lengths, family, timestamp and type of a cell (org.apache.hadoop.hbase.KeyValue), and
# the length of all of it, which HBase's servers count too.
_CELL_BYTES = 20 + 8 + 2 + 1 + 1 + 8 + 1 + 4


class HBaseResults:
    """The sink `hbase`: a row of cells for each result row."""

    def __init__(
        self, config: HBaseSink, table: ResultTable, fields: Sequence[str], regions: Gateway2 | None = None
    ) -> None:
        """`regions`: where a table is made that has several from the beginning."""
        self._config = config
        self._table = table
        self._fields = tuple(fields)
        self._layout = CellLayout(dict(config.columns), config.packed)
        self._regions = regions

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        if self._regions is not None:
            # Thrift 2 takes a third of a second to load, and most streams do without it.
            from tidemark.hbase.regions import ensure_table

            ensure_table(self._regions, self._config.table, FAMILIES, split_keys(self._config.regions))
        self._table.prepare(stream, ledger, self._layout)

    def refusal(self, fields: Fields) -> Column | None:
        most = self._config.max_cell_bytes
        # Of all fields in one cell; no cell of one field is as large.
        size = packed_size(fields) + F.octet_length(TOPIC) + _CELL_BYTES
        if self._config.packed:
            return too_large(f"sink {self.name}: the cell of the row", size, F.lit(most))
        long = [name for name, kind in fields.items() if is_long(kind)]
        each = [(f"sink {self.name}: the cell of {name}", _cell_size(name), most) for name in long]
        return first_too_large(each, size > most) if each else None

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        # Under plain names: a stream's field may be called as it likes.
        texts = [text(name).alias(f"field_{number}") for number, name in enumerate(self._fields)]
        return write(rows.select(*_ROW, *texts), self._table, self._fields, mission, self._layout)

    def receipt(self, mission: Mission) -> SinkReceipt:
        return _receipt(self.name, self._config.hbase, self._config.table)


class HBaseDeadLetters:
    """The messages that were set aside, with what `tidemark.results.dead_letters` names."""

    def __init__(self, config: DeadLetters, table: ResultTable) -> None:
        self._config = config
        self._table = table

    def prepare(self, stream: str, ledger: str) -> None:
        self._table.prepare(stream, ledger)

    def store(
        self, messages: DataFrame, mission: Mission, code_version: str, now: int, earlier: DataFrame | None = None
    ) -> Acknowledgements:
        """Store messages that were set aside, at the time `now` (ms since 1970) where they do not say when they failed.

        `earlier` has those that were dead letters before, with REDRIVES: how often they were read again with this time.
        """
        if earlier is not None:
            messages = messages.join(earlier, list(COORDINATE), "left")
        most = self._config.most_bytes
        redrives = F.lit(0) if earlier is None else F.coalesce(REDRIVES, F.lit(0))
        described = {
            "outcome": F.when(has(Outcome.FAILED), "failed").otherwise("invalid"),
            "error": F.col(FAILURE)["error"],
            "detail": _beginning(_details(F.col(FAILURE)["detail"], _cut(most)), most),
            "attempts": F.coalesce(F.col(FAILURE)["attempts"], F.lit(1)).cast("string"),
            "first_failed_at": _time(F.timestamp_millis(F.coalesce(F.col(FAILURE)["first_at"], F.lit(now)))),
            "last_failed_at": _time(F.timestamp_millis(F.coalesce(F.col(FAILURE)["last_at"], F.lit(now)))),
            "code_version": F.lit(code_version),
            "redrives": redrives.cast("string"),
        }
        contents = {**dict(zip((*DIGESTED, DIGESTED_IF_ANY), _digested(most), strict=True)), **described}
        columns = [contents[name].cast("binary").alias(f"field_{number}") for number, name in enumerate(FIELDS)]
        return write(
            with_dead_letter_digest(messages, self._config).select(*_ROW, *columns), self._table, FIELDS, mission
        )

    def receipt(self, mission: Mission) -> SinkReceipt:
        return _receipt("dead_letters", self._config.hbase, self._config.table)


def with_dead_letter_digest(messages: DataFrame, config: DeadLetters) -> DataFrame:
    """Messages that were set aside, with the digest of their dead letters."""
    *always, headers = _digested(config.most_bytes)
    return messages.withColumn(DIGEST, content_digest(always, [headers]))


def _digested(most: int) -> list[Column]:
    """The columns of DIGESTED and DIGESTED_IF_ANY."""
    parts = (F.col(REASON), F.col(KEY), F.col(VALUE), _time(F.col(TIMESTAMP)), headers_json())
    # What no cell takes is left out: a dead letter that cannot be stored would hold up the stream for ever.
    return [F.when(F.octet_length(one) <= most, one) for one in parts]


def _beginning(said: Column, most: int) -> Column:
    """A text, or as many of its first characters as surely fit."""
    return F.when(F.octet_length(said) <= most, said).otherwise(F.substring(said, 1, most // 4))


def _details(*texts: Column) -> Column:
    return F.when(F.coalesce(*texts).isNotNull(), F.concat_ws("; ", *texts))


def _cut(most: int) -> Column:
    """What a dead letter lacks, for people; null when it lacks nothing."""
    lengths = {"key": F.octet_length(KEY), "value": F.octet_length(VALUE), "headers": F.octet_length(headers_json())}
    texts = [
        F.when(size > most, F.concat(F.lit(f"left out: the {name} has "), sizes(size, F.lit(most))))
        for name, size in lengths.items()
    ]
    return _details(*texts)


def _time(time: Column) -> Column:
    return F.date_format(time, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")


def write(
    rows: DataFrame, table: ResultTable, fields: Sequence[str], mission: Mission, layout: CellLayout | None = None
) -> Acknowledgements:
    """Write rows from Spark's tasks: COUNTED, DIGEST, TOMBSTONE, and a binary column for each field.

    What comes back is counted from what HBase has acknowledged.
    """
    return acknowledged(rows, _Writer(table, tuple(fields), layout or CellLayout(), mission))


@dataclass(frozen=True)
class _Writer:
    """Runs in Spark's Python workers: batches of rows in, acknowledgements out."""

    table: ResultTable
    fields: tuple[str, ...]
    layout: CellLayout
    mission: Mission

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        keys: dict[tuple[str, int, int], PartitionKeys] = {}

        def prepare(piece: pa.RecordBatch) -> Prepared:
            columns = [column.to_pylist() for column in piece.columns]
            rows = list(self._rows(columns, keys))
            return partial(self.table.write, rows, self.mission.generation), counts_of(columns)

        return write_pieces(batches, WRITE_ROWS, self.mission, prepare)

    def _rows(
        self, columns: list[list[Any]], keys: dict[tuple[str, int, int], PartitionKeys]
    ) -> Iterator[tuple[bytes, list[Mutation]]]:
        cells = self.layout.writer(self.fields)
        generation, lane, seq = self.mission.generation, self.mission.lane, self.mission.seq
        for topic, incarnation, partition, offset, index, _, _, digest, tombstone, *texts in zip(*columns, strict=True):
            place = (topic, incarnation, partition)
            of = keys.get(place) or keys.setdefault(place, PartitionKeys(TopicPartition(topic, partition, incarnation)))
            mark = Mark(generation, unsigned(digest), lane, seq, tombstone)
            yield of.key(offset, index), cells_of(mark, cells(texts))


def _cell_size(name: str) -> Column:
    """The bytes of a field's cell as HBase counts them: with its row key, family, qualifier, timestamp, type and lengths."""
    return size_of(name) + F.octet_length(TOPIC) + len(name.encode()) + _CELL_BYTES


def _receipt(name: str, connection: str, table: str) -> SinkReceipt:
    return SinkReceipt(name=name, type="hbase", place={"connection": connection, "table": table})
