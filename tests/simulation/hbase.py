# ruff: noqa: N802 (the names are Thrift's)
"""HBase's cells in memory, as its two Thrift interfaces give them: all versions, and the markers that deletes leave.

A marker hides the cells up to its time, those too that are written after it, until a major compaction removes both.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace as Struct
from typing import Any

from thriftpy2.protocol import TBinaryProtocol
from thriftpy2.transport import TMemoryBuffer

from tests.simulation.actors import effect, written
from tidemark.sinks.hbase.keyed.table import FAMILIES

NOW = (1 << 63) - 1
MANY = 1 << 30

Cells = dict[bytes, dict[int, bytes]]
# (row, column with its family, value)
Put = tuple[bytes, bytes, bytes]


class Cluster:
    """The tables, and what connections ask of them. Tables exist as soon as somebody names them."""

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, Cells]] = defaultdict(dict)
        # By (table, row): up to which time a column, or a whole family, is hidden.
        self._hidden: dict[tuple[str, bytes], dict[bytes, int]] = defaultdict(dict)
        # By table: the rows in their order, until another one comes or one goes.
        self._sorted: dict[str, list[bytes]] = {}
        # How often each table has changed.
        self.changed: Counter[str] = Counter()
        self.clock = 0
        # Milliseconds since 1970, as the region servers have them.
        self.time: Callable[[], int] = lambda: 0
        self.changes = 0
        # Hears of each column or family that is hidden: table, row, column, and up to which time.
        self.hears: Callable[[str, bytes, bytes, int], None] = lambda table, row, column, newest: None

    def _changes(self, table: str) -> None:
        self.changes += 1
        self.changed[table] += 1

    # what is stored

    def now(self) -> int:
        """The region server's time: it gives two writes to one cell different ones."""
        self.clock = max(self.clock + 1, self.time())
        return self.clock

    def put(self, table: str, cells: Iterable[Put], timestamp: int) -> None:
        self._changes(table)
        rows = self.tables[table]
        for row, column, value in cells:
            if row not in rows:
                rows[row] = {}
                self._sorted.pop(table, None)
            rows[row].setdefault(column, {})[timestamp] = value

    def delete(self, table: str, row: bytes, column: bytes, newest: int) -> None:
        """Hide a column, or a family (no colon), up to a time."""
        self._changes(table)
        self.hears(table, row, column, newest)
        hidden = self._hidden[table, row]
        hidden[column] = max(newest, hidden.get(column, -1))

    def lose(self, table: str, row: bytes, until: int) -> None:
        """Somebody removes a row, or a disk does: all versions up to a time. What an attempt at work has written stays."""
        self._changes(table)
        kept = {
            column: newer
            for column, found in self.tables[table].pop(row, {}).items()
            if (newer := {time: value for time, value in found.items() if time > until})
        }
        if kept:
            self.tables[table][row] = kept
        self._sorted.pop(table, None)

    def compact(self) -> None:
        """A major compaction: what is hidden is gone, and so are the markers."""
        for name, rows in self.tables.items():
            for row in [*rows]:
                kept = {column: self.versions(name, row, column) for column in rows[row]}
                rows[row] = {column: found for column, found in kept.items() if found}
                if not rows[row]:
                    del rows[row]
        self._hidden.clear()
        self._sorted.clear()

    def versions(self, table: str, row: bytes, column: bytes, below: int = NOW) -> dict[int, bytes]:
        """What a reader sees of a column: by time, below a time."""
        found = self.tables[table].get(row, {}).get(column, {})
        hidden = self._hidden.get((table, row))
        if not hidden and below == NOW:
            return dict(found)
        until = max(hidden.get(column, -1), hidden.get(column.partition(b":")[0], -1)) if hidden else -1
        return {at: value for at, value in found.items() if until < at < below}

    def newest(
        self, table: str, row: bytes, below: int = NOW, wanted: Sequence[bytes] | None = None
    ) -> dict[bytes, tuple[bytes, int]]:
        """Of each column the newest value and its time."""
        found = {}
        for column in self.tables[table].get(row, ()):
            if wanted and column not in wanted and column.partition(b":")[0] not in wanted:
                continue
            if versions := self.versions(table, row, column, below):
                at = max(versions)
                found[column] = (versions[at], at)
        return found

    def rows(self, table: str, start: bytes, stop: bytes | None) -> list[bytes]:
        found = self._sorted.get(table)
        if found is None:
            found = self._sorted[table] = sorted(self.tables[table])
        return found[bisect_left(found, start) : bisect_left(found, stop) if stop else None]

    def everything(self, table: str) -> Iterator[tuple[bytes, bytes, int]]:
        """Every cell that a reader can see, by row, column and time."""
        for row, columns in self.tables[table].items():
            for column in columns:
                for at in self.versions(table, row, column):
                    yield row, column, at


class Connection:
    """What Thrift 1 and happybase ask: the names of the methods are theirs."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.client = self.transport = self

    def close(self) -> None: ...

    def getTableNames(self) -> list[bytes]:
        effect()
        return [name.encode() for name in self._cluster.tables]

    def createTable(self, table: bytes, _: object) -> None:
        written(lambda: self._cluster.tables[table.decode()])

    def getRow(self, table: bytes, row: bytes, _: object) -> list[Any]:
        return self.getRowTs(table, row, NOW, _)

    def getColumnDescriptors(self, _: bytes) -> dict[bytes, Any]:
        """Those of tables with the newest row of each key: of others, nobody asks here."""
        effect()
        return {f"{name}:".encode(): Struct(**options) for name, options in FAMILIES.items()}

    def write(self, call: bytes) -> None:
        """The bytes of a call, as `clients.hbase.encoding` makes them."""
        self._call = call

    def flush(self) -> None:
        # The module exists only after happybase is imported.
        from Hbase_thrift import Hbase

        protocol = TBinaryProtocol(TMemoryBuffer(self._call))
        protocol.read_message_begin()
        asked = Hbase.mutateRowsTs_args()
        protocol.read_struct(asked)
        self.mutateRowsTs(asked.tableName, asked.rowBatches, asked.timestamp, {})

    def _recv(self, _: str) -> None: ...

    def table(self, name: str) -> Any:
        def scan(
            row_start: bytes = b"",
            row_stop: bytes | None = None,
            limit: int = MANY,
            columns: Sequence[bytes] | None = None,
            timestamp: int | None = None,
            include_timestamp: bool = False,
            reverse: bool = False,
            # Filters too: those choose rows by values, and those who ask with them look again.
            **_: Any,
        ) -> Iterator[tuple[bytes, dict[bytes, Any]]]:
            effect()
            # A reversed scan begins at `row_start`, inclusive, and goes down to `row_stop`, exclusive.
            rows = self._cluster.rows(name, *((row_start, row_stop) if not reverse else (row_stop or b"", None)))
            if reverse:
                rows = [row for row in reversed(rows) if (row_stop or b"") < row <= row_start]
            given = 0
            for row in rows:
                cells = self._cluster.newest(name, row, NOW if timestamp is None else timestamp, columns)
                if cells and given < limit:
                    given += 1
                    yield row, dict(cells) if include_timestamp else {at: one[0] for at, one in cells.items()}

        return Struct(scan=scan)

    def get(self, table: bytes, row: bytes, column: bytes, _: object) -> list[Any]:
        effect()
        found = self._cluster.newest(table.decode(), row, wanted=[column])
        return [Struct(value=value, timestamp=at) for value, at in found.values()]

    def getRowTs(self, table: bytes, row: bytes, until: int, _: object) -> list[Any]:
        effect()
        found = self._cluster.newest(table.decode(), row, until)
        return [Struct(row=row, columns=_structs(found))] if found else []

    def getRowsWithColumns(self, table: bytes, rows: Sequence[bytes], columns: Sequence[bytes], _: object) -> list[Any]:
        effect()
        found = ((row, self._cluster.newest(table.decode(), row, wanted=columns)) for row in sorted({*rows}))
        return [Struct(row=row, columns=_structs(cells)) for row, cells in found if cells]

    def mutateRowsTs(self, table: bytes, rows: Sequence[Any], timestamp: int, _: object) -> None:
        def apply() -> None:
            for one in rows:
                for change in one.mutations:
                    if change.isDelete:
                        self._cluster.delete(table.decode(), one.row, change.column, timestamp)
                    else:
                        self._cluster.put(table.decode(), [(one.row, change.column, change.value)], timestamp)

        written(apply)

    def mutateRow(self, table: bytes, row: bytes, changes: Sequence[Any], _: object) -> None:
        self.mutateRowsTs(table, [Struct(row=row, mutations=changes)], self._time(), _)

    def mutateRows(self, table: bytes, rows: Sequence[Any], _: object) -> None:
        self.mutateRowsTs(table, rows, self._time(), _)

    def checkAndPut(
        self, table: bytes, row: bytes, column: bytes, expected: bytes | None, put: Any, _: object = None
    ) -> bool:
        effect()
        now = self._cluster.newest(table.decode(), row, wanted=[column]).get(column)
        if (now[0] if now else None) != expected:
            return False
        self._cluster.put(table.decode(), [(row, put.column, put.value)], self._time())
        return True

    def _time(self) -> int:
        return self._cluster.now()


def _structs(cells: dict[bytes, tuple[bytes, int]]) -> dict[bytes, Any]:
    return {column: Struct(value=value, timestamp=at) for column, (value, at) in cells.items()}
