"""A table in HBase with a row for each key: makes, marks, writes and reads it.

Each publication has a number, which the table gives: it is the timestamp of what the publication writes. So of two that write
one key, the later one stands, whichever is faster; and what one that was asleep writes late lies below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.endpoint import TableMissing, hbase_endpoint
from tidemark.clients.hbase.gateway import MISTAKE, TIMEOUT_MS, TROUBLE, Gateway
from tidemark.clients.hbase.tables import FOR_EVER, check_families, ensure_table
from tidemark.clients.hbase.thrift import BatchMutation, Mutation
from tidemark.errors import WrongUse
from tidemark.ledger.register import new_token
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.aggregates.states import Values, same_values
from tidemark.sinks.hbase.keyed.rows import AT, MARK, EncodedCells, KeyedRow, places_within
from tidemark.sinks.hbase.rows import DATA_FAMILY, MARK_FAMILY, SALTS
from tidemark.sinks.owners import OWNER_ROW, check_owner
from tidemark.types.renamed_fields import NEVER, Names, same_names

_OWNER_CELL, _PUBLISHED_CELL = b"t:owner", b"t:published"
# One version is enough: a publication's number decides which one stays, not the time of its write.
FAMILIES = {name: {"maxVersions": 1, "timeToLive": FOR_EVER} for name in (DATA_FAMILY, MARK_FAMILY)}
_COMPARED = b"SingleColumnValueFilter('t','at',%b,'binary:%b',true,true)"
_WITHIN = b"(" + _COMPARED % (b">=", b"%b") + b" AND " + _COMPARED % (b"<", b"%b") + b")"
# Of more partitions, all rows are read: a filter with many parts costs more than it saves.
_MAX_PARTITIONS = 64
_AT_ONCE = 2_000


# By name: the function, and its field unless it counts.


@dataclass(frozen=True)
class Publication:
    """The newest publication: its number, the window that it was for, and the `restored` of the ledger."""

    number: int
    token: str = ""
    lane: str = ""
    generation: int = 0
    restored: str = ""


class KeyedTable:
    """One HBase table with a row for each key."""

    def __init__(self, gateway: Gateway, table: str, was: Names = NEVER) -> None:
        self._gateway = gateway
        self._table = table
        self._was = was

    def __str__(self) -> str:
        return f"HBase table {self._table}"

    def prepare(
        self,
        stream: str,
        ledger: str,
        key: Sequence[str],
        buckets: int,
        was: Names = NEVER,
        values: Values | None = None,
    ) -> None:
        """Make the table if it does not exist. Check its families, its owner, its key and the buckets of its history.

        `values`: the aggregates, each with what it is. Raises WrongUse for another key, number of buckets or aggregates, and
        what `check_owner` raises.
        """
        ensure_table(self._gateway, self._table, FAMILIES)
        mine = {"stream": stream, "ledger": ledger, "key": list(key), "buckets": buckets, "id": new_token()}
        mine |= {"values": values} if values is not None else {}
        while not (owner := self.owner()):
            self._swap(_OWNER_CELL, None, _encoded(mine))
        if check_owner(str(self), owner, stream, ledger):
            self.take_over(ledger)
        self.check_not_older(owner)
        check_families(self._gateway, self._table, FAMILIES)
        for what, made, said, same in (
            ("key", owner["key"], list(key), same_names(was, owner["key"], key)),
            ("number of buckets", owner["buckets"], buckets, owner["buckets"] == buckets),
            ("values", owner.get("values"), values, same_values(was, owner.get("values"), values)),
        ):
            if not same:
                raise WrongUse(
                    f"{self} was made with the {what} {json.dumps(made)}, the stream file says {json.dumps(said)}. Name "
                    "another table, and fill it by a replay"
                )

    def check_not_older(self, owner: Mapping[str, Any]) -> None:
        """Raises WrongUse for the mark of a table with another layout."""
        if owner and "buckets" not in owner:
            raise WrongUse(
                f"{self} was made by an earlier version of Tidemark, which kept cells of messages there that other programs "
                "cannot read. Name another table, and fill it by a replay of everything"
            )

    def owner(self) -> dict[str, Any]:
        """The table's mark: its owner, key and buckets, and which restoration of the ledger it was last compared with."""
        stored = self._noted(_OWNER_CELL)
        return dict(json.loads(stored)) if stored else {}

    def take_over(self, ledger: str) -> None:
        """Write another ledger of its stream into the mark, if nobody else does so first."""
        self._note({"ledger": ledger})

    def note_restored(self, restored: str) -> None:
        """Note that all rows were compared with a ledger since it was restored."""
        self._note({"restored": restored})

    def _note(self, changed: Mapping[str, Any]) -> None:
        before = self._noted(_OWNER_CELL)
        if before is not None:
            self._swap(_OWNER_CELL, before, _encoded({**json.loads(before), **changed}))

    def published(self) -> Publication:
        """The newest publication that has begun. Its number is 0 if there is none."""
        stored = self._noted(_PUBLISHED_CELL)
        return Publication(0) if stored is None else Publication(**json.loads(stored))

    def begin(self, lane: str, generation: int, restored: str, now: int) -> int:
        """Give a publication its number: the time (in milliseconds since 1970), or one above the last if that is later."""
        while True:
            before = self._noted(_PUBLISHED_CELL)
            last = 0 if before is None else Publication(**json.loads(before)).number
            mine = Publication(max(now, last + 1), new_token(), lane, generation, restored)
            if self._swap(_PUBLISHED_CELL, before, _encoded(vars(mine))) or self.published() == mine:
                return mine.number

    def rows(self, keys: Sequence[bytes]) -> dict[bytes, KeyedRow]:
        """The rows of some keys that have one."""
        return self._rows(keys, [DATA_FAMILY.encode(), MARK_FAMILY.encode()])

    def marks(self, keys: Sequence[bytes]) -> dict[bytes, KeyedRow]:
        """As `rows`, with their places and marks alone."""
        return self._rows(keys, [AT, MARK])

    def _rows(self, keys: Sequence[bytes], columns: Sequence[bytes]) -> dict[bytes, KeyedRow]:
        found: dict[bytes, KeyedRow] = {}
        table = self._table.encode()
        for some in _pieces(keys):

            def read(client: Any, some: Sequence[bytes] = some) -> Any:
                return client.getRowsWithColumns(table, some, columns, {})

            for row in self._gateway.repeated(f"read {self._table}", read):
                cells = {column: (cell.value, cell.timestamp) for column, cell in row.columns.items()}
                if (one := self._row(row.row, cells)) is not None:
                    found[one.key] = one
        return found

    def within(self, wanted: RangeSet) -> Iterator[KeyedRow]:
        """The places and marks of the rows of messages at some offsets. HBase looks at all rows, and sends these alone."""
        if not wanted:
            return
        hulls = [places_within(one) for one in wanted.hull()]
        parts = [_WITHIN % tuple(one.replace(b"'", b"''") for one in hull) for hull in hulls]
        filter_ = b" OR ".join(parts) if len(parts) <= _MAX_PARTITIONS else None
        for row in self._scan(b"", [AT, MARK], filter_):
            if (row.place.partition, row.place.offset) in wanted:
                yield row

    def all_rows(self, salts: Iterable[int] = range(SALTS)) -> Iterator[KeyedRow]:
        for salt in salts:
            yield from self._scan(bytes([salt]), None, None, bytes([salt + 1]))

    def put(self, rows: EncodedCells, number: int) -> None:
        """Write rows as a publication; writing them again changes nothing. Raises Unreachable."""
        import pyarrow as pa

        from tidemark.clients.hbase.encoding import encode_rows

        for start in range(0, len(rows.keys), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            keys = pa.array(rows.keys[some], pa.binary())
            cells = [(column, values.slice(start, _AT_ONCE)) for column, values in rows.cells]
            self._gateway.put(self._table, encode_rows(keys, cells), number)
        # A key that is gone has its mark alone.
        self._remove([key for key, gone in zip(rows.keys, rows.gone, strict=True) if gone], number, [DATA_FAMILY])

    def put_again(self, rows: Sequence[KeyedRow], number: int) -> None:
        """Write rows that the table has as those of this publication."""
        self._mutate(((row.key, _puts(row)) for row in rows), number)
        self._remove((row.key for row in rows if row.mark.gone), number, [DATA_FAMILY])

    def remove(self, keys: Iterable[bytes], number: int) -> None:
        """Remove rows, as a publication: what later ones write stays."""
        self._remove(keys, number, [DATA_FAMILY, MARK_FAMILY])

    def older_than(self, number: int) -> Iterator[KeyedRow]:
        """The rows that no publication from this one on has written."""
        for key, cells in self._cells(b"", None, None):
            row = self._row(key, cells)
            if row is not None and cells[MARK][1] < number:
                yield row

    def _remove(self, keys: Iterable[bytes], number: int, families: Sequence[str]) -> None:
        # Without a colon: `d:` would be the column whose qualifier is empty, not the family.
        gone = [Mutation(isDelete=True, column=family.encode(), writeToWAL=True) for family in families]
        self._mutate(((key, gone) for key in keys), number)

    def _mutate(self, rows: Iterable[tuple[bytes, list[Any]]], number: int) -> None:
        table = self._table.encode()
        for some in _pieces(rows):
            batch = [BatchMutation(row=key, mutations=mutations) for key, mutations in some]

            def write(client: Any, batch: list[Any] = batch) -> None:
                client.mutateRowsTs(table, batch, number, {})

            self._gateway.repeated(f"write {number_of(len(batch), 'row')} to {self._table}", write)

    def _scan(
        self, start: bytes, columns: list[bytes] | None, filter_: bytes | None, stop: bytes = bytes([SALTS])
    ) -> Iterator[KeyedRow]:
        for key, cells in self._cells(start, columns, filter_, stop):
            if (row := self._row(key, cells)) is not None:
                yield row

    def _cells(
        self, start: bytes, columns: list[bytes] | None, filter_: bytes | None, stop: bytes = bytes([SALTS])
    ) -> Iterator[tuple[bytes, dict[bytes, tuple[bytes, int]]]]:
        given: dict[str, Any] = {} if filter_ is None else {"filter": filter_}
        try:
            yield from self._gateway.scan(self._table, start, stop, columns=columns, include_timestamp=True, **given)
        except TableMissing:
            # No window has been published yet.
            return

    def _row(self, key: bytes, cells: Mapping[bytes, tuple[bytes, int]]) -> KeyedRow | None:
        """The cells of the newest publication of a row; None without a mark."""
        if MARK not in cells:
            return None
        number = cells[MARK][1]
        return KeyedRow(key, {column: value for column, (value, at) in cells.items() if at == number}, self._was)

    def _noted(self, column: bytes) -> bytes | None:
        table = self._table.encode()
        try:
            cells = self._gateway.repeated(
                f"read {self._table}", lambda client: client.get(table, OWNER_ROW, column, {})
            )
        except TableMissing:
            return None
        return bytes(cells[0].value) if cells else None

    def _swap(self, column: bytes, before: bytes | None, now: bytes) -> bool:
        """Write a note if it is as before. False also where nobody knows whether it was written."""
        table = self._table.encode()
        put = Mutation(isDelete=False, column=column, value=now, writeToWAL=True)
        try:
            return bool(
                self._gateway.once(lambda client: client.checkAndPut(table, OWNER_ROW, column, before, put, {}))
            )
        except MISTAKE:
            raise
        except TROUBLE:
            return False


def _puts(row: KeyedRow) -> list[Any]:
    return [
        Mutation(isDelete=False, column=column, value=value, writeToWAL=True) for column, value in row.cells.items()
    ]


def _encoded(note: Mapping[str, Any]) -> bytes:
    return json.dumps(note, sort_keys=True).encode()


def _pieces(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while some := list(islice(iterator, _AT_ONCE)):
        yield some


def keyed_table(
    connections: Connections, connection: str, table: str, timeout_ms: int = TIMEOUT_MS, was: Names = NEVER
) -> KeyedTable:
    """The table of this name, over a connection. Sends no request yet. `was`: names that fields had before."""
    return KeyedTable(Gateway(hbase_endpoint(connections(connection)), timeout_ms=timeout_ms), table, was)
