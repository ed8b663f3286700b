"""Dead letters into Parquet files, as the sink `parquet` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyspark.sql import DataFrame

from tidemark.clients.connections import Connections
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.dead_letters.parquet.letters import TYPES
from tidemark.sinks.dead_letters.parquet.settings import FileDeadLetters, ParquetDeadLetters
from tidemark.spark.columns import OFFSET
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.parquet.writer import ParquetResults
from tidemark.types.fields import FieldType


class _Results(Protocol):
    """A sink of files."""

    def prepare(self, stream: str, ledger: str) -> None: ...

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements: ...

    def receipt(self, context: WriteContext) -> SinkReceipt: ...


class InFiles:
    """Writes dead letters as a sink of files writes its rows: `columns` are the sink's fields, with those of the window."""

    def __init__(
        self,
        config: FileDeadLetters,
        connections: Connections,
        results: _Results,
        columns: Mapping[str, FieldType] = TYPES,
    ) -> None:
        self._config = config
        self._connections = connections
        self._results = results
        self._columns = columns

    def prepare(self, stream: str, ledger: str) -> None:
        self._results.prepare(stream, ledger)

    def column(self, number: int, name: str, said: str) -> str:
        return f"{self._columns[name]}({said}) AS {name}"

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        # In order, a reader of some offsets finds most of them together.
        return self._results.store((rows.coalesce(1) if context.few else rows).sortWithinPartitions(OFFSET), context)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return self._config.receipt(self._connections, folder=self._results.receipt(context).place["folder"])


class InParquet(InFiles):
    def __init__(self, config: ParquetDeadLetters, letters: DeadLetters, connections: Connections) -> None:
        super().__init__(config, connections, ParquetResults(config.sink, config.sink.base(connections), TYPES))
