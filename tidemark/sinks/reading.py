"""Reading results without Spark: only the rows that count, also while commits happen.

For programs of users: what another stream of the ledger has erased does not count for `hbase_rows` and the readers of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.ledger import Ledger, LedgerSnapshot
from tidemark.ledger.lookup import CoveringWindows, look_up
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.hbase.rows import BLOCK_BITS
from tidemark.sinks.parquet.parts import FolderPart, steady
from tidemark.sinks.stored_rows import Place, StoredRow
from tidemark.types.renamed_fields import NEVER

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class RowsByOffset(Protocol):
    """A reader of rows by coordinate: a table of results in HBase, or dead letters in any store."""

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        """Every place in a range that has a row, in the order of offsets, with the row that counts; None for debris."""
        ...


# How many bytes of fields a reader holds until it has asked the ledger whether the rows still count.
_PART_BYTES = 16 << 20


def pieces(wanted: RangeSet) -> Iterator[OffsetRange]:
    """A set of offsets, cut into pieces that take one scan each."""
    for range_ in wanted:
        at = range_.start
        while at < range_.until:
            until = min(range_.until, ((at >> BLOCK_BITS) + 1) << BLOCK_BITS)
            yield OffsetRange(range_.partition, at, until)
            at = until


def fewest_scans(wanted: RangeSet, hull: RangeSet) -> RangeSet:
    """`wanted` or its hull. A scan over the hull is cheaper than one for each offset, unless these lie far apart too."""
    return min((wanted, hull), key=lambda ranges: sum(1 for _ in pieces(ranges)))


def hbase_rows(ledger: Ledger, table: RowsByOffset, sink: str | None) -> Iterator[StoredRow]:
    """Every row that counts in the table of a sink, or of the dead letters (None), by partition and offset.

    Dead letters of every store are read so.
    """
    ledger = for_readers(ledger)
    view = ledger.view(sink)
    return rows_of_pieces(ledger, table, view, pieces(view.authority.covered()))


def rows_of_pieces(
    ledger: Ledger, table: RowsByOffset, view: LedgerSnapshot, wanted: Iterable[OffsetRange]
) -> Iterator[StoredRow]:
    """The rows that count in some pieces."""
    return (row for places in places_of_pieces(ledger, table, view, wanted) for _, row in places if row is not None)


def places_of_pieces(
    ledger: Ledger, table: RowsByOffset, view: LedgerSnapshot, wanted: Iterable[OffsetRange]
) -> Iterator[list[tuple[Place, StoredRow | None]]]:
    """The rows that count in some pieces; places that hold only debris have None. Given in parts, to limit the memory.

    A commit may fall between reading the ledger and reading the rows. Its sweep may remove rows before they are read.
    So the heads are read again after the rows of each part, and the rows too if the authority there has changed.
    """
    for piece in wanted:
        rest = piece
        while rest.start < rest.until:
            view, (places, until) = _steady(ledger, view, partial(_first_part, table, rest), partial(_segments, rest))
            yield places
            rest = replace(rest, start=until)


def read_at(
    ledger: Ledger, place: Coordinate, readers: Mapping[str, Callable[[Record], T]]
) -> tuple[CoveringWindows, dict[str, T]]:
    """The ledger's record of one coordinate, and what readers give of it by the name of their sink.

    A reader is called with the window that counts in its sink, and not where there is none. A name that is no sink's, such
    as that of the dead letters, has what counts for the coordinate itself. The history is not read. The coordinate is looked
    up again after the readers. If a newer window has committed it, they are called again.
    """
    windows = look_up(ledger, place)
    while True:
        counting = {name: windows.counting(name) for name in readers}
        rows = {name: readers[name](record) for name, record in counting.items() if record is not None}
        newer = look_up(ledger, place)
        if newer.generations == windows.generations:
            return newer, rows
        windows = newer


def parquet_tables(ledger: Ledger, sink: str) -> list[pa.Table]:
    """The rows of a Parquet sink that count, a table for each folder: one window, or several compacted ones."""
    # Arrow takes a third of a second to load, and other readers do not need it.
    from tidemark.sinks.parquet.files import tables_that_count

    return steady(for_readers(ledger), sink, lambda parts, authority: list(tables_that_count(parts, authority)))


def parquet_rows(ledger: Ledger, sink: str, limit: int) -> list[dict[str, Any]]:
    """The first rows of a Parquet sink that count, at most `limit`, folder by folder; times are texts."""
    from tidemark.sinks.parquet.files import tables_that_count

    def read(parts: list[FolderPart], authority: Authority) -> list[dict[str, Any]]:
        return first_rows(tables_that_count(parts, authority), limit)

    return steady(ledger, sink, read)


def delta_tables(ledger: Ledger, sink: str) -> list[pa.Table]:
    """The rows of a Delta table that count, one table for each window."""
    # Needs an extra of the package, which other readers do not need.
    from tidemark.sinks.delta.reading import of_parts
    from tidemark.sinks.parquet.files import tables_that_count

    return of_parts(
        for_readers(ledger), sink, lambda parts, authority: list(tables_that_count(parts, authority, NEVER))
    )


def delta_rows(ledger: Ledger, sink: str, limit: int) -> list[dict[str, Any]]:
    """The first rows of a Delta table that count, at most `limit`, window by window; times are texts."""
    from tidemark.sinks.delta.reading import of_parts
    from tidemark.sinks.parquet.files import tables_that_count

    return of_parts(
        ledger, sink, lambda parts, authority: first_rows(tables_that_count(parts, authority, NEVER), limit)
    )


def first_rows(tables: Iterable[pa.Table], limit: int) -> list[dict[str, Any]]:
    """The first rows of some tables; times are texts."""
    from tidemark.sinks.column_texts import with_texts

    return list(islice((row for table in tables for row in with_texts(table.slice(0, limit)).to_pylist()), limit))


def _steady(
    ledger: Ledger, view: LedgerSnapshot, read: Callable[[LedgerSnapshot], T], used: Callable[[LedgerSnapshot], object]
) -> tuple[LedgerSnapshot, T]:
    """Read until the `used` part of the ledger is the same before and after."""
    while True:
        value = read(view)
        if not ledger.changed_since(view):
            return view, value
        newer = ledger.view(view.sink)
        if used(newer) == used(view):
            return newer, value
        view = newer


def _first_part(
    table: RowsByOffset, wanted: OffsetRange, view: LedgerSnapshot
) -> tuple[list[tuple[Place, StoredRow | None]], int]:
    """The rows of the first messages, some megabytes of them, and the offset from which to read on."""
    places: list[tuple[Place, StoredRow | None]] = []
    size = 0
    for place, row in table.rows(view.authority, wanted):
        if size >= _PART_BYTES and place.offset != places[-1][0].offset:
            return places, place.offset
        places.append((place, row))
        if row is not None:
            size += sum(map(len, row.fields.values()))
    return places, wanted.until


def _segments(wanted: OffsetRange, view: LedgerSnapshot) -> object:
    return list(view.authority.within(wanted))
