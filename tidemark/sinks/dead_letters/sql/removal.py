"""Publishing, sweeping and erasing dead letters in a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from tidemark.clients.connections import Connections
from tidemark.clients.sql import NothingPrepared, database
from tidemark.ledger.ledger import CommittedSnapshot, Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing, SinkAdmin
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.dead_letters.sql.publishing import publish


class LettersInTables(SinkAdmin):
    left_by_erasing = ""
    owner_asked = True

    def data_sets(self, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, str]]:
        where = database(connections(place["connection"]))
        if where.kind == "sqlite":
            return [("file", f"{where.host}/{place['table']}")]
        server = "mysql" if where.kind == "mysql" else "postgres"
        return [(f"{server}://{where.host}:{where.port}", f"{where.name}.{place['table']}")]

    def reach(self, connections: Connections, place: Mapping[str, str], standing: CommittedSnapshot) -> None:
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

    def publish(self, ledger: Ledger, connections: Connections, place: Mapping[str, str], record: Record) -> None:
        with suppress(NothingPrepared):
            publish(ledger, letters_in(connections, place["connection"], place["table"], record.stream), record)

    def shown(self, ledger: Ledger, connections: Connections, place: Mapping[str, str]) -> Iterable[tuple[str, int]]:
        said = letters_in(connections, place["connection"], place["table"], ledger.stream).published()
        register = ledger.register()
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
