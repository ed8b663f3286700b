"""NAME__audit: compares what should be in the results with what is there, and gives the coordinates of every difference.

It runs when people ask for it. If the stream file says so, it also runs after commits and by the clock.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pendulum
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, AssetOrTimeSchedule, CronTriggerTimetable, TriggerRule, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tidemark.airflow.approval import rejected_by
from tidemark.airflow.page_links import AuditPageLink, page_address
from tidemark.airflow.requests import params
from tidemark.airflow.spark_job import SparkJob, of_stream
from tidemark.airflow.steps import (
    ON_REQUEST,
    RUN,
    TRY_NUMBER,
    airflow_errors,
    asked_of,
    keep_answer,
    results_asset,
    run_name,
)
from tidemark.airflow.stream_dag import stream_dag
from tidemark.audit.levels import Level
from tidemark.audit.repair import name_after_repair
from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE
from tidemark.offsets.counting import number_of
from tidemark.offsets.shares import seed_of
from tidemark.runs.requests.forms import MAX_REASON, AuditRequest
from tidemark.streams.model import Stream
from tidemark.submit.command import AUDIT_JOB

if TYPE_CHECKING:
    from airflow.sdk import Context

    from tidemark.offsets.ranges import RangeSet
    from tidemark.runs.live.open_stream import OpenStream

log = logging.getLogger(__name__)

DESCRIPTION = "Prove what is in the results: expected, stored, dead letters, missing, different, extra"
# A replay takes at least the time in which Spark starts.
_LOOK_AT_REPLAY_SECONDS = 5
_REJECTED = "rejected"


class RepairByReplay(TriggerDagRunOperator):
    """Trigger the replay of an audit's findings, and wait for it. Skipped when a second person has rejected the replay."""

    def execute_complete(self, context: Context, event: tuple[str, dict[str, Any]]) -> None:
        super().execute_complete(context, event)
        (run,) = event[1]["run_ids"]
        if (name := rejected_by(context, self.trigger_dag_id, run)) is not None:
            # There is nothing to compare again. The verdict says so too.
            context["ti"].xcom_push(key=_REJECTED, value=f"{name} has rejected the repair {self.trigger_dag_id}/{run}")
            raise AirflowSkipException(f"{name} has rejected the repair")


def audit_dag(path: Path, stream: Stream) -> DAG:
    """Compare and report. If the request asks for it, replay the findings and audit them again. Fail if anything is wrong.

    The levels `ledger` and `source` need no Spark: a task reads the ledger instead of the Spark job.
    """
    file = str(path)
    # The level of a run that nobody has asked for, by the type of the run.
    by_itself = {"asset_triggered": stream.audit.after_commit, "scheduled": stream.audit.level_by_clock}
    with stream_dag(
        stream,
        "audit",
        description=DESCRIPTION,
        doc=__doc__,
        schedule=_schedule(stream),
        by_clock=stream.audit.cron is not None,
        start_date=pendulum.datetime(2025, 1, 1, tz="UTC"),
        params=params(AuditRequest),
        allowed_run_types=[*ON_REQUEST, *(kind for kind, level in by_itself.items() if level)],
    ) as dag:

        @task.branch
        def check(**context: Any) -> str:
            """Check the request, and go on to the task for it. Pushes the level, and the digest of the offsets.

            For a run that nobody has asked for, the stream file says what to look at.
            """
            from tidemark.airflow.connections import open_here
            from tidemark.runs.auditing import requested
            from tidemark.runs.requests.answers import describe_answers

            given = by_itself.get(context["dag_run"].run_type)
            with airflow_errors(context):
                if given is not None:
                    opened, level = open_here(file), Level(given)
                    offsets = _committed_lately(opened, level, stream.audit.hours)
                    share, seed = (stream.audit.share if level.needs_spark else None), None
                else:
                    asked = asked_of(context, AuditRequest)
                    opened, level = open_here(file), asked.depth
                    offsets = requested(opened, asked)
                    share, seed = asked.share, asked.seed
                digest = opened.ledger.store_selection(offsets).digest if offsets else ""
            if offsets:
                log.info("%s", describe_answers({f"an audit of {number_of(offsets.count(), 'offset')}": offsets}))
            context["ti"].xcom_push(key="selection", value=digest)
            context["ti"].xcom_push(key="level", value=level.value)
            # The day of the request, even if the job is tried again tomorrow.
            context["ti"].xcom_push(key="share", value=share or "")
            context["ti"].xcom_push(key="seed", value=str(seed_of(seed, opened.ledger.clock())) if share else "")
            return "compare" if level.needs_spark else "read_ledger"

        @task
        def read_ledger(**context: Any) -> None:
            """Audit the ledger, or the ledger and Kafka's offsets. Reads neither messages nor rows."""
            from tidemark.airflow.connections import open_here
            from tidemark.runs.auditing import audit_without_spark

            with airflow_errors(context):
                level = Level(context["ti"].xcom_pull(task_ids="check", key="level"))
                audit_without_spark(open_here(file), run_name(context), level)

        compare = _compare(
            file,
            stream,
            "compare",
            RUN,
            "{{ ti.xcom_pull(task_ids='check', key='level') }}",
            "{{ ti.xcom_pull(task_ids='check', key='selection') }}",
            "--share={{ ti.xcom_pull(task_ids='check', key='share') }}",
            "--seed={{ ti.xcom_pull(task_ids='check', key='seed') }}",
        )

        @task(trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
        def report(**context: Any) -> dict[str, Any]:
            """The audit's report, for people and for the next tasks."""
            return _report(context, file, stream, run_name(context))

        @task
        def plan_repair(**context: Any) -> dict[str, Any]:
            """The offsets that a replay of the findings would read. Goes on to the replay only if that was asked for."""
            return _planned_repair(file, context)

        planned: Any = plan_repair()
        repair = RepairByReplay(
            task_id="repair",
            doc_md="Run the replay of the findings, and wait for it.",
            trigger_dag_id=f"{stream.name}__replay",
            # Airflow may send a trigger again whose answer was lost. The run that is there already then goes on: under the
            # same name, it finds its lane again.
            trigger_run_id="{{ ti.xcom_pull(task_ids='plan_repair', key='replay_run') }}",
            reset_dag_run=True,
            conf=planned["conf"],
            wait_for_completion=True,
            # While the replay runs, this task takes no worker slot and no place of a pool.
            deferrable=True,
            poke_interval=_LOOK_AT_REPLAY_SECONDS,
            # A run of a paused DAG would never end.
            fail_when_dag_is_paused=True,
        )
        compare_again = _compare(
            file,
            stream,
            "compare_again",
            name_after_repair(RUN),
            "{{ ti.xcom_pull(task_ids='plan_repair')['level_after'] }}",
            "{{ ti.xcom_pull(task_ids='plan_repair')['audit_after'] }}",
        )

        @task
        def report_again(**context: Any) -> dict[str, Any]:
            """The report of the audit after the repair."""
            return _report(context, file, stream, name_after_repair(run_name(context)))

        # Without a report, as when there was nothing to look at, there is no verdict either.
        @task(trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
        def judge(**context: Any) -> str:
            """Fail when anything is wrong, and no repair has mended it, so that the run is red and alerts go out."""
            return _verdict(context, file, context["ti"].xcom_pull(task_ids="repair", key=_REJECTED))

        reported: Any = report()
        reported.operator.operator_extra_links = (AuditPageLink(),)
        check() >> [compare, read_ledger()] >> reported
        concluded = judge()
        reported >> planned >> repair >> compare_again >> report_again() >> concluded
        reported >> concluded
    return dag


def _schedule(stream: Stream) -> Any:
    """After commits, by the clock, at both, or None: on request alone."""
    results = [results_asset(stream)] if stream.audit.after_commit else None
    if stream.audit.cron is None:
        return results
    clock = CronTriggerTimetable(stream.audit.cron, timezone=stream.schedule.timezone)
    return AssetOrTimeSchedule(timetable=clock, assets=results) if results else clock


def _committed_lately(opened: OpenStream, level: Level, hours: int | None) -> RangeSet:
    """The scope of an audit that nobody has asked for; empty for everything.

    Raises AirflowSkipException where there is nothing to look at.
    """
    from tidemark.ledger.records import INGEST
    from tidemark.offsets.ranges import RangeSet
    from tidemark.runs.auditing import committed_within

    if opened.ledger.head(INGEST) is None:
        raise AirflowSkipException("the stream has not been read yet")
    if hours is None or not level.needs_spark:
        return RangeSet()
    offsets = committed_within(opened, hours)
    if not offsets:
        raise AirflowSkipException(f"nothing was committed within {number_of(hours, 'hour')}")
    return offsets


def _compare(file: str, stream: Stream, task_id: str, run: str, level: str, selection: str, *more: str) -> SparkJob:
    """The task that audits with Spark, under a run's name."""
    return SparkJob(
        task_id=task_id,
        doc_md="Compare with Spark what should be in the results with what is there.",
        accepted=(EXIT_DONE, EXIT_DIFFERENCES),
        application_args=[
            *(AUDIT_JOB, "--stream-file", file, "--run", run, "--level", level, TRY_NUMBER),
            f"--selection={selection}",
            *more,
        ],
        execution_timeout=timedelta(minutes=stream.engine.replay_timeout_minutes),
        pool=stream.engine.pool_on_request,
        **of_stream(stream),
    )


def _report(context: Mapping[str, Any], file: str, stream: Stream, name: str) -> dict[str, Any]:
    """The stored report of an audit as a task's result. The run has the page, which shows an audit after a repair too."""
    import msgspec

    from tidemark.airflow.connections import open_here
    from tidemark.runs.auditing import stored_report

    with airflow_errors(context):
        report = stored_report(open_here(file), name)
    page = page_address(stream.name, run_name(context))
    keep_answer(context, report.sentence())
    log.info("%s", report.sentence())
    log.info("the report as a page: %s", page)
    # Lists instead of tuples: Airflow would show tuples as objects of its own.
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(report))
    return {**result, "clean": report.clean, "sentence": report.sentence(), "page": page}


def _planned_repair(file: str, context: Mapping[str, Any]) -> dict[str, Any]:
    """Raises AirflowSkipException where no replay follows."""
    from tidemark.airflow.connections import open_here
    from tidemark.runs.auditing import repair_of, stored_report

    asked = context["params"]["repair"]
    if asked not in ("plan", "execute"):
        raise AirflowSkipException("no repair was asked for")
    with airflow_errors(context):
        opened = open_here(file)
        report = stored_report(opened, run_name(context))
        planned = repair_of(opened, report)
    if planned is None:
        raise AirflowSkipException("nothing to repair")
    # In the log, because Airflow's pages fold the reason of a skipped task away.
    log.info("%s", planned.sentence())
    context["ti"].xcom_push(key="repair", value=planned.described())
    # A retry of the task `repair` gives the same name. When the whole run is cleared, or is triggered again under its id
    # after it was deleted, its new findings get another one.
    identity = f"{run_name(context)} {report.at} {planned.selection}"
    context["ti"].xcom_push(key="replay_run", value=_replay_run(identity, context["ti"].try_number))
    if not planned.selection:
        raise AirflowSkipException(f"no repair: {planned.sentence()}")
    if asked != "execute":
        raise AirflowSkipException(f"only planned: {planned.sentence()}")
    reason = asked_of(context, AuditRequest).reason or f"repair of what {run_name(context)} found"[:MAX_REASON]
    # Without what the form leaves as it is.
    conf = planned.request(reason).model_dump(exclude_defaults=True)
    return {**planned.described(), "conf": {**conf, "dry_run": False}}


def _replay_run(identity: str, number: int) -> str:
    """The name of the replay that an audit triggers for what it has found. Short and plain, however its run is named."""
    return f"repair__{hashlib.sha256(identity.encode()).hexdigest()[:12]}__{number}"


def _verdict(context: Mapping[str, Any], file: str, rejected: str | None) -> str:
    from tidemark.airflow.connections import open_here
    from tidemark.audit import repair
    from tidemark.runs.auditing import after_repair, stored_report

    with airflow_errors(context):
        opened = open_here(file)
        first = stored_report(opened, run_name(context))
        outcome = repair.verdict(first, after_repair(opened, first))
    said = f"{rejected}: {outcome.sentence}" if rejected else outcome.sentence
    keep_answer(context, said)
    if not outcome.clean:
        raise AirflowFailException(said)
    return outcome.sentence
