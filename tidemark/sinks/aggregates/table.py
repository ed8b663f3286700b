"""A table of aggregates by key: makes, marks, writes and reads it. Readers see only contributions that count.

Tidemark never removes a cell from such a table. So a reader loads the ledger once, before the rows, and sees the
contributions as of that moment, whatever is written or committed meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tidemark.clients.connections import Connections, hbase_endpoint
from tidemark.clients.hbase.gateway import Gateway, TableMissing
from tidemark.clients.hbase.thrift import Mutation
from tidemark.errors import WrongUse
from tidemark.ledger.book import Book, Committed
from tidemark.ledger.records import Record
from tidemark.sinks.aggregates.computed import Aggregate, merged
from tidemark.sinks.aggregates.rows import TYPE, Contribution, decode, key_of, qualifier
from tidemark.sinks.first_reads import FirstWindows
from tidemark.sinks.hbase.keyed_rows import salt_range
from tidemark.sinks.hbase.rows import DATA_FAMILY, DATA_PREFIX, SALTS
from tidemark.sinks.hbase.table import ResultTable

# (row, qualifier, cell)
Put = tuple[bytes, bytes, bytes]


@dataclass(frozen=True)
class Layout:
    """The key's fields and the values of a table. A table keeps those that it was made with."""

    key: Sequence[str]
    aggregates: Sequence[Aggregate]

    def marked(self) -> dict[str, Any]:
        return {"key": list(self.key), "values": {one.name: one.described() for one in self.aggregates}}

    def check(self, place: str, owner: Mapping[str, Any]) -> None:
        """Raises WrongUse for a table that was made with another key or other values."""
        for name, mine in self.marked().items():
            if owner.get(name) != mine:
                raise WrongUse(
                    f"{place} was made with {name} {json.dumps(owner.get(name))}, the stream file says {json.dumps(mine)}. "
                    "Name another table, and fill it by a replay of everything"
                )


@dataclass(frozen=True)
class KeyRow:
    """What a table holds for one key: the contributions that count, by qualifier, and the number of debris cells."""

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

    def write(self, cells: Iterable[Put], generation: int) -> None:
        """Write cells, each with `generation` as its timestamp; writing them again changes nothing.

        Returns when HBase has acknowledged all of them. Raises Unreachable.
        """
        self._rows.write(
            (
                (row, [Mutation(isDelete=False, column=DATA_PREFIX + column, value=cell, writeToWAL=True)])
                for row, column, cell in cells
            ),
            generation,
        )

    def rows(self, counts: Mapping[bytes, int], salts: Iterable[int] = range(SALTS)) -> Iterator[KeyRow]:
        """Every key that has any cell. `counts`: the generation that counts, by the window's qualifier."""
        try:
            for salt in salts:
                scan = self._gateway.scan(
                    self.table,
                    *salt_range(salt),
                    # Without a colon: `d:` would be the column whose qualifier is empty, not the family.
                    columns=[DATA_FAMILY.encode()],
                    include_timestamp=True,
                )
                for row, cells in scan:
                    yield self._row(row, cells, counts)
        except TableMissing:
            return

    def _row(self, row: bytes, cells: Mapping[bytes, tuple[bytes, int]], counts: Mapping[bytes, int]) -> KeyRow:
        found, debris = {}, 0
        for column, (cell, timestamp) in cells.items():
            name = column[len(DATA_PREFIX) :]
            generation = counts.get(name)
            if generation is None or timestamp > generation:
                debris += 1
            if generation is None:
                continue
            if timestamp > generation:
                # An uncommitted cell of a newer attempt lies over the cell that counts.
                cell, timestamp = self._below(row, column, generation)
            if timestamp == generation:
                found[name] = decode(cell)
        return KeyRow(key_of(row), found, debris)

    def _below(self, row: bytes, column: bytes, generation: int) -> tuple[bytes, int]:
        """The newest cell of a column, up to a generation."""
        table = self.table.encode()

        def read(client: Any) -> Any:
            # HBase takes the upper end of a time range as exclusive.
            return client.getVerTs(table, row, column, generation + 1, 1, {})

        cells = self._gateway.repeated(f"read {self.table}", read)
        return (cells[0].value, cells[0].timestamp) if cells else (b"", 0)


def aggregate_table(connections: Connections, connection: str, table: str) -> AggregateTable:
    """The table of this name, over a connection. Sends no request yet."""
    return AggregateTable(Gateway(hbase_endpoint(connections(connection))), table)


def counting(windows: Sequence[Committed], table: str) -> dict[bytes, int]:
    """The generation whose contributions count in a table, by the window's qualifier."""
    counts = FirstWindows(windows).recomputed(windows, partial(_wrote, table))
    return {qualifier(lane, seq): generation for (lane, seq), generation in counts.items()}


def _wrote(table: str, record: Record) -> bool:
    # Without a receipt this is not known yet. The window is committed, so contributions that it has written count.
    return record.receipt is None or any(
        sink.type == TYPE and sink.place["table"] == table for sink in record.receipt.sinks
    )


def totals(
    book: Book, table: AggregateTable, aggregates: Sequence[Aggregate], salts: Iterable[int] = range(SALTS)
) -> Iterator[tuple[tuple[bytes | None, ...], dict[str, bytes]]]:
    """Every key that any window contributes to, with the totals over all windows. Null values are absent."""
    yield from totals_that_count(table, counting(book.committed(), table.table), aggregates, salts)


def totals_that_count(
    table: AggregateTable, counts: Mapping[bytes, int], aggregates: Sequence[Aggregate], salts: Iterable[int]
) -> Iterator[tuple[tuple[bytes | None, ...], dict[str, bytes]]]:
    """Like `totals`, with `counts` that the caller has read before."""
    for row in table.rows(counts, salts):
        if row.contributions:
            # In the order of the windows, so that a sum of doubles is always the same.
            states = [row.contributions[name].states for name in sorted(row.contributions)]
            yield row.key, merged(aggregates, states)
