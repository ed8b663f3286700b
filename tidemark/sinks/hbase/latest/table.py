"""A table with the newest value of each key: makes, marks, writes and reads it. Readers see only values that count.

Only an erasure removes cells from such a table. So a reader loads the ledger before the rows, and sees the table as of that
moment, whatever is written or committed meanwhile. After an erasure it goes on by what counts then: see `SteadyValues`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Protocol

from tidemark.clients.connections import Connections
from tidemark.clients.hbase.gateway import TIMEOUT_MS
from tidemark.clients.hbase.regions import ensure_table, is_there
from tidemark.clients.hbase.tables import ALL_VERSIONS, FOR_EVER
from tidemark.clients.hbase.thrift2 import Gateway2, gateway2, table_name, thrift
from tidemark.errors import WrongUse
from tidemark.ledger.book import Book, View
from tidemark.offsets.authority import Authority
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.sinks.hbase.keyed_rows import fields_of, mark_of, salt_range
from tidemark.sinks.hbase.latest.rows import ValueVersion, place_of, row_key, spans, topic_of
from tidemark.sinks.hbase.rows import SALTS, split_keys
from tidemark.sinks.owners import OWNER_ROW, check_owner
from tidemark.sinks.stored_rows import Place, StoredRow
from tidemark.types.renamed_fields import NEVER, Names, by_today, same_names

_FAMILY = b"d"
_OWNER_FAMILY, _OWNER_COLUMN = b"t", b"owner"
# In the mark, beside the owner.
_ORDINAL = "ordinal"

# For most keys, at most two cells that do not count lie above the newest value. For the others, more cells are read.
_READ_VERSIONS = 3
_OLDER_VERSIONS = 100
_REMOVED_AT_ONCE = 500
# How many keys are read between two looks at the ledger.
_AT_A_TIME = 2_000

# (row, column, timestamp, cell)
Put = tuple[bytes, bytes, int, bytes]


class HasAuthority(Protocol):
    """The function that says which generation counts at an offset; None where no committed window has read it."""

    def of(self, partition: TopicPartition, offset: int) -> int | None: ...


class LatestInHBase:
    """One HBase table with rows by key."""

    def __init__(self, gateway: Gateway2, table: str, was: Names = NEVER) -> None:
        self._gateway = gateway
        self._table = table
        self._was = was

    def prepare(self, stream: str, ledger: str, key: Sequence[str], regions: int = 1) -> None:
        """Make the table, with its regions, if it does not exist. Check that it keeps all versions, its owner, its key.

        Raises WrongUse for a table that drops versions or has another key, and what `check_owner` raises.
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
        # The owner is read afterwards, so it does not matter which of two tries has won.
        self._gateway.repeated(
            f"mark {self._table}",
            lambda client: client.checkAndPut(table, OWNER_ROW, _OWNER_FAMILY, _OWNER_COLUMN, None, put),
        )
        owner = self.owner()
        if check_owner(f"HBase table {self._table}", owner, stream, ledger):
            self.take_over(ledger)
        if not same_names(self._was, owner.get("key") or (), key):
            raise WrongUse(
                f"HBase table {self._table} was made with key {', '.join(owner.get('key') or ('none',))}, the stream file says "
                f"{', '.join(key)}. Name another table, and fill it by a replay of everything"
            )

    def owner(self) -> dict[str, Any]:
        """The table's owner, and its key; empty while it has no mark."""
        stored = self._mark()
        return dict(json.loads(stored)) if stored else {}

    def _mark(self) -> bytes | None:
        table = self._table.encode()
        get = thrift.TGet(row=OWNER_ROW, columns=[thrift.TColumn(family=_OWNER_FAMILY, qualifier=_OWNER_COLUMN)])
        mark = self._gateway.repeated(f"read {self._table}", lambda client: client.get(table, get))
        return bytes(mark.columnValues[0].value) if mark.columnValues else None

    def take_over(self, ledger: str) -> None:
        """Write another ledger of its stream into the mark, if nobody else does so first."""
        self._change_mark(lambda mark: {**mark, "ledger": ledger})

    def highest_ordinal(self) -> int:
        """The highest that `note_ordinal` was given; 0 where it was given none."""
        return int(self.owner().get(_ORDINAL, 0))

    def note_ordinal(self, ordinal: int) -> None:
        """Note the ordinal of an attempt that is about to write, if it is the highest so far. Raises Unreachable."""
        while (owner := self.owner()) and int(owner.get(_ORDINAL, 0)) < ordinal:
            self._change_mark(lambda mark: {**mark, _ORDINAL: max(ordinal, int(mark.get(_ORDINAL, 0)))})

    def _change_mark(self, edit: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change the table's mark, if it has one and nobody else does so first."""
        table, before = self._table.encode(), self._mark()
        if before is None:
            return
        mine = json.dumps(edit(json.loads(before)), sort_keys=True).encode()
        put = thrift.TPut(row=OWNER_ROW, columnValues=[_value(_OWNER_FAMILY, _OWNER_COLUMN, mine)])
        self._gateway.repeated(
            f"mark {self._table}",
            lambda client: client.checkAndPut(table, OWNER_ROW, _OWNER_FAMILY, _OWNER_COLUMN, before, put),
        )

    def exists(self) -> bool:
        return is_there(self._gateway, self._table)

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
            f"write {number_of(len(puts), 'row')} to {self._table}", lambda client: client.putMultiple(table, puts)
        )

    def erase(self, erased: RangeSet, generation: int, epochs: int) -> int:
        """Remove the cells of some offsets that attempts before `generation` have written; returns their number.

        The table is in the order of its keys, which an erasure does not know. But the versions say the offsets, so HBase is
        asked for the cells of these alone. `epochs`: the highest that the ledger knows.
        """
        number, batch = 0, []
        for one in self._erased([(generation, erased)], epochs):
            batch.append(_removal(*one))
            if len(batch) >= _REMOVED_AT_ONCE:
                number, batch = number + self._remove(batch), []
        return number + self._remove(batch)

    def late(self, erased: Iterable[tuple[int, RangeSet]], epochs: int) -> int:
        """How many cells `erase` would find, of several erasures: generations with offsets, of which no two share any."""
        return sum(1 for _ in self._erased(list(erased), epochs))

    def _erased(self, erased: Sequence[tuple[int, RangeSet]], epochs: int) -> Iterator[tuple[bytes, bytes, int]]:
        """Row, qualifier and version of each cell of some offsets that attempts before a generation of these have written."""
        before = Authority(erased)
        for least, below in self._spans(RangeSet(part for _, parts in erased for part in parts), epochs):
            for row, columns in self._rows(_EVERY, least, below):
                topic = topic_of(row)
                for column in columns:
                    for qualifier, timestamp, cell in self._versions(row, column, least):
                        place = place_of(topic, qualifier, ValueVersion.decode(timestamp))
                        generation = before.of(place.partition, place.offset)
                        if generation is not None and mark_of(cell).generation < generation:
                            yield row, qualifier, timestamp

    @staticmethod
    def _spans(erased: RangeSet, epochs: int) -> list[tuple[int, int]]:
        return spans(((one.start, one.until) for one in erased), epochs)

    def _remove(self, cells: list[Any]) -> int:
        if cells:
            table = self._table.encode()
            self._gateway.repeated(f"erase in {self._table}", lambda client: client.deleteMultiple(table, cells))
        return len(cells)

    def newest_of(self, topic: str, key: Sequence[bytes | None], authority: HasAuthority) -> StoredRow | None:
        """The newest value that counts of one key of a topic."""
        if not self.exists():
            return None
        row = row_key(topic, key)
        cells = self._get(thrift.TGet(row=row, columns=[_ALL], maxVersions=_READ_VERSIONS))
        newest = _newest(authority, topic, [self._versions(row, column) for column in self._columns(cells)])
        return newest and self._today(newest)

    def _today(self, row: StoredRow) -> StoredRow:
        """A row with its fields under the names that they have today."""
        return replace(row, fields=by_today(self._was, dict(row.fields)))

    def some_newest(
        self, authority: Authority, salt: int, start: bytes | None, most: int
    ) -> tuple[list[StoredRow], bytes | None]:
        """The newest values that count of the first keys with a salt, and where the next keys begin; None after the last.

        A tombstone is a value, and its mark says so. What an erasure removes meanwhile may be missing: see `SteadyValues`.
        """
        values: list[StoredRow] = []
        for number, (row, columns) in enumerate(self._rows([salt], start=start)):
            if number >= most:
                return values, row
            newest = _newest(authority, topic_of(row), [self._versions(row, column) for column in columns])
            if newest is not None:
                values.append(self._today(newest))
        return values, None

    def places(
        self, authority: Authority, salts: Iterable[int] = range(SALTS)
    ) -> Iterator[tuple[Place, StoredRow | None]]:
        """Every stored value that counts, with its row; and debris, with None.

        Values of generations below the one that counts are left out: newer ones have replaced them.
        """
        for row, columns in self._rows(salts):
            topic = topic_of(row)
            for column in columns:
                for qualifier, timestamp, cell in self._versions(row, column):
                    place, generation = (
                        place_of(topic, qualifier, ValueVersion.decode(timestamp)),
                        mark_of(cell).generation,
                    )
                    counts = authority.of(place.partition, place.offset)
                    if counts == generation:
                        yield place, self._today(StoredRow(place, mark_of(cell), fields_of(cell)))
                    elif counts is None or generation > counts:
                        yield place, None

    def _rows(
        self, salts: Iterable[int], least: int = 0, below: int | None = None, start: bytes | None = None
    ) -> Iterator[tuple[bytes, list[list[Any]]]]:
        """The rows with these salts, each with the newest cells of its columns: with versions in a range, if one is named.

        The rows of the first salt from `start` on.
        """
        if not self.exists():
            return
        versions = {} if below is None else {"timeRange": thrift.TTimeRange(minStamp=least, maxStamp=below)}
        for salt in salts:
            first, stop = salt_range(salt)
            for result in self._gateway.scan(
                self._table, start or first, stop, columns=[_ALL], maxVersions=_READ_VERSIONS, **versions
            ):
                yield result.row, self._columns(result)
            start = None

    @staticmethod
    def _columns(result: Any) -> list[list[Any]]:
        """The cells of a result by column, each column's newest first, as HBase sorts them."""
        return [list(cells) for _, cells in groupby(result.columnValues, key=lambda cell: cell.qualifier)]

    def _versions(self, row: bytes, cells: list[Any], least: int = 0) -> Iterator[tuple[bytes, int, bytes]]:
        """One column's (qualifier, timestamp, cell), the newest first, down to a version. Older cells are read on demand."""
        full = _READ_VERSIONS
        while cells:
            yield from ((cell.qualifier, cell.timestamp, cell.value) for cell in cells)
            if len(cells) < full:
                return
            last, full = cells[-1], _OLDER_VERSIONS
            # HBase takes the upper end of a time range as exclusive.
            below = thrift.TTimeRange(minStamp=least, maxStamp=last.timestamp)
            column = thrift.TColumn(family=_FAMILY, qualifier=last.qualifier)
            cells = self._get(
                thrift.TGet(row=row, columns=[column], timeRange=below, maxVersions=_OLDER_VERSIONS)
            ).columnValues

    def _get(self, get: Any) -> Any:
        table = self._table.encode()
        return self._gateway.repeated(f"read {self._table}", lambda client: client.get(table, get))

    def _check_families(self) -> None:
        name = table_name(self._table)
        described = self._gateway.repeated(f"describe {self._table}", lambda client: client.getTableDescriptor(name))
        families = {column.name: column for column in described.columns}
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
_EVERY = range(SALTS)


@dataclass(frozen=True)
class SteadyValues:
    """The newest values of a table, each as of a moment at which the ledger was so. Runs in Spark's workers too.

    Only an erasure removes cells, and only after its commit. An older value of the key would then seem to be the newest, also
    where a newer one was committed meanwhile. So the ledger is read again after each part of the keys. Once something was
    erased since, the part is read again, by what counts now.
    """

    book: Book
    table: LatestInHBase
    view: View
    # How many windows had erased something at that moment.
    erasures: int

    @classmethod
    def of(cls, book: Book, table: LatestInHBase, sink: str) -> SteadyValues:
        view = book.view(sink)
        # Workers get this: of the windows, only their number counts.
        return cls(book, table, replace(view, windows=[]), _erasures(view))

    def newest(self, salts: Iterable[int] = range(SALTS), at_a_time: int = _AT_A_TIME) -> Iterator[StoredRow]:
        """The newest value that counts of every key that has one."""
        view, erasures = self.view, self.erasures
        for salt in salts:
            start: bytes | None = None
            while True:
                rows, following = self.table.some_newest(view.authority, salt, start, at_a_time)
                if self.book.changed_since(view):
                    now = self.book.view(view.sink)
                    if _erasures(now) != erasures:
                        view, erasures = now, _erasures(now)
                        continue
                    view = replace(now, authority=view.authority)
                yield from rows
                if following is None:
                    break
                start = following


def _erasures(view: View) -> int:
    return sum(1 for one in view.windows if one.erased)


def latest_table(
    connections: Connections, connection: str, table: str, timeout_ms: int = TIMEOUT_MS, was: Names = NEVER
) -> LatestInHBase:
    """The table of this name, over a connection. Sends no request yet. `was`: names that fields had before."""
    return LatestInHBase(gateway2(connections, connection, timeout_ms), table, was)


def _value(family: bytes, column: bytes, value: bytes, timestamp: int | None = None) -> Any:
    return thrift.TColumnValue(family=family, qualifier=column, value=value, timestamp=timestamp)


def _removal(row: bytes, column: bytes, timestamp: int) -> Any:
    """Exactly one version of a cell."""
    cell = thrift.TColumn(family=_FAMILY, qualifier=column, timestamp=timestamp)
    return thrift.TDelete(row=row, columns=[cell], deleteType=thrift.TDeleteType.DELETE_COLUMN)


def _newest(
    authority: HasAuthority, topic: str, columns: Iterable[Iterator[tuple[bytes, int, bytes]]]
) -> StoredRow | None:
    """The newest cell that counts over all columns: by epoch and offset, then by the column."""
    best: tuple[tuple[int, int, bytes], Place, bytes] | None = None
    for cells in columns:
        for column, timestamp, cell in cells:
            version = ValueVersion.decode(timestamp)
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
