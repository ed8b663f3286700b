"""A table of results or dead letters: makes, marks, writes, sweeps and reads it. Readers see only rows that count."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import TableMissing, hbase_endpoint
from tidemark.clients.hbase.gateway import Gateway
from tidemark.clients.hbase.paging import PageSize
from tidemark.clients.hbase.tables import ALL_VERSIONS, FOR_EVER, check_families, ensure_table
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.contract import SinkContext
from tidemark.sinks.hbase.cells import CellLayout
from tidemark.sinks.hbase.rows import DATA_FAMILY, DATA_PREFIX, MARK, MARK_FAMILY, PartitionKeys, parse_key, split_keys
from tidemark.sinks.hbase.settings import HBaseTableSettings
from tidemark.sinks.owners import OWNER_ROW, check_owner
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.types.renamed_fields import NEVER, Names, by_today

if TYPE_CHECKING:
    from tidemark.clients.hbase.encoding import EncodedRows

T = TypeVar("T")

_OWNER_CELL = b"t:owner"
# The region server gives it the time of its write.
_CLOCK_CELL = b"t:clock"

# HBase keeps all versions, so a row of an older attempt stays under that of a newer one until the sweep.
# With one version, an attempt that never commits could overwrite rows that count.
FAMILIES = {
    DATA_FAMILY: {"maxVersions": ALL_VERSIONS, "timeToLive": FOR_EVER},
    MARK_FAMILY: {"maxVersions": ALL_VERSIONS, "timeToLive": FOR_EVER},
}

# For rows of some hundred bytes: few enough round trips, and small enough for a gateway's memory.
WRITE_ROWS = 5_000
_SWEEP_ROWS = 5_000
# To begin a scan takes as long as to read about a hundred rows (docs/adr/0031).
_BESIDES = 64


# The key of a row, a column with its family, and the value of its cell.
Put = tuple[bytes, bytes, bytes]


class ResultTable:
    """One HBase table with rows by coordinate."""

    def __init__(self, gateway: Gateway, table: str, was: Names = NEVER) -> None:
        self._gateway = gateway
        self._table = table
        self._was = was
        self._layout: CellLayout | None = None
        self._columns: list[bytes] | None = None
        # By topic: messages of one may be far larger than those of another.
        self._pages: dict[str, PageSize] = {}

    def only(self, fields: Iterable[str]) -> ResultTable:
        """The same table for readers of these fields alone. For tables with a cell for each field, under its own name."""
        table = ResultTable(self._gateway, self._table)
        table._columns = [MARK, *(DATA_PREFIX + name.encode() for name in fields)]
        return table

    def prepare(self, stream: str, ledger: str, layout: CellLayout | None = None) -> None:
        """Make the table if it does not exist. Check that it keeps all versions, its owner, and its layout.

        Raises WrongUse for another layout, and what `check_owner` raises.
        """
        layout = layout or CellLayout()
        ensure_table(self._gateway, self._table, FAMILIES)
        check_families(self._gateway, self._table, FAMILIES)
        mine = json.dumps({"ledger": ledger, "stream": stream, **layout.marked()}, sort_keys=True).encode()
        table = self._table.encode()
        put = Mutation(isDelete=False, column=_OWNER_CELL, value=mine, writeToWAL=True)
        self._gateway.repeated(
            f"mark {self._table}",
            lambda client: client.checkAndPut(table, OWNER_ROW, _OWNER_CELL, None, put, {}),
        )
        owner = self.owner()
        if check_owner(f"HBase table {self._table}", owner, stream, ledger):
            self.take_over(ledger)
        if "columns" in owner:
            owner = {**owner, "columns": by_today(self._was, owner["columns"])}
        layout.check(f"HBase table {self._table}", owner)

    def owner(self) -> dict[str, Any]:
        """The table's owner, and the layout that it was made with; empty while it has no mark."""
        stored = self._mark()
        return dict(json.loads(stored)) if stored else {}

    def _mark(self) -> bytes | None:
        table = self._table.encode()
        cells = self._gateway.repeated(
            f"read {self._table}", lambda client: client.get(table, OWNER_ROW, _OWNER_CELL, {})
        )
        return bytes(cells[0].value) if cells else None

    def take_over(self, ledger: str) -> None:
        """Write another ledger of its stream into the mark, if nobody else does so first."""
        table, before = self._table.encode(), self._mark()
        if before is None:
            return
        mine = json.dumps({**json.loads(before), "ledger": ledger}, sort_keys=True).encode()
        put = Mutation(isDelete=False, column=_OWNER_CELL, value=mine, writeToWAL=True)
        self._gateway.repeated(
            f"mark {self._table}",
            lambda client: client.checkAndPut(table, OWNER_ROW, _OWNER_CELL, before, put, {}),
        )

    def write(self, rows: EncodedRows, generation: int) -> None:
        """Write a batch of rows, each cell with `generation` as its timestamp; writing it again changes nothing.

        Returns when HBase has acknowledged all of them. Raises Unreachable.
        """
        self._gateway.put(self._table, rows, generation)

    def write_cells(self, cells: Iterable[Put], generation: int) -> None:
        """As `write`, of single cells."""
        import pyarrow as pa

        from tidemark.clients.hbase.encoding import encode_rows

        keys, columns, values = (pa.array(one, pa.binary()) for one in zip(*cells, strict=True))
        self.write(encode_rows(keys, [(columns, values)]), generation)

    def rows_that_count(self, authority: Authority, wanted: OffsetRange) -> Iterator[StoredRow]:
        """The rows in a range that carry exactly the authority's generation, in the order of (offset, index)."""
        return (row for _, row in self.rows(authority, wanted) if row is not None)

    def rows_at(self, at: Coordinate, generation: int) -> list[StoredRow]:
        """The rows of one message that carry a generation."""
        wanted = at.as_range()
        return list(self.rows_that_count(Authority([(generation, RangeSet([wanted]))]), wanted))

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        """Every place in a range that has a row, with the row that counts there; None where there is only debris.

        A table that does not exist has no rows: no window has written to it yet.
        """
        try:
            yield from self._rows(authority, wanted)
        except TableMissing:
            return

    def _rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        pages = self._pages.setdefault(wanted.partition.topic, PageSize())
        segments = authority.within(wanted)
        segment = next(segments, None)
        for start, stop in PartitionKeys(wanted.partition).scans(wanted):
            scan = self._gateway.scan(self._table, start, stop, pages, columns=self._columns, include_timestamp=True)
            for key, cells in scan:
                place = parse_key(key)
                while segment is not None and place.offset >= segment.until:
                    segment = next(segments, None)
                if segment is None or place.offset < segment.start:
                    yield place, None
                    continue
                if _newest(cells) > segment.generation:
                    # Uncommitted cells of a newer attempt lie over the cells that count.
                    cells = self._below(key, segment.generation)
                yield place, self._row_of(place, cells, segment.generation)

    def _row_of(self, place: Place, cells: Mapping[bytes, tuple[bytes, int]], generation: int) -> StoredRow | None:
        if MARK not in cells or cells[MARK][1] != generation:
            return None
        mark = Mark.decode(cells[MARK][0])
        if mark.generation != generation:
            return None
        if self._layout is None:
            self._layout = CellLayout.of_mark(self.owner())
        data = {
            column: value
            for column, (value, timestamp) in cells.items()
            if timestamp == generation and column.startswith(DATA_PREFIX)
        }
        return StoredRow(place, mark, by_today(self._was, self._layout.fields(data)))

    def _below(self, key: bytes, generation: int) -> dict[bytes, tuple[bytes, int]]:
        """The newest cells of a row, up to a generation."""
        table = self._table.encode()
        rows = self._gateway.repeated(
            f"read {self._table}",
            # HBase takes the upper end of a time range as exclusive.
            lambda client: client.getRowTs(table, key, generation + 1, {}),
        )
        cells: dict[bytes, Any] = rows[0].columns if rows else {}
        return {column: (cell.value, cell.timestamp) for column, cell in cells.items()}

    def sweep(self, covers: RangeSet, generation: int, *, for_good: bool = False) -> int:
        """Remove every cell older than `generation` at the covered offsets; returns the number of rows that had such cells.

        The sweep leaves cells of this and newer generations alone, so it may run at any time after the commit.

        HBase's mark of a removal hides every older cell of the row, also one that is written later. A ledger that is restored
        to before a wrong clock draws lower generations than it had drawn. So a mark is no newer than the newest cell that it
        removes, and what is ahead of HBase's clock stays: it does not count. The clock of this machine may be the wrong one.
        With `for_good`, all of it is removed, and hidden if it comes later: of what was erased, nothing is to be written any
        more.
        """
        swept, now = 0, None
        for at in covers.partitions:
            for batch in _batches(self._older(at, covers, generation), _SWEEP_ROWS):
                if now is None and not for_good:
                    now = self.server_time()
                marked = [
                    (key, generation - 1 if for_good else self._newest_until(key, newest, now)) for key, newest in batch
                ]
                # Mostly one attempt has written all of them.
                for until, keys in groupby(sorted(marked, key=itemgetter(1)), key=itemgetter(1)):
                    if until:
                        self._delete_until([key for key, _ in keys], until)
                swept += len(batch)
        return swept

    def older(self, covers: RangeSet, generation: int) -> int:
        """How many rows `sweep` would find."""
        return sum(1 for at in covers.partitions for _ in self._older(at, covers, generation))

    def server_time(self) -> int:
        """Milliseconds since 1970, by the clock of HBase: that of this machine may be wrong."""
        table = self._table.encode()
        put = Mutation(isDelete=False, column=_CLOCK_CELL, value=b"-", writeToWAL=True)
        self._gateway.repeated(f"ask {self._table}", lambda client: client.mutateRow(table, OWNER_ROW, [put], {}))
        cells = self._gateway.repeated(
            f"ask {self._table}", lambda client: client.get(table, OWNER_ROW, _CLOCK_CELL, {})
        )
        return int(cells[0].timestamp)

    def _newest_until(self, key: bytes, newest: int, now: int | None) -> int:
        """The newest cell of a row that is not ahead of now; 0 if there is none. `newest`: that of all older cells."""
        if now is None or newest <= now:
            return newest
        cells = self._below(key, now)
        return _newest(cells) if cells else 0

    def _older(self, at: TopicPartition, covers: RangeSet, generation: int) -> Iterator[tuple[bytes, int]]:
        """The keys of a partition's rows that are covered and have a cell older than `generation`, each with the newest such.

        A scan goes on over a few rows that are not covered: to begin one for each of many scattered records takes longer.
        """
        keys, until = PartitionKeys(at), covers.of(at)[-1][1]
        offset = covers.at_or_above(at, 0)
        while offset is not None:
            start, stop, behind = keys.scan(offset, until)
            besides = 0
            # The scan returns only rows that have a cell older than the generation.
            scan = self._gateway.scan(
                self._table, start, stop, columns=[MARK], timestamp=generation, include_timestamp=True
            )
            for key, cells in scan:
                row = parse_key(key)
                if (at, row.offset) in covers:
                    besides = 0
                    yield key, _newest(cells)
                elif (besides := besides + 1) == _BESIDES:
                    behind = row.offset + 1
                    break
            offset = covers.at_or_above(at, behind)

    def _delete_until(self, keys: list[bytes], newest: int) -> None:
        """Delete all cells of rows whose timestamp is `newest` or older."""
        # Without a colon: `d:` would be the column whose qualifier is empty, not the family.
        families = [
            Mutation(isDelete=True, column=family.encode(), writeToWAL=True) for family in (DATA_FAMILY, MARK_FAMILY)
        ]
        batch = [BatchMutation(row=key, mutations=families) for key in keys]
        table = self._table.encode()
        self._gateway.repeated(f"sweep {self._table}", lambda client: client.mutateRowsTs(table, batch, newest, {}))


def make_with_regions(
    connections: Connections, settings: HBaseTableSettings, families: Mapping[str, Mapping[str, Any]]
) -> None:
    """Make a sink's table, if it does not exist and its settings ask for several regions."""
    if settings.regions == 1:
        return
    # Thrift 2 takes a third of a second to load, and most streams do not need it.
    from tidemark.clients.hbase.regions import ensure_table
    from tidemark.clients.hbase.thrift2 import gateway2

    regions = split_keys(settings.regions)
    ensure_table(gateway2(connections, settings.hbase), settings.table, families, regions)


def result_table(connections: Connections, connection: str, table: str, was: Names = NEVER) -> ResultTable:
    """The table of this name, over a connection. Sends no request yet. `was`: names that fields had before."""
    return ResultTable(Gateway(hbase_endpoint(connections(connection))), table, was)


def stream_table(opened: SinkContext, connection: str, table: str) -> ResultTable:
    """The table of this name, for the fields of an open stream. Sends no request yet."""
    return result_table(opened.connections, connection, table, opened.was)


def _newest(cells: Mapping[bytes, tuple[bytes, int]]) -> int:
    return max(timestamp for _, timestamp in cells.values())


def _batches(keys: Iterable[T], size: int) -> Iterator[list[T]]:
    batch: list[T] = []
    for key in keys:
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
