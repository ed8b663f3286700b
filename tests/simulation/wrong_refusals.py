"""Bugs that refuse what is fine, say what is not so, or check too little: functions that stand instead of the product's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

from msgspec import structs

from tests.model.planting import replaced
from tidemark.errors import ClaimOverlap, Conflict, HeldByAnother, LedgerContradiction, VerificationFailed, WrongUse
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.register import change
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.requests import answers

Function = Callable[..., Any]


@dataclass(frozen=True)
class Replacement:
    """`make` gets the product's function, and gives the one that is called instead. `seed`: one that finds it, with `theme`."""

    module: str
    name: str
    make: Callable[[Function], Function]
    seed: int
    theme: str

    @contextmanager
    def planted(self) -> Iterator[None]:
        with replaced(self.module, self.name, self.make):
            yield


def _refuses_windows_at_the_end(original: Function) -> Function:
    def changes(kafka: Any, window: Any, read: Any) -> list[str]:
        at_end = [f"{one.at}: the log has changed" for one in window.ranges if one.start < one.until == one.log_end]
        return [*original(kafka, window, read), *at_end]

    return changes


def _refuses_full_windows(original: Function) -> Function:
    def check_read(tallies: Any, wanted: RangeSet) -> None:
        known = [*tallies]
        if any(one.read.number == wanted.count(one.at) for one in known if one.read.number):
            raise VerificationFailed("as many messages as there are offsets")
        original(known, wanted)

    return check_read


def _says_the_first_is_expired(original: Function) -> Function:
    def before(*given: Any, **named: Any) -> Any:
        ranges, by_answer = original(*given, **named)
        first = next((RangeSet([OffsetRange(one.partition, one.start, one.start + 1)]) for one in ranges), None)
        if first is None:
            return ranges, by_answer
        return ranges - first, by_answer | {answers.EXPIRED: by_answer.get(answers.EXPIRED, RangeSet()) | first}

    return before


def _says_the_last_is_not_there_yet(original: Function) -> Function:
    def before(*given: Any, **named: Any) -> Any:
        ranges, by_answer = original(*given, **named)
        last = next((RangeSet([OffsetRange(one.partition, one.until - 1, one.until)]) for one in ranges), None)
        if last is None:
            return ranges, by_answer
        return ranges - last, by_answer | {answers.NOT_YET: by_answer.get(answers.NOT_YET, RangeSet()) | last}

    return before


def _digests_the_time(original: Function) -> Function:
    return lambda opened, plan, now=None: sha256(
        f"{original(opened, plan, now)}{opened.book.clock()}".encode()
    ).hexdigest()


def _waits_for_whoever_has_committed(original: Function) -> Function:
    def check(book: Any, offsets: Any) -> None:
        original(book, offsets)
        if any(window.covers & offsets for window in book.committed()):
            raise HeldByAnother("a window at these offsets was committed")

    return check


def _claims_overlap_with_any_lane(original: Function) -> Function:
    def check(book: Any, register: Any, kind: Any, selection: Any, seen: Any) -> None:
        original(book, register, kind, selection, seen)
        if kind != LaneKind.INGEST and any(lane != INGEST for lane in register.lanes):
            raise ClaimOverlap("another lane is open")

    return check


def _waits_for_other_lanes(original: Function) -> Function:
    def pin(book: Any, sweeper: Any, lane: str, *more: Any, **others: Any) -> Any:
        if lane == INGEST and (register := book.register()) is not None and len(register[1].lanes) > 1:
            raise Conflict("another lane is open")
        return original(book, sweeper, lane, *more, **others)

    return pin


def _nothing(original: Function) -> Function:
    return lambda *given, **named: None


def _no_positions(original: Function) -> Function:
    return lambda *given, **named: ()


def _the_same_topics(original: Function) -> Function:
    return lambda topics, ends, now: topics


def _all_are_tired(original: Function) -> Function:
    def chosen(*given: Any) -> Any:
        found, _ = original(*given)
        return found, found

    return chosen


def _counts_closed_lanes_last(original: Function) -> Function:
    def view(book: Any, sink: str | None = None, *, closed: bool = False) -> Any:
        found = original(book, sink, closed=closed)
        register = book.register()
        return replace(found, closed=register[1].closed if register is not None else 0)

    return view


def _nothing_is_wrong(original: Function) -> Function:
    return lambda *given, **named: []


def _an_offset_more(original: Function) -> Function:
    def share(ranges: Any, limit: int | None) -> Any:
        found = original(ranges, limit)
        return {at: (start, until + 1 if until > start else until) for at, (start, until) in found.items()}

    return share


def _skips_an_offset_more(original: Function) -> Function:
    def skipping(head: Any, known: Any, request: Any, to: Any) -> Any:
        logs = known.to_read()
        return original(head, known, request, {at: min(end + 1, max(end, logs[at].end)) for at, end in to.items()})

    return skipping


def _loses_an_offset_more(original: Function) -> Function:
    def jumps(at: Any, position: int, log: Any, request: Any, *, begins: bool) -> Any:
        more = replace(log, start=min(log.start + 1, log.end)) if position < log.start else log
        return original(at, position, more, request, begins=begins)

    return jumps


def _leaves_the_heads(original: Function) -> Function:
    def retire(book: Any, reason: str) -> None:
        change(book, lambda register: structs.replace(register, retired=reason))

    return retire


def _is_damage(original: Function) -> Function:
    def required_head(book: Any, lane: str) -> Any:
        try:
            return original(book, lane)
        except WrongUse as problem:
            raise LedgerContradiction(f"the head of {lane} is missing") from problem

    return required_head


WRONG: dict[str, Replacement] = {
    "a window has an offset more than there is": Replacement(
        "tidemark.planning.planner", "share", _an_offset_more, 1, "new leaders"
    ),
    "a skip goes an offset too far": Replacement(
        "tidemark.planning.planner", "skipping", _skips_an_offset_more, 20, "skips"
    ),
    "an offset more is said to be lost": Replacement(
        "tidemark.planning.planner", "jumps", _loses_an_offset_more, 26, "skips"
    ),
    "whoever is at work commits in a ledger that has moved": Replacement(
        "tidemark.ledger.recovery.backup", "retire", _leaves_the_heads, 10, "ledgers that move"
    ),
    "a lane that never was is damage": Replacement("tidemark.ledger.register", "required_head", _is_damage, 1, "skips"),
    "a window that reaches the end of the log is refused": Replacement(
        "tidemark.runs.windows.changes_since_pin", "changes_since_pin", _refuses_windows_at_the_end, 1, "refusals"
    ),
    "a window that is full has too much": Replacement(
        "tidemark.offsets.tallies", "check_read", _refuses_full_windows, 1, "refusals"
    ),
    "the first offset is said to be expired": Replacement(
        "tidemark.runs.requests.answers", "before", _says_the_first_is_expired, 1, "refusals"
    ),
    "the last offset is said not to be there yet": Replacement(
        "tidemark.runs.requests.answers", "before", _says_the_last_is_not_there_yet, 1, "refusals"
    ),
    "a plan is stale a moment later": Replacement(
        "tidemark.runs.requests.plan", "digest", _digests_the_time, 9, "refusals"
    ),
    "an erasure waits for whoever has committed": Replacement(
        "tidemark.commit.protocol", "check_nobody_writes", _waits_for_whoever_has_committed, 1, "refusals"
    ),
    "a claim overlaps with any open lane": Replacement(
        "tidemark.ledger.register", "_check_claim", _claims_overlap_with_any_lane, 1, "half closed"
    ),
    "an ingest waits for other lanes": Replacement(
        "tidemark.commit.protocol", "pin", _waits_for_other_lanes, 4, "half closed"
    ),
    "a lane that is paused goes on": Replacement("tidemark.ledger.register", "check_not_paused", _nothing, 1, "pauses"),
    "a window is given up although its holder is at work": Replacement(
        "tidemark.commit.protocol", "_respect_lease", _nothing, 1, "abandoned"
    ),
    "a window that was given up is forgotten": Replacement(
        "tidemark.commit.protocol", "_furthest", _no_positions, 1, "abandoned"
    ),
    "a run that is done is taken for any request of its name": Replacement(
        "tidemark.ledger.register", "_check_done", _nothing, 5, "one name"
    ),
    "whoever is overtaken clears nothing": Replacement(
        "tidemark.commit.protocol", "_clear_erased", _nothing, 17, "late writers"
    ),
    "added partitions are not noted": Replacement(
        "tidemark.ledger.ordering", "noted", _the_same_topics, 1, "added partitions"
    ),
    "a view counts closed lanes last": Replacement(
        "tidemark.ledger.book", "Book.view", _counts_closed_lanes_last, 9, "beside readers"
    ),
    "each dead letter was redriven too often": Replacement(
        "tidemark.runs.requests.dead_letters", "chosen", _all_are_tired, 5, "redrives"
    ),
    "verify finds nothing": Replacement(
        "tidemark.ledger.recovery.verifying", "verify", _nothing_is_wrong, 1, "refusals"
    ),
}
