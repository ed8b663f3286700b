"""Dead letters into Parquet files, as the sink `parquet` writes them."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidemark.clients.connections import Connections
from tidemark.functions.types import FieldType
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.dead_letters.parquet.settings import ParquetDeadLetters
from tidemark_spark.columns import OFFSET
from tidemark_spark.sinks.contract import WriteContext
from tidemark_spark.sinks.parquet.writer import ParquetResults

# Whatever bytes a message has; the rest are texts.
_TYPES: dict[str, FieldType] = {name: "binary" if name in ("key", "value") else "string" for name in FIELDS}


class InParquet:
    def __init__(self, config: ParquetDeadLetters, letters: DeadLetters, connections: Connections) -> None:
        self._config = config
        self._connections = connections
        self._results = ParquetResults(config.sink, config.sink.base(connections), _TYPES)

    def prepare(self, stream: str, ledger: str) -> None:
        self._results.prepare(stream, ledger)

    def column(self, number: int, name: str, said: str) -> str:
        return f"{_TYPES[name]}({said}) AS {name}"

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        # In order, a reader of some offsets finds most of them together.
        return self._results.store((rows.coalesce(1) if context.few else rows).sortWithinPartitions(OFFSET), context)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return self._config.receipt(self._connections, folder=self._results.receipt(context).place["folder"])
