"""Results in a Delta table: Spark writes the files of an attempt, and the table has them once its window is committed.

Tidemark does not use Delta's own jars: their writes are seen by others before the ledger's commit.
"""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import DataFrame, SparkSession

from tidemark.errors import Fenced
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.schemes.kinds import Fields
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.delta.attempts import attempt_folder
from tidemark.sinks.delta.publishing import publish
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.parquet import files as parquet_files
from tidemark.spark.readers.parquet import schema_of
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.parquet.writer import ALL_DIFFER, as_stored, read_back, written_rows
from tidemark.types.renamed_fields import NEVER, Names


class DeltaResults:
    """The sink `delta`. Its fields keep their types; the coordinate, the digest and the generation are columns too."""

    def __init__(
        self, config: DeltaSink, base: str, ledger: Ledger, fields: Fields, was: Names = NEVER, *, letters: bool = False
    ) -> None:
        """`letters`: the rows are dead letters."""
        self._config = config
        self._base = base
        self._ledger = ledger
        self._fields = fields
        self._was = was
        self._letters = letters

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
        context.fence.check()
        folder = self._folder(context)
        written = as_stored(rows, self._fields, self._stored).write.mode("errorifexists")
        written.options(compression=self._config.compression, **ALL_DIFFER).parquet(folder)
        held = read_back(rows, folder)
        delta_table.check_unchanged(self._base, self._stored)
        # As with `at_most_once`: what comes after the commit is published now.
        committed = self._ledger.record(context.lane, context.seq)
        if committed is not None and committed[1].attempt.generation == context.generation:
            context.fence.check()
            sink = None if self._letters else self.name
            if not publish(self._ledger, self._base, sink, committed[1], folder, wrote=bool(held)):
                raise Fenced(
                    f"{self._base} has a later window of {context.lane} already, and takes none of before it: nothing that "
                    f"this attempt wrote there counts. A replay of window {context.lane}/{context.seq} reads its offsets again"
                )
        return held

    def written(self, spark: SparkSession, context: WriteContext) -> DataFrame:
        folder = self._folder(context)
        paths = (
            [folder] if parquet_files.exists(folder) else delta_table.files_of(self._base).get(context.generation, [])
        )
        return written_rows(spark, schema_of(self._stored), *paths)

    def discard(self, context: WriteContext) -> None:
        parquet_files.delete(self._folder(context))

    def refusal(self, fields: Fields) -> None:
        return None

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return SinkReceipt(
            name=self.name, type=delta_table.TYPE, place={"base": self._base, "folder": self._folder(context)}
        )

    def _folder(self, context: WriteContext) -> str:
        return attempt_folder(self._base, context.lane, context.seq, context.generation)
