"""The ledger in one HBase table: each value is a row, and `checkAndPut` changes its single cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import TableMissing, hbase_endpoint
from tidemark.clients.hbase.gateway import MISTAKE, TROUBLE, Gateway, reason
from tidemark.clients.hbase.tables import FOR_EVER, check_families, ensure_table
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.errors import Unreachable
from tidemark.ledger.stores.contract import CLOCK_KEY, Key, Offsets, WriteInDoubt
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.settings import HBaseLedger

_FAMILY = "l"
_CELL = b"l:v"
_FAMILIES = {_FAMILY: {"maxVersions": 1, "timeToLive": FOR_EVER}}

# The layout of Spark jobs that keep their offsets in HBase. As there, rows expire after 30 days.
_OFFSETS_FAMILY = "offsets"
_OFFSETS_FAMILIES = {_OFFSETS_FAMILY: {"maxVersions": 1, "timeToLive": 2_592_000}}


def open_store(
    settings: HBaseLedger, stream: str, connections: Connections, waits: RequestTimeouts | None
) -> HBaseLedgerStore:
    """Open the store by its settings; `LedgerType` names this function. Raises ConnectionMissing, WrongUse."""
    endpoint = hbase_endpoint(connections(settings.hbase))
    gateway = (
        Gateway(endpoint, timeout_ms=round(waits.question_seconds * 1000), patience=waits.patience_seconds)
        if waits
        else Gateway(endpoint)
    )
    return HBaseLedgerStore(gateway, settings.table, stream, settings.offsets_table, settings.group)


class HBaseLedgerStore:
    """The ledger of one stream in HBase; see `LedgerStore` for the contract."""

    # hbase.client.keyvalue.maxsize is 10 MiB; less than half of it leaves room for a gateway that copies.
    max_value_bytes = 4 * 1024 * 1024
    commits_records = False

    def __init__(
        self, gateway: Gateway, table: str, stream: str, offsets_table: str | None = None, group: str | None = None
    ) -> None:
        """`group` names the stream's rows in the table of offsets; None for the stream's own name."""
        self._gateway = gateway
        self._table = table
        self._stream = stream
        self._offsets_table = offsets_table
        self._group = group or stream

    def prepare(self) -> None:
        """Create missing tables. Raises WrongUse when the ledger's table exists and would lose values."""
        ensure_table(self._gateway, self._table, _FAMILIES)
        check_families(self._gateway, self._table, {_FAMILY: {"timeToLive": FOR_EVER}})
        if self._offsets_table is not None:
            ensure_table(self._gateway, self._offsets_table, _OFFSETS_FAMILIES)

    def read(self, key: Key) -> bytes | None:
        row = self._row(key)
        try:
            cells = self._gateway.repeated("read", lambda client: client.get(self._table.encode(), row, _CELL, {}))
        except TableMissing:
            return None
        return cells[0].value if cells else None

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        start, stop = self._rows_of(prefix)
        with suppress(TableMissing):
            for row, cells in self._gateway.scan(self._table, start, stop, columns=[_CELL]):
                yield _key(row), cells[_CELL]

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        start, stop = self._rows_of(prefix)
        try:
            return [
                (_key(row), cells[_CELL])
                for row, cells in self._gateway.last_rows(self._table, start, stop, limit, columns=[_CELL])
            ]
        except TableMissing:
            return []

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        table, rows = self._table.encode(), [self._row(key) for key in keys]
        try:
            cells = self._gateway.repeated("read", lambda client: client.getRowsWithColumns(table, rows, [_CELL], {}))
        except TableMissing:
            return [None] * len(keys)
        # The answer leaves out rows that do not exist.
        values = {row.row: row.columns[_CELL].value for row in cells}
        return [values.get(row) for row in rows]

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        row = self._row(key)
        put = Mutation(isDelete=False, column=_CELL, value=value, writeToWAL=True)
        try:
            return bool(
                self._gateway.once(
                    lambda client: client.checkAndPut(self._table.encode(), row, _CELL, expected, put, {})
                )
            )
        except MISTAKE:
            raise
        except TROUBLE as problem:
            raise WriteInDoubt(f"HBase at {self._gateway.endpoint}: {reason(problem)}") from problem

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        # HBase changes one row at a time. `settle` writes the history record later, from the head.
        return self.swap(head, expected, value)

    def put(self, key: Key, value: bytes) -> None:
        change = [Mutation(isDelete=False, column=_CELL, value=value, writeToWAL=True)]
        row = self._row(key)
        self._gateway.repeated("write", lambda client: client.mutateRow(self._table.encode(), row, change, {}))

    def time(self) -> int | None:
        # The region server gives each cell the time of its write.
        self.put(CLOCK_KEY, b"-")
        row = self._row(CLOCK_KEY)
        cells = self._gateway.repeated("read", lambda client: client.get(self._table.encode(), row, _CELL, {}))
        return int(cells[0].timestamp) if cells else None

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        if self._offsets_table is None:
            return
        rows = [
            BatchMutation(
                row=f"{topic}:{self._group}:{committed_at}".encode(),
                mutations=[
                    Mutation(
                        isDelete=False, column=f"{_OFFSETS_FAMILY}:{partition}".encode(), value=str(until).encode()
                    )
                    for partition, until in sorted(partitions.items())
                ],
            )
            for topic, partitions in offsets.items()
            if partitions
        ]
        if rows:
            table = self._offsets_table.encode()

            def write() -> None:
                self._gateway.repeated("write", lambda client: client.mutateRows(table, rows, {}))

            try:
                write()
            except (TableMissing, Unreachable):
                # Somebody may have dropped it, which HBase does not say of a write. The commit is made, and no run goes on
                # before its offsets are shown.
                self.prepare()
                write()

    def streams(self) -> list[str]:
        """See `SupportsStreamList`. Takes one read per stream: each begins behind the rows of the stream before."""
        keys: list[str] = []
        start = b""
        with suppress(TableMissing):
            while (row := self._gateway.first_row(self._table, start)) is not None:
                name = row.partition(b"/")[0]
                keys.append(name.decode())
                # The first row after those of a stream ('0' follows '/').
                start = name + b"0"
        return keys

    def of_stream(self, name: str) -> HBaseLedgerStore:
        return HBaseLedgerStore(self._gateway, self._table, name)

    def _row(self, key: Key) -> bytes:
        return "/".join((self._stream, *key)).encode()

    def _rows_of(self, prefix: Key) -> tuple[bytes, bytes]:
        """The first row that begins with a key and a slash, and the first row after them ('0' follows '/')."""
        start = self._row(prefix)
        return start + b"/", start + b"0"


def _key(row: bytes) -> Key:
    return tuple(row.decode().split("/")[1:])
