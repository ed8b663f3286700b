"""Whether the folders that a stream is about to write are those that it has written before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.ledger.book import Book
from tidemark.ledger.records import Record, SinkReceipt
from tidemark.sinks.dead_letters.parquet.settings import FileDeadLetters
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.iceberg.plain import place_of
from tidemark.sinks.iceberg.settings import IcebergSink
from tidemark.sinks.parquet.settings import ParquetSink


def check_mounted(book: Book, connections: Connections, places: Iterable[Any]) -> None:
    """Raises Unreachable for the folder of a sink, or of the dead letters, that has lost its mark although windows wrote there.

    Before a writer makes folder and mark anew: with a mark in an empty mount point, everything before would read as deleted.
    """
    for settings in places:
        match settings:
            case ParquetSink():
                from tidemark.sinks.parquet.folders import check_there

                check_there(settings.base(connections), _records(book))
            case FileDeadLetters():
                check_mounted(book, connections, [settings.sink])
            case DeltaSink():
                from tidemark.sinks.delta import table

                table.check_there(settings.base(connections), _records(book))
            case IcebergSink():
                from tidemark.sinks.iceberg.catalog import located
                from tidemark.sinks.iceberg.table import check_there as check_table

                check_table(located(connections, place_of(settings, settings.base(connections))), _records(book))


def check_stored(places: Iterable[SinkReceipt]) -> None:
    """Raises Unreachable for a folder of files that an attempt has written to a disk that was not mounted then, or is not now.

    A table's commit tells by itself: its log lies on the same disk.
    """
    for one in places:
        if one.type == "parquet" and "folder" in one.place:
            from tidemark.sinks.parquet.folders import check_stored as check_folder

            check_folder(one.place["base"], one.place["folder"])


def _records(book: Book) -> Iterator[Record]:
    """The committed windows, read when somebody asks for them."""
    for one in book.committed():
        yield one.record
