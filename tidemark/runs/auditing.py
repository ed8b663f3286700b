"""Audits without Spark, what every audit proves from the ledger, the stored reports, and what a repair would replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidemark.audit.levels import Level
from tidemark.audit.repair import name_after_repair
from tidemark.audit.report import (
    SHOWN_COORDINATES,
    AuditReport,
    CoverageReport,
    forgotten_reports,
    prove_coverage,
    shown,
    tombstone_reports,
)
from tidemark.audit.source import SourceReport, source_reports
from tidemark.errors import LedgerContradiction, WrongUse
from tidemark.ledger.codec import encode
from tidemark.ledger.erasures import erased
from tidemark.ledger.holes import Ingest
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import INGEST, AuditOutcome, Guarantee, Register
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.estimating import StoredMessages
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.reports import as_asked, report_of
from tidemark.runs.requests import answers, plan, selecting, window_names
from tidemark.runs.requests.forms import AuditRequest, ReplayRequest
from tidemark.runs.requests.plan import Plan
from tidemark.runs.requests.record_tables import named_records
from tidemark.runs.windows import lanes
from tidemark.runs.windows.chosen_sinks import Sinks

_HOUR_MS = 3_600_000
# The length of a report's sentence beside its report: a line of a page.
_MAX_SENTENCE = 500


@dataclass(frozen=True)
class AuditedLedger:
    """A stream's ledger as an audit reads it, once."""

    register: Register
    view: LedgerSnapshot


def read_ledger(opened: OpenStream) -> AuditedLedger:
    """Read all windows of a stream. Raises WrongUse when nothing has been read yet."""
    view = opened.ledger.view()
    if view.register is None or INGEST not in view.heads:
        raise WrongUse(f"{opened.ledger.stream} has not been read yet: there is nothing to audit")
    return AuditedLedger(view.register, view)


def requested(opened: OpenStream, asked: AuditRequest) -> RangeSet:
    """The offsets that an audit is asked to look at; empty for everything. Raises WrongUse."""
    if asked.times:
        within = selecting.within_times(opened, asked.since, asked.until_time, asked.if_none)
        # No offset at all would be an audit of everything.
        if offsets := within & opened.ledger.view().authority.covered():
            return offsets
        raise WrongUse(f"since/until_time: no window of {opened.ledger.stream} has read an offset between these times")
    named = asked.offsets()
    if asked.records_file:
        named = named | named_records(opened, asked.records_file)
    offsets = selecting.in_known_incarnations(opened, named)
    if asked.window:
        offsets |= window_names.read_by(opened, opened.ledger.view(), asked.window)
    return offsets | selecting.stored_selection(opened, asked.selection) if asked.selection else offsets


def committed_within(opened: OpenStream, hours: int) -> RangeSet:
    """The offsets of the windows of all lanes that were committed within the last hours."""
    since = opened.ledger.clock() - hours * _HOUR_MS
    windows = opened.ledger.view().windows
    return RangeSet(part for window in windows if window.record.committed_at >= since for part in window.covers)


def audit_without_spark(opened: OpenStream, run: str, level: Level) -> AuditReport:
    """Audit the ledger, or the ledger and Kafka's offsets. The ledger stores the report under the run's name."""
    ledger = read_ledger(opened)
    source = _source(opened, ledger) if level == Level.SOURCE else ()
    report = AuditReport(
        stream=opened.ledger.stream,
        run=run,
        at=opened.ledger.clock(),
        code_version=lanes.code_version(),
        level=level,
        windows=len(ledger.view.windows),
        coverage=coverage_reports(ledger),
        ledger_problems=tuple(verify(opened.ledger)),
        source=source,
        erased=erased(ledger.view.windows).count(),
        tombstones=tombstone_reports(ledger.view.windows),
        forgotten=forgotten_reports(ledger.view.register),
    )
    store_report(opened, report)
    return as_asked(opened, report)


def coverage_reports(ledger: AuditedLedger) -> tuple[CoverageReport, ...]:
    """The ledger's proof for every partition."""
    return tuple(
        CoverageReport(
            partition=str(partition.partition),
            start=partition.start,
            position=partition.position,
            covered=partition.covered.count(),
            holes=shown(partition.holes),
            overlaps=shown(partition.overlaps),
            lost=shown(partition.lost),
            skipped=shown(partition.skipped),
        )
        for partition in prove_coverage(ledger.view.windows, Ingest.seen(ledger.view))
    )


def _source(opened: OpenStream, ledger: AuditedLedger) -> tuple[SourceReport, ...]:
    # Without positions, every run begins where `start` says: nothing is unread.
    stored = Guarantee(opened.stream.guarantee) != Guarantee.NONE
    positions = ledger.view.ingested if stored else {}
    covered = ledger.view.authority.covered()
    topics = tuple(sorted({at.topic for at in (*positions, *covered.partitions)}))
    known = kafka_now.known_now(opened, topics, learn=False)
    read = {at.topic for at in positions}
    added = {at for at in known.to_read() if at.topic in read and at not in positions}
    return source_reports(positions, covered, known.logs, ledger.register.topics, added)


def store_report(opened: OpenStream, report: AuditReport) -> None:
    """Store a report under its run's name, with fewer names if one value of the ledger has no room for all."""
    for most in (SHOWN_COORDINATES, 10, 1, 0):
        value = encode(report.naming(most))
        if len(value) <= opened.ledger.store.max_value_bytes:
            break
    opened.ledger.store_report(report.run, value)
    opened.ledger.store_audited(
        AuditOutcome(
            run=report.run,
            at=report.at,
            level=report.level.value,
            clean=report.clean,
            sentence=report.sentence()[:_MAX_SENTENCE],
        )
    )


def find_report(opened: OpenStream, run: str) -> AuditReport | None:
    """The stored report of a run, or None."""
    return report_of(opened, run, AuditReport, f"the report of {run}")


def after_repair(opened: OpenStream, first: AuditReport) -> AuditReport | None:
    """The report of the audit that followed a repair of what an audit has found; None when none did."""
    report = find_report(opened, name_after_repair(first.run))
    # A run's name may be used again: then an older repair is not this one's.
    return report if report is not None and report.at >= first.at else None


def stored_report(opened: OpenStream, run: str) -> AuditReport:
    """The report that a run must have stored. Raises LedgerContradiction when it is not there."""
    report = find_report(opened, run)
    if report is None:
        raise LedgerContradiction(f"the report of {run} is not in the ledger, although the job has ended")
    return report


@dataclass(frozen=True)
class Repair:
    """The plan of the replay that repairs an audit's findings.

    It writes only the sinks that differ, if the others are right. `selection` is the digest of the findings that it can
    read. `stored` of the messages that it reads have rows now. `audit_after` is the digest of the offsets of the audit
    after the replay, at `level_after`: all findings, too.
    """

    findings: RangeSet
    selection: str
    replay: Plan
    audit_after: str
    level_after: Level
    stored: StoredMessages

    def request(self, reason: str) -> ReplayRequest:
        """The request that a person would make for this repair."""
        return ReplayRequest(
            selection=self.selection, sinks=list(self.replay.sinks or ()), reason=reason, dry_run=False
        )

    def described(self) -> dict[str, Any]:
        """For a task's result and for JSON: numbers of offsets, and the first ranges."""
        return {
            "selection": self.selection,
            "findings": self.findings.count(),
            "sinks": None if self.replay.sinks is None else list(self.replay.sinks),
            "offsets": self.replay.all.count(),
            "ranges": list(shown(self.replay.all)),
            **self.stored.as_fields(),
            "left_out": {why: list(shown(part)) for why, part in self.replay.left_out.items()},
            "audit_after": self.audit_after,
            "level_after": self.level_after.value,
        }

    def sentence(self) -> str:
        text = f"a repair replays {number_of(self.replay.all.count(), 'offset')}"
        text += "" if self.replay.sinks is None else f" into {', '.join(self.replay.sinks)} alone"
        if self.replay.all:
            messages = number_of(str(self.stored), "message")
            text += f"; rows of {messages} of them are stored: {', '.join(shown(self.replay.all))}"
        if self.replay.left_out:
            number = sum(part.count() for part in self.replay.left_out.values())
            text += (
                f"; {number_of(number, 'finding')} cannot be replayed: {answers.describe_answers(self.replay.left_out)}"
            )
        return text


def repair_of(opened: OpenStream, report: AuditReport) -> Repair | None:
    """The replay that repairs a report's findings. None without findings. Leaves out what Kafka no longer holds."""
    if report.findings is None:
        return None
    findings = selecting.stored_selection(opened, report.findings.digest)
    sinks = differing(opened, report) or ()
    request = ReplayRequest(selection=report.findings.digest, sinks=list(sinks), reason="repair", dry_run=True)
    replay = plan.plan_request(opened, request)
    return Repair(
        findings=findings,
        # The replay and the audit after it take them from the ledger.
        selection=opened.ledger.store_selection(replay.ranges).digest if replay.ranges else "",
        replay=replay,
        audit_after=opened.ledger.store_selection(replay.all | findings).digest,
        level_after=report.level.after_repair,
        stored=plan.stored_now(opened, replay),
    )


def differing(opened: OpenStream, report: AuditReport) -> Sinks:
    """The sinks in which an audit has found differences, for a replay into them alone. None for a replay into all.

    Dead letters belong to an offset and not to a sink: only a replay into all sinks corrects them.
    """
    differ = {place.name for place in report.places if place.differences}
    names = tuple(sink.name for sink in opened.stream.sinks)
    if not differ or not differ < set(names):
        return None
    return tuple(name for name in names if name in differ)
