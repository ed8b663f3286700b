"""What Airflow's database says of ingests: whether anything will run, and what is wrong if nothing does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from airflow.jobs.job import Job, JobState
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.errors import ParseImportError
from airflow.utils.session import create_session
from sqlalchemy import delete

from tests.support.overviews import partition, shown_overview
from tests.support.stream_text import MINIMAL
from tidemark.plugin import stream_access
from tidemark.plugin.scheduling import last_line, scheduling_of
from tidemark.plugin.stream_access import StreamAccess
from tidemark.streams.loading import load
from tidemark.views.overview import Status
from tidemark.views.scheduling import Scheduling
from tidemark.views.state_words import StreamState
from tidemark.views.triage import with_state

pytestmark = pytest.mark.usefixtures("airflow_home")

BUNDLE, DAG, OTHER = "of_scheduling", "seen__ingest", "other__ingest"
ERROR = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'pandas'\n\n"
TABLES = (DagRun, DagModel, ParseImportError, Job)


@pytest.fixture(autouse=True)
def _airflow() -> Iterator[None]:
    """An Airflow that works: two DAGs, of which nothing is due, and programs that live."""
    now = datetime.now(UTC)
    with create_session() as session:
        for table in TABLES:
            session.execute(delete(table))
        session.merge(DagBundleModel(name=BUNDLE))
        session.flush()
        for name in (DAG, OTHER):
            made = DagModel(dag_id=name, bundle_name=BUNDLE, fileloc=f"/d/{name}.py", relative_fileloc=f"{name}.py")
            made.is_paused, made.is_stale, made.next_dagrun_create_after = False, False, now + timedelta(hours=1)
            session.add(made)
        for kind in ("SchedulerJob", "DagProcessorJob"):
            job = Job()
            job.job_type, job.state, job.latest_heartbeat = kind, JobState.RUNNING, now
            session.add(job)
    yield
    with create_session() as session:
        for table in TABLES:
            session.execute(delete(table))


def change(**values: object) -> None:
    with create_session() as session:
        dag = session.get(DagModel, DAG)
        for name, value in values.items():
            setattr(dag, name, value)


def state(*, with_errors: bool = True) -> tuple[StreamState, Scheduling]:
    seen = scheduling_of([DAG, OTHER], with_errors=with_errors)
    assert scheduling_of(["unknown__ingest"], with_errors=True) == {}
    fine = shown_overview(partition(lag=0), status=Status("OK", "no lag", "seen", 0, "seen/0: the lag is 0"))
    # What is wrong with one DAG is not with another.
    other = seen[OTHER]
    assert with_state(fine, 1, other).state == (StreamState.NO_HEARTBEAT if other.silent else StreamState.OK)
    return with_state(fine, 1, seen[DAG]).state, seen[DAG]


@pytest.mark.covers("U19")
def test_a_dag_that_runs_is_ok_and_one_that_is_dropped_paused_or_late_is_not() -> None:
    assert state()[0] == StreamState.OK
    change(is_stale=True)
    assert state()[0] == StreamState.NO_DAG
    change(is_stale=False, is_paused=True)
    assert state()[0] == StreamState.PAUSED
    change(is_paused=False, next_dagrun_create_after=datetime.now(UTC) - timedelta(hours=20))
    assert state()[0] == StreamState.OVERDUE


@pytest.mark.covers("U19")
def test_an_import_error_is_said_with_its_last_line_to_those_who_may_see_it() -> None:
    with create_session() as session:
        session.add(
            ParseImportError(filename=f"{DAG}.py", bundle_name=BUNDLE, stacktrace=ERROR, timestamp=datetime.now(UTC))
        )
    found, seen = state()
    assert (found, seen.import_error) == (StreamState.NO_DAG, "ModuleNotFoundError: No module named 'pandas'")
    found, seen = state(with_errors=False)
    assert (found, seen.import_error) == (StreamState.NO_DAG, "")
    assert last_line("") == "no message"
    assert len(last_line("x" * 5_000)) < 400


@pytest.mark.covers("U19")
@pytest.mark.parametrize("kind", ["SchedulerJob", "DagProcessorJob"])
def test_a_program_without_heartbeat_makes_every_stream_bad(kind: str) -> None:
    with create_session() as session:
        for job in session.query(Job).filter(Job.job_type == kind):
            job.latest_heartbeat = datetime.now(UTC) - timedelta(hours=2)
    found, seen = state()
    assert found == StreamState.NO_HEARTBEAT
    assert [one.name for one in seen.silent] == ["scheduler" if kind == "SchedulerJob" else "dag-processor"]
    with create_session() as session:
        session.execute(delete(Job).where(Job.job_type == kind))
    found, seen = state()
    assert (found, seen.silent[0].since) == (StreamState.NO_HEARTBEAT, None)


@pytest.mark.covers("U19")
def test_the_last_run_is_the_newest_one_and_its_failure_is_no_ok() -> None:
    now = datetime.now(UTC)
    with create_session() as session:
        for number, word in enumerate(("success", "failed")):
            run = DagRun(
                dag_id=DAG, run_id=f"run_{number}", run_type="manual", run_after=now + timedelta(minutes=number)
            )
            run.state = word
            session.add(run)
    found, seen = state()
    assert found == StreamState.FAILED
    assert seen.last is not None
    assert (seen.last.run, seen.last.state) == ("run_1", "failed")


@pytest.mark.covers("U19")
@pytest.mark.parametrize("allowed", [True, False])
def test_a_stream_that_airflow_has_never_read_is_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: bool
) -> None:
    """For whoever may see the problems of files: nobody has a right to a DAG that is not there."""
    files = {}
    for name in ("seen", "unread"):
        path = tmp_path / f"{name}.yaml"
        path.write_text(MINIMAL.replace("stream: orders\n", f"stream: {name}\n"))
        files[name] = load(path)
    monkeypatch.setattr(stream_access, "may_see", lambda user, dags: {DAG} & set(dags))
    monkeypatch.setattr(stream_access, "may_see_files", lambda user: allowed)
    known: Any = SimpleNamespace(now=lambda: (files, []))
    asking: Any = SimpleNamespace(look=lambda files, older: [], known=lambda file: None)
    page = StreamAccess(known, cast("Any", None), asking)
    seen, lines, _ = asyncio.run(page.among_all("ann"))
    assert seen.keys() == {"seen"}
    unread = [(one.stream, one.state, one.is_unread) for one in lines if one.stream != "seen"]
    assert unread == ([("unread", StreamState.NO_DAG, True)] if allowed else [])
    problems = [one.problem or "" for one in lines if one.is_unread]
    assert all("Airflow has no DAG unread__ingest" in one for one in problems)
