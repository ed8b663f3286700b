"""The ledger in a database: one table of keys and values, and one of the offsets for people and other tools.

Keys and values are bytes, so that no collation decides what is equal, or which comes first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tidemark.clients import dialects
from tidemark.clients.connections import Connections
from tidemark.clients.sql import (
    PAUSE_SECONDS,
    Database,
    NothingPrepared,
    asked,
    check,
    check_server,
    database,
    describe_problem,
    engine,
    make_file,
    make_view,
    taken_back,
    unanswered,
)
from tidemark.errors import LedgerContradiction
from tidemark.ledger.stores.contract import Key, Offsets, WriteInDoubt
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.settings import SQLLedger
from tidemark.ledger.stores.sql_views import helpers, views

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")

# As long as a job waits for an HBase server: one question, and all tries of it.
_QUESTION_SECONDS = 30.0
_PATIENCE_SECONDS = 60.0
# Rows of one question: values of a history have some kilobytes.
_AT_ONCE = 500
# The length of a key that InnoDB allows.
_STREAM_BYTES, _KEY_BYTES = 255, 2800
# A commit in PostgreSQL, as one statement: where its answer is lost, all of it was done or nothing.
# The head moves only from the expected value. Whoever waits for another commit of it looks again then, and moves nothing.
_COMMIT = """
    WITH moved AS (
        UPDATE {table} SET value = :value WHERE stream = :stream AND key = :head AND value = :expected RETURNING stream
    ), recorded AS (
        INSERT INTO {table} (stream, key, value)
        SELECT stream, CAST(:record AS bytea), CAST(:recorded AS bytea) FROM moved RETURNING key
    )"""
_OUTCOME = " SELECT count(*) FROM recorded"
_SHOW = """, shown AS (
        INSERT INTO {table} AS known (stream, topic, partition, next_offset, committed_at)
        SELECT CAST(:name AS text), topic, partition, next_offset, now()
        FROM moved, unnest(CAST(:topics AS text[]), CAST(:partitions AS integer[]), CAST(:offsets AS bigint[]))
            AS given (topic, partition, next_offset)
        ON CONFLICT (stream, topic, partition)
        DO UPDATE SET next_offset = excluded.next_offset, committed_at = excluded.committed_at
    )"""


# Topic, partition, next offset.
_Shown = tuple[str, int, int]


class _Commit(NamedTuple):
    """The writes of a commit; `shown` are the offsets for other tools."""

    head: Key
    expected: bytes
    value: bytes
    record: Key
    recorded: bytes
    shown: Sequence[_Shown]


def open_store(
    settings: SQLLedger, stream: str, connections: Connections, waits: RequestTimeouts | None
) -> SQLLedgerStore:
    """Open the store by its settings; `LedgerType` names this function. Raises ConnectionMissing, PackageMissing, WrongUse."""
    url = database(connections(settings.sql))
    waits = waits or RequestTimeouts(_QUESTION_SECONDS, _PATIENCE_SECONDS)
    # Says at once what is not installed.
    engine(url, waits.question_seconds)
    return SQLLedgerStore(url, settings.table, stream, settings.offsets_table, waits)


class SQLLedgerStore:
    """The ledger of one stream in a database; see `LedgerStore` for the contract."""

    # A statement of MySQL holds two of them, escaped: `check_server` knows how long it may be.
    max_value_bytes = 3 * 1024 * 1024
    commits_records = True

    def __init__(
        self, where: Database, table: str, stream: str, offsets_table: str | None, waits: RequestTimeouts
    ) -> None:
        self._where = where
        self._table = table
        self._stream = stream
        self._offsets_table = offsets_table
        self._waits = waits
        # Whether this run has looked for the views.
        self._shows = False

    def streams(self) -> list[str]:
        """See `SupportsStreamList`. Each name takes one search in the table's index."""
        import sqlalchemy as sa

        table, keys = self._values(), list[str]()

        def following(connection: sa.Connection) -> Any:
            names = sa.select(table.c.stream).order_by(table.c.stream).limit(1)
            return connection.scalar(names.where(table.c.stream > keys[-1].encode()) if keys else names)

        while (name := self._read(following, None)) is not None:
            keys.append(bytes(name).decode())
        return keys

    def of_stream(self, name: str) -> SQLLedgerStore:
        return SQLLedgerStore(self._where, self._table, name, None, self._waits)

    def prepare(self) -> None:
        """Create missing tables and views, and SQLite's file. Raises WrongUse, NotAuthorized, Unreachable."""
        make_file(self._where)

        def make(connection: sa.Connection) -> None:
            check_server(self._where, connection, self._tables)
            self._values().create(connection, checkfirst=True)
            self._make_offsets(connection)

        self._asked(make)
        self._shows = False
        self._make_views()

    def _make_offsets(self, connection: sa.Connection) -> None:
        if self._offsets_table is not None:
            self._offsets().create(connection, checkfirst=True)

    def _make_views(self) -> None:
        """Create the views that are missing, or of an older version; it is no error if this user may not."""
        if self._shows:
            return
        self._shows = True
        for name, query in views(self._where.kind, self._table).items():
            make_view(self._where, self._waits.question_seconds, name, query, helpers(self._where.kind, self._table))

    def read(self, key: Key) -> bytes | None:
        return self.read_several([key])[0]

    def read_several(self, keys: Sequence[Key]) -> list[bytes | None]:
        import sqlalchemy as sa

        table, wanted = self._values(), [_name(key) for key in keys]
        values: dict[bytes, bytes] = {}
        for first in range(0, len(wanted), _AT_ONCE):
            some = wanted[first : first + _AT_ONCE]
            question = sa.select(table.c.key, table.c.value).where(
                table.c.stream == self._stream.encode(), table.c.key.in_(some)
            )
            values.update((bytes(name), bytes(value)) for name, value in self._rows(question))
        return [values.get(name) for name in wanted]

    def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
        return self._below(prefix, _AT_ONCE)

    def newest(self, prefix: Key, limit: int) -> list[tuple[Key, bytes]]:
        pairs = self._below(prefix, max(1, min(limit, _AT_ONCE)), descending=True)
        return [pair for pair, _ in zip(pairs, range(limit), strict=False)]

    def swap(self, key: Key, expected: bytes | None, value: bytes) -> bool:
        return self._written(lambda connection: self._swapped(connection, key, expected, value))

    def commit(
        self, head: Key, expected: bytes, value: bytes, record: Key, recorded: bytes, offsets: Offsets | None
    ) -> bool:
        from sqlalchemy.exc import IntegrityError

        shown = _shown(offsets or {}) if self._offsets_table is not None else []
        commit = _Commit(head, expected, value, record, recorded, shown)
        write = self._in_one_statement if self._where.kind == "postgresql" else self._in_a_transaction
        try:
            try:
                return self._written(lambda connection: write(connection, commit))
            except NothingPrepared:
                # The stream file names another table of offsets since. Nothing of this commit was kept.
                self._asked(self._make_offsets)
                return self._written(lambda connection: write(connection, commit))
        except IntegrityError:
            raise LedgerContradiction(
                f"{'/'.join(record)} of {self._stream} is there already, and its head does not know it. Both were left as "
                "they are."
            ) from None

    def _in_one_statement(self, connection: sa.Connection, asked: _Commit) -> bool:
        """A commit in PostgreSQL."""
        import sqlalchemy as sa

        statement = _COMMIT.format(table=self._table)
        values: dict[str, Any] = {
            "stream": self._stream.encode(),
            "head": _name(asked.head),
            "expected": asked.expected,
            "value": asked.value,
            "record": _name(asked.record),
            "recorded": asked.recorded,
        }
        if asked.shown:
            statement += _SHOW.format(table=self._offsets_table)
            topics, partitions, offsets = map(list, zip(*asked.shown, strict=True))
            values |= {"name": self._stream, "topics": topics, "partitions": partitions, "offsets": offsets}
        return bool(connection.scalar(sa.text(statement + _OUTCOME), values))

    def _in_a_transaction(self, connection: sa.Connection, asked: _Commit) -> bool:
        """A commit in MySQL and SQLite. Who dies before the end of the transaction has changed nothing."""
        connection.exec_driver_sql(dialects.BEGIN[self._where.kind])
        if not self._swapped(connection, asked.head, asked.expected, asked.value):
            connection.exec_driver_sql("ROLLBACK")
            return False
        self._insert(connection, asked.record, asked.recorded)
        self._show(connection, asked.shown)
        connection.exec_driver_sql("COMMIT")
        return True

    def put(self, key: Key, value: bytes) -> None:
        from sqlalchemy.exc import IntegrityError

        def write(connection: sa.Connection) -> None:
            if self._update(connection, key, value):
                return
            try:
                self._insert(connection, key, value)
            except IntegrityError:
                self._update(connection, key, value)

        self._asked(write)

    def time(self) -> int | None:
        import sqlalchemy as sa

        if (clock := dialects.CLOCK.get(self._where.kind)) is None:
            return time.time_ns() // 1_000_000
        return int(self._asked(lambda connection: connection.scalar(sa.text(clock))))

    def publish(self, committed_at: int, offsets: Offsets) -> None:
        """The offsets are part of the commit. What people read beside them is made again if somebody has dropped it."""
        self._make_views()

    def show(self, offsets: Offsets) -> None:
        if self._offsets_table is not None:
            self._asked(lambda connection: self._show(connection, _shown(offsets)))

    # rows

    def _values(self) -> sa.Table:
        return _table_of_values(self._table)

    def _offsets(self) -> sa.Table:
        return _table_of_offsets(self._offsets_table or "")

    def _at(self, key: Key) -> Any:
        table = self._values()
        return (table.c.stream == self._stream.encode()) & (table.c.key == _name(key))

    def _insert(self, connection: sa.Connection, key: Key, value: bytes) -> None:
        connection.execute(self._values().insert().values(stream=self._stream.encode(), key=_name(key), value=value))

    def _update(self, connection: sa.Connection, key: Key, value: bytes) -> bool:
        return connection.execute(self._values().update().where(self._at(key)).values(value=value)).rowcount == 1

    def _swapped(self, connection: sa.Connection, key: Key, expected: bytes | None, value: bytes) -> bool:
        from sqlalchemy.exc import IntegrityError

        if expected is None:
            try:
                self._insert(connection, key, value)
            except IntegrityError:
                return False
            return True
        table = self._values()
        change = table.update().where(self._at(key), table.c.value == expected).values(value=value)
        return connection.execute(change).rowcount == 1

    def _show(self, connection: sa.Connection, shown: Sequence[_Shown]) -> None:
        kind = self._where.kind
        into = dialects.upsert(kind, self._offsets(), ("next_offset", "committed_at"))
        for topic, partition, offset in shown:
            row = into.values(
                stream=self._stream,
                topic=topic,
                partition=partition,
                next_offset=offset,
                committed_at=dialects.now(kind),
            )
            connection.execute(row)

    def _below(self, prefix: Key, at_once: int, *, descending: bool = False) -> Iterator[tuple[Key, bytes]]:
        """Every key that begins with `prefix`, with its value: some at a time, each time from the last one on."""
        import sqlalchemy as sa

        table, start = self._values(), _name(prefix)
        # `0` follows `/`: what begins with the whole words of the prefix.
        lower, upper = (start + b"/", start + b"0") if prefix else (b"", None)
        while True:
            question = sa.select(table.c.key, table.c.value).where(
                table.c.stream == self._stream.encode(), table.c.key > lower
            )
            if upper is not None:
                question = question.where(table.c.key < upper)
            rows = self._rows(question.order_by(table.c.key.desc() if descending else table.c.key).limit(at_once))
            for name, value in rows:
                yield tuple(bytes(name).decode().split("/")), bytes(value)
            if len(rows) < at_once:
                return
            last = bytes(rows[-1][0])
            lower, upper = (lower, last) if descending else (last, upper)

    # asking

    def _rows(self, question: Any) -> Sequence[Any]:
        return self._read(lambda connection: connection.execute(question).all(), [])

    def _read(self, ask: Callable[[sa.Connection], T], missing: T) -> T:
        """Ask; `missing` if nothing was prepared yet."""
        try:
            return self._asked(ask)
        except NothingPrepared:
            return missing

    def _asked(self, ask: Callable[[sa.Connection], T]) -> T:
        """Repeat a question until it is answered. Raises Unreachable when the patience is at its end."""
        waits = self._waits
        return asked(self._where, ask, self._tables, waits.question_seconds, waits.patience_seconds)

    @property
    def _tables(self) -> list[str]:
        return [table for table in (self._table, self._offsets_table) if table is not None]

    def _written(self, write: Callable[[sa.Connection], bool]) -> bool:
        """Write once. Raises WriteInDoubt when no answer came, Unreachable when nothing was written, IntegrityError."""
        from sqlalchemy.exc import DBAPIError, IntegrityError

        deadline = time.monotonic() + self._waits.patience_seconds
        while True:
            try:
                connection = engine(self._where, self._waits.question_seconds).connect()
            except DBAPIError as problem:
                check(self._where, problem, self._tables)
                raise unanswered(self._where, problem) from problem
            # What closing the connection raises is in doubt too: the answer may have come before.
            try:
                with connection:
                    return write(connection)
            except IntegrityError:
                raise
            except DBAPIError as problem:
                check(self._where, problem, self._tables)
                if not taken_back(self._where, problem):
                    raise WriteInDoubt(f"{self._where}: {describe_problem(problem)}") from problem
                if time.monotonic() > deadline:
                    raise unanswered(self._where, problem) from problem
            # The end of the connection has taken back what a transaction had done before.
            time.sleep(PAUSE_SECONDS)


@cache
def _table_of_values(name: str) -> sa.Table:
    import sqlalchemy as sa

    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("stream", dialects.word(_STREAM_BYTES), primary_key=True),
        sa.Column("key", dialects.word(_KEY_BYTES), primary_key=True),
        sa.Column("value", dialects.large(), nullable=False),
        **dialects.TABLE,
    )


@cache
def _table_of_offsets(name: str) -> sa.Table:
    import sqlalchemy as sa

    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("stream", dialects.name(), primary_key=True),
        sa.Column("topic", dialects.name(), primary_key=True),
        sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("next_offset", sa.BigInteger, nullable=False),
        sa.Column("committed_at", dialects.moment(), nullable=False),
        **dialects.TABLE,
    )


def _shown(offsets: Offsets) -> list[_Shown]:
    return [
        (topic, partition, int(offset))
        for topic, partitions in sorted(offsets.items())
        for partition, offset in sorted(partitions.items())
    ]


def _name(key: Key) -> bytes:
    return "/".join(key).encode()
