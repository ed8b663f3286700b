"""A table with the newest value of each key: made, owned, written, and read so that only what counts is seen.

Nothing is ever removed from it. So what was read of the ledger before the rows says which of them count, whatever is written
or committed meanwhile: a reader sees the table as it was when it looked at the ledger.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from tidemark.authority import Authority
from tidemark.errors import WrongUse
from tidemark.hbase.regions import ensure_table, is_there
from tidemark.hbase.tables import ALL_VERSIONS, FOR_EVER
from tidemark.hbase.thrift2 import Gateway2, thrift
from tidemark.results.hbase_rows import SALTS, Place, split_keys
from tidemark.results.hbase_table import StoredRow
from tidemark.results.keyed_rows import fields_of, mark_of, salt_range
from tidemark.results.latest_rows import Version, place_of, row_key, topic_of
from tidemark.results.owners import OWNER_ROW, check_owner

_FAMILY = b"d"
_OWNER_FAMILY, _OWNER_COLUMN = b"t", b"owner"

# Most keys have their newest value on top, or below one or two that do not count; more is asked for where it is needed.
_READ_VERSIONS = 3
_OLDER_VERSIONS = 100

# (row, column, timestamp, cell)
Put = tuple[bytes, bytes, int, bytes]


class LatestTable:
    """One HBase table with rows by key."""

    def __init__(self, gateway: Gateway2, table: str) -> None:
        self._gateway = gateway
        self._table = table

    def prepare(self, stream: str, ledger: str, key: Sequence[str], regions: int = 1) -> None:
        """Make the table, with its regions, if it is not there; check that it keeps all versions, whose it is, and its key.

        Raises WrongUse for a table that forgets versions or has another key, and what `check_owner` raises.
        """
        families = {
            _FAMILY.decode(): {"maxVersions": ALL_VERSIONS, "timeToLive": FOR_EVER},
            _OWNER_FAMILY.decode(): {"maxVersions": 1, "timeToLive": FOR_EVER},
        }
        ensure_table(self._gateway, self._table, families, split_keys(regions))
        self._check_families()
        mine = json.dumps({"key": list(key), "ledger": ledger, "stream": stream}, sort_keys=True).encode()
        put = thrift.TPut(row=OWNER_ROW, columnValues=[_value(_OWNER_FAMILY, _OWNER_COLUMN, mine)])
        table = self._table.encode()
        # The owner is read behind it, so it does not matter which of two tries has won.
        self._gateway.repeated(
            f"mark {self._table}",
            lambda client: client.checkAndPut(table, OWNER_ROW, _OWNER_FAMILY, _OWNER_COLUMN, None, put),
        )
        get = thrift.TGet(row=OWNER_ROW, columns=[thrift.TColumn(family=_OWNER_FAMILY, qualifier=_OWNER_COLUMN)])
        found = self._gateway.repeated(f"read {self._table}", lambda client: client.get(table, get))
        owner = json.loads(found.columnValues[0].value)
        check_owner(f"HBase table {self._table}", owner, stream, ledger)
        if owner.get("key") != list(key):
            raise WrongUse(
                f"HBase table {self._table} was made with key {', '.join(owner.get('key') or ('none',))}, the stream file says "
                f"{', '.join(key)}. Name another table, and fill it by a replay of everything"
            )

    def write(self, cells: Iterable[Put]) -> None:
        """Write cells, each with its own timestamp; writing them again changes nothing.

        Returns when HBase has acknowledged all of them. Raises Unreachable.
        """
        puts = [
            thrift.TPut(row=row, columnValues=[_value(_FAMILY, column, cell, timestamp)])
            for row, column, timestamp, cell in cells
        ]
        table = self._table.encode()
        self._gateway.repeated(
            f"write {len(puts)} rows to {self._table}", lambda client: client.putMultiple(table, puts)
        )

    def newest(self, authority: Authority, salts: Iterable[int] = range(SALTS)) -> Iterator[StoredRow]:
        """Of every key the newest value that counts, if one does; a tombstone is one, and is marked as such."""
        for row, columns in self._rows(salts):
            found = _newest(authority, topic_of(row), [self._versions(row, column) for column in columns])
            if found is not None:
                yield found

    def newest_of(self, authority: Authority, topic: str, key: Sequence[bytes | None]) -> StoredRow | None:
        """The newest value of one key that counts; None if there is none."""
        row = row_key(topic, key)
        columns = self._columns(self._get(thrift.TGet(row=row, columns=[_ALL], maxVersions=_READ_VERSIONS)))
        return _newest(authority, topic, [self._versions(row, column) for column in columns])

    def places(
        self, authority: Authority, salts: Iterable[int] = range(SALTS)
    ) -> Iterator[tuple[Place, StoredRow | None]]:
        """Every stored value: with its row where it counts, with None where it is debris.

        What counted once and was replaced stays below what replaced it; it is neither.
        """
        for row, columns in self._rows(salts):
            topic = topic_of(row)
            for column in columns:
                for qualifier, timestamp, cell in self._versions(row, column):
                    place, generation = place_of(topic, qualifier, Version.decode(timestamp)), mark_of(cell).generation
                    counts = authority.of(place.partition, place.offset)
                    if counts == generation:
                        yield place, StoredRow(place, mark_of(cell), fields_of(cell))
                    elif counts is None or generation > counts:
                        yield place, None

    def _rows(self, salts: Iterable[int]) -> Iterator[tuple[bytes, list[list[Any]]]]:
        """The rows with these salts, each with the newest cells of its columns."""
        if not is_there(self._gateway, self._table):
            return
        for salt in salts:
            for result in self._gateway.scan(
                self._table, *salt_range(salt), columns=[_ALL], maxVersions=_READ_VERSIONS
            ):
                yield result.row, self._columns(result)

    @staticmethod
    def _columns(result: Any) -> list[list[Any]]:
        """The cells of a result by column, each column's newest first, as HBase sorts them."""
        return [list(cells) for _, cells in groupby(result.columnValues, key=lambda cell: cell.qualifier)]

    def _versions(self, row: bytes, cells: list[Any]) -> Iterator[tuple[bytes, int, bytes]]:
        """(qualifier, timestamp, cell) of one column, the newest first; older ones are read when they are asked for."""
        full = _READ_VERSIONS
        while cells:
            yield from ((cell.qualifier, cell.timestamp, cell.value) for cell in cells)
            if len(cells) < full:
                return
            last, full = cells[-1], _OLDER_VERSIONS
            # HBase takes the upper end of a time range as exclusive.
            below = thrift.TTimeRange(minStamp=0, maxStamp=last.timestamp)
            column = thrift.TColumn(family=_FAMILY, qualifier=last.qualifier)
            cells = self._get(
                thrift.TGet(row=row, columns=[column], timeRange=below, maxVersions=_OLDER_VERSIONS)
            ).columnValues

    def _get(self, get: Any) -> Any:
        table = self._table.encode()
        return self._gateway.repeated(f"read {self._table}", lambda client: client.get(table, get))

    def _check_families(self) -> None:
        name = thrift.TTableName(qualifier=self._table.encode())
        found = self._gateway.repeated(f"describe {self._table}", lambda client: client.getTableDescriptor(name))
        families = {column.name: column for column in found.columns}
        if missing := sorted({_FAMILY, _OWNER_FAMILY} - families.keys()):
            raise WrongUse(
                f"HBase table {self._table} has no column family {missing[0].decode()!r}; name another table"
            )
        kept = families[_FAMILY]
        if (kept.maxVersions, kept.timeToLive) != (ALL_VERSIONS, FOR_EVER):
            raise WrongUse(
                f"HBase table {self._table}, family {_FAMILY.decode()!r}: it keeps {kept.maxVersions} versions for "
                f"{kept.timeToLive} s, expected {ALL_VERSIONS} and {FOR_EVER}. What counts may lie below what does not; "
                "alter the family."
            )


_ALL = thrift.TColumn(family=_FAMILY)


def _value(family: bytes, column: bytes, value: bytes, timestamp: int | None = None) -> Any:
    return thrift.TColumnValue(family=family, qualifier=column, value=value, timestamp=timestamp)


def _newest(
    authority: Authority, topic: str, columns: Iterable[Iterator[tuple[bytes, int, bytes]]]
) -> StoredRow | None:
    """Of each column the newest cell that counts, and the newest of them: by epoch and offset, then by the column."""
    best: tuple[tuple[int, int, bytes], Place, bytes] | None = None
    for cells in columns:
        for column, timestamp, cell in cells:
            version = Version.decode(timestamp)
            rank = (version.epoch, version.offset, column)
            if best is not None and rank <= best[0]:
                break
            place = place_of(topic, column, version)
            if authority.of(place.partition, place.offset) == mark_of(cell).generation:
                best = rank, place, cell
                break
    if best is None:
        return None
    _, place, cell = best
    return StoredRow(place, mark_of(cell), fields_of(cell))
