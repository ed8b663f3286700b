"""The audits of a stream that ended last: their outcomes, what they counted, and what they have found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from tidemark.audit.levels import Level
from tidemark.audit.repair import name_after_repair
from tidemark.audit.report import AuditReport, PlaceReport
from tidemark.errors import LedgerUnreadable
from tidemark.ledger.incarnations import written_range
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import AuditOutcome
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.auditing import differing, find_report
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.values import Number

# How many audits people look at, and the most that can be asked for: each of them is one read of its report.
SHOWN, MAX_AUDITS = 20, 100
# Of each kind in each place. The report's page names a hundred.
SHOWN_COORDINATES = 20
_KINDS = ("missing", "different", "extra", "twice")
_OF_ROWS = ("expected", "found", *_KINDS, "debris", "blocks")
# What the levels that compare results count in each place.
_COUNTED = {
    Level.FULL: _OF_ROWS,
    Level.RECOMPUTE: _OF_ROWS,
    Level.SINKS: ("debris", "blocks"),
}


@dataclass(frozen=True)
class AuditEnded:
    run: str
    at: int
    level: str
    clean: bool
    sentence: str


@dataclass(frozen=True)
class Repaired:
    run: str
    at: int
    clean: bool


@dataclass(frozen=True)
class PlaceOfAudit:
    name: str
    counts: dict[str, int]
    # The first coordinates of each kind, neighbours as a range, and how many coordinates these are.
    at: dict[str, list[str]]
    named: dict[str, int]
    blocks_at: list[str]


@dataclass(frozen=True)
class Findings:
    """The counts and findings of a report in each place. Levels that compare no results count nothing.

    `ranges` are the first ones of what a replay of the findings would read. `sinks`: those that it would write alone; None
    for all.
    """

    places: list[PlaceOfAudit]
    holes: list[str]
    overlaps: list[str]
    problems: list[str]
    selection: str | None
    offsets: Number | None
    ranges: list[str]
    more_ranges: int
    sinks: list[str] | None


@dataclass(frozen=True)
class AuditShown(AuditEnded):
    """An audit's outcome. `repair_of`: the run whose findings were repaired before; `repaired`: the audit after its own
    findings were, if that is among the others. `problem`: why its report cannot be read.
    """

    repair_of: str | None
    repaired: Repaired | None
    problem: str | None
    found: Findings | None


@dataclass(frozen=True)
class LevelShown:
    """A depth of an audit. One that reads messages or rows takes a choice of offsets, and has findings to replay."""

    name: str
    looks_at: str
    leaves_out: str
    reads: bool


@dataclass(frozen=True)
class AuditList:
    """The audits that ended last, and the levels that one can be started with."""

    audits: list[AuditShown]
    more: bool
    levels: list[LevelShown]


def audits(opened: OpenStream, limit: int = SHOWN) -> AuditList:
    """The newest audits with what their reports say, the newest first.

    An audit whose run has audited again since under the same name is left out: the ledger keeps one report of a run.
    """
    newest = newest_audits(opened.ledger, limit + 1)
    shown = []
    for one in newest[:limit]:
        report, problem = _report(opened, one)
        if report is None or report.at == one.at:
            shown.append(_shown(one, newest, problem, _findings(opened, report) if report else None))
    levels = [LevelShown(one.value, one.looked_at, one.left_out, one.needs_spark) for one in Level]
    return AuditList(shown, len(newest) > limit, levels)


def last_audit(ledger: Ledger) -> AuditEnded | None:
    """The outcome of the audit that ended last; None before the first one."""
    outcome = ledger.last_audit()
    return None if outcome is None else _ended(outcome)


def _ended(outcome: AuditOutcome) -> AuditEnded:
    return AuditEnded(outcome.run, outcome.at, outcome.level, outcome.clean, outcome.sentence)


def newest_audits(ledger: Ledger, limit: int) -> list[AuditOutcome]:
    """The outcomes of the newest audits. Before the ledger kept a list, only the last one is known."""
    outcomes = ledger.newest_audits(limit)
    last = ledger.last_audit()
    known = last is None or any((report.run, report.at) == (last.run, last.at) for report in outcomes)
    return outcomes if known or last is None else sorted([last, *outcomes], key=lambda report: -report.at)[:limit]


def _shown(
    outcome: AuditOutcome, others: Sequence[AuditOutcome], problem: str | None, findings: Findings | None
) -> AuditShown:
    suffix = name_after_repair("")
    again = next(
        (other for other in others if other.run == name_after_repair(outcome.run) and other.at >= outcome.at),
        None,
    )
    return AuditShown(
        **vars(_ended(outcome)),
        repair_of=outcome.run.removesuffix(suffix) if outcome.run.endswith(suffix) else None,
        repaired=Repaired(again.run, again.at, again.clean) if again else None,
        problem=problem,
        found=findings,
    )


def _findings(opened: OpenStream, report: AuditReport) -> Findings:
    counted = _COUNTED.get(report.level, ())
    sinks = differing(opened, report)
    selected = opened.ledger.selection(report.findings) if report.findings else RangeSet()
    topics = opened.ledger.topics()
    return Findings(
        places=[_place(place, counted) for place in report.places],
        holes=[hole for part in report.coverage for hole in part.holes],
        overlaps=[overlap for part in report.coverage for overlap in part.overlaps],
        problems=list(report.problems),
        selection=report.findings.digest if report.findings else None,
        offsets=report.findings.offsets if report.findings else None,
        ranges=[written_range(topics, range_) for range_ in islice(selected, SHOWN_COORDINATES)],
        more_ranges=max(0, sum(1 for _ in selected) - SHOWN_COORDINATES),
        sinks=list(sinks) if sinks else None,
    )


def _place(place: PlaceReport, counted: Sequence[str]) -> PlaceOfAudit:
    named = {kind: getattr(place, f"{kind}_at")[:SHOWN_COORDINATES] for kind in _KINDS}
    at = {kind: folded(coordinates) for kind, coordinates in named.items() if coordinates}
    number = {kind: len(coordinates) for kind, coordinates in named.items() if coordinates}
    blocks_at = [str(block) for block in place.blocks_at[:SHOWN_COORDINATES]]
    return PlaceOfAudit(place.name, {name: getattr(place, name) for name in counted}, at, number, blocks_at)


def folded(coordinates: Iterable[str]) -> list[str]:
    """Coordinates as people take them into a request, neighbours of a partition as a half-open range."""
    runs: list[tuple[str, int, int]] = []
    for coordinate in coordinates:
        place, _, offset = coordinate.rpartition("@")
        if runs and runs[-1][0] == place and runs[-1][2] == int(offset):
            runs[-1] = (place, runs[-1][1], int(offset) + 1)
        else:
            runs.append((place, int(offset), int(offset) + 1))
    return [f"{place}@{start}" if until == start + 1 else f"{place}@{start}-{until}" for place, start, until in runs]


def _report(opened: OpenStream, outcome: AuditOutcome) -> tuple[AuditReport | None, str | None]:
    try:
        report = find_report(opened, outcome.run)
    except LedgerUnreadable as problem:
        return None, str(problem)
    return report, None if report is not None else "its report is no longer in the ledger"
