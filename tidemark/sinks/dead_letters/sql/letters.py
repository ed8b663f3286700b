"""Dead letters in a database, in tables that streams may share: `tables.py` has them.

Each attempt has rows of its own, by its generation, beside those that others see: `publishing.py` puts them there once their
window is committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from tidemark.clients import dialects
from tidemark.clients.connections import Connections
from tidemark.clients.sql import Database, NothingPrepared, asked, check_server, database, engine, make_file, make_view
from tidemark.ledger.ledger import Ledger
from tidemark.offsets.authority import Authority
from tidemark.offsets.hashing import unsigned
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.dead_letters import FIELDS
from tidemark.sinks.dead_letters.contract import DeadLetters
from tidemark.sinks.dead_letters.sql import tables
from tidemark.sinks.dead_letters.sql.publishing import AT_ONCE
from tidemark.sinks.dead_letters.sql.tables import MARK, PLACE, TEXTS
from tidemark.sinks.owners import check_owner
from tidemark.sinks.stored_rows import Mark, Place, StoredRow

if TYPE_CHECKING:
    import sqlalchemy as sa

T = TypeVar("T")

# As long as a job waits for a server of HBase: a question, and all tries of it.
_QUESTION_SECONDS, _PATIENCE_SECONDS = 30.0, 60.0
_RIGHTS = "select, insert, update and delete"
# Rows of one question, if they have the parts of messages, which may be large.
_PAGE_ROWS, _PAGE_MESSAGES = 5_000, 200
_MESSAGES = frozenset({"key", "value", "headers", "detail"})


def open_letters(place: Mapping[str, str], ledger: Ledger, connections: Connections) -> LettersInSQL:
    """Raises ConnectionMissing, PackageMissing, WrongUse."""
    return letters_in(connections, place["connection"], place["table"], ledger.stream, ledger)


def letters_in(
    connections: Connections, connection: str, table: str, stream: str, ledger: Ledger | None = None
) -> LettersInSQL:
    where = database(connections(connection))
    # Says at once what is not installed.
    engine(where, _QUESTION_SECONDS)
    return LettersInSQL(where, table, stream, ledger=ledger)


class LettersInSQL(DeadLetters):
    """The dead letters of one stream."""

    def __init__(
        self,
        where: Database,
        table: str,
        stream: str,
        fields: tuple[str, ...] = FIELDS,
        *,
        ledger: Ledger | None = None,
    ) -> None:
        """`ledger`: for whoever publishes."""
        self.where = where
        self.table = table
        self.ledger = ledger
        self._stream = stream
        self._fields = fields

    @property
    def said(self) -> str:
        return f"table {self.table} in {self.where}"

    def only(self, fields: Iterable[str]) -> LettersInSQL:
        return LettersInSQL(self.where, self.table, self._stream, tuple(fields), ledger=self.ledger)

    def prepare(self, stream: str, ledger: str) -> None:
        """Make what is missing, and check whose it is. Raises what `check_owner` raises, and NotAuthorized, Unreachable.

        Raises WrongUse for a table of another program: what cannot be published would stop the stream after its commit.
        """
        import sqlalchemy as sa
        from sqlalchemy.exc import IntegrityError

        make_file(self.where)
        owners = tables.owners(self.table)

        def make(connection: sa.Connection) -> None:
            check_server(self.where, connection, [one.name for one in tables.all_of(self.table)])
            for one in tables.all_of(self.table):
                one.create(connection, checkfirst=True)
                connection.execute(sa.select(*one.c).where(sa.false()))
            with suppress(IntegrityError):
                connection.execute(owners.insert().values(stream=stream, ledger=ledger))

        self.asked(make)
        make_view(self.where, _QUESTION_SECONDS, f"{self.table}_text", tables.as_text(self.where.kind, self.table))
        if check_owner(self.said, self.owner(), stream, ledger):
            self.take_over(ledger)

    def owner(self) -> Mapping[str, Any]:
        rows = self._rows_of(self.marked())
        return rows[0] if rows else {}

    def marked(self) -> sa.Select[Any]:
        """The question for the owner."""
        import sqlalchemy as sa

        owners = tables.owners(self.table)
        return sa.select(owners.c.stream, owners.c.ledger).where(owners.c.stream == self._stream)

    def published(self) -> Mapping[str, Any] | None:
        """What was published last, as `tables.published` has it; None if nothing was."""
        import sqlalchemy as sa

        table = tables.published(self.table)
        rows = self._rows_of(sa.select(*table.c).where(table.c.stream == self._stream))
        return rows[0] if rows else None

    def take_over(self, ledger: str) -> None:
        """Write another ledger of the stream into its mark."""
        owners = tables.owners(self.table)
        change = owners.update().where(owners.c.stream == self._stream).values(ledger=ledger)
        self.asked(lambda connection: connection.execute(change))

    def write(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write rows of an attempt, in one transaction; writing them again changes nothing. Raises Unreachable."""

        def insert(connection: sa.Connection) -> None:
            new = dialects.upsert(self.where.kind, tables.attempts(self.table), (*MARK, *FIELDS))
            connection.exec_driver_sql(dialects.BEGIN[self.where.kind])
            connection.execute(new, list(rows))
            connection.exec_driver_sql("COMMIT")

        self.asked(insert)

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
            **{name: one.decode() if one is not None and name in TEXTS else one for name, one in said.items()},
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
        """The rows of all attempts in a range, published or not, in the order of offset and generation, page by page.

        What is published in between is found in either table.
        """
        size = _PAGE_ROWS if _MESSAGES.isdisjoint(self._fields) else _PAGE_MESSAGES
        last: tuple[int, int] = (wanted.start, -1)
        while True:
            page = self._page(wanted, last, size)
            yield from page
            if len(page) < size:
                return
            last = page[-1]["message_offset"], page[-1]["generation"]

    def _page(self, wanted: OffsetRange, last: tuple[int, int], size: int) -> Sequence[Any]:
        import sqlalchemy as sa

        def of(table: sa.Table) -> sa.Select[Any]:
            columns = [table.c[name] for name in dict.fromkeys((*PLACE[4:], *MARK, *self._fields))]
            question = sa.select(*columns).where(
                *self.of(table, wanted.partition),
                table.c.message_offset < wanted.until,
                # MySQL looks for a pair in no index.
                table.c.message_offset >= last[0],
                sa.tuple_(table.c.message_offset, table.c.generation) > sa.tuple_(*map(sa.literal, last)),
            )
            return question.order_by(table.c.message_offset, table.c.generation).limit(size)

        published = of(tables.letters(self.table))
        both = [sa.select(one.subquery()) for one in (published, of(tables.attempts(self.table)))]
        question = sa.union_all(*both).order_by("message_offset", "generation").limit(size)
        try:
            return self.asked(lambda connection: connection.execute(question).mappings().all())
        except NothingPrepared:
            # An earlier version wrote what attempts write into the table itself. The next attempt makes the other tables.
            return self._rows_of(published)

    def _stored(self, place: Place, row: Mapping[str, Any]) -> StoredRow:
        mark = Mark(row["generation"], unsigned(row["digest"]), row["lane"], row["seq"], False)
        said = {name: row[name] for name in self._fields if row[name] is not None}
        return StoredRow(
            place, mark, {name: one.encode() if name in TEXTS else bytes(one) for name, one in said.items()}
        )

    def sweep(self, covers: RangeSet, generation: int) -> None:
        """Remove the rows of attempts older than `generation` at some offsets, published or not. Repeatable."""
        for table in (tables.attempts(self.table), tables.letters(self.table)):
            self._sweep(table, covers, generation)

    def sweep_attempts(self, covers: RangeSet, generation: int) -> None:
        """As `sweep`, but what is published stays: the next publication takes it out."""
        self._sweep(tables.attempts(self.table), covers, generation)

    def _sweep(self, table: sa.Table, covers: RangeSet, generation: int) -> None:
        for at, offsets in self._older(table, covers, generation):
            older = (*self.of(table, at), table.c.generation < generation)
            for first in range(0, len(offsets), AT_ONCE):
                some = table.c.message_offset.in_(offsets[first : first + AT_ONCE])
                self.asked(partial(_executed, table.delete().where(*older, some)))

    def older(self, covers: RangeSet, generation: int) -> int:
        """How many messages have rows that `sweep` would remove."""
        found: dict[TopicPartition, set[int]] = {}
        for table in (tables.attempts(self.table), tables.letters(self.table)):
            for at, offsets in self._older(table, covers, generation):
                found.setdefault(at, set()).update(offsets)
        return sum(map(len, found.values()))

    def _older(self, table: sa.Table, covers: RangeSet, generation: int) -> Iterator[tuple[TopicPartition, list[int]]]:
        import sqlalchemy as sa

        for hull in covers.hull():
            at = hull.partition
            there = sa.select(table.c.message_offset).where(
                *self.of(table, at),
                table.c.generation < generation,
                table.c.message_offset >= hull.start,
                table.c.message_offset < hull.until,
            )
            rows = self._rows_of(there.distinct())
            yield at, [one["message_offset"] for one in rows if (at, one["message_offset"]) in covers]

    def of(self, table: sa.Table, at: TopicPartition) -> tuple[Any, ...]:
        """The conditions for the rows of a partition, of this stream."""
        return (
            table.c.stream == self._stream,
            table.c.topic == at.topic,
            table.c.incarnation == at.incarnation,
            table.c.partition == at.partition,
        )

    def _rows_of(self, question: Any) -> Sequence[Any]:
        """No rows where nobody has prepared the table yet."""
        try:
            return self.asked(lambda connection: connection.execute(question).mappings().all())
        except NothingPrepared:
            return []

    def asked(self, ask: Callable[[sa.Connection], T]) -> T:
        """The answer of the database, asked until it gives one: `tidemark.clients.sql.asked`."""
        names = [one.name for one in tables.all_of(self.table)]
        return asked(self.where, ask, names, _QUESTION_SECONDS, _PATIENCE_SECONDS, _RIGHTS)


def _executed(statement: Any, connection: sa.Connection) -> None:
    connection.execute(statement)
