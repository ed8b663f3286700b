"""Dead letters in HBase, to read from."""

from __future__ import annotations

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Book
from tidemark.sinks.dead_letters.hbase.settings import HBaseDeadLetters
from tidemark.sinks.hbase.table import ResultTable, result_table


def open_letters(settings: HBaseDeadLetters, _book: Book, connections: Connections) -> ResultTable:
    return result_table(connections, settings.hbase, settings.table)
