"""Erased offsets: they have no result, and no later window reads them.

An erasure is a committed window that covers offsets and writes nothing for them, so all older rows and dead letters
there lose their authority. No later lane may claim the offsets (`register.py`), so the window stays the newest one
there: the tombstone, with time, reason and person.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidemark.ledger.ledger import Committed, CommittedSnapshot, Ledger
from tidemark.ledger.records import ForgottenPlace, Record, SinkReceipt, each_place
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import in_utc


@dataclass(frozen=True)
class Tombstone:
    """An erasure by one window. It names offsets, and never their contents."""

    record: Record
    offsets: RangeSet

    @property
    def asked_by(self) -> str | None:
        return self.record.window.erases.asked_by if self.record.window.erases else None

    @property
    def approved_by(self) -> str | None:
        return self.record.window.erases.approved_by if self.record.window.erases else None

    def said(self) -> str:
        return erased_by(self.record)

    def as_fields(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "window": f"{self.record.lane}/{self.record.seq}",
            "at": in_utc(self.record.committed_at),
            "reason": self.record.window.reason,
            "asked_by": self.asked_by,
            "approved_by": self.approved_by,
            "offsets": self.offsets.count(),
        }


def erased_by(record: Record) -> str:
    """The answer for an offset that this window has erased."""
    return f"erased by {record.lane}, {in_utc(record.committed_at)}"


def tombstones(windows: Iterable[Committed]) -> list[Tombstone]:
    """The windows that have erased something, by the time of their commit."""
    erasures = [Tombstone(window.record, window.erased) for window in windows if window.erased]
    return sorted(erasures, key=lambda tombstone: tombstone.record.committed_at)


def erased_by_answer(windows: Iterable[Committed]) -> dict[str, RangeSet]:
    """The offsets that some windows have erased, by their answer."""
    offsets: dict[str, RangeSet] = {}
    for tombstone in tombstones(windows):
        offsets[tombstone.said()] = offsets.get(tombstone.said(), RangeSet()) | tombstone.offsets
    return offsets


def erased(windows: Iterable[Committed]) -> RangeSet:
    """All offsets that some windows have erased."""
    return RangeSet.union(window.erased for window in windows if window.erased)


def is_erased(ledger: Ledger, record: Record, place: Coordinate) -> bool:
    """Whether a window that covers an offset has erased it. Reads one piece of a large selection."""
    return record.window.erases is not None and bool(ledger.holding([record.window.erases.selection], place))


def erasures_since(ledger: Ledger, offsets: RangeSet, generation: int) -> list[Committed]:
    """The windows that have erased some of these offsets after a generation was drawn."""
    return [window for window in ledger.committed() if window.generation > generation and window.erased & offsets]


class WrittenPlace(NamedTuple):
    """A place where attempts may have written, and the windows whose rows stand next to what they have left there."""

    standing: CommittedSnapshot
    place: SinkReceipt


def places_written(ledger: Ledger) -> list[WrittenPlace]:
    """All places where any attempt of the stream may have written, each once.

    An attempt without a commit has no receipt, and its window may have covered any offset. So the places come from the
    notes of attempts, and from all receipts: a ledger older than the notes has only these.
    """
    standing = ledger.standing()
    # Read after the windows: an attempt notes its places before it writes.
    register = ledger.register()
    noted = register[1].places if register else ()
    receipts = (place for window in standing.windows for place in window.record.places)
    return [WrittenPlace(standing, place) for place in each_place((*noted, *receipts))]


def places_to_clear(ledger: Ledger) -> list[WrittenPlace]:
    """The places written to that are not gone for good: see `places.py`."""
    written = places_written(ledger)
    there = still_there(ledger, (sink.place for sink in written))
    return [sink for sink in written if sink.place in there]


def still_there(ledger: Ledger, places: Iterable[SinkReceipt]) -> list[SinkReceipt]:
    """The given places that are not gone for good."""
    wanted = list(places)
    gone = gone_places(ledger) if wanted else {}
    return [sink for sink in wanted if sink.as_place not in gone]


def gone_places(ledger: Ledger) -> dict[tuple[object, ...], ForgottenPlace]:
    """The places that are gone for good, as people have said."""
    register = ledger.register()
    return (
        {forgotten.place.as_place: forgotten for forgotten in register[1].forgotten if not forgotten.back}
        if register
        else {}
    )
