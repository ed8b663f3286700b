"""A table of aggregates by key: makes, marks, writes and reads it. Readers see only contributions that count.

Only an erasure removes cells from such a table. So a reader loads the ledger before the rows, and sees the contributions
as of that moment, whatever is written or committed meanwhile. After an erasure it goes on by what counts then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import hbase_endpoint
from tidemark.clients.hbase.gateway import TIMEOUT_MS, Gateway, TableMissing
from tidemark.errors import WrongUse
from tidemark.ledger.book import NOTHING, Book, Committed, Standing, View
from tidemark.ledger.records import Record
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.first_reads import FirstWindows, reads_first
from tidemark.sinks.hbase.aggregates.rows import (
    TYPE,
    Contribution,
    block_of,
    block_qualifier,
    columns_filter,
    decode,
    key_of,
)
from tidemark.sinks.hbase.aggregates.states import Aggregate, merged
from tidemark.sinks.hbase.keyed_rows import salt_range
from tidemark.sinks.hbase.rows import DATA_FAMILY, DATA_PREFIX, SALTS
from tidemark.sinks.hbase.table import ResultTable

# (row, qualifier, cell)
Put = tuple[bytes, bytes, bytes]

# The generation whose contributions count in a column, by the column's qualifier; None for a column in which none counts.
Counts = Callable[[bytes], int | None]

# A key, and its totals.
Totals = tuple[tuple[bytes | None, ...], dict[str, bytes]]

# How many contributions are read between two looks at the ledger.
_AT_A_TIME = 10_000

# Of columns that HBase is asked for at once.
_MOST_RANGES = 64

# In the mark of a table, and in the places of receipts.
_BLOCK = "block_offsets"


@dataclass(frozen=True)
class Layout:
    """The key's fields, the values and the blocks of a table. A table keeps those that it was made with."""

    key: Sequence[str]
    aggregates: Sequence[Aggregate]
    block: int

    def marked(self) -> dict[str, Any]:
        values = {one.name: one.described() for one in self.aggregates}
        return {"key": list(self.key), "values": values, _BLOCK: self.block}

    def check(self, place: str, owner: Mapping[str, Any]) -> None:
        """Raises WrongUse for a table that was made with another key, other values or other blocks."""
        if (made := owner.get(_BLOCK)) not in (None, self.block):
            raise WrongUse(
                f"{place} was made with {_BLOCK} {made}, the stream file says {self.block}, or has that by default. "
                f"Write {_BLOCK}: {made}, or name another table, and fill it by a replay of everything"
            )
        for name, mine in self.marked().items():
            if owner.get(name) != mine:
                raise WrongUse(
                    f"{place} was made with {name} {json.dumps(owner.get(name))}, the stream file says {json.dumps(mine)}. "
                    "Name another table, and fill it by a replay of everything"
                )


@dataclass(frozen=True)
class KeyRow:
    """The contents of a table for one key: the contributions that count, by qualifier, and the number of debris cells."""

    key: tuple[bytes | None, ...]
    contributions: Mapping[bytes, Contribution]
    debris: int


class AggregateTable:
    """One HBase table with aggregates."""

    def __init__(self, gateway: Gateway, table: str) -> None:
        self._gateway = gateway
        self.table = table
        self._rows = ResultTable(gateway, table)

    def prepare(self, stream: str, ledger: str, layout: Layout) -> None:
        """Make the table if it does not exist. Check that it keeps all versions, its owner, and its layout.

        Raises WrongUse, and what `check_owner` raises.
        """
        self._rows.prepare(stream, ledger, layout)

    def check(self, layout: Layout) -> None:
        """Raises WrongUse if the table was made with another layout. One that is not there yet can have any."""
        if owner := self.owner():
            layout.check(f"HBase table {self.table}", owner)

    def block(self, unmade: int = 1) -> int:
        """The blocks that the table was made with. `unmade`: those of a table that is not there, and so has no cells."""
        return int(self.owner().get(_BLOCK, unmade))

    def take_over(self, ledger: str) -> None:
        """As `ResultTable.take_over`."""
        self._rows.take_over(ledger)

    def owner(self) -> dict[str, Any]:
        """The table's mark; empty for a table without one, and for one that is not there."""
        try:
            return self._rows.owner()
        except TableMissing:
            return {}

    def write(self, cells: Iterable[Put], generation: int) -> None:
        """Write cells, each with `generation` as its timestamp; writing them again changes nothing.

        Returns when HBase has acknowledged all of them. Raises Unreachable.
        """
        self._rows.write_cells([(row, DATA_PREFIX + column, cell) for row, column, cell in cells], generation)

    def erase(self, made_of: MadeOfErased) -> int:
        """Remove the contributions that are `made_of` erased messages: see `MadeOfErased`. Returns how many columns it cleared.

        The table is in the order of its keys, which an erasure does not know. But the columns name the blocks, so HBase gives
        the columns of these alone.
        """
        cleared, now = 0, None
        for row, column, until in self._made_of(made_of):
            now = self._rows.server_time() if now is None else now
            self._remove_until(row, column, until, now)
            cleared += 1
        return cleared

    def late(self, made_of: MadeOfErased) -> int:
        """How many columns have something that `erase` would remove."""
        made = self._made_of(made_of)
        return sum(1 for row, column, until in made if self._below(row, column, until)[1])

    def _made_of(self, made_of: MadeOfErased) -> Iterator[tuple[bytes, bytes, int]]:
        """Rows and columns, each with the generation up to which nothing may stay; newer contributions may lie above."""
        for row, column, newest in self._columns(made_of.columns):
            until = made_of(column[len(DATA_PREFIX) :], newest)
            if until is not None:
                yield row, column, until

    def _columns(self, wanted: Sequence[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes, int]]:
        """The rows, and at least the wanted columns that have contributions, with the newest generation there."""
        only: dict[str, Any] = {"columns": [DATA_FAMILY.encode()], "filter": columns_filter(wanted)}
        try:
            for salt in range(SALTS):
                scan = self._gateway.scan(self.table, *salt_range(salt), include_timestamp=True, **only)
                for row, cells in scan:
                    for column, (_, newest) in cells.items():
                        yield row, column, newest
        except TableMissing:
            return

    def _remove_until(self, row: bytes, column: bytes, newest: int, now: int) -> None:
        """Delete all cells of a column whose timestamp is `newest` or older.

        HBase's mark of a removal hides what is written below it later: see `ResultTable.sweep`. After a wrong clock, the
        mark is no newer than the newest cell that it removes.
        """
        if newest > now:
            _, newest = self._below(row, column, newest)
        table = self.table.encode()
        self._gateway.repeated(
            f"erase in {self.table}", lambda client: client.deleteAllTs(table, row, column, newest, {})
        )

    def contribution(self, row: bytes, column: bytes, generation: int) -> Contribution | None:
        """The contribution of one unit to a key, as the attempt of this generation has written it."""
        try:
            cell, timestamp = self._below(row, DATA_PREFIX + column, generation)
        except TableMissing:
            return None
        return decode(cell) if timestamp == generation else None

    def some_rows(self, counts: Counts, salt: int, start: bytes, most: int) -> tuple[list[KeyRow], bytes | None]:
        """The first keys with a salt, of this many contributions, and where the next ones begin; None after the last.

        What an erasure removes meanwhile may be missing: see `SteadyRows`.
        """
        rows: list[KeyRow] = []
        size = 0
        # Without a colon: `d:` would be the column whose qualifier is empty, not the family.
        columns = [DATA_FAMILY.encode()]
        try:
            for row, cells in self._gateway.scan(
                self.table, start, salt_range(salt)[1], columns=columns, include_timestamp=True
            ):
                if size >= most:
                    return rows, row
                rows.append(self._row(row, cells, counts))
                size += 1 + len(rows[-1].contributions)
        except TableMissing:
            return [], None
        return rows, None

    def _row(self, row: bytes, cells: Mapping[bytes, tuple[bytes, int]], counts: Counts) -> KeyRow:
        contributions, debris = {}, 0
        for column, (cell, timestamp) in cells.items():
            name = column[len(DATA_PREFIX) :]
            generation = counts(name)
            if generation is None or timestamp > generation:
                debris += 1
            if generation is None:
                continue
            if timestamp > generation:
                # An uncommitted cell of a newer attempt lies over the cell that counts.
                cell, timestamp = self._below(row, column, generation)
            if timestamp == generation:
                contributions[name] = decode(cell)
        return KeyRow(key_of(row), contributions, debris)

    def _below(self, row: bytes, column: bytes, generation: int) -> tuple[bytes, int]:
        """The newest cell of a column, up to a generation."""
        table = self.table.encode()

        def read(client: Any) -> Any:
            # HBase takes the upper end of a time range as exclusive.
            return client.getVerTs(table, row, column, generation + 1, 1, {})

        cells = self._gateway.repeated(f"read {self.table}", read)
        return (cells[0].value, cells[0].timestamp) if cells else (b"", 0)


def aggregate_table(
    connections: Connections, connection: str, table: str, timeout_ms: int = TIMEOUT_MS
) -> AggregateTable:
    """The table of this name, over a connection. Sends no request yet."""
    return AggregateTable(Gateway(hbase_endpoint(connections(connection)), timeout_ms=timeout_ms), table)


def place_of(connection: str, table: str, block: int) -> dict[str, str]:
    """The entry in a receipt for a table to which an attempt has written."""
    return {"connection": connection, "table": table, _BLOCK: str(block)}


def counting(windows: Sequence[Committed], table: str, block: int) -> Counts:
    """The generations that count in a table with such blocks."""
    return _CountingContributions(Authority(_whole_blocks(windows, partial(_wrote, table, block), block)))


def _whole_blocks(
    windows: Sequence[Committed], wrote: Callable[[Record], bool], block: int
) -> Iterator[tuple[int, RangeSet]]:
    """The generations of the windows that count in a table, each with whole blocks.

    A replay leaves out what was erased, so its blocks are whole without it. A window that has erased something counts in
    the blocks of that, even if it has not written to the table: nothing counts that was made of an erased message.
    """
    first = FirstWindows(windows)
    for one in windows:
        if wrote(one.record):
            more = first.whole(one.covers, [block]) & first.erased if first.erased else NOTHING
            yield one.generation, one.covers | more
        elif one.erased:
            yield one.generation, first.whole(one.erased, [block])


@dataclass(frozen=True)
class _CountingContributions:
    """The contributions that count in a table: as for a row, at the coordinate of the block's first offset.

    The windows that have written to the table have read whole blocks, so all offsets of a block have one authority.
    """

    authority: Authority

    def __call__(self, name: bytes) -> int | None:
        block = block_of(name)
        return None if block is None else self.authority.of(*block)


@dataclass(frozen=True)
class MadeOfErased:
    """Which contributions may be made of messages that windows have `erased`: their generations, with offsets of their own.

    Called with a column's qualifier and the newest generation that the column has. Returns up to which generation its
    contributions go; None: all stay.
    """

    standing: Standing
    erased: Sequence[tuple[int, RangeSet]]
    block: int

    @property
    def columns(self) -> list[tuple[bytes, bytes]]:
        """All columns that it is worth to be called with: from a qualifier on, up to another one."""
        blocks: dict[TopicPartition, list[OffsetRange]] = {}
        for one in self._blocks:
            blocks.setdefault(one.partition, []).append(one)
        if sum(map(len, blocks.values())) > _MOST_RANGES:
            # What lies between the blocks is given too.
            blocks = {at: [OffsetRange(at, some[0].start, some[-1].until)] for at, some in blocks.items()}
        return [
            (block_qualifier(at, one.start), block_qualifier(at, one.until))
            for at, some in blocks.items()
            for one in some
        ]

    @cached_property
    def _blocks(self) -> RangeSet:
        """The blocks that have lost messages."""
        size = self.block
        return RangeSet(
            OffsetRange(one.partition, one.start - one.start % size, min(-(-one.until // size) * size, MAX_OFFSET))
            for _, erased in self.erased
            for one in erased
        )

    def __call__(self, name: bytes, newest: int) -> int | None:
        until, by = self._until(name)
        # An attempt that still works may come to count.
        return newest if by is not None and self._is_dead(newest, by) else until

    @cached_property
    def _is_dead(self) -> Callable[[int, int], bool]:
        return cache(self._never_counts)

    def _never_counts(self, generation: int, by: int) -> bool:
        """Look at the ledger again once a cell was seen: an attempt is in its head before it writes, and may be slow to be.

        It may have drawn its generation before the erasure, and have taken its window after the ledger was read.
        """
        dead = self.standing.is_dead(generation, by)
        return dead and self.standing.again().is_dead(generation, by)

    @cached_property
    def _first(self) -> FirstWindows:
        return FirstWindows(self.standing.windows)

    @cached_property
    def _windows(self) -> list[Committed]:
        """By their numbers in `_first`."""
        return [one for one in self.standing.windows if reads_first(one.record)]

    @cached_property
    def _until(self) -> Callable[[bytes], tuple[int | None, int | None]]:
        """Up to which generation a column goes; and, if it is of no unit, which generation has erased there.

        An attempt without a commit has made a column that is of no unit.
        """
        # Each column stands in the rows of many keys.
        return cache(self._of_block)

    def _of_block(self, name: bytes) -> tuple[int | None, int | None]:
        unit, size = block_of(name), self.block
        if unit is None or unit not in self._blocks:
            return None, None
        at, start = unit
        begin = start - start % size
        block = RangeSet([OffsetRange(at, begin, min(begin + size, MAX_OFFSET))])
        number = self._first.at(at, start)
        if number is None or self._first.start(at, start, size) != start:
            return None, self._newest_in(block)
        return self._of_unit(number, self._first.covers[number] & block), None

    def _newest_in(self, offsets: RangeSet) -> int | None:
        return max((generation for generation, erased in self.erased if erased & offsets), default=None)

    def _of_unit(self, number: int, offsets: RangeSet) -> int | None:
        if (by := self._newest_in(offsets)) is not None:
            # Replays have written under this name too, also into a table to which the window itself has not written.
            return by - 1
        # An attempt that never committed may have read other offsets under the same name. It is older than the window.
        window = self._windows[number]
        return window.generation - 1 if window.record.owes_sweep else None


def _wrote(table: str, block: int, record: Record) -> bool:
    """Whether a window has written to a table. One that was recreated with other blocks is another one."""
    # Without a receipt this is not known yet. The window is committed, so contributions that it has written count.
    return record.receipt is None or any(
        sink.type == TYPE and sink.place["table"] == table and sink.place.get(_BLOCK) == str(block)
        for sink in record.receipt.sinks
    )


@dataclass(frozen=True)
class AsOf:
    """The contributions that count in a table at a moment. `erasures`: how many windows had erased something by then."""

    view: View
    counts: Counts
    erasures: int

    @classmethod
    def of(cls, view: View, table: str, block: int) -> AsOf:
        erasures = sum(1 for one in view.windows if one.erased)
        # Spark's workers get this: the view only has to tell whether it is current.
        return cls(replace(view, windows=[]), counting(view.windows, table, block), erasures)


@dataclass(frozen=True)
class SteadyRows:
    """The keys of a table, each as of a moment at which the ledger was so. Runs in Spark's workers too.

    Only an erasure removes cells, and only after its commit, with which it has made their contributions again. So the ledger
    is read again after each part of the rows. Once something was erased since, the part is read again, by what counts now.
    """

    book: Book
    table: AggregateTable
    block: int
    as_of: AsOf

    @classmethod
    def of(cls, book: Book, table: AggregateTable, view: View | None = None) -> SteadyRows:
        """As of a `view` of the ledger, or as of now: what counted then is there until it is erased."""
        block = table.block()
        return cls(book, table, block, AsOf.of(view or book.view(), table.table, block))

    def rows(self, salts: Iterable[int] = range(SALTS), at_a_time: int = _AT_A_TIME) -> Iterator[KeyRow]:
        known = self.as_of
        for salt in salts:
            start: bytes | None = salt_range(salt)[0]
            while start is not None:
                rows, following = self.table.some_rows(known.counts, salt, start, at_a_time)
                now = self._now(known)
                if now.erasures != known.erasures:
                    known = now
                    continue
                known = replace(known, view=now.view)
                yield from rows
                start = following

    def erased_since(self) -> bool:
        """Whether something was erased after the moment from which these rows are."""
        return self._now(self.as_of).erasures != self.as_of.erasures

    def _now(self, known: AsOf) -> AsOf:
        if not self.book.changed_since(known.view):
            return known
        return AsOf.of(self.book.view(), self.table.table, self.block)

    def totals(
        self, aggregates: Sequence[Aggregate], salts: Iterable[int] = range(SALTS), at_a_time: int = _AT_A_TIME
    ) -> Iterator[Totals]:
        """Every key that any window contributes to, with the totals over all windows. Null values are absent."""
        for row in self.rows(salts, at_a_time):
            if row.contributions:
                # In one order, so that a sum of doubles is always the same.
                states = [row.contributions[name].states for name in sorted(row.contributions)]
                yield row.key, merged(aggregates, states)


def totals(book: Book, table: AggregateTable, aggregates: Sequence[Aggregate]) -> Iterator[Totals]:
    """The totals of every key."""
    return SteadyRows.of(book, table).totals(aggregates)
