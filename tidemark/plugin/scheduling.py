"""What Airflow's database says of the ingests of streams: DAGs, runs, import errors, and the programs that run them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from airflow.jobs.dag_processor_job_runner import DagProcessorJobRunner
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.errors import ParseImportError
from airflow.utils.session import create_session
from sqlalchemy import and_, func, select

from tidemark.ledger.ledger import now_ms
from tidemark.views.scheduling import RunInAirflow, Scheduling, SilentProgram

# The programs without which no run begins, or no change is seen, by the names of Airflow's commands.
_PROGRAMS: dict[str, Any] = {"scheduler": SchedulerJobRunner, "dag-processor": DagProcessorJobRunner}
# Of a line of an import error.
_MAX_CHARACTERS = 300


def scheduling_of(dag_ids: Collection[str], *, with_errors: bool) -> dict[str, Scheduling]:
    """What Airflow knows of each of these DAGs; nothing of those that it does not know.

    `with_errors`: whether whoever asks may see import errors.
    """
    now, silent = now_ms(), _silent()
    with create_session() as session:
        runs = _last_runs(session, dag_ids)
        found = session.execute(
            select(DagModel, ParseImportError.stacktrace)
            .join(
                ParseImportError,
                and_(
                    ParseImportError.filename == DagModel.relative_fileloc,
                    ParseImportError.bundle_name == DagModel.bundle_name,
                ),
                isouter=True,
            )
            .where(DagModel.dag_id.in_(dag_ids))
        )
        return {
            dag.dag_id: Scheduling(
                dag=dag.dag_id,
                now=now,
                paused=bool(dag.is_paused),
                stale=bool(dag.is_stale),
                import_error=None if stacktrace is None else last_line(stacktrace) if with_errors else "",
                due=_ms(dag.next_dagrun_create_after),
                last=runs.get(dag.dag_id),
                silent=silent,
            )
            for dag, stacktrace in found
        }


def last_line(stacktrace: str) -> str:
    """What an import error says: the last line of its traceback that is not empty."""
    lines = [line.strip() for line in stacktrace.splitlines() if line.strip()]
    said = lines[-1] if lines else "no message"
    return said if len(said) <= _MAX_CHARACTERS else f"{said[:_MAX_CHARACTERS]} ..."


def _last_runs(session: Any, dag_ids: Collection[str]) -> Mapping[str, RunInAirflow]:
    """The newest run of each DAG: by the time from which on Airflow may begin it, as on Airflow's own pages."""
    newest = (
        select(DagRun.dag_id, func.max(DagRun.run_after).label("run_after"))
        .where(DagRun.dag_id.in_(dag_ids))
        .group_by(DagRun.dag_id)
        .subquery()
    )
    wanted = (
        select(DagRun.dag_id, DagRun.run_id, DagRun._state, DagRun.queued_at, DagRun.start_date, DagRun.end_date)  # noqa: SLF001
        .join(newest, and_(DagRun.dag_id == newest.c.dag_id, DagRun.run_after == newest.c.run_after))
        .order_by(DagRun.id)
    )
    return {
        dag_id: RunInAirflow(run_id, str(state), _ms(ended or started or queued))
        for dag_id, run_id, state, queued, started, ended in session.execute(wanted)
    }


def _silent() -> tuple[SilentProgram, ...]:
    """The programs that give no sign of life, by the rule of Airflow's own health."""
    silent = []
    for name, runner in _PROGRAMS.items():
        job = runner.most_recent_job()
        if job is None or not job.is_alive():
            silent.append(SilentProgram(name, None if job is None else _ms(job.latest_heartbeat)))
    return tuple(silent)


def _ms(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp() * 1000)
