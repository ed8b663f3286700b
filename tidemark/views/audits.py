"""The audits of a stream that ended last: their outcomes, what they counted, and what they have found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tidemark.audit.levels import Level
from tidemark.audit.repair import name_after_repair
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.errors import LedgerUnreadable
from tidemark.ledger.book import Book
from tidemark.ledger.records import Audited
from tidemark.runs.auditing import differing, find_report
from tidemark.runs.live.open_stream import OpenStream

# How many audits people look at, and the most that can be asked for: each of them is one read of its report.
SHOWN, MOST = 20, 100
# Of each kind in each place. The report's page names a hundred.
SHOWN_COORDINATES = 20
_KINDS = ("missing", "different", "extra", "twice")
_OF_ROWS = ("expected", "found", *_KINDS, "debris", "blocks")
# What the levels that compare results count in each place.
_COUNTED = {
    Level.FULL: _OF_ROWS,
    Level.RECOMPUTE: _OF_ROWS,
    Level.SINKS: ("debris", "blocks", "unproven"),
}


def audits(opened: OpenStream, limit: int = SHOWN) -> dict[str, Any]:
    """The newest audits with what their reports say, the newest first; numbers of offsets are texts.

    An audit whose run has audited again since under the same name is left out: the ledger keeps one report of a run.
    """
    found = newest_audits(opened.book, limit + 1)
    shown = []
    for one in found[:limit]:
        report, problem = _report(opened, one)
        if report is None or report.at == one.at:
            shown.append({**audit_line(one, found), "problem": problem, "found": report and findings(opened, report)})
    return {"audits": shown, "more": len(found) > limit}


def newest_audits(book: Book, limit: int) -> list[Audited]:
    """The outcomes of the newest audits. Of those that ended before the ledger kept a list, only the last one is known."""
    found = book.newest_audits(limit)
    last = book.last_audit()
    known = last is None or any((one.run, one.at) == (last.run, last.at) for one in found)
    return found if known or last is None else sorted([last, *found], key=lambda one: -one.at)[:limit]


def audit_line(one: Audited, others: Sequence[Audited]) -> dict[str, Any]:
    """An audit's outcome. `repair_of`: the run whose findings were repaired before; `repaired`: the audit after its own
    findings were, if that is among the others.
    """
    suffix = name_after_repair("")
    again = next(
        (other for other in others if other.run == name_after_repair(one.run) and other.at >= one.at),
        None,
    )
    return {
        "run": one.run,
        "at": one.at,
        "level": one.level,
        "clean": one.clean,
        "sentence": one.sentence,
        "repair_of": one.run.removesuffix(suffix) if one.run.endswith(suffix) else None,
        "repaired": again and {"run": again.run, "at": again.at, "clean": again.clean},
    }


def findings(opened: OpenStream, report: AuditReport) -> dict[str, Any]:
    """What a report has counted in each place, and found. Levels that compare no results count nothing.

    `sinks`: those that a replay of the findings would write alone; None for all.
    """
    counted = _COUNTED.get(report.level, ())
    sinks = differing(opened, report)
    return {
        "places": [_place(one, counted) for one in report.places],
        "holes": [one for part in report.coverage for one in part.holes],
        "overlaps": [one for part in report.coverage for one in part.overlaps],
        "problems": list(report.problems),
        "selection": report.findings and report.findings.digest,
        "offsets": report.findings and str(report.findings.offsets),
        "sinks": sinks and list(sinks),
    }


def _place(one: PlaceReport, counted: Sequence[str]) -> dict[str, Any]:
    named = {kind: getattr(one, f"{kind}_at")[:SHOWN_COORDINATES] for kind in _KINDS}
    return {
        "name": one.name,
        "counts": {name: getattr(one, name) for name in counted},
        "at": {kind: list(found) for kind, found in named.items() if found},
        "blocks_at": [str(block) for block in one.blocks_at[:SHOWN_COORDINATES]],
    }


def _report(opened: OpenStream, one: Audited) -> tuple[AuditReport | None, str | None]:
    try:
        found = find_report(opened, one.run)
    except LedgerUnreadable as problem:
        return None, str(problem)
    return found, None if found is not None else "its report is no longer in the ledger"
