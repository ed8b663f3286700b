"""Results in a Delta table: Spark writes the files, delta-rs adds them to the table in one commit.

Tidemark does not use Delta's own jars: those do not say what they have written, nor that they have skipped a version.
"""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.delta import attempts
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.spark.readers.parquet import schema_of
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.parquet.writer import ALL_DIFFER, as_stored, read_back, written_rows
from tidemark.types.renamed_fields import NEVER, Names


class DeltaResults:
    """The sink `delta`. Its fields keep their types; the coordinate, the digest and the generation are columns too."""

    def __init__(self, config: DeltaSink, base: str, versions: str, fields: Fields, was: Names = NEVER) -> None:
        """`versions`: what the table's versions of a lane stand under; see `delta_table.versions_of`."""
        self._config = config
        self._base = base
        self._versions = versions
        self._fields = fields
        self._was = was

    @property
    def name(self) -> str:
        return self._config.name

    @cached_property
    def _stored(self) -> Fields:
        """The fields as the table has them, which may be wider. Known once the sink is prepared."""
        return delta_table.as_stored(self._base, self._fields)

    def prepare(self, stream: str, ledger: str) -> None:
        delta_table.prepare(self._base, delta_table.columns(self._fields), stream, ledger, self._was)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        written = as_stored(rows, self._fields, self._stored).write.mode("errorifexists")
        written.options(compression=self._config.compression, **ALL_DIFFER)
        held = attempts.store(
            self._base,
            self._versions,
            (context.lane, context.seq),
            context.generation,
            context.fence.check,
            written.parquet,
        )
        return read_back(rows, *held) if held else {}

    def written(self, spark: SparkSession, context: WriteContext) -> DataFrame:
        return written_rows(spark, schema_of(self._stored), *attempts.held(self._base, context.generation))

    def discard(self, context: WriteContext) -> None:
        attempts.discard(self._base, (context.lane, context.seq), context.generation)

    def refusal(self, fields: Fields) -> None:
        return None

    def receipt(self, context: WriteContext) -> SinkReceipt:
        place = {"base": self._base, "folder": delta_table.partition_folder(self._base, context.generation)}
        return SinkReceipt(name=self.name, type=delta_table.TYPE, place=place)
