"""Results and dead letters in HBase, by coordinate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.hashing import unsigned
from tidemark.hbase.thrift import Mutation
from tidemark.ledger.records import SinkReceipt
from tidemark.ranges import TopicPartition
from tidemark.results.cell_layout import CellLayout
from tidemark.results.hbase_rows import Mark, PartitionKeys, split_keys
from tidemark.results.hbase_table import FAMILIES, WRITE_ROWS, ResultTable, cells_of
from tidemark.streams.model import DeadLetters, HBaseSink
from tidemark.tallies import Acknowledgements
from tidemark_spark.columns import (
    DIGEST,
    KEY,
    REASON,
    TIMESTAMP,
    TOMBSTONE,
    VALUE,
    content_digest,
    text,
)
from tidemark_spark.sinks.acknowledging import COUNTED, acknowledge, acknowledged
from tidemark_spark.sinks.contract import Mission

if TYPE_CHECKING:
    from tidemark.hbase.thrift2 import Gateway2

# The fields of a dead letter, in the order of its digest.
DEAD_LETTER_FIELDS = ("reason", "key", "value", "timestamp")

_ROW = (*COUNTED, DIGEST, TOMBSTONE)


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

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        # Under plain names: a stream's field may be called as it likes.
        texts = [text(name).alias(f"field_{number}") for number, name in enumerate(self._fields)]
        return write(rows.select(*_ROW, *texts), self._table, self._fields, mission, self._layout)

    def receipt(self, mission: Mission) -> SinkReceipt:
        return _receipt(self.name, self._config.hbase, self._config.table)


class HBaseDeadLetters:
    """The messages that were set aside: coordinate, reason, key, raw value, time."""

    def __init__(self, config: DeadLetters, table: ResultTable) -> None:
        self._config = config
        self._table = table

    def prepare(self, stream: str, ledger: str) -> None:
        self._table.prepare(stream, ledger)

    def store(self, messages: DataFrame, mission: Mission) -> Acknowledgements:
        return write(dead_letter_rows(messages), self._table, DEAD_LETTER_FIELDS, mission)

    def receipt(self, mission: Mission) -> SinkReceipt:
        return _receipt("dead_letters", self._config.hbase, self._config.table)


def dead_letter_rows(messages: DataFrame) -> DataFrame:
    """Dead letters as rows: their own digest, and the columns `field_N` in the order of DEAD_LETTER_FIELDS."""
    time = F.date_format(TIMESTAMP, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX")
    contents = [F.col(REASON), F.col(KEY), F.col(VALUE), time]
    columns = [one.alias(f"field_{number}") for number, one in enumerate(contents)]
    return messages.withColumn(DIGEST, content_digest(contents)).select(*_ROW, *columns)


def write(
    rows: DataFrame, table: ResultTable, fields: Sequence[str], mission: Mission, layout: CellLayout | None = None
) -> Acknowledgements:
    """Write rows from Spark's tasks; what comes back is counted from what HBase has acknowledged."""
    return acknowledged(rows, _Writer(table, tuple(fields), layout or CellLayout(), mission))


@dataclass(frozen=True)
class _Writer:
    """Runs in Spark's Python workers: batches of rows in, acknowledgements out."""

    table: ResultTable
    fields: tuple[str, ...]
    layout: CellLayout
    mission: Mission

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mission, fence = self.mission, self.mission.fence
        keys: dict[tuple[str, int, int], PartitionKeys] = {}
        for batch in batches:
            for start in range(0, batch.num_rows, WRITE_ROWS):
                fence.check_now_and_then()
                piece = batch.slice(start, WRITE_ROWS)
                columns = [column.to_pylist() for column in piece.columns]
                self.table.write(self._rows(columns, keys), mission.generation)
                yield acknowledge(columns, mission)

    def _rows(
        self, columns: list[list[Any]], keys: dict[tuple[str, int, int], PartitionKeys]
    ) -> Iterator[tuple[bytes, list[Mutation]]]:
        cells = self.layout.writer(self.fields)
        generation, lane, seq = self.mission.generation, self.mission.lane, self.mission.seq
        for topic, incarnation, partition, offset, index, _, _, digest, tombstone, *texts in zip(*columns, strict=True):
            place = (topic, incarnation, partition)
            of = keys.get(place) or keys.setdefault(place, PartitionKeys(TopicPartition(topic, partition, incarnation)))
            mark = Mark(generation, unsigned(digest), lane, seq, tombstone)
            yield (
                of.key(offset, index),
                cells_of(mark, cells(map(_bytes, texts))),
            )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _receipt(name: str, connection: str, table: str) -> SinkReceipt:
    return SinkReceipt(name=name, type="hbase", place={"connection": connection, "table": table})
