"""What backfill and replay share: check the request, open a lane over a selection, process it, publish."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task
from airflow.sdk.exceptions import AirflowSkipException

from tidemark.planning.requests import BackfillRequest, ReplayRequest, checked
from tidemark.streams.model import Stream
from tidemark_dags.ingest import process_windows, task_defaults
from tidemark_dags.steps import ON_REQUEST, airflow_errors, describe, publish, run_name


def selected_dag(
    path: Path,
    stream: Stream,
    request: type[BackfillRequest] | type[ReplayRequest],
    params: dict[str, Param],
    description: str,
) -> DAG:
    """A DAG that is triggered by hand, for what a request selects.

    The lane's name follows from the run's, so that a retried task finds what it began.
    """
    file, kind = str(path), request.kind
    with DAG(
        dag_id=f"{stream.stream}__{kind.value}",
        description=description,
        doc_md=description,
        schedule=None,
        catchup=False,
        params=params,
        allowed_run_types=ON_REQUEST,
        default_args=task_defaults(stream),
        tags=["tidemark", stream.stream],
    ) as dag:

        @task(retries=0)
        def check(**context: Any) -> dict[str, Any]:
            """Check the request and find its offsets; a dry run shows them and ends here."""
            from tidemark.planning.selecting import select
            from tidemark_dags.connections import open_here

            with airflow_errors():
                asked = checked(request, context["params"], context["dag_run"].conf or {})
                opened = open_here(file)
                selected = select(opened, asked)
                ref = opened.book.store_selection(selected.ranges)
            found = {**describe(selected.ranges), "selection": ref.digest}
            if selected.left_out:
                found["left_out"] = {why: describe(ranges) for why, ranges in selected.left_out.items()}
            context["ti"].xcom_push(key="found", value=found)
            if asked.dry_run:
                raise AirflowSkipException(f"dry run: {found['offsets']} offsets would be read: {found['ranges']}")
            return found

        @task
        def plan(found: Any, **context: Any) -> dict[str, Any]:
            """Open the lane, which claims its offsets, and pin its first window."""
            from tidemark import runs
            from tidemark_dags.connections import open_here

            run = run_name(context)
            with airflow_errors():
                opened = open_here(file)
                chosen = runs.stored_selection(opened, found["selection"])
                lane = runs.open_selected(opened, kind, run, chosen, context["params"]["reason"])
                pending = runs.plan_lane(opened, lane, run)
                if pending is None:
                    runs.finish(opened, lane)
                    raise AirflowSkipException("everything selected has been read by an earlier try of this run")
            return {"lane": lane, "seq": pending.window.seq}

        planned: Any = plan(check())
        process = process_windows(
            file,
            stream,
            lane="{{ ti.xcom_pull(task_ids='plan')['lane'] }}",
            seq="{{ ti.xcom_pull(task_ids='plan')['seq'] }}",
        )
        planned >> process >> publish(file, stream, planned["lane"])
    return dag
