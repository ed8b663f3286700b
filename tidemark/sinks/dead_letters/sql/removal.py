"""Sweeping and erasing dead letters in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tidemark.clients.connections import Connections
from tidemark.clients.sql import NothingPrepared
from tidemark.ledger.book import Standing
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.contract import Erasing, PlainSink
from tidemark.sinks.dead_letters.sql.letters import letters_in


class LettersInTables(PlainSink):
    left_by_erasing = ""

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
            letters.sweep(covers, record.attempt.generation)

    def late(self, connections: Connections, place: Mapping[str, str], done: Sequence[Erasing]) -> int:
        found = 0
        with suppress(NothingPrepared):
            for one in done:
                letters = letters_in(connections, place["connection"], place["table"], one.record.stream)
                found += letters.older(one.erased, one.generation)
        return found
