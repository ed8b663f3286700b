"""Bugs that refuse what is fine, say what is not so, or check too little: functions that stand instead of the product's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from tests.model.planting import replaced
from tidemark.errors import ClaimOverlap, Conflict, HeldByAnother, LedgerContradiction, VerificationFailed, WrongUse
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import LAST_AUDIT
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.register import change
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet
from tidemark.runs.requests import answers
from tidemark.sinks.aggregates.fold import Counted
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.latest.marks import RESTORED

Function = Callable[..., Any]


@dataclass(frozen=True)
class Replacement:
    """`make` gets the product's function, and gives the one that is called instead. `seed`: one that finds it, with `theme`."""

    module: str
    name: str
    make: Callable[[Function], Function]
    seed: int = 0
    theme: str = ""

    @contextmanager
    def planted(self) -> Iterator[None]:
        with replaced(self.module, self.name, self.make):
            yield


def _refuses_windows_at_the_end(original: Function) -> Function:
    def changes(kafka: Any, window: Any, read: Any) -> list[str]:
        at_end = [f"{one.at}: the log has changed" for one in window.ranges if one.start < one.until == one.log_end]
        return [*original(kafka, window, read), *at_end]

    return changes


def _says_that_nothing_was_committed(original: Function) -> Function:
    return lambda window, steps: "Nothing was committed."


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
        f"{original(opened, plan, now)}{opened.ledger.clock()}".encode()
    ).hexdigest()


def _waits_for_whoever_has_committed(original: Function) -> Function:
    def check(ledger: Any, offsets: Any) -> None:
        original(ledger, offsets)
        if any(window.covers & offsets for window in ledger.committed()):
            raise HeldByAnother("a window at these offsets was committed")

    return check


def _claims_overlap_with_any_lane(original: Function) -> Function:
    def check(ledger: Any, register: Any, kind: Any, selection: Any, seen: Any) -> None:
        original(ledger, register, kind, selection, seen)
        if kind != LaneKind.INGEST and any(lane != INGEST for lane in register.lanes):
            raise ClaimOverlap("another lane is open")

    return check


def _waits_for_other_lanes(original: Function) -> Function:
    def pin(ledger: Any, sweeper: Any, lane: str, *more: Any, **others: Any) -> Any:
        if lane == INGEST and (register := ledger.register()) is not None and len(register[1].lanes) > 1:
            raise Conflict("another lane is open")
        return original(ledger, sweeper, lane, *more, **others)

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
    def view(ledger: Any, sink: str | None = None, *, closed: bool = False) -> Any:
        found = original(ledger, sink, closed=closed)
        register = ledger.register()
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
    def retire(ledger: Any, reason: str) -> None:
        change(ledger, lambda register: structs.replace(register, retired=reason))

    return retire


def _is_damage(original: Function) -> Function:
    def required_head(ledger: Any, lane: str) -> Any:
        try:
            return original(ledger, lane)
        except WrongUse as problem:
            raise LedgerContradiction(f"the head of {lane} is missing") from problem

    return required_head


def _names_no_window(original: Function) -> Function:
    return lambda row: frozenset()


def _is_older(original: Function) -> Function:
    return lambda part: 0


def _touches_nothing(original: Function) -> Function:
    return lambda making, again: original(making, ())


def _has_nothing(original: Function) -> Function:
    return lambda fold, at, record: False


def _adds_everything(original: Function) -> Function:
    return lambda fold, at, window: Counted.of(at.version, at.register) is not None


def _goes_above_the_end(original: Function) -> Function:
    def skipping(head: Any, known: Any, request: Any, to: Any) -> Any:
        logs = {
            name: replace(log, partitions={n: replace(one, end=MAX_OFFSET) for n, one in log.partitions.items()})
            for name, log in known.logs.items()
        }
        ends = {at: known.to_read()[at].end if end == MAX_OFFSET else end for at, end in to.items()}
        return original(head, replace(known, logs=logs), request, ends)

    return skipping


def _leaves_out_an_offset_more(original: Function) -> Function:
    def leave_out(change: Any, one: Any, dropped: Any, *more: Any, **named: Any) -> Any:
        def and_the_next(batch: pa.RecordBatch) -> Any:
            at = batch.schema.get_field_index("_offset")
            field, before = batch.schema.field(at), pc.subtract(batch.column(at), 1)
            return np.asarray(dropped(batch)) | np.asarray(dropped(batch.set_column(at, field, before)))

        return original(change, one, and_the_next, *more, **named)

    return leave_out


class _Once(BaseException):
    """What no reader catches."""


def _looks_once(original: Function) -> Function:
    def steady(ledger: Any, sink: str, read: Any, *more: Any, **named: Any) -> Any:
        def once(*there: Any) -> Any:
            try:
                return read(*there)
            except Exception as problem:
                raise _Once from problem

        try:
            return original(ledger, sink, once, *more, **named)
        except _Once as gone:
            raise gone.__cause__ or gone from None

    return steady


def _notes_the_last_alone(original: Function) -> Function:
    return lambda ledger, audited: ledger.store.put(LAST_AUDIT, encode(audited))


def _published_for_a_compaction(original: Function) -> Function:
    """Who asks is the product's own function, two frames above."""

    def published(*given: Any) -> Any:
        asks = sys._getframe(2).f_code.co_name
        return MAX_OFFSET if asks == "_remove_unnamed" else original(*given)

    return published


def _marks_first(original: Function) -> Function:
    """The table is said to be of the restored ledger before it has its rows."""

    def change(table: Any, stage: Function, said: Any) -> None:
        held: list[Any] = []
        real = delta_table.change

        def holding(base: str, changed: Function) -> None:
            def first(one: Any) -> None:
                held.append(one)
                changed(one)

            real(base, first)

        def marked(version: Any, write: Function) -> Any:
            made = stage(version, write)
            if made.restored != version.restored:
                held[-1].alter.set_table_properties({RESTORED: made.restored}, raise_if_not_exists=False)
            return made

        with patch.object(delta_table, "change", holding):
            original(table, marked, said)

    return change


_TOTALS = "tidemark.sinks.hbase.aggregates.publishing"
_LAKE_TOTALS = "tidemark.sinks.aggregates.fold"

# By the kept program that finds it.
WRONG_FOR: dict[str, Replacement] = {
    "a_log_is_cut_below_a_window_that_is_committed_first": Replacement(
        "tidemark.runs.processing", "_outcome", _says_that_nothing_was_committed
    ),
    "a_mount_point_that_is_prepared_is_taken_for_a_folder": Replacement(
        "tidemark.sinks.parquet.folders", "check_new", _nothing
    ),
}
WRONG: dict[str, Replacement] = {
    "a row of totals does not name what it has counted": Replacement(
        "tidemark.sinks.hbase.keyed.rows", "KeyedRow.windows", _names_no_window, 73, "totals"
    ),
    "totals are made of a history from which a compaction has left out what was replayed": Replacement(
        _TOTALS, "_generation_of", _is_older, 119, "totals"
    ),
    "a replay changes no total": Replacement(_TOTALS, "_Making._touched", _touches_nothing, 2, "totals"),
    "a window is added to the totals of a lake that have it": Replacement(
        _LAKE_TOTALS, "TotalsFold.has", _has_nothing, 9, "totals of Delta"
    ),
    "a replay is added to the totals of a lake": Replacement(
        _LAKE_TOTALS, "TotalsFold.adds", _adds_everything, 1, "totals of Delta"
    ),
    "a window has an offset more than there is": Replacement(
        "tidemark.planning.planner", "share", _an_offset_more, 1, "new leaders"
    ),
    "a skip goes an offset too far": Replacement(
        "tidemark.planning.planner", "skipping", _skips_an_offset_more, 25, "skips"
    ),
    "an offset more is said to be lost": Replacement(
        "tidemark.planning.planner", "jumps", _loses_an_offset_more, 26, "skips"
    ),
    "whoever is at work commits in a ledger that has moved": Replacement(
        "tidemark.ledger.recovery.backup", "retire", _leaves_the_heads, 3, "ledgers that move"
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
        "tidemark.ledger.register", "_check_done", _nothing, 6, "one name"
    ),
    "whoever is overtaken clears nothing": Replacement(
        "tidemark.commit.protocol", "_clear_erased", _nothing, 8, "late writers"
    ),
    "added partitions are not noted": Replacement(
        "tidemark.ledger.ordering", "noted", _the_same_topics, 1, "added partitions"
    ),
    "a view counts closed lanes last": Replacement(
        "tidemark.ledger.ledger", "Ledger.view", _counts_closed_lanes_last, 9, "beside readers"
    ),
    "each dead letter was redriven too often": Replacement(
        "tidemark.runs.requests.dead_letters", "chosen", _all_are_tired, 14, "redrives"
    ),
    "a skip goes above the end of its log": Replacement(
        "tidemark.planning.planner", "skipping", _goes_above_the_end, 5, "skips"
    ),
    "what is taken out of a table has an offset more": Replacement(
        "tidemark.sinks.delta.changing", "FileChange.leave_out", _leaves_out_an_offset_more, 2, "tables of Delta"
    ),
    "a reader does not look again where a folder is gone": Replacement(
        "tidemark.sinks.parquet.parts", "steady", _looks_once, 1, "readers of folders"
    ),
    "a table is said to be of a restored ledger before its rows are": Replacement(
        "tidemark.sinks.delta.latest.table", "DeltaLatest.change", _marks_first, 889, "restored tables"
    ),
    "a compaction of an Iceberg table removes what is about to be published": Replacement(
        "tidemark.sinks.iceberg.compacting", "published", _published_for_a_compaction, 1, "compacted tables"
    ),
    "an audit is noted as the last one alone": Replacement(
        "tidemark.ledger.ledger", "Ledger.store_audited", _notes_the_last_alone, 1, "audits"
    ),
    "a rebuilt register forgets an order that was rising when a log was cut": Replacement(
        "tidemark.ledger.recovery.rebuilding", "_go_on_with_the_order", _nothing, 6, "lost registers"
    ),
    "verify finds nothing": Replacement(
        "tidemark.ledger.recovery.verifying", "verify", _nothing_is_wrong, 1, "refusals"
    ),
}
