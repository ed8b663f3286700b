"""NAME__ingest: reads on schedule, from the stored offsets to the current ends.

Airflow's own backfill, which goes by dates, is refused for this DAG. NAME__backfill reads what lies before or between.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, CronTriggerTimetable, task
from airflow.sdk.exceptions import AirflowSkipException

from tidemark.airflow.complete import announce
from tidemark.airflow.lineage import LineageOfWindows
from tidemark.airflow.spark_job import of_stream
from tidemark.airflow.steps import ON_SCHEDULE, RUN, airflow_errors, keep_answer, publish, run_name
from tidemark.airflow.stream_dag import stream_dag
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.streams.model import Stream
from tidemark.views.messages.payloads import visible

# Airflow's default weight of a task is the number of tasks that its DAG still has to run: six for an audit's first task.
INGEST_PRIORITY = 10


def ingest_dag(path: Path, stream: Stream) -> DAG:
    """Plan a window, process it, publish what was committed, and announce complete hours.

    When nothing is new, the next two tasks are skipped.
    """
    file = str(path)
    with stream_dag(
        stream,
        INGEST,
        description=visible(stream.description) or None,
        doc=__doc__,
        # The stored offsets define the data, not the clock. A missed hour needs no run of its own.
        schedule=CronTriggerTimetable(stream.schedule.cron, timezone=stream.schedule.timezone),
        by_clock=True,
        start_date=pendulum.datetime(2025, 1, 1, tz="UTC"),
        max_active_runs=1,
        # Airflow's own backfill is by dates; offsets have NAME__backfill.
        allowed_run_types=ON_SCHEDULE,
        # Before replays and audits, where they share a pool.
        task_defaults={"priority_weight": INGEST_PRIORITY},
    ) as dag:

        @task
        def plan(**context: Any) -> int:
            """Pin the next window, or take the pending one as it is. Returns the window's number.

            A retry after the job has committed returns the first window that the run has committed.
            """
            from tidemark.airflow.connections import open_here
            from tidemark.airflow.metrics import send_positions
            from tidemark.runs.windows import ingest, lanes

            with airflow_errors(context):
                opened, run = open_here(file), run_name(context)
                again = context["ti"].try_number > 1
                pending = ingest.plan_ingest(opened, run, again=again)
                before = lanes.committed_before(opened, INGEST, run) if again and pending is None else ()
                held = ingest.open_transactions(opened) if pending is None else ()
                send_positions(opened)
            if before:
                return before[0].seq
            if pending is None:
                now = opened.ledger.clock()
                said = "; ".join(["nothing new in Kafka", *(transaction.sentence(now) for transaction in held)])
                keep_answer(context, said)
                raise AirflowSkipException(said)
            return pending.window.seq

        pinned = plan()
        process = process_windows(
            file,
            stream,
            pool=stream.engine.pool,
            minutes=stream.engine.timeout_minutes,
            lane=INGEST,
            seq="{{ ti.xcom_pull(task_ids='plan') }}",
        )
        pinned >> process >> publish(file, stream, LaneKind.INGEST) >> announce(file, stream)
    return dag


def process_windows(file: str, stream: Stream, *, pool: str, minutes: int, lane: str, seq: str) -> LineageOfWindows:
    """The task that processes a pinned window and those after it, in Spark. `minutes` is its time-out."""
    return LineageOfWindows(
        **window_job(stream, pool=pool, minutes=minutes),
        application_args=["--stream-file", file, "--lane", lane, "--seq", seq, "--run", RUN],
    )


def window_job(stream: Stream, *, pool: str, minutes: int) -> dict[str, Any]:
    """The task `process`, without its application's arguments."""
    return {
        "task_id": "process",
        "doc_md": "Read the pinned windows with Spark, store their rows and dead letters, and commit them.",
        "execution_timeout": timedelta(minutes=minutes),
        "pool": pool,
        **of_stream(stream),
    }
