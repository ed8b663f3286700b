"""What readers of the table see: the dead letters of committed windows, each once, and one window or redrive at a time.

An attempt only writes into the table of attempts. After the window's commit they are published, in one transaction:

1. Read which version of the stream's dead letters is there.
2. Read from the ledger whether a newer window counts at some of the offsets.
3. Begin, and raise exactly that version; or else begin again.
4. Put the window's dead letters into the table, and take out those that count no more.

What is done once more changes nothing. A table that this ledger has not published into yet is first compared with it, as a
whole: of a ledger that was restored, it may have dead letters of windows that are forgotten, and earlier versions of Tidemark
let attempts write into the table itself. What may count later goes among those of attempts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidemark.clients import dialects
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.newest import newer_windows
from tidemark.ledger.records import Record, Register
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.sinks.dead_letters.sql import tables
from tidemark.sinks.owners import check_not_replaced
from tidemark.sinks.versions import was_restored

if TYPE_CHECKING:
    import sqlalchemy as sa

    from tidemark.sinks.dead_letters.sql.letters import LettersInSQL

AT_ONCE = 500


def publish(ledger: Ledger, letters: LettersInSQL, record: Record) -> None:
    """Let readers of the table see the dead letters of a committed window. Repeatable.

    Raises Unreachable, OwnedByAnother, and WrongUse for a ledger that is used no more.
    """
    while True:
        seen = letters.published()
        publication = _Publication(ledger, letters, record, seen, ledger.register_in_use())
        if publication.is_done() or letters.asked(publication.stage):
            return


@dataclass
class _Publication:
    ledger: Ledger
    letters: LettersInSQL
    record: Record
    seen: Mapping[str, Any] | None
    register: Register

    def __post_init__(self) -> None:
        self.compared = self.seen is not None and self.seen["restored"] == self.register.restored
        covers = self.ledger.covers(self.record.window)
        newer = (one.window for one in newer_windows(self.ledger, self.register, self.record.attempt.generation))
        others = RangeSet(part for one in newer if one.counts_for(None) for part in self.ledger.covers(one) & covers)
        self.counts = covers - others
        dead = [tally.at for tally in self.record.tallies if tally.dead_letters]
        self.written = covers.only(dead) if self.record.has_counts else covers
        # What an earlier attempt at the window has left was never published. But a window that is forgotten was.
        replaces = self.record.kind.reads_again or self.record.owes_sweep or was_restored(self.ledger)
        self.replaced = self.counts if replaces else RangeSet()
        self.authority = None if self.compared else self.ledger.view().of(None).authority

    def is_done(self) -> bool:
        return self.compared and not self.written and not self.replaced

    def stage(self, connection: sa.Connection) -> bool:
        """All of it, in one transaction. False if another one came first."""
        self.connection = connection
        connection.exec_driver_sql(dialects.BEGIN[self.letters.where.kind])
        if not self._raise_version():
            connection.exec_driver_sql("ROLLBACK")
            return False
        check_not_replaced(self.letters.said, self._owner(), self.ledger.stream, self.register.ledger)
        table, attempts = tables.letters(self.letters.table), tables.attempts(self.letters.table)
        generation = self.record.attempt.generation
        if self.authority is not None:
            never, perhaps = self._not_counting(table, self.authority)
            self._remove(table, never)
            self._move(table, attempts, perhaps)
        self._remove(table, self._there(table, self.replaced, table.c.generation != generation))
        mine = self._there(attempts, self.written, attempts.c.generation == generation)
        self._move(attempts, table, (place for place in mine if _at(place) in self.counts))
        connection.exec_driver_sql("COMMIT")
        return True

    def _owner(self) -> Mapping[str, Any]:
        found = self.connection.execute(self.letters.marked()).mappings().first()
        return {} if found is None else dict(found)

    def _raise_version(self) -> bool:
        from sqlalchemy.exc import IntegrityError

        table, before = tables.published(self.letters.table), self.seen
        values = {
            "version": before["version"] + 1 if before is not None else 1,
            "restored": self.register.restored,
            "lane": self.record.lane,
            "generation": self.record.attempt.generation,
        }
        if before is not None:
            here = (table.c.stream == self.ledger.stream, table.c.version == before["version"])
            return self.connection.execute(table.update().where(*here).values(**values)).rowcount == 1
        try:
            self.connection.execute(table.insert().values(stream=self.ledger.stream, **values))
        except IntegrityError:
            return False
        return True

    def _there(self, table: sa.Table, offsets: RangeSet, *conditions: Any) -> Iterator[sa.Row[Any]]:
        """The places of a table's rows at some offsets."""
        for hull in offsets.hull():
            here = (table.c.message_offset >= hull.start, table.c.message_offset < hull.until, *conditions)
            yield from (one for one in self._places(table, hull.partition, *here) if _at(one) in offsets)

    def _not_counting(self, table: sa.Table, authority: Authority) -> tuple[list[sa.Row[Any]], list[sa.Row[Any]]]:
        """The places of rows that will never count, and of those that may when their attempt commits.

        Those that no window covers stay where the ledger has lost windows: they may be all there is.
        """
        import sqlalchemy as sa

        lost, never, perhaps = was_restored(self.ledger), list[sa.Row[Any]](), list[sa.Row[Any]]()
        partition = (table.c.topic, table.c.incarnation, table.c.partition)
        found = self.connection.execute(sa.select(*partition).where(table.c.stream == self.ledger.stream).distinct())
        for topic, incarnation, number in found.all():
            at = TopicPartition(topic, number, incarnation)
            for place in self._places(table, at):
                counting = authority.of(at, place.message_offset)
                if counting is None:
                    if not lost:
                        perhaps.append(place)
                elif place.generation != counting:
                    # No generation that was lost is drawn again.
                    (never if lost or place.generation < counting else perhaps).append(place)
        return never, perhaps

    def _places(self, table: sa.Table, at: TopicPartition, *conditions: Any) -> Iterator[sa.Row[Any]]:
        import sqlalchemy as sa

        columns = [table.c[name] for name in tables.PLACE]
        return iter(self.connection.execute(sa.select(*columns).where(*self.letters.of(table, at), *conditions)).all())

    def _move(self, table: sa.Table, into: sa.Table, places: Iterable[sa.Row[Any]]) -> None:
        import sqlalchemy as sa

        there = sa.select(into.c.stream).where(*(into.c[name] == table.c[name] for name in tables.PLACE))
        for some in self._pieces(table, places):
            rows = sa.select(*table.c).where(some, ~there.exists())
            self.connection.execute(into.insert().from_select([one.name for one in table.c], rows))
            self.connection.execute(table.delete().where(some))

    def _remove(self, table: sa.Table, places: Iterable[sa.Row[Any]]) -> None:
        for some in self._pieces(table, places):
            self.connection.execute(table.delete().where(some))

    def _pieces(self, table: sa.Table, places: Iterable[sa.Row[Any]]) -> Iterator[Any]:
        """Conditions for some places each, of one partition and generation."""
        import sqlalchemy as sa

        groups: dict[tuple[TopicPartition, int], list[int]] = {}
        for place in places:
            groups.setdefault((_partition(place), place.generation), []).append(place.message_offset)
        for (at, generation), offsets in groups.items():
            for first in range(0, len(offsets), AT_ONCE):
                some = table.c.message_offset.in_(offsets[first : first + AT_ONCE])
                yield sa.and_(*self.letters.of(table, at), table.c.generation == generation, some)


def _partition(place: sa.Row[Any]) -> TopicPartition:
    return TopicPartition(place.topic, place.partition, place.incarnation)


def _at(place: sa.Row[Any]) -> tuple[TopicPartition, int]:
    return _partition(place), place.message_offset
