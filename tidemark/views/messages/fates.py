"""Where a message went: one answer for each coordinate, from what ledger, sinks and Kafka say of it. Pure.

A window counts its messages by outcome and does not name them. So the outcome of one message follows from the counts and
from what is seen at its offset: a row, a dead letter, a transaction's mark. Where that leaves several, the answer says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from tidemark.clients.kafka.slots import Slot
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.ledger.records import GapKind


class Fate(StrEnum):
    """The fate of an offset. The first seven are those of a committed window that covers it."""

    # For good: no later window reads it.
    ERASED = "erased"
    STORED = "stored"
    DEAD_LETTER = "dead letter"
    SKIPPED = "skipped"
    NO_MESSAGE = "no message"
    # A window has read it, and what it counted does not say which of several outcomes this offset had.
    READ = "read"
    # A window counts it as a row or a dead letter, and there is none.
    MISSING = "missing"
    # The window was committed before it was read, and its attempt has never said what it did.
    UNPROVEN = "unproven"
    PENDING = "pending"
    LOST = "lost"
    PASSED_OVER = "passed over"
    NOT_READ_YET = "not read yet"
    HOLE = "hole"
    # Below the beginning of the ingest, in no window: nobody has asked for it.
    BEFORE = "before the start"
    EXPIRED = "expired"
    NOT_YET = "not in the topic yet"
    GONE = "gone"
    NOT_OF_THE_STREAM = "not of the stream"


@dataclass(frozen=True)
class OutcomeCounts:
    """How the offsets of one partition of a window are divided among the outcomes."""

    stored: int
    dead_letters: int
    skipped: int
    no_message: int


@dataclass(frozen=True)
class CoveringWindow:
    """The committed window whose results count at the offset, and what is seen there.

    `counted`: None while the window has no receipt. `row`: whether a sink that keeps rows by coordinate has one; None when
    the window wrote to no such sink. `uncommitted`: the window has read messages of aborted transactions too.
    """

    counted: OutcomeCounts | None
    dead_letter: bool = False
    row: bool | None = None
    uncommitted: bool = False
    erased: bool = False


@dataclass(frozen=True)
class OffsetFacts:
    """The known facts about one offset.

    `slot`: None when Kafka has no such topic or partition, or only a later incarnation. `unknown`: Kafka was not asked, or
    did not answer. `asked_for`: from where to where the ingest has had to read the partition until now, as `holes.Ingest`
    says. `chosen`: the stream reads it.
    """

    slot: Slot | None
    chosen: bool = True
    unknown: bool = False
    asked_for: tuple[int, int] = (0, 0)
    covering: CoveringWindow | None = None
    pending: bool = False
    gap: GapKind | None = None
    isolation: str = READ_COMMITTED


_GAPS = {GapKind.LOST: Fate.LOST, GapKind.SKIPPED: Fate.PASSED_OVER}
_NEVER = (Slot.MARKER, Slot.COMPACTED)


def fate(offset: int, facts: OffsetFacts) -> Fate:
    """The one answer for an offset."""
    if facts.covering is not None:
        return _of_window(facts.covering, facts.slot)
    if facts.pending:
        return Fate.PENDING
    if facts.gap is not None:
        return _GAPS[facts.gap]
    if not facts.chosen:
        return Fate.NOT_OF_THE_STREAM
    begin, position = facts.asked_for
    passed = None if offset >= position else Fate.HOLE if offset >= begin else Fate.BEFORE
    if facts.unknown:
        return passed or Fate.NOT_READ_YET
    if facts.slot is None:
        return Fate.GONE
    if facts.slot in (Slot.EXPIRED, Slot.BEYOND):
        return Fate.EXPIRED if facts.slot == Slot.EXPIRED else Fate.NOT_YET
    if passed is not None:
        return passed
    return Fate.NO_MESSAGE if _is_none(facts.slot, facts.isolation) else Fate.NOT_READ_YET


def possible(covering: CoveringWindow, slot: Slot | None) -> frozenset[Fate]:
    """The outcomes that an offset may have had in a window. Empty when the counts allow none of what is seen."""
    if covering.erased:
        return frozenset({Fate.ERASED})
    counted = covering.counted
    if counted is None:
        return frozenset({Fate.UNPROVEN})
    if covering.dead_letter or covering.row:
        # What is there counts: rows and dead letters are only seen when they carry the window's generation.
        return frozenset({Fate.DEAD_LETTER if covering.dead_letter else Fate.STORED})
    fates = {
        Fate.STORED: counted.stored and covering.row is None,
        Fate.SKIPPED: counted.skipped,
        Fate.NO_MESSAGE: counted.no_message,
    }
    left = {one for one, may in fates.items() if may}
    readable = slot == Slot.MESSAGE or (slot in (Slot.ABORTED, Slot.HELD_BACK) and covering.uncommitted)
    if readable:
        # What is a message now was one then: only the other way round, compaction and retention change the past.
        left.discard(Fate.NO_MESSAGE)
    elif slot == Slot.MARKER or (slot == Slot.ABORTED and not covering.uncommitted):
        left &= {Fate.NO_MESSAGE}
    return frozenset(left)


def _of_window(covering: CoveringWindow, slot: Slot | None) -> Fate:
    left = possible(covering, slot)
    if not left:
        return Fate.MISSING
    return next(iter(left)) if len(left) == 1 else Fate.READ


def _is_none(slot: Slot, isolation: str) -> bool:
    return slot in _NEVER or (slot == Slot.ABORTED and isolation == READ_COMMITTED)


def in_words(fates: Iterable[Fate]) -> str:
    """Several outcomes as people read them: `stored or skipped`."""
    return " or ".join(sorted(fates))
