"""Results as Spark DataFrames, of which only what counts is seen.

`results` is for people: a stream's fields with their types. `hbase_places` is for the audit: every place with its digests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.errors import WrongUse
from tidemark.hashing import content_hash, coordinate_hash, row_hash
from tidemark.ledger.book import Book, View
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.results import parquet_files
from tidemark.results.hbase_rows import Place
from tidemark.results.hbase_table import ResultTable, StoredRow
from tidemark.results.reading import pieces, places_of_piece
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import HBaseSink
from tidemark.streams.opened import OpenStream
from tidemark.streams.schemes import Scheme
from tidemark_spark.columns import AT, COORDINATE, DIGEST, INDEX, TOMBSTONE, content_digest, field, text
from tidemark_spark.outcomes import field_names
from tidemark_spark.schemes.fields import SPARK_TYPES
from tidemark_spark.selecting import without

COUNTS = "_counts"
FOUND_DIGEST = "_found_digest"
GENERATION = "generation"

_PLACE = [
    (AT[0], pa.string()),
    (AT[1], pa.int32()),
    (AT[2], pa.int32()),
    (COORDINATE[3], pa.int64()),
    (INDEX, pa.int32()),
]


def results(spark: SparkSession, opened: OpenStream, sink: str) -> DataFrame:
    """The results of one sink that count: coordinate, `_index`, `_tombstone`, and the stream's fields with their types.

    Of a sink `hbase_latest` the newest value of each key, which may be a tombstone.

    Raises WrongUse when the stream has no sink of this name.
    """
    config = next((one for one in opened.stream.sinks if one.name == sink), None)
    if config is None:
        known = ", ".join(one.name for one in opened.stream.sinks)
        raise WrongUse(f"{opened.stream.stream} has no sink {sink!r}; it has: {known}")
    if isinstance(config, HBaseSink):
        rows = hbase_places(
            spark, opened.book, opened.result_table(config.hbase, config.table), field_names(opened.stream)
        )
        return rows.where(COUNTS).select(*COORDINATE, INDEX, TOMBSTONE, *_typed(opened.stream.scheme))
    if isinstance(config, HBaseLatestSink):
        # It is made of what is in this module.
        from tidemark_spark.latest_reader import newest_values

        table = opened.latest_table(config.hbase, config.table)
        rows = newest_values(spark, opened.book, table, field_names(opened.stream))
        return rows.select(*COORDINATE, INDEX, TOMBSTONE, *_typed(opened.stream.scheme))
    if isinstance(config, KafkaSink):
        raise WrongUse(f"sink {sink} is in Kafka: tidemark.results.kafka_messages reads it, without Spark")
    rows = parquet_rows(spark, opened.book.view(), sink, opened.stream.scheme)
    return rows.select(*COORDINATE, INDEX, TOMBSTONE, *(field(name) for name in field_names(opened.stream)))


def _typed(scheme: Scheme) -> list[Any]:
    return [
        F.col(f"field_{number}").cast("string").cast(SPARK_TYPES[kind]).alias(name)
        for number, (name, kind) in enumerate(scheme.fields.items())
    ]


def hbase_places(
    spark: SparkSession, book: Book, table: ResultTable, fields: Sequence[str], more: RangeSet | None = None
) -> DataFrame:
    """Every place of a table that has a row, at the offsets that are covered, and at `more`.

    Columns: coordinate, `_index`, `_counts` (false: only debris), `_tombstone`, `_digest` (as the row's mark says),
    `_found_digest` (as the row's cells say), and the fields' bytes as `field_0`, `field_1`, ...
    """
    view = book.view()
    wanted = view.authority.covered() | (more or RangeSet())
    schema = places_schema(fields)
    reader = _Reader(book, table, replace(view, windows=[]), tuple(fields), schema)
    tasks = [
        (one.partition.topic, one.partition.incarnation, one.partition.partition, one.start, one.until)
        for one in pieces(wanted)
    ]
    asked = spark.createDataFrame(tasks, "topic string, incarnation int, partition int, start long, until long")
    spread = max(1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism))
    return asked.repartition(spread).mapInArrow(reader, from_arrow_schema(schema))


def places_schema(fields: Sequence[str]) -> pa.Schema:
    return pa.schema(
        [
            *_PLACE,
            (COUNTS, pa.bool_()),
            (TOMBSTONE, pa.bool_()),
            (DIGEST, pa.int64()),
            (FOUND_DIGEST, pa.int64()),
            *((f"field_{number}", pa.binary()) for number, _ in enumerate(fields)),
        ]
    )


def place_row(fields: Sequence[str], found: Place, row: StoredRow | None) -> tuple[Any, ...]:
    """A row of `places_schema`; `row` is None where only debris is."""
    at = found.partition
    place = (at.topic, at.incarnation, at.partition, found.offset, found.index)
    if row is None:
        return (*place, False, False, None, None, *(None for _ in fields))
    contents = [row.fields.get(name) for name in fields]
    digest = content_hash(row_hash(coordinate_hash(at, found.offset), found.index), contents)
    return (*place, True, row.mark.tombstone, _signed(row.mark.digest), _signed(digest), *contents)


@dataclass(frozen=True)
class _Reader:
    """Runs in Spark's Python workers: pieces to read in, rows out."""

    book: Book
    table: ResultTable
    view: View
    fields: tuple[str, ...]
    schema: pa.Schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        view = self.view
        for batch in batches:
            for task in batch.to_pylist():
                at = TopicPartition(task["topic"], task["partition"], task["incarnation"])
                piece = OffsetRange(at, task["start"], task["until"])
                view, found = places_of_piece(self.book, self.table, view, piece)
                rows = [place_row(self.fields, place, row) for place, row in found]
                columns = zip(*rows, strict=True) if rows else [[] for _ in self.schema]
                arrays = [pa.array(column, kind.type) for column, kind in zip(columns, self.schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def parquet_rows(spark: SparkSession, view: View, sink: str, scheme: Scheme, *, gone: bool = False) -> DataFrame:
    """The rows of a Parquet sink that count, in one read, however many windows there are.

    Columns: coordinate, `_index`, `_tombstone`, `_digest`, the fields, and the folders' `lane`, `seq`, `generation`.
    With `gone`, a folder that is missing is passed over, for the audit to find its rows missing. Without it, Spark
    fails and names the folder.
    """
    folders: list[str] = []
    base = None
    superseded: list[tuple[int, RangeSet]] = []
    for window in view.windows:
        place = next((one.place for one in window.record.places if one.name == sink), None)
        if place is None or not any(tally.rows.number for tally in window.record.tallies):
            continue
        if gone and not parquet_files.exists(place["folder"]):
            continue
        base = place["base"]
        folders.append(place["folder"])
        lost = window.covers - view.authority.held_by(window.generation, window.covers)
        if lost:
            superseded.append((window.generation, lost))
    # The schema of today's stream file: a field that older files do not have is null.
    schema = _parquet_schema(scheme)
    if base is None:
        return spark.createDataFrame([], schema)
    rows = spark.read.schema(schema).option("basePath", base).parquet(*folders)
    # Small: only windows of which a later one has taken something.
    kept = rows.where(~F.col(GENERATION).isin([generation for generation, _ in superseded]))
    for generation, lost in superseded:
        kept = kept.unionAll(without(rows.where(F.col(GENERATION) == generation), lost))
    return kept


def _parquet_schema(scheme: Scheme) -> str:
    fields = ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in scheme.fields.items())
    place = f"{AT[0]} string, {AT[1]} int, {AT[2]} int, {COORDINATE[3]} long, {INDEX} int"
    return f"{place}, {TOMBSTONE} boolean, {DIGEST} long, {fields}, lane string, seq int, {GENERATION} long"


def parquet_found_digest(rows: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Parquet rows with `_found_digest`: the digest of what their columns hold."""
    return rows.withColumn(FOUND_DIGEST, content_digest([text(name) for name in fields]))


def _signed(number: int) -> int:
    """An unsigned 64-bit number as Spark's long."""
    return number - (1 << 64) if number >= 1 << 63 else number
