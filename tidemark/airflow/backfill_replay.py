"""The steps that backfill and replay share: check the request, open a lane over a selection, process it, publish.

A replay can compare before it opens its lane: what will change is shown, and kept under the name of the run.
With `limits.approve_above`, a second person approves large requests before the lane is opened.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, TriggerRule, task
from airflow.sdk.exceptions import AirflowSkipException

from tidemark.airflow.approval import approved_by, second_person
from tidemark.airflow.ingest import window_job
from tidemark.airflow.lineage import LineageOfWindows
from tidemark.airflow.requests import params
from tidemark.airflow.spark_job import SparkJob, of_stream
from tidemark.airflow.steps import (
    ON_REQUEST,
    RUN,
    TRY_NUMBER,
    airflow_errors,
    answered,
    asked_of,
    describe,
    keep_answer,
    publish,
    run_name,
)
from tidemark.airflow.stream_dag import stream_dag
from tidemark.offsets.counting import number_of
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.streams.model import Stream
from tidemark.submit.command import COMPARE_JOB

if TYPE_CHECKING:
    from tidemark.runs.live.open_stream import OpenStream

log = logging.getLogger(__name__)


def backfill_dag(path: Path, stream: Stream) -> DAG:
    """NAME__backfill: offsets that no window has read yet, in a lane of their own."""
    said = "Read offsets that no window has read yet: ranges, records, a time, or everything before the first window"
    return _selected_dag(path, stream, BackfillRequest, said)


def replay_dag(path: Path, stream: Stream) -> DAG:
    """NAME__replay: reads offsets again. The ingest goes on meanwhile, and its position does not move."""
    said = "Read records again, after a bug fix or an audit: pasted records, ranges, a time, dead letters, or findings"
    return _selected_dag(path, stream, ReplayRequest, said)


def _selected_dag(
    path: Path, stream: Stream, request: type[BackfillRequest] | type[ReplayRequest], description: str
) -> DAG:
    """A DAG that people trigger by hand, for the offsets that a request selects.

    The lane's name follows from the run's name, so that a retried task finds the lane that it opened.
    """
    file, kind, approve_above = str(path), request.kind, stream.limits.approve_above
    # The task that follows when nothing is compared.
    first = "plan" if approve_above is None else "approve"
    # `show_changes` is skipped then.
    after_check = TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS
    with stream_dag(
        stream,
        kind.value,
        description=description,
        doc=description,
        schedule=None,
        params=params(request, approve_above, [sink.name for sink in stream.sinks]),
        allowed_run_types=ON_REQUEST,
    ) as dag:

        @task.branch
        def check(**context: Any) -> str:
            """Check the request and find its offsets, and go on to `compare` if that was asked for.

            A dry run that does not compare shows the offsets and ends here. A retry gives the selection of the first try: by
            then the run may have read a part of it. Refused where a run of this name has begun with another request.
            """
            asked, counts = _looked_up(context, file, request)
            context["ti"].xcom_push(key="found", value=counts)
            wanted = isinstance(asked, ReplayRequest) and asked.compare and bool(counts["offsets"])
            if asked.dry_run and not wanted:
                said = f"dry run: {number_of(counts['offsets'], 'offset')} would be read"
                keep_answer(context, said)
                raise AirflowSkipException(f"{said}: {counts['ranges']}")
            return "compare" if wanted else first

        @task(trigger_rule=after_check if first == "plan" else TriggerRule.ALL_SUCCESS)
        def plan(**context: Any) -> list[list[str]]:
            """Open the lanes, which claim their offsets. Returns the arguments of each job of `process`.

            What was approved is what is read. With one job, the first window is pinned here. Of several, each pins its own:
            what stops one of them stops no other.
            """
            from tidemark.airflow.connections import open_here
            from tidemark.runs.requests import claims
            from tidemark.runs.requests.plan import restored
            from tidemark.runs.windows import lanes

            if context["params"]["dry_run"]:
                # Even when someone clears this task of a dry run.
                raise AirflowSkipException("this is a dry run")
            run, counts = run_name(context), context["ti"].xcom_pull(task_ids="check", key="found")
            with airflow_errors(context):
                opened = open_here(file)
                second = approved_by(context, counts["selection"]) if approve_above is not None else None
                by = Requesters(context["dag_run"].triggering_user_name, second)
                claims.claim(opened, restored(opened, asked_of(context, request), run, counts), run, by)
                jobs = lanes.lanes_by_job(opened, kind, run)
                if done_before := lanes.completion_note(opened, kind, run):
                    log.warning("%s", done_before)
                first_window = _first_window(opened, jobs[0][0], run) if len(jobs) == 1 else []
            return [
                [
                    *("--stream-file", file, "--lane", lane, "--run", run),
                    *first_window,
                    *(f"--then={one}" for one in then),
                ]
                for lane, *then in jobs
            ]

        checked_request: Any = check()
        planned: Any = plan()
        begin = planned
        if approve_above is not None:
            begin = second_person(approve_above, after_check)
            begin >> planned
        checked_request >> begin
        if request is ReplayRequest:
            checked_request >> _compare(file, stream) >> _show_changes(file) >> begin
        job = window_job(stream, pool=stream.engine.pool_on_request, minutes=stream.engine.replay_timeout_minutes)
        # A task for each job, named by its lane.
        process = LineageOfWindows.partial(**job, map_index_template="{{ task.lane }}").expand(application_args=planned)
        process >> publish(file, stream, kind)
    return dag


def _first_window(opened: OpenStream, lane: str, run: str) -> list[str]:
    """The arguments that name the first window of a run with one job, which is pinned here.

    A retry after the job has committed gives the first window that the run has committed.
    """
    from tidemark.runs.windows import lanes

    if (pending := lanes.plan_lane(opened, lane, run)) is not None:
        return ["--seq", str(pending.window.seq)]
    lanes.finish(opened, lane)
    if not (before := lanes.committed_before(opened, lane, run)):
        raise AirflowSkipException("everything selected has been read")
    return ["--seq", str(before[0].seq)]


def _looked_up(
    context: Any, file: str, request: type[BackfillRequest] | type[ReplayRequest]
) -> tuple[BackfillRequest | ReplayRequest, dict[str, Any]]:
    """The request of a run, and the offsets that it would read. Logs them with the answers and an estimate."""
    from tidemark.airflow.connections import open_here
    from tidemark.runs.requests import plan
    from tidemark.runs.requests.answers import exact
    from tidemark.runs.windows import estimates, lanes

    with airflow_errors(context):
        asked = asked_of(context, request)
        opened = open_here(file)
        planned = plan.plan_request(opened, asked, run_name(context))
        done_before = lanes.completion_note(opened, request.kind, run_name(context))
        guess, kept = plan.estimated(opened, planned), plan.kept(opened, planned)
        digest = plan.digest(opened, planned)
    # In the log, because Airflow's pages fold the reason of a skipped task away.
    if done_before:
        log.warning("%s", done_before)
    log.info("%s%s offsets to read", "dry run: " if asked.dry_run else "", 0 if done_before else planned.all.count())
    answers = answered(opened, exact(planned.answers()))
    log.info("%s", estimates.describe_estimate(guess))
    if planned.sinks:
        log.info("into %s alone: other sinks and the dead letters stay as they are", ", ".join(planned.sinks))
    return asked, {
        **describe(opened, planned.all),
        **kept,
        "done_before": done_before,
        "plan": digest,
        "sinks": ",".join(planned.sinks or ()),
        **answers,
        "estimate": guess,
    }


def _compare(file: str, stream: Stream) -> SparkJob:
    """The task that compares with Spark what the replay will change. When the replay has begun, it stays as it was said."""
    return SparkJob(
        task_id="compare",
        doc_md="Compare with Spark the rows that count now with those that the replay would write.",
        application_args=[
            *(COMPARE_JOB, "--stream-file", file, "--run", RUN, TRY_NUMBER, "--selection"),
            "{{ ti.xcom_pull(task_ids='check', key='found')['selection'] }}",
            # Checked names of the stream file, not what a user has typed.
            "--sinks={{ ti.xcom_pull(task_ids='check', key='found')['sinks'] }}",
        ],
        execution_timeout=timedelta(minutes=stream.engine.replay_timeout_minutes),
        pool=stream.engine.pool_on_request,
        **of_stream(stream),
    )


def _show_changes(file: str) -> Any:
    """The task that shows what the replay will change. In a dry run, nothing follows."""

    @task.short_circuit
    def show_changes(**context: Any) -> bool:
        """Show what the replay will change, in the log and as the XCom `changes`. A dry run ends here."""
        from tidemark.airflow.connections import open_here
        from tidemark.runs.comparisons import comparison_value, stored_comparison

        with airflow_errors(context):
            comparison = stored_comparison(open_here(file), run_name(context))
        for line in comparison.lines():
            log.info("%s", line)
        context["ti"].xcom_push(key="changes", value=comparison_value(comparison))
        keep_answer(context, f"what it would change: {comparison.sentence()}")
        return not context["params"]["dry_run"]

    return show_changes()
