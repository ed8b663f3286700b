"""Dead letters in a database: a table of them, which streams may share, and one that says whose they are.

Each attempt has rows of its own, by its generation. So one that never commits changes no row that counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.clients import dialects
from tidemark.clients.connections import Connections
from tidemark.clients.sql import Database, NothingPrepared, asked, check_server, database, engine, make_file, make_view
from tidemark.ledger.book import Book
from tidemark.offsets.authority import Authority
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.owners import check_owner
from tidemark.sinks.stored_rows import Mark, Place, StoredRow

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")

# What Tidemark itself writes there is ASCII. All else may be any bytes, and PostgreSQL takes no text with a zero byte.
_TEXTS = ("timestamp", "outcome", "attempts", "first_failed_at", "last_failed_at", "redrives")
# As long as a job waits for a server of HBase: a question, and all tries of it.
_QUESTION_SECONDS, _PATIENCE_SECONDS = 30.0, 60.0
_RIGHTS = "select, insert, update and delete"
# Rows of one question, if they have the parts of messages, which may be large.
_PAGE_ROWS, _PAGE_MESSAGES = 5_000, 200
_MESSAGES = frozenset({"key", "value", "headers", "detail"})
_PLACE = ("stream", "topic", "incarnation", "partition", "message_offset", "generation")
_MARK = ("lane", "seq", "digest")
_SWEPT_AT_ONCE = 500


def open_letters(place: Mapping[str, str], book: Book, connections: Connections) -> LettersInSQL:
    """Raises ConnectionMissing, PackageMissing, WrongUse."""
    return letters_in(connections, place["connection"], place["table"], book.stream)


def letters_in(connections: Connections, connection: str, table: str, stream: str) -> LettersInSQL:
    where = database(connections(connection))
    # Says at once what is not installed.
    engine(where, _QUESTION_SECONDS)
    return LettersInSQL(where, table, stream)


class LettersInSQL(DeadLetters):
    """The dead letters of one stream."""

    def __init__(self, where: Database, table: str, stream: str, fields: tuple[str, ...] = FIELDS) -> None:
        self._where = where
        self._table = table
        self._stream = stream
        self._fields = fields

    def only(self, fields: Iterable[str]) -> LettersInSQL:
        return LettersInSQL(self._where, self._table, self._stream, tuple(fields))

    def prepare(self, stream: str, ledger: str) -> None:
        """Make what is missing, and check whose it is. Raises what `check_owner` raises, and NotAuthorized, Unreachable."""
        from sqlalchemy.exc import IntegrityError

        make_file(self._where)
        letters, owners = _letters(self._table), _owners(self._table)

        def make(connection: sa.Connection) -> None:
            check_server(self._where, connection, (letters.name, owners.name))
            letters.create(connection, checkfirst=True)
            owners.create(connection, checkfirst=True)
            with suppress(IntegrityError):
                connection.execute(owners.insert().values(stream=stream, ledger=ledger))

        self._asked(make)
        make_view(self._where, _QUESTION_SECONDS, f"{self._table}_text", _as_text(self._where.kind, self._table))
        if check_owner(f"table {self._table} in {self._where}", self.owner(), stream, ledger):
            self.take_over(ledger)

    def owner(self) -> Mapping[str, Any]:
        import sqlalchemy as sa

        owners = _owners(self._table)
        question = sa.select(owners.c.stream, owners.c.ledger).where(owners.c.stream == self._stream)
        rows = self._rows_of(question)
        return rows[0] if rows else {}

    def take_over(self, ledger: str) -> None:
        """Write another ledger of the stream into its mark."""
        owners = _owners(self._table)
        change = owners.update().where(owners.c.stream == self._stream).values(ledger=ledger)
        self._asked(lambda connection: connection.execute(change))

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows in one transaction; writing them again changes nothing. Raises Unreachable."""

        def insert(connection: sa.Connection) -> None:
            new = dialects.upsert(self._where.kind, _letters(self._table), (*_MARK, *FIELDS))
            connection.exec_driver_sql(dialects.BEGIN[self._where.kind])
            connection.execute(new, list(rows))
            connection.exec_driver_sql("COMMIT")

        self._asked(insert)

    def row(self, at: TopicPartition, offset: int, mark: Mark, contents: Sequence[bytes | None]) -> dict[str, Any]:
        """A row for `write`; `contents` are those of FIELDS."""
        said = dict(zip(FIELDS, contents, strict=True))
        return {
            "stream": self._stream,
            "topic": at.topic,
            "incarnation": at.incarnation,
            "partition": at.partition,
            "message_offset": offset,
            "generation": mark.generation,
            "lane": mark.lane,
            "seq": mark.seq,
            "digest": mark.digest - (1 << 64) if mark.digest >= 1 << 63 else mark.digest,
            **{name: one.decode() if one is not None and name in _TEXTS else one for name, one in said.items()},
        }

    def rows(self, authority: Authority, wanted: OffsetRange) -> Iterator[tuple[Place, StoredRow | None]]:
        """As `DeadLetters.rows`. Raises Unreachable."""
        segments = authority.within(wanted)
        segment = next(segments, None)
        for offset, versions in groupby(self._versions(wanted), itemgetter("message_offset")):
            while segment is not None and offset >= segment.until:
                segment = next(segments, None)
            counting = segment.generation if segment is not None and offset >= segment.start else None
            place = Place(wanted.partition, offset, 0)
            that_count = [version for version in versions if version["generation"] == counting]
            yield place, self._stored(place, that_count[0]) if that_count else None

    def _versions(self, wanted: OffsetRange) -> Iterator[Mapping[str, Any]]:
        """The rows of all attempts in a range, in the order of offset and generation, page by page."""
        import sqlalchemy as sa

        table, size = _letters(self._table), _PAGE_ROWS if _MESSAGES.isdisjoint(self._fields) else _PAGE_MESSAGES
        columns = [table.c[name] for name in dict.fromkeys((*_PLACE[4:], *_MARK, *self._fields))]
        key = sa.tuple_(table.c.message_offset, table.c.generation)
        last: tuple[int, int] = (wanted.start, -1)
        while True:
            question = sa.select(*columns).where(
                *self._partition(wanted.partition),
                table.c.message_offset < wanted.until,
                # MySQL looks for a pair in no index.
                table.c.message_offset >= last[0],
                key > sa.tuple_(*map(sa.literal, last)),
            )
            page = self._rows_of(question.order_by(table.c.message_offset, table.c.generation).limit(size))
            yield from page
            if len(page) < size:
                return
            last = page[-1]["message_offset"], page[-1]["generation"]

    def _stored(self, place: Place, row: Mapping[str, Any]) -> StoredRow:
        mark = Mark(row["generation"], unsigned(row["digest"]), row["lane"], row["seq"], False)
        said = {name: row[name] for name in self._fields if row[name] is not None}
        return StoredRow(
            place, mark, {name: one.encode() if name in _TEXTS else bytes(one) for name, one in said.items()}
        )

    def sweep(self, covers: RangeSet, generation: int) -> None:
        """Remove the rows of attempts older than `generation` at some offsets. Repeatable."""
        table = _letters(self._table)
        for at, offsets in self._older(covers, generation):
            older = (*self._partition(at), table.c.generation < generation)
            for first in range(0, len(offsets), _SWEPT_AT_ONCE):
                some = table.c.message_offset.in_(offsets[first : first + _SWEPT_AT_ONCE])
                self._asked(partial(_executed, table.delete().where(*older, some)))

    def older(self, covers: RangeSet, generation: int) -> int:
        """How many messages have rows that `sweep` would remove."""
        return sum(len(offsets) for _, offsets in self._older(covers, generation))

    def _older(self, covers: RangeSet, generation: int) -> Iterator[tuple[TopicPartition, list[int]]]:
        import sqlalchemy as sa

        table = _letters(self._table)
        for hull in covers.hull():
            at = hull.partition
            there = sa.select(table.c.message_offset).where(
                *self._partition(at),
                table.c.generation < generation,
                table.c.message_offset >= hull.start,
                table.c.message_offset < hull.until,
            )
            rows = self._rows_of(there.distinct())
            yield at, [one["message_offset"] for one in rows if (at, one["message_offset"]) in covers]

    def _partition(self, at: TopicPartition) -> tuple[Any, ...]:
        table = _letters(self._table)
        return (
            table.c.stream == self._stream,
            table.c.topic == at.topic,
            table.c.incarnation == at.incarnation,
            table.c.partition == at.partition,
        )

    def _rows_of(self, question: Any) -> Sequence[Any]:
        """No rows where nobody has prepared the table yet."""
        try:
            return self._asked(lambda connection: connection.execute(question).mappings().all())
        except NothingPrepared:
            return []

    def _asked(self, ask: Callable[[sa.Connection], T]) -> T:
        tables = (self._table, f"{self._table}_owners")
        return asked(self._where, ask, tables, _QUESTION_SECONDS, _PATIENCE_SECONDS, _RIGHTS)


def _executed(statement: Any, connection: sa.Connection) -> None:
    connection.execute(statement)


def _as_text(kind: str, table: str) -> str:
    """The dead letters as a person reads them: of each message, the newest dead letter, with its bytes as text."""
    others = {"key": "message_key", "value": "message_value", "timestamp": "message_time"}
    columns = [f"l.{one} AS {dialects.quoted(kind, one)}" for one in (*_PLACE, *_MARK[:2])]
    for field in FIELDS:
        value = f"l.{field}" if field in _TEXTS else dialects.shown(kind, f"l.{field}")
        columns.append(f"{value} AS {others.get(field, field)}")
    same = " AND ".join(f"n.{column} = l.{column}" for column in _PLACE[:-1])
    newer = f"SELECT 1 FROM {table} n WHERE {same} AND n.generation > l.generation"  # noqa: S608
    return f"SELECT {', '.join(columns)} FROM {table} l WHERE NOT EXISTS ({newer})"  # noqa: S608


@cache
def _letters(name: str) -> sa.Table:
    import sqlalchemy as sa

    kinds = {
        "incarnation": sa.Integer,
        "partition": sa.Integer,
        "message_offset": sa.BigInteger,
        "generation": sa.BigInteger,
    }
    return sa.Table(
        name,
        sa.MetaData(),
        *(
            sa.Column(column, kinds.get(column, dialects.name()), primary_key=True, autoincrement=False)
            for column in _PLACE
        ),
        sa.Column("lane", dialects.text(), nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.BigInteger, nullable=False),
        *(sa.Column(field, dialects.text() if field in _TEXTS else dialects.large()) for field in FIELDS),
        **dialects.TABLE,
    )


@cache
def _owners(name: str) -> sa.Table:
    import sqlalchemy as sa

    return sa.Table(
        f"{name}_owners",
        sa.MetaData(),
        sa.Column("stream", dialects.name(), primary_key=True),
        sa.Column("ledger", dialects.text(), nullable=False),
        **dialects.TABLE,
    )
