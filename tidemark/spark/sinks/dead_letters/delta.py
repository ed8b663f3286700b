"""Dead letters into a Delta table, as the sink `delta` writes them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tidemark.clients.connections import Connections
from tidemark.offsets.tallies import Acknowledgements
from tidemark.sinks.dead_letters.delta.letters import COLUMNS, WINDOW, LettersInDelta
from tidemark.sinks.dead_letters.delta.settings import DeltaDeadLetters
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.dead_letters.parquet import InFiles
from tidemark.spark.sinks.delta.writer import DeltaResults


class InDelta(InFiles):
    def __init__(self, config: DeltaDeadLetters, letters: LettersInDelta, connections: Connections) -> None:
        results = DeltaResults(config.sink, config.sink.base(connections), letters.ledger, COLUMNS, letters=True)
        super().__init__(config, connections, results)

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        return super().store(rows.withColumn(WINDOW, F.lit(f"{context.lane}/{context.seq}")), context)
