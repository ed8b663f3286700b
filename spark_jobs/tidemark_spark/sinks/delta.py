"""Results in a Delta table: Spark writes the files, delta-rs makes them part of the table in one commit.

Without Delta's own jars: those would say neither what they have written nor, of a version that was skipped, that they did not.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidemark.ledger.records import SinkReceipt
from tidemark.results import delta_table
from tidemark.streams.delta_sink import DeltaSink
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledgements
from tidemark_spark.columns import COORDINATE, DIGEST, INDEX, TOMBSTONE, field
from tidemark_spark.session import setting
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.sinks.parquet import read_back

# In the older form of Parquet's times others take them for nanoseconds, which have no year 2300; Delta's format has this one.
_TIMES = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


class DeltaResults:
    """The sink `delta`. Its fields keep their types; the coordinate, the digest and the generation are columns too."""

    def __init__(self, config: DeltaSink, base: str, stream: str, fields: Fields) -> None:
        self._config = config
        self._base = base
        self._stream = stream
        self._fields = fields

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        delta_table.prepare(self._base, delta_table.columns(self._fields), stream, ledger)

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        mission.fence.check()
        folder = delta_table.partition_folder(self._base, mission.generation)
        columns = [*COORDINATE, INDEX, TOMBSTONE, DIGEST]
        written = rows.select(*columns, *(field(name) for name in self._fields)).write.mode("errorifexists")
        with setting(rows.sparkSession, *_TIMES):
            written.option("compression", self._config.compression).parquet(folder)
        mission.fence.check()
        transaction, window = f"{self._stream}/{mission.lane}", f"{mission.lane}/{mission.seq}"
        delta_table.add(self._base, transaction, mission.generation, window)
        # What the table holds of this generation, and not what was written or sent: a version may have been skipped.
        held = delta_table.files_of(self._base).get(mission.generation)
        return read_back(rows, *held) if held else {}

    def refusal(self, fields: Fields) -> None:
        return None

    def receipt(self, mission: Mission) -> SinkReceipt:
        place = {"base": self._base, "folder": delta_table.partition_folder(self._base, mission.generation)}
        return SinkReceipt(name=self.name, type=delta_table.TYPE, place=place)
