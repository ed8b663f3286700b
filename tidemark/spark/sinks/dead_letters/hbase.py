"""Dead letters into HBase, with the layout of the sink `hbase`."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tidemark.clients.connections import Connections
from tidemark.ledger.records import SinkReceipt
from tidemark.offsets.tallies import Acknowledgements
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.hbase.settings import HBaseDeadLetters
from tidemark.sinks.hbase.table import ResultTable
from tidemark.spark.sinks.contract import WriteContext
from tidemark.spark.sinks.hbase.writer import write


class InHBase:
    def __init__(self, config: HBaseDeadLetters, table: ResultTable, connections: Connections) -> None:
        self._receipt = config.receipt(connections)
        self._table = table

    def prepare(self, stream: str, ledger: str) -> None:
        self._table.prepare(stream, ledger)

    def column(self, number: int, name: str, said: str) -> str:
        return f"binary({said}) AS field_{number}"

    def store(self, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        return write(rows, self._table, FIELDS, context)

    def receipt(self, context: WriteContext) -> SinkReceipt:
        return self._receipt
