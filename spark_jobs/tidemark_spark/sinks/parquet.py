"""Results in Parquet: a folder for each window and attempt, which the receipt names."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.ledger.records import SinkReceipt
from tidemark.ranges import TopicPartition
from tidemark.results import parquet_files
from tidemark.streams.model import ParquetSink
from tidemark.streams.schemes import Fields
from tidemark.tallies import Acknowledged, Acknowledgements
from tidemark_spark.columns import (
    AT,
    COORDINATE,
    DIGEST,
    INDEX,
    MESSAGE_HASH,
    ROW_HASH,
    TOMBSTONE,
    field,
    message_hash,
    row_hash,
)
from tidemark_spark.sinks.contract import Mission
from tidemark_spark.tallying import count_of


class ParquetResults:
    """The sink `parquet`. Its fields keep their types; the coordinate and the digest are columns too."""

    def __init__(self, config: ParquetSink, base: str, fields: Sequence[str]) -> None:
        self._config = config
        self._base = base
        self._fields = tuple(fields)

    @property
    def name(self) -> str:
        return self._config.name

    def prepare(self, stream: str, ledger: str) -> None:
        parquet_files.own(self._base, stream, ledger)

    def refusal(self, fields: Fields) -> None:
        return None

    def store(self, rows: DataFrame, mission: Mission) -> Acknowledgements:
        mission.fence.check()
        folder = self._folder(mission)
        columns = [*COORDINATE, INDEX, TOMBSTONE, DIGEST]
        # A folder that is there already is another attempt's with the same generation, which cannot be: fail.
        rows.select(*columns, *(field(name) for name in self._fields)).write.mode("errorifexists").parquet(folder)
        return self._read_back(rows, folder)

    def receipt(self, mission: Mission) -> SinkReceipt:
        place = {"base": self._base, "folder": self._folder(mission)}
        return SinkReceipt(name=self.name, type=parquet_files.TYPE, place=place)

    def _folder(self, mission: Mission) -> str:
        return parquet_files.attempt_folder(self._base, mission.lane, mission.seq, mission.generation)

    def _read_back(self, rows: DataFrame, folder: str) -> Acknowledgements:
        """What the files hold, from their coordinate columns: a file system gives no acknowledgement of rows."""
        schema = rows.select(*COORDINATE, INDEX).schema
        held = rows.sparkSession.read.schema(schema).parquet(folder)
        held = held.withColumns({MESSAGE_HASH: message_hash(), ROW_HASH: row_hash()})
        counted = held.groupBy(*AT).agg(
            F.count_if(F.col(INDEX) == 0).alias("messages"),
            F.bit_xor(F.when(F.col(INDEX) == 0, F.col(MESSAGE_HASH))).alias("messages_ack"),
            F.count("*").alias("written"),
            F.bit_xor(ROW_HASH).alias("written_ack"),
        )
        return {
            TopicPartition(row[AT[0]], row[AT[2]], row[AT[1]]): Acknowledged(
                count_of(row["messages"], row["messages_ack"]), count_of(row["written"], row["written_ack"])
            )
            for row in counted.collect()
        }
