"""Publishing, sweeping and erasing dead letters in a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tidemark.clients.connections import Connections
from tidemark.clients.sql import NothingPrepared
from tidemark.ledger.book import Book, Standing
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing, PlainSink
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.dead_letters.sql.publishing import publish


class LettersInTables(PlainSink):
    left_by_erasing = ""
    owner_asked = True

    def reach(self, connections: Connections, place: Mapping[str, str], standing: Standing) -> None:
        # Whoever has the table may ask for any stream.
        letters_in(connections, place["connection"], place["table"], "").owner()

    def owner(self, connections: Connections, place: Mapping[str, str], stream: str) -> Mapping[str, str]:
        return letters_in(connections, place["connection"], place["table"], stream).owner()

    def take_over(self, connections: Connections, place: Mapping[str, str], stream: str, ledger: str) -> None:
        letters_in(connections, place["connection"], place["table"], stream).take_over(ledger)

    def sweep(self, connections: Connections, place: Mapping[str, str], record: Record, covers: RangeSet) -> None:
        # A table that was dropped holds nothing.
        with suppress(NothingPrepared):
            letters = letters_in(connections, place["connection"], place["table"], record.stream)
            letters.sweep_attempts(covers, record.attempt.generation)

    def publish(self, book: Book, connections: Connections, place: Mapping[str, str], record: Record) -> None:
        with suppress(NothingPrepared):
            publish(book, letters_in(connections, place["connection"], place["table"], record.stream), record)

    def shown(self, book: Book, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        said = letters_in(connections, place["connection"], place["table"], book.stream).published()
        register = book.register()
        # Whatever it has shown for a ledger that was restored since, is looked at as a whole when that publishes.
        if said is None or register is None or said["restored"] != register[1].restored:
            return ()
        return [(said["lane"], said["generation"])]

    def erase(self, connections: Connections, place: Mapping[str, str], erasing: Erasing) -> None:
        with suppress(NothingPrepared):
            letters = letters_in(connections, place["connection"], place["table"], erasing.record.stream)
            letters.sweep(erasing.erased, erasing.generation)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        found = 0
        with suppress(NothingPrepared):
            for one in done:
                letters = letters_in(connections, place["connection"], place["table"], one.record.stream)
                found += letters.older(one.erased, one.generation)
        return found
