"""Comparisons of replays: what a replay will change is kept in the ledger under the name of its run."""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.audit.comparison import MAX_EXAMPLES, ReplayComparison, name_of_comparison
from tidemark.errors import Conflict, LedgerContradiction
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.reports import report_of


def store_comparison(opened: OpenStream, comparison: ReplayComparison) -> None:
    """Store a comparison under its run's name, with fewer examples if one value of the ledger has no room for all."""
    for most in (MAX_EXAMPLES, 5, 1, 0):
        value = encode(comparison.naming(most))
        if len(value) <= opened.ledger.store.max_value_bytes:
            break
    opened.ledger.store_report(name_of_comparison(comparison.run), value)


def find_comparison(opened: OpenStream, run: str) -> ReplayComparison | None:
    """The stored changes that the replay of a run would make; None if it was not compared."""
    return report_of(opened, name_of_comparison(run), ReplayComparison, f"the comparison of {run}")


def stored_comparison(opened: OpenStream, run: str) -> ReplayComparison:
    """The comparison that a run must have stored. Raises LedgerContradiction when it is not there."""
    comparison = find_comparison(opened, run)
    if comparison is None:
        raise LedgerContradiction(f"the comparison of {run} is not in the ledger, although the job has ended")
    return comparison


def comparison_value(comparison: ReplayComparison) -> dict[str, Any]:
    """A comparison for JSON and for a task's result, with its sentence. Offsets are within texts."""
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(comparison))
    return {**value, "differences": comparison.differences, "sentence": comparison.sentence()}


def check_unchanged(before: LedgerSnapshot, now: LedgerSnapshot, offsets: RangeSet) -> None:
    """Raises Conflict when another lane has committed some of the offsets between two views of the ledger."""
    known = {window.generation for window in before.windows}
    if any(window.generation not in known and window.covers & offsets for window in now.windows):
        raise Conflict("another replay has committed some of these offsets while they were compared: compare again")
