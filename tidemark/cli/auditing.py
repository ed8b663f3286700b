"""`tidemark audit`: what the audit DAG does."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import typer

from tidemark.audit.report import AuditReport
from tidemark.cli import finding
from tidemark.cli.options import Json, Ranges, Records, RecordsFile, RunName, Stream, Verbose
from tidemark.cli.output import data, error, line
from tidemark.cli.progress import of_audit
from tidemark.cli.selected import lines
from tidemark.cli.selected import repair as replay_findings
from tidemark.cli.submitting import new_run, submit
from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE, ProcessingFailed
from tidemark.ledger.codec import decode
from tidemark.ledger.records import AUDIT
from tidemark.runs import lanes
from tidemark.runs.requests import AuditRequest, checked
from tidemark.runs.submit import AUDIT_JOB

_PLACE = ("name", "expected", "found", "missing", "different", "extra", "twice", "debris", "blocks")


def audit(
    stream: Stream,
    ranges: Ranges = None,
    records: Records = None,
    records_file: RecordsFile = "",
    repair: Annotated[bool, typer.Option("--repair", help="replay the offsets with differences")] = False,
    run_name: RunName = "",
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Compare what should be in the results with what is there. Ends with 1 when there are differences.

    Example: tidemark audit orders --ranges orders/3@0-5000
    """
    opened = finding.opened(stream)
    values = {"ranges": lines(ranges), "records": lines(records), "records_file": records_file, "repair": repair}
    asked = checked(AuditRequest, values, {})
    name = run_name or new_run()
    arguments = ["--stream-file", str(opened.file.path), "--run", name]
    if offsets := asked.offsets():
        within = lanes.with_incarnations(opened, offsets)
        arguments += ["--selection", opened.book.store_selection(within).digest]
    began = opened.book.clock()
    ended = submit(
        opened,
        AUDIT_JOB,
        arguments,
        accepted=(EXIT_DONE, EXIT_DIFFERENCES),
        look=lambda: of_audit(opened.book.last_beat(AUDIT), name, began),
        verbose=verbose,
    )
    stored = opened.book.report(name)
    report = decode(stored, AuditReport, f"the report of {name}") if stored is not None else None
    if report is None or report.at < began:
        # spark-submit also ends with 1 when it could not start the job.
        raise ProcessingFailed(
            f"the Spark job ended with code {ended.code} and left no report. Its log is {ended.log}."
        )
    _show(report, as_json=as_json)
    if asked.repair and report.findings is not None:
        found = lanes.stored_selection(opened, report.findings.digest)
        reason = f"repair of what {name} found"
        replay_findings(opened, new_run(), found, reason, f"tidemark replay {stream}", verbose=verbose)
    if not report.clean:
        raise typer.Exit(EXIT_DIFFERENCES)


def _show(report: AuditReport, *, as_json: bool) -> None:
    if as_json:
        value: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
        for one in value["coverage"]:
            one.update(start=str(one["start"]), position=str(one["position"]))
        data({**value, "clean": report.clean, "sentence": report.sentence()}, as_json=True)
        return
    line(report.sentence())
    data(None, as_json=False, rows=[[getattr(one, name) for name in _PLACE] for one in report.places], columns=_PLACE)
    for place in report.places:
        for kind in ("missing", "different", "extra", "twice"):
            for coordinate in getattr(place, f"{kind}_at"):
                line(f"{place.name}: {kind} {coordinate}")
        for block in place.blocks_at:
            line(f"{place.name}: block {block}")
    if report.findings is not None:
        error(f"All findings are the selection {report.findings.digest}; a replay takes it.")
