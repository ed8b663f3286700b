"""The right answer of a look-up, found by looking at every window of a ledger."""

from __future__ import annotations

from collections import defaultdict

from tidemark.ledger.ledger import Ledger
from tidemark.ledger.lookup import CoveringWindows
from tidemark.ledger.records import Gap, Record, WindowRange
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition

Name = tuple[str, int]


class Scan:
    """The whole history, read once."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        found = {(record.lane, record.seq): record for _, record in ledger.records_with_bytes()}
        last = [stored.head.last for stored in ledger.heads().values() if stored.head.last is not None]
        self.records = list((found | {(record.lane, record.seq): record for record in last}).values())
        self._parts: dict[TopicPartition, list[tuple[int, int, WindowRange | Gap, Record]]] = defaultdict(list)
        for record in self.records:
            parts: list[WindowRange | Gap] = [*record.window.ranges, *record.window.gaps]
            for part in parts:
                one = part.as_range()
                self._parts[one.partition].append((one.start, one.until, part, record))

    def at(self, place: Coordinate) -> tuple[list[Name], list[Name]]:
        """The windows that cover a coordinate, newest first, and those that jumped over it."""
        here = [
            (part, record)
            for start, until, part, record in self._parts[place.partition]
            if start <= place.offset < until
        ]
        covering = [record for part, record in here if isinstance(part, WindowRange) and self._selects(record, place)]
        covering.sort(key=lambda record: record.attempt.generation, reverse=True)
        return names(covering), names([record for part, record in here if isinstance(part, Gap)])

    def newest(self, limit: int) -> list[Name]:
        return names(sorted(self.records, key=lambda record: record.committed_at, reverse=True)[:limit])

    def _selects(self, record: Record, place: Coordinate) -> bool:
        selection = record.window.selection
        return selection is None or (place.partition, place.offset) in self._ledger.selection(selection)


def names(records: list[Record]) -> list[Name]:
    return [(record.lane, record.seq) for record in records]


def named(found: CoveringWindows) -> tuple[list[Name], list[Name]]:
    """A look-up's answer, in the form of `Scan.at`."""
    return names(list(found.windows)), names([record for record, _ in found.gaps])
