"""`tidemark audit` and `tidemark report`: what the audit DAG does, and the reports that audits have stored."""

from __future__ import annotations

import shlex
import tempfile
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from tidemark.audit.comparison import ReplayComparison
from tidemark.audit.page import page_of
from tidemark.audit.repair import name_after_repair, verdict
from tidemark.audit.report import SHOWN_COORDINATES, AuditReport
from tidemark.cli import request_options, stream_lookup
from tidemark.cli.audit_job import audited
from tidemark.cli.comparison_job import show_comparison
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.lanes_of_runs import repair as replay_findings
from tidemark.cli.options import (
    ApprovedBy,
    Html,
    Json,
    RunName,
    Stream,
    Verbose,
)
from tidemark.cli.output import data, error, line, moment
from tidemark.cli.people import user
from tidemark.cli.request_options import takes
from tidemark.cli.submitting import new_run
from tidemark.errors import EXIT_DIFFERENCES, NotApproved, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.runs import auditing
from tidemark.runs.auditing import Repair
from tidemark.runs.comparisons import comparison_value, find_comparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.answers import describe_answers
from tidemark.runs.requests.approval import Requesters, check_approved
from tidemark.runs.requests.forms import AuditRequest
from tidemark.views.audits import MAX_AUDITS, audits

_PLACE = ("name", "expected", "found", "missing", "different", "extra", "twice", "debris", "blocks")
# The level `sinks` counts no rows of its own: it compares blocks.
_PLACE_BY_BLOCKS = ("name", "debris", "blocks")
_SOURCE = ("partition", "log_start", "position", "end", "held", "expired", "unread")


@takes(AuditRequest)
@changes(when=lambda given: given.get("repair") == "execute")
def audit(
    stream: Stream,
    asking: Confirmation,
    approved_by: ApprovedBy = "",
    run_name: RunName = "",
    html: Html = None,
    verbose: Verbose = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Compare the results with what they should be. Ends with 1 if there are differences.

    `--repair execute` shows what it would replay, and asks; it ends with 1 if anything is wrong after that.
    `--approved-by` is for this repair.

    Example: tidemark audit orders --ranges orders/3@0-5000 --repair plan
    """
    opened = stream_lookup.opened(stream)
    values = request_options.values(given)
    asked = request_options.request(AuditRequest, values)
    name = run_name or new_run()
    within = None
    if offsets := auditing.requested(opened, asked):
        error(describe_answers({f"an audit of {number_of(offsets.count(), 'offset')}": offsets}))
        within = opened.ledger.store_selection(offsets).digest
    first = audited(opened, name, asked.depth, within, _share(asked), verbose=verbose)
    planned = auditing.repair_of(opened, first) if asked.repair != "none" else None
    again = refused = None
    if asked.repair == "execute" and planned is not None:
        error(first.sentence())
        error(planned.sentence())
        why, replay = asked.reason or f"repair of what {name} found", f"tidemark replay {stream}"
        people = Requesters(user(), approved_by or None)
        refused = _not_approved(opened, planned, people, f"{replay} {_options(planned)} --reason {shlex.quote(why)}")
        messages = number_of(planned.replay.all.count(), "offset")
        if planned.selection and refused is None and asking.agrees(f"Replay {messages} to repair what was found?"):
            replay_findings(opened, new_run(), planned.request(why), people, replay, verbose=verbose)
            again = audited(opened, name_after_repair(name), planned.level_after, planned.audit_after, verbose=verbose)
    _write(html, first, again)
    outcome = verdict(first, again)
    if as_json:
        value: dict[str, Any] = _as_value(first)
        if asked.repair != "none":
            value["repair"] = planned.described() if planned is not None else None
            value["audit_after"] = _as_value(again) if again is not None else None
        data({**value, "clean": outcome.clean, "sentence": outcome.sentence}, as_json=True)
    else:
        _show(first)
        if asked.repair != "none":
            _show_repair(planned, again)
        if again is not None:
            line(outcome.sentence)
        error(f"The report is kept as {name}: tidemark report {stream} {name}")
    if refused is not None:
        raise refused
    if not outcome.clean:
        raise typer.Exit(EXIT_DIFFERENCES)


def _not_approved(opened: OpenStream, planned: Repair, people: Requesters, replay: str) -> NotApproved | None:
    """An error with the replay that a second person has to approve first; None if a repair needs none."""
    try:
        check_approved(opened.stream.limits.approve_above, planned.replay.all.count(), people)
    except NotApproved as problem:
        return NotApproved(
            f"{problem}. Nothing was replayed. To repair without another audit first: {replay} --approved-by NAME"
        )
    return None


def _options(planned: Repair) -> str:
    """The options of a repair's replay."""
    return " ".join(
        [f"--selection {planned.selection}", *(f"--sink {shlex.quote(sink)}" for sink in planned.replay.sinks or ())]
    )


def report(
    stream: Stream,
    run: Annotated[
        str,
        typer.Argument(
            help="the run of the audit or replay, as it names it: cli/..., or DAG/RUN; without one, the newest audits"
        ),
    ] = "",
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Show the stored report of an audit, or write it as a page; or show what a replay with --compare was going to change.

    Without a run, lists the newest audits. Ends with 0, whatever the report says.

    Example: tidemark report orders orders__audit/manual__2026-11-21T07:00:00+00:00 --html report.html
    """
    opened = stream_lookup.opened(stream)
    if not run:
        if html is not None:
            raise WrongUse("--html: say which run's report; without a run, the newest audits are listed")
        _list(opened, as_json=as_json)
        return
    stored = auditing.find_report(opened, run)
    if stored is None and (changes := find_comparison(opened, run)) is not None:
        if html is not None:
            raise WrongUse(f"--html: {run!r} is the run of a replay, and only audits have a page; leave --html out")
        _show_changes(changes, as_json=as_json)
        return
    if stored is None:
        raise WrongUse(
            f"{opened.ledger.stream} has no report of the run {run!r}; an audit names its run when it ends, and a replay "
            "has a report if it was asked to compare"
        )
    again = auditing.after_repair(opened, stored)
    _write(html, stored, again)
    if as_json:
        data(_as_value(stored), as_json=True)
        return
    _show(stored)
    if again is not None:
        line(verdict(stored, again).sentence)


def _list(opened: OpenStream, *, as_json: bool) -> None:
    reports = audits(opened, MAX_AUDITS)
    rows = [
        [moment(audit.at), audit.level, "clean" if audit.clean else "findings", audit.run, audit.sentence]
        for audit in reports.audits
    ]
    data(reports, as_json=as_json, rows=rows, columns=("ended", "level", "outcome", "run", "what it says"))
    if reports.more and not as_json:
        error(f"Only the newest {MAX_AUDITS} are shown.")


def _show_changes(changes: ReplayComparison, *, as_json: bool) -> None:
    if as_json:
        data(comparison_value(changes), as_json=True)
        return
    show_comparison(changes)


def _share(asked: AuditRequest) -> list[str]:
    """The job's options for a share."""
    seed = [] if asked.seed is None else [f"--seed={asked.seed}"]
    return [f"--share={asked.share}", *seed] if asked.share else []


def _write(html: Path | None, first: AuditReport, again: AuditReport | None) -> None:
    if html is None:
        return
    text = page_of(first, again)
    try:
        if html.exists() and not html.is_file():
            # Such as /dev/stdout.
            html.write_text(text, encoding="utf-8")
        else:
            _replace(html.resolve(), text)
    except OSError as problem:
        raise WrongUse(f"--html {html}: the page cannot be written: {problem.strerror}") from None
    error(f"The report as a page: {html}")


def _replace(file: Path, text: str) -> None:
    """The whole page or none: an older one stays where there is no room."""
    with tempfile.TemporaryDirectory(dir=file.parent, prefix=".report-") as folder:
        page = Path(folder) / file.name
        page.write_text(text, encoding="utf-8")
        page.replace(file)


# A line of a terminal; `--json` has more.
_MAX_RANGES = 5


def _as_value(report: AuditReport) -> dict[str, Any]:
    """A report for JSON. Offsets are strings: JavaScript loses digits above 2^53."""
    value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
    for row in (*value["coverage"], *value["source"]):
        row.update(
            {name: str(row[name]) for name in ("start", "position", "log_start", "end") if row.get(name) is not None}
        )
    return {**value, "clean": report.clean, "sentence": report.sentence()}


def _show(report: AuditReport) -> None:
    line(report.sentence())
    if report.source:
        rows = [[getattr(source, name) for name in _SOURCE] for source in report.source]
        data(None, as_json=False, rows=rows, columns=_SOURCE)
    if report.places:
        columns = _PLACE if report.level.reads_messages else _PLACE_BY_BLOCKS
        places = [[getattr(place, name) for name in columns] for place in report.places]
        data(None, as_json=False, rows=places, columns=columns)
    for place in report.places:
        for kind in ("missing", "different", "extra", "twice"):
            for coordinate in getattr(place, f"{kind}_at"):
                line(f"{place.name}: {kind} {coordinate}")
        for block in place.blocks_at:
            line(f"{place.name}: block {block}")
    _show_coverage(report)
    for stone in report.tombstones:
        by = f", asked by {stone.asked_by}" if stone.asked_by else ""
        ranges = ", ".join(stone.ranges[:_MAX_RANGES]) + (" ..." if len(stone.ranges) > _MAX_RANGES else "")
        offsets = number_of(stone.offsets, "offset")
        line(f"erased: {offsets} by {stone.window}, {moment(stone.at)}, {stone.reason!r}{by}: {ranges}")
    for gone in report.forgotten:
        said = f"gone for good since {moment(gone.at)}: {gone.reason!r}, {gone.by}"
        line(f"not cleared by erasures: {gone.name} {gone.place}, {said}")
    if report.findings is not None:
        error(f"All findings are the selection {report.findings.digest}; a replay takes it.")


def _show_coverage(report: AuditReport) -> None:
    """The holes and overlaps, the first of each kind."""
    for kind, ranges in (
        ("hole", [at for partition in report.coverage for at in partition.holes]),
        ("overlap", [at for partition in report.coverage for at in partition.overlaps]),
    ):
        for at in ranges[:SHOWN_COORDINATES]:
            line(f"coverage: {kind} {at}")
        if (more := len(ranges) - SHOWN_COORDINATES) > 0:
            line(f"coverage: {more} more {kind}s")
        if ranges and kind == "hole":
            error(f"No window has read the holes. To read them: tidemark backfill {report.stream} --holes")


def _show_repair(planned: Repair | None, again: AuditReport | None) -> None:
    if planned is None:
        error("There are no findings that a replay could repair.")
    elif again is None:
        line(planned.sentence())
