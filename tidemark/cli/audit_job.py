"""An audit from the command line: without Spark, or by its job."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.audit.levels import Level
from tidemark.audit.report import AuditReport
from tidemark.cli.progress import job_progress
from tidemark.cli.submitting import submit
from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE, ProcessingFailed
from tidemark.runs import auditing
from tidemark.runs.live.open_stream import OpenStream
from tidemark.submit.command import AUDIT_JOB


def audited(
    opened: OpenStream,
    name: str,
    level: Level,
    selection: str | None = None,
    share: Sequence[str] = (),
    *,
    verbose: bool,
) -> AuditReport:
    """Run an audit and give its report. Raises ProcessingFailed when its job left none."""
    if not level.needs_spark:
        return auditing.audit_without_spark(opened, name, level)
    arguments = ["--stream-file", str(opened.file.path), "--run", name, "--level", level.value]
    if selection is not None:
        arguments += ["--selection", selection]
    arguments += share
    began = opened.ledger.clock()
    ended = submit(
        opened,
        AUDIT_JOB,
        arguments,
        accepted=(EXIT_DONE, EXIT_DIFFERENCES),
        look=lambda: job_progress(opened.ledger.last_progress(), name, began),
        verbose=verbose,
    )
    report = auditing.find_report(opened, name)
    if report is None or report.at < began:
        # spark-submit also ends with 1 when it could not start the job.
        raise ProcessingFailed(
            f"the Spark job ended with code {ended.code} and left no report. Its log is {ended.log}."
        )
    return report
