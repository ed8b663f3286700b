"""Results in an Iceberg table: Spark writes the files of an attempt, and the table names them once its window is committed.

Tidemark does not use Iceberg's own jars: their writes are seen by others before the ledger's commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import arrow_udf

from tidemark.errors import Fenced
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import Acknowledgements
from tidemark.runs.live.open_stream import OpenStream
from tidemark.schemes.kinds import Fields
from tidemark.sinks.iceberg import table as iceberg_table
from tidemark.sinks.iceberg.catalog import located
from tidemark.sinks.iceberg.lanes import forgotten
from tidemark.sinks.iceberg.partitions import buckets
from tidemark.sinks.iceberg.schema import GENERATION
from tidemark.sinks.iceberg.settings import IcebergSink, PartitionKey, place_of
from tidemark.sinks.parquet import files as parquet_files
from tidemark.sinks.versions import versions_of
from tidemark.spark.columns import field
from tidemark.spark.readers.parquet import schema_of
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.parquet.writer import ALL_DIFFER, as_stored, read_back, written_rows
from tidemark.spark.sinks.sizes import refusal


class IcebergResults:
    """The sink `iceberg`. Its fields keep their types; the coordinate, the digest and the generation are columns too."""

    def __init__(self, config: IcebergSink, opened: OpenStream) -> None:
        self._config = config
        self._base = config.base(opened.connections)
        self._place = place_of(config, self._base)
        self._where = located(opened.connections, self._place)
        self._fields = opened.fields
        self._was = opened.was
        self._keys = config.partition_keys()
        self._ledger = opened.ledger

    @property
    def name(self) -> str:
        return self._config.name

    @cached_property
    def _stored(self) -> Fields:
        """The fields as the table has them, which may be wider. Known once the sink is prepared."""
        return iceberg_table.as_stored(self._where, self._fields, self._was)

    def prepare(self, stream: str, ledger: str) -> None:
        iceberg_table.prepare(self._where, self._fields, stream, ledger, self._keys, self._was)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        context.fence.check()
        folder = self._folder(context)
        generation = F.lit(context.generation).cast("long")
        chosen = as_stored(rows, self._fields, self._stored).withColumn(GENERATION, generation)
        written = chosen.withColumns({key.column: partition(key) for key in self._keys}).write.mode("errorifexists")
        written.options(compression=self._config.compression, **ALL_DIFFER)
        # A file has rows of one partition.
        written.partitionBy(*(key.column for key in self._keys)).parquet(folder)
        held = read_back(rows, folder)
        iceberg_table.check_unchanged(self._where, self._stored, self._was)
        # As with `at_most_once`: what comes after the commit is published now.
        committed = self._ledger.record(context.lane, context.seq)
        if committed is not None:
            self._publish(committed[1], folder, context, wrote=bool(held))
        return held

    def _publish(self, record: Record, folder: str, context: WriteContext, *, wrote: bool) -> None:
        # What was erased meanwhile is not shown to others at all.
        context.fence.check()
        forget = partial(forgotten, self._ledger, context.lane)
        versions = versions_of(self._ledger)
        if not iceberg_table.publish(self._where, versions, record, folder, RangeSet(), forget=forget, wrote=wrote):
            raise Fenced(
                f"{self._where} has a later window of {context.lane} already, and takes none of before it: nothing that "
                f"this attempt wrote there counts. A replay of window {context.lane}/{context.seq} reads its offsets again"
            )

    def written(self, spark: SparkSession, context: WriteContext) -> DataFrame:
        return written_rows(spark, schema_of(self._stored), self._folder(context))

    def discard(self, context: WriteContext) -> None:
        parquet_files.delete(self._folder(context))

    def refusal(self, fields: object) -> Column | None:
        return without_partition(self.name, self._keys)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = {**self._place, "folder": self._folder(context)}
        return SinkReceipt(name=self.name, type=iceberg_table.TYPE, place=place)

    def _folder(self, context: WriteContext) -> str:
        return iceberg_table.attempt_folder(self._base, context.lane, context.seq, context.generation)


def without_partition(sink: str, keys: Sequence[PartitionKey]) -> Column | None:
    """The refusal of a row that has no partition by these keys; None where each row has one.

    Iceberg counts days and hours in 32 bits, and pyiceberg writes the names of both only for the years that Python has.
    """
    refusals = [
        F.when(
            ~F.year(field(key.field)).between(1, 9999),
            refusal(F.lit(f"sink {sink}: {key.field} lies beyond the years 1 to 9999, so it has no {key.part} there")),
        )
        for key in keys
        if key.part != "bucket"
    ]
    return F.coalesce(*refusals) if refusals else None


def partition(key: PartitionKey) -> Column:
    """The text that names the folder of a row's partition: rows with one such text, or none, are of one partition."""
    if key.part == "bucket":
        number = key.buckets

        # Spark's own hash is another one than Iceberg's.
        def of(values: pa.Array) -> pa.Array:
            return buckets(values, number)

        # Its types do not say that it takes a function.
        as_column: Any = arrow_udf
        value: Column = as_column(of, "int")(field(key.field))
        return value
    return F.date_format(field(key.field), "yyyy-MM-dd" if key.part == "day" else "yyyy-MM-dd-HH")
