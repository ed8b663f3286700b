"""NAME__audit: compares what should be in the results with what is there, and gives the coordinates of every difference."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import DAG, TriggerRule, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from tidemark.errors import EXIT_DIFFERENCES, EXIT_DONE
from tidemark.runs.requests import AuditRequest, checked
from tidemark.streams.model import Stream
from tidemark_dags.requests import audit_params
from tidemark_dags.spark_job import SparkJob
from tidemark_dags.steps import ON_REQUEST, RUN, airflow_errors, run_name
from tidemark_dags.stream_dag import stream_dag

DESCRIPTION = "Prove what is in the results: expected, stored, dead letters, missing, different, extra"


def audit_dag(path: Path, stream: Stream) -> DAG:
    """Compare, report, hand the findings to a replay if the request asks for it, and fail if there are any."""
    file = str(path)
    with stream_dag(
        stream,
        "audit",
        description=DESCRIPTION,
        doc_md=__doc__,
        schedule=None,
        params=audit_params(),
        allowed_run_types=ON_REQUEST,
    ) as dag:

        @task(retries=0)
        def check(**context: Any) -> str:
            """Check the request. Gives the digest of the offsets to audit, empty for all."""
            from tidemark.runs import lanes
            from tidemark_dags.connections import open_here

            with airflow_errors():
                asked = checked(AuditRequest, context["params"], context["dag_run"].conf or {})
                offsets = asked.offsets()
                if not offsets:
                    return ""
                opened = open_here(file)
                return opened.book.store_selection(lanes.with_incarnations(opened, offsets)).digest

        compare = SparkJob(
            task_id="compare",
            script="audit_stream.py",
            stream=stream,
            accepted=(EXIT_DONE, EXIT_DIFFERENCES),
            application_args=[
                *("--stream-file", file, "--run", RUN),
                "--selection={{ ti.xcom_pull(task_ids='check') }}",
            ],
            execution_timeout=timedelta(minutes=stream.engine.timeout_minutes),
            pool=stream.engine.pool_on_request,
        )

        @task
        def report(**context: Any) -> dict[str, Any]:
            """The audit's report, for people and for the next tasks."""
            import msgspec

            from tidemark.audit.report import AuditReport
            from tidemark.errors import LedgerContradiction
            from tidemark.ledger.codec import decode
            from tidemark_dags.connections import open_here

            run = run_name(context)
            with airflow_errors():
                stored = open_here(file).book.report(run)
                if stored is None:
                    raise LedgerContradiction(f"the report of {run} is not in the ledger, although the job has ended")
                found = decode(stored, AuditReport, f"the report of {run}")
            # Lists instead of tuples: Airflow would show tuples as objects of its own.
            result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(found))
            return {**result, "clean": found.clean, "sentence": found.sentence()}

        @task
        def needs_repair(found: Any, **context: Any) -> str:
            """Go on to the replay if it was asked for and the audit has findings."""
            if not context["params"]["repair"] or not found["findings"]:
                raise AirflowSkipException("no repair was asked for" if found["findings"] else "nothing to repair")
            return str(found["findings"]["digest"])

        repair = TriggerDagRunOperator(
            task_id="repair",
            trigger_dag_id=f"{stream.name}__replay",
            conf={
                "selection": "{{ ti.xcom_pull(task_ids='needs_repair') }}",
                "reason": "repair of what {{ dag.dag_id }}/{{ run_id }} found",
                "dry_run": False,
            },
        )

        @task(trigger_rule=TriggerRule.NONE_FAILED, retries=0)
        def verdict(found: Any) -> str:
            """Fail when there are differences, so that the run is red and alerts go out."""
            if not found["clean"]:
                raise AirflowFailException(found["sentence"])
            return str(found["sentence"])

        found = report()
        check() >> compare >> found
        needs_repair(found) >> repair >> verdict(found)
    return dag
