"""How a table in HBase with a row for each key is published, and how it is read.

HBase has no versions of a table, so the table counts its publications (see table.py). Each takes these steps:

1. gets its number from the table;
2. reads the ledger;
3. makes the rows of the keys of all windows that are not settled: from the rows of these windows, from what the table has, and
   from the history;
4. writes them, each with its number, also those that stay as they are.

So what the table shows of a key is what the publication with the highest number knew. That one got its number after the last
commit that changes the key: by then the window was settled, and all of it is in the table, or the third step has taken it in.
One that was asleep writes below.

What a row is made of its key's messages is a matter of the sink: see `PublishedTable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import ClassVar, NamedTuple, TypeVar

from tidemark.errors import OwnedByAnother
from tidemark.ledger.ledger import NOTHING, Ledger
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import RangeSet
from tidemark.sinks.hbase.keyed.rows import EncodedCells, KeyedRow
from tidemark.sinks.hbase.keyed.table import KeyedTable
from tidemark.sinks.latest.table import unpublished, unsettled
from tidemark.sinks.owners import check_not_replaced
from tidemark.sinks.parquet.compactions import WindowName

T = TypeVar("T")
Unsettled = Mapping[WindowName, Record]
AT_ONCE = 2_000


class Changes(NamedTuple):
    """Rows that are new or other than before, rows that stay, and keys of which nothing counts any more."""

    put: EncodedCells
    again: list[KeyedRow]
    gone: list[bytes]


@dataclass(frozen=True)
class PublishedTable(ABC):
    """A table in HBase, and the folder above its history. A sink says what becomes of the rows."""

    table: KeyedTable
    base: str
    # Whether readers hide what another stream has erased. Otherwise it counts until it is erased here, too.
    hides: ClassVar[bool]

    @abstractmethod
    def by_windows(
        self,
        ledger: Ledger,
        sink: str,
        windows: Unsettled,
        erased: RangeSet,
        take: Callable[[Iterable[Changes]], T],
        others: Callable[[], Iterable[KeyedRow]],
    ) -> T:
        """The result of `take` for what some windows change. May call it again where a compaction has replaced a folder.

        `erased`: where rows count no more, besides the offsets that the windows have read again. `others`: see `by_all`.
        """

    @abstractmethod
    def by_all(
        self,
        ledger: Ledger,
        sink: str,
        take: Callable[[Iterable[Changes]], T],
        others: Callable[[], Iterable[KeyedRow]],
    ) -> T:
        """As `by_windows`, by all rows that count. `others`: the rows of the table whose keys have not been taken."""


def publish(place: PublishedTable, ledger: Ledger, sink: str, record: Record, erased: RangeSet = NOTHING) -> None:
    """Let readers see a committed window of a sink, and no rows that count no more because of it. Repeatable.

    `erased`: where rows of the table count no more, besides the offsets that the window has read again.
    """
    restored = _check_in_use(place, ledger)
    number = place.table.begin(record.lane, record.attempt.generation, restored, ledger.clock())
    written: list[bytes] = []

    def write(changes: Iterable[Changes]) -> None:
        for put, again, gone in changes:
            written.extend((*put.keys, *(row.key for row in again)))
            place.table.put(put, number)
            place.table.put_again(again, number)
            place.table.remove(gone, number)

    def others() -> Iterable[KeyedRow]:
        return place.table.older_than(number)

    # Once more: what comes before the number may be older than what others know.
    restored = _check_in_use(place, ledger)
    # A table that is new may have a history of before.
    compared = place.table.owner().get("restored") == restored
    windows = unsettled(ledger, ledger.register_in_use()) | {(record.lane, record.seq): record}
    if compared:
        place.by_windows(ledger, sink, windows, erased, write, others)
    else:
        place.by_all(ledger, sink, write, others)
        place.table.note_restored(restored)
    try:
        _check_in_use(place, ledger)
    except OwnedByAnother:
        # Another ledger was restored meanwhile, and may know no window with these keys.
        place.table.remove(written, number)
        raise


def _check_in_use(place: PublishedTable, ledger: Ledger) -> str:
    """The `restored` of a register in use. Raises OwnedByAnother or WrongUse where another ledger took its place."""
    register = ledger.register_in_use()
    check_not_replaced(str(place.table), place.table.owner(), register.stream, register.ledger)
    return register.restored


@dataclass(frozen=True)
class RowsByKey:
    """The rows of all keys by the ledger: those of the table, and what the windows change that are not published yet."""

    table: KeyedTable
    unpublished: Mapping[bytes, KeyedRow | None]

    def row(self, key: bytes) -> KeyedRow | None:
        return self.unpublished[key] if key in self.unpublished else self.table.rows([key]).get(key)

    def within(self, wanted: RangeSet) -> Iterator[KeyedRow]:
        """The rows of messages at some offsets."""
        unpublished = [row for row in self.unpublished.values() if row is not None]
        yield from (row for row in unpublished if (row.place.partition, row.place.offset) in wanted)
        there = (row.key for row in self.table.within(wanted) if row.key not in self.unpublished)
        while some := [*islice(there, AT_ONCE)]:
            yield from self.table.rows(some).values()

    def rows(self) -> Iterator[KeyedRow]:
        yield from (row for row in self.unpublished.values() if row is not None)
        yield from _without(self.table, self.unpublished)


def _without(table: KeyedTable, known: Mapping[bytes, KeyedRow | None]) -> Iterator[KeyedRow]:
    return (row for row in table.all_rows() if row.key not in known)


def read(place: PublishedTable, ledger: Ledger, sink: str, take: Callable[[RowsByKey], T]) -> T:
    """The result of `take` for the rows of all keys by the ledger. Reads again when a window was committed meanwhile."""
    ledger = ledger if place.hides else ledger.showing_all()
    while True:
        view = ledger.view(sink)
        waiting = unpublished(ledger, view.heads.values())
        mark, register = place.table.owner(), view.register
        place.table.check_not_older(mark)
        changed: dict[bytes, KeyedRow | None] = {}

        def gather(changes: Iterable[Changes], changed: dict[bytes, KeyedRow | None] = changed) -> None:
            changed.clear()
            for put, _, gone in changes:
                changed |= {row.key: row for row in put.rows()}
                changed |= dict.fromkeys(gone)

        others = partial(_without, place.table, changed)
        if mark and register is not None:
            if mark.get("restored") != register.restored:
                place.by_all(ledger, sink, gather, others)
            elif waiting or view.hidden:
                place.by_windows(ledger, sink, waiting, view.hidden, gather, others)
        taken = take(RowsByKey(place.table, changed))
        if not ledger.changed_since(view):
            return taken
