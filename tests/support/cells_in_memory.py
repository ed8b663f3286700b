"""HBase's cells in memory, with all versions, as far as a table of aggregates asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from tests.support.column_ranges import passes
from tidemark.sinks.hbase.aggregates.table import AggregateTable
from tidemark.sinks.hbase.table import ResultTable


class CellsInMemory:
    """{(row, column): {timestamp: cell}}. `between` is called before each row of a scan that has begun."""

    def __init__(self) -> None:
        self.cells: dict[tuple[bytes, bytes], dict[int, bytes]] = {}
        # Up to which timestamp a removal hides what is there, and what is written later.
        self.clock = 0
        self.marks: dict[tuple[bytes, bytes], int] = {}
        self.between: Callable[[], None] = lambda: None
        # How many scans there were, and how many cells they have given.
        self.scans = self.given = 0

    def put(self, row: bytes, column: bytes, timestamp: int, cell: bytes) -> None:
        self.cells.setdefault((row, column), {})[timestamp] = cell

    def timestamps(self, row: bytes) -> dict[str, list[int]]:
        """The versions of a row's cells, by column."""
        return {
            column.decode(): sorted(versions)
            for (at, column), versions in sorted(self.cells.items())
            if at == row and versions
        }

    def scan(
        self, table: str, start: bytes, stop: bytes, **options: Any
    ) -> Iterator[tuple[bytes, Mapping[bytes, Any]]]:
        self.scans += 1
        for row in sorted({row for (row, _), versions in self.cells.items() if start <= row < stop and versions}):
            self.between()
            newest = {
                column: (versions[max(versions)], max(versions))
                for (at, column), versions in self.cells.items()
                if at == row and versions and passes(options.get("filter"), column)
            }
            self.given += len(newest)
            if newest:
                yield (
                    row,
                    newest if options.get("include_timestamp") else {name: one for name, (one, _) in newest.items()},
                )

    def repeated(self, what: str, call: Callable[[Any], Any]) -> Any:
        return call(self)

    # The calls of a Thrift client, under the names that it has.

    def getVerTs(self, table: bytes, row: bytes, column: bytes, until: int, number: int, _: object) -> list[Any]:  # noqa: N802
        versions = sorted(self.cells.get((row, column), {}).items(), reverse=True)
        return [SimpleNamespace(value=cell, timestamp=at) for at, cell in versions if at < until][:number]

    def deleteAllTs(self, table: bytes, row: bytes, column: bytes, newest: int, _: object) -> None:  # noqa: N802
        versions = self.cells.get((row, column), {})
        self.marks[row, column] = newest
        self.cells[row, column] = {at: cell for at, cell in versions.items() if at > newest}

    def mutateRow(self, table: bytes, row: bytes, changes: list[Any], _: object) -> None:  # noqa: N802
        self.clock = time.time_ns() // 1_000_000

    def get(self, table: bytes, row: bytes, column: bytes, _: object) -> list[Any]:
        """The time of the server, which nothing else asks for in this way."""
        return [SimpleNamespace(timestamp=self.clock)]


class TableInMemory(AggregateTable):
    """A table of aggregates over such cells."""

    def __init__(self, cells: CellsInMemory, table: str, block: int) -> None:
        self._gateway = cells  # type: ignore[assignment]
        self._rows = ResultTable(self._gateway, table)
        self.table = table
        self._block = block

    def block(self, unmade: int = 1) -> int:
        return self._block
