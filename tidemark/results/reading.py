"""Reading results without Spark, so that only what counts is seen, also while commits happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.authority import Authority
from tidemark.coordinates import Coordinate
from tidemark.ledger.book import Book, View
from tidemark.ledger.lookup import Found, look_up
from tidemark.ranges import OffsetRange, RangeSet
from tidemark.results.hbase_rows import BLOCK_BITS, Place
from tidemark.results.hbase_table import ResultTable, StoredRow
from tidemark.results.parquet_parts import Part, steady

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


def pieces(wanted: RangeSet) -> Iterator[OffsetRange]:
    """A set of offsets in pieces of one scan each."""
    for one in wanted:
        at = one.start
        while at < one.until:
            until = min(one.until, ((at >> BLOCK_BITS) + 1) << BLOCK_BITS)
            yield OffsetRange(one.partition, at, until)
            at = until


def hbase_rows(book: Book, table: ResultTable) -> Iterator[StoredRow]:
    """Every row of a table of results (or dead letters) that counts, by partition and offset."""
    view = book.view()
    for piece in pieces(view.authority.covered()):
        view, rows = rows_of_piece(book, table, view, piece)
        yield from rows


def rows_of_piece(book: Book, table: ResultTable, view: View, piece: OffsetRange) -> tuple[View, list[StoredRow]]:
    """The rows of one piece that count, and the view of the ledger that they were read under.

    A commit may fall between reading the ledger and reading the rows, and its sweep may remove what was about to be
    read: so the heads are read again behind the rows, and where the authority has changed, the rows too.
    """
    view, found = places_of_piece(book, table, view, piece)
    return view, [row for _, row in found if row is not None]


def places_of_piece(
    book: Book, table: ResultTable, view: View, piece: OffsetRange
) -> tuple[View, list[tuple[Place, StoredRow | None]]]:
    """As `rows_of_piece`, with the places that have only debris: their row is None."""

    def read(known: View) -> list[tuple[Place, StoredRow | None]]:
        return list(table.rows(known.authority, piece))

    return _steady(book, view, read, lambda known: list(known.authority.within(piece)))


def rows_at(
    book: Book, tables: Mapping[str, ResultTable], place: Coordinate
) -> tuple[Found, dict[str, list[StoredRow]]]:
    """The rows of one coordinate that count, by the name of their table, and what the ledger says of it.

    The history is not read. The coordinate is looked up again behind the rows: were it committed anew, so are they read anew.
    """
    found, wanted = look_up(book, place), place.as_range()
    while True:
        authority = Authority((window.attempt.generation, RangeSet([wanted])) for window in found.windows)
        rows = {name: list(table.rows_that_count(authority, wanted)) for name, table in tables.items()}
        newer = look_up(book, place)
        if newer.generation == found.generation:
            return newer, rows
        found = newer


def parquet_tables(book: Book, sink: str) -> list[pa.Table]:
    """The rows of a Parquet sink that count, a table for each folder: of a window, or of many that were compacted."""
    # Arrow takes a third of a second to load, and other readers do without it.
    from tidemark.results.parquet_files import tables_that_count

    return steady(book, sink, lambda parts, authority: list(tables_that_count(parts, authority)))


def parquet_rows(book: Book, sink: str, limit: int) -> list[dict[str, Any]]:
    """The first rows of a Parquet sink that count, at most `limit`, folder by folder."""
    from tidemark.results.parquet_files import tables_that_count

    def read(parts: list[Part], authority: Authority) -> list[dict[str, Any]]:
        tables = tables_that_count(parts, authority)
        return list(islice((row for table in tables for row in table.slice(0, limit).to_pylist()), limit))

    return steady(book, sink, read)


def delta_tables(book: Book, sink: str) -> list[pa.Table]:
    """The rows of a Delta table that count, a table for each window."""
    # An extra of the package, which other readers do without.
    from tidemark.results.delta_table import parts_that_count
    from tidemark.results.parquet_files import tables_that_count

    authority, parts = parts_that_count(book, sink)
    return list(tables_that_count(parts, authority))


def delta_rows(book: Book, sink: str, limit: int) -> list[dict[str, Any]]:
    """The first rows of a Delta table that count, at most `limit`, window by window."""
    from tidemark.results.delta_table import parts_that_count
    from tidemark.results.parquet_files import tables_that_count

    authority, parts = parts_that_count(book, sink)
    tables = tables_that_count(parts, authority)
    return list(islice((row for table in tables for row in table.slice(0, limit).to_pylist()), limit))


def _steady(book: Book, view: View, read: Callable[[View], T], used: Callable[[View], object]) -> tuple[View, T]:
    """Read until what was used of the ledger is the same before and after."""
    while True:
        found = read(view)
        if not book.changed_since(view):
            return view, found
        newer = book.view()
        if used(newer) == used(view):
            return newer, found
        view = newer
