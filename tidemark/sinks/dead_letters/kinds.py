"""The registry of the stores of dead letters, one line each."""

from __future__ import annotations

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Book
from tidemark.sinks.contract import PlainSink
from tidemark.sinks.dead_letters.contract import DeadLetters, DeadLetterSettings, DeadLettersKind
from tidemark.sinks.dead_letters.hbase.settings import HBaseDeadLetters
from tidemark.sinks.dead_letters.parquet.settings import ParquetDeadLetters
from tidemark.sinks.dead_letters.sql.settings import SQLDeadLetters

_WITHOUT, _WITH = "tidemark.sinks.dead_letters", "tidemark_spark.sinks.dead_letters"

KINDS: dict[str, DeadLettersKind] = {
    "hbase": DeadLettersKind(
        HBaseDeadLetters,
        f"{_WITHOUT}.hbase.letters:open_letters",
        "tidemark.sinks.hbase.plain:PlainHBase",
        f"{_WITH}.hbase:InHBase",
    ),
    "parquet": DeadLettersKind(
        ParquetDeadLetters,
        f"{_WITHOUT}.parquet.letters:open_letters",
        f"{_WITHOUT}.parquet.plain:PlainDeadLetters",
        f"{_WITH}.parquet:InParquet",
    ),
    "sql": DeadLettersKind(
        SQLDeadLetters,
        f"{_WITHOUT}.sql.letters:open_letters",
        f"{_WITHOUT}.sql.plain:PlainDeadLetters",
        f"{_WITH}.sql:InSQL",
    ),
}


def dead_letters_of(settings: DeadLetterSettings, book: Book, connections: Connections) -> DeadLetters:
    """The dead letters of a stream. Opening them asks no server."""
    return KINDS[settings.type].opened(settings, book, connections)


def of_receipts(type_: str) -> PlainSink | None:
    """What clears the places of a type of store that only dead letters have; None for any other type."""
    return next((kind.without_spark() for kind in KINDS.values() if kind.settings.receipts == type_), None)
