"""Dead letters into a Delta table, as the sink `delta` writes them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.clients.connections import Connections
from tidemark.offsets.tallies import Acknowledgements
from tidemark.sinks.dead_letters.delta.letters import COLUMNS, WINDOW, LettersInDelta
from tidemark.sinks.dead_letters.delta.settings import DeltaDeadLetters
from tidemark.sinks.delta.table import versions_of
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.dead_letters.parquet import InFiles
from tidemark.spark.sinks.delta.writer import DeltaResults


class InDelta(InFiles):
    def __init__(self, config: DeltaDeadLetters, letters: LettersInDelta, connections: Connections) -> None:
        base, versions = config.sink.base(connections), versions_of(letters.book)
        super().__init__(config, connections, DeltaResults(config.sink, base, versions, COLUMNS))

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        return super().store(rows.withColumn(WINDOW, F.lit(f"{context.lane}/{context.seq}")), context)
