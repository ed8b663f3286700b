"""Results as Spark DataFrames, of which only what counts is seen.

`results` is for people: a stream's fields with their types. `hbase_places` is for the audit: every place with its digests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from tidemark.connections import kafka_bootstrap
from tidemark.errors import WrongUse
from tidemark.hashing import content_hash, coordinate_hash, row_hash
from tidemark.ledger.book import Book, View
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.results import parquet_files
from tidemark.results.hbase_rows import Place
from tidemark.results.hbase_table import ResultTable, StoredRow
from tidemark.results.parquet_parts import Part, steady
from tidemark.results.reading import pieces, places_of_pieces
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.kafka_sink import KafkaSink
from tidemark.streams.latest_sink import HBaseLatestSink
from tidemark.streams.model import HBaseSink
from tidemark.streams.opened import OpenStream
from tidemark.streams.schemes import Fields
from tidemark_spark import parquet_reading
from tidemark_spark.arrow import batch_of, in_workers
from tidemark_spark.columns import AT, COORDINATE, DIGEST, INDEX, TOMBSTONE, content_digest, field
from tidemark_spark.outcomes import field_names
from tidemark_spark.schemes.fields import SPARK_TYPES

COUNTS = "_counts"
FOUND_DIGEST = "_found_digest"

# Which of a row's fields its digest is taken of.
Digested = Callable[[Mapping[str, bytes]], list[bytes | None]]

_PLACE = [
    (AT[0], pa.string()),
    (AT[1], pa.int32()),
    (AT[2], pa.int32()),
    (COORDINATE[3], pa.int64()),
    (INDEX, pa.int32()),
]


def results(spark: SparkSession, opened: OpenStream, sink: str) -> DataFrame:
    """The results of one sink that count: coordinate, `_index`, `_tombstone`, and the stream's fields with their types.

    Of a sink `hbase_latest` the newest value of each key, which may be a tombstone. Of `hbase_aggregates` key and values of
    each key, and nothing else; a sum of integers is a decimal. Of `kafka` the message's `topic`, `key` and `value` in place of
    the fields.

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
        return rows.where(COUNTS).select(*COORDINATE, INDEX, TOMBSTONE, *_typed(opened.stream.fields))
    if isinstance(config, HBaseLatestSink):
        # It is made of what is in this module.
        from tidemark_spark.latest_reader import newest_values

        table = opened.latest_table(config.hbase, config.table)
        rows = newest_values(spark, opened.book, table, field_names(opened.stream))
        return rows.select(*COORDINATE, INDEX, TOMBSTONE, *_typed(opened.stream.fields))
    if isinstance(config, HBaseAggregatesSink):
        from tidemark_spark.aggregates_reader import key_totals

        return key_totals(spark, opened, config)
    if isinstance(config, KafkaSink):
        # Only its own readers have to know Kafka.
        from tidemark_spark.kafka_reader import messages_that_count

        servers = kafka_bootstrap(opened.connections(config.kafka))
        return messages_that_count(spark, opened.book, servers, config.targets())
    if isinstance(config, DeltaSink):
        from tidemark.results.delta_table import parts_that_count

        found = parquet_rows(spark, parts_that_count(opened.book, sink)[1], opened.stream.fields)
        return found.select(*COORDINATE, INDEX, TOMBSTONE, *(field(name) for name in field_names(opened.stream)))
    # Spark lists the files here, and reads them later. It fails where a compaction has removed them by then.
    fields = opened.stream.fields
    rows = steady(opened.book, sink, lambda parts, _: parquet_rows(spark, parts, fields))
    return rows.select(*COORDINATE, INDEX, TOMBSTONE, *(field(name) for name in field_names(opened.stream)))


def _typed(fields: Fields) -> list[Any]:
    return [
        of_text(F.col(f"field_{number}"), SPARK_TYPES[kind]).alias(name)
        for number, (name, kind) in enumerate(fields.items())
    ]


def of_text(stored: Column, kind: str) -> Column:
    """A value of a Spark type from what HBase holds of it: its bytes where it is binary, its text for all others."""
    if kind == "binary":
        # May be no text.
        return stored
    text = stored.cast("string")
    # Times are held in UTC; the session that reads may have another time zone.
    return F.concat(text, F.lit("Z")).cast(kind) if kind == "timestamp" else text.cast(kind)


def hbase_places(
    spark: SparkSession,
    book: Book,
    table: ResultTable,
    fields: Sequence[str],
    more: RangeSet | None = None,
    *,
    within: RangeSet | None = None,
    digested: Digested | None = None,
) -> DataFrame:
    """Every place of a table that has a row, at the offsets that are covered (of them only those `within`), and at `more`.

    Columns: coordinate, `_index`, `_counts` (false: only debris), `_tombstone`, `_digest` (as the row's mark says),
    `_found_digest` (as the row's cells say: all `fields`, unless `digested` chooses), and the fields' bytes as `field_0`,
    `field_1`, ...
    """
    view = book.view()
    covered = view.authority.covered() if within is None else view.authority.covered() & within
    wanted = covered | (more or RangeSet())
    schema = places_schema(fields)
    reader = _Reader(book, table, replace(view, windows=[]), tuple(fields), schema, digested)
    tasks = [
        (one.partition.topic, one.partition.incarnation, one.partition.partition, one.start, one.until)
        for one in pieces(wanted)
    ]
    asked = spark.createDataFrame(tasks, "topic string, incarnation int, partition int, start long, until long")
    spread = max(1, min(len(tasks), 4 * spark.sparkContext.defaultParallelism))
    return in_workers(asked.repartition(spread), reader, from_arrow_schema(schema))


def contents_of(fields: Sequence[str]) -> Digested:
    """All of these fields, in this order: for whoever wants their digest and not the fields."""
    return lambda row: [row.get(name) for name in fields]


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


def place_row(
    fields: Sequence[str], found: Place, row: StoredRow | None, digested: Digested | None = None
) -> tuple[Any, ...]:
    """A row of `places_schema`; `row` is None where only debris is. `digested` as of `hbase_places`."""
    at = found.partition
    place = (at.topic, at.incarnation, at.partition, found.offset, found.index)
    if row is None:
        return (*place, False, False, None, None, *(None for _ in fields))
    contents = [row.fields.get(name) for name in fields]
    of = contents if digested is None else digested(row.fields)
    digest = content_hash(row_hash(coordinate_hash(at, found.offset), found.index), of)
    return (*place, True, row.mark.tombstone, _signed(row.mark.digest), _signed(digest), *contents)


@dataclass(frozen=True)
class _Reader:
    """Runs in Spark's Python workers: pieces to read in, rows out."""

    book: Book
    table: ResultTable
    view: View
    fields: tuple[str, ...]
    schema: pa.Schema
    digested: Digested | None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        wanted = (
            OffsetRange(TopicPartition(one["topic"], one["partition"], one["incarnation"]), one["start"], one["until"])
            for batch in batches
            for one in batch.to_pylist()
        )
        for found in places_of_pieces(self.book, self.table, self.view, wanted):
            yield batch_of([place_row(self.fields, place, row, self.digested) for place, row in found], self.schema)


def parquet_rows(spark: SparkSession, parts: Iterable[Part], fields: Fields, *, gone: bool = False) -> DataFrame:
    """The rows of some folders of a Parquet sink that count: coordinate, `_index`, `_tombstone`, `_digest`, and the fields.

    The fields are those of today's stream file: one that older files do not have is null. With `gone`, a folder that is
    missing is passed over, for the audit to find its rows missing. Without it, Spark fails and names the folder.
    """
    there = [one for one in parts if not gone or all(map(parquet_files.exists, one.paths))]
    schema = spark.createDataFrame([], _parquet_schema(fields)).schema
    rows = parquet_reading.rows_of(spark, there, schema)
    return rows.drop(*parquet_files.WINDOW_COLUMNS)


def _parquet_schema(fields: Fields) -> str:
    columns = ", ".join(f"`{name}` {SPARK_TYPES[kind]}" for name, kind in fields.items())
    place = f"{AT[0]} string, {AT[1]} int, {AT[2]} int, {COORDINATE[3]} long, {INDEX} int"
    return f"{place}, {TOMBSTONE} boolean, {DIGEST} long, {columns}"


def parquet_found_digest(rows: DataFrame, fields: Sequence[str]) -> DataFrame:
    """Parquet rows with `_found_digest`: the digest of what their columns hold."""
    return rows.withColumn(FOUND_DIGEST, content_digest([field(name) for name in fields]))


def _signed(number: int) -> int:
    """An unsigned 64-bit number as Spark's long."""
    return number - (1 << 64) if number >= 1 << 63 else number
