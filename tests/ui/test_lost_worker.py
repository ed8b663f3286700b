"""A worker of Airflow that is lost while its Spark job is at work, and what it leaves behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from demo.airflow import Airflow
from demo.cdn_lines import produce
from demo.window_jobs import window_jobs
from services import control, processes
from services.site import Site
from tests.support.task_tries import tries
from tests.support.waiting import until
from tidemark.ledger.records import INGEST, Attempt
from tidemark.ledger.recovery.verifying import verify
from tidemark.runs.live.open_stream import OpenStream, open_stream

DAG = "cdn_logs__ingest"
PATIENCE_SECONDS = 300


@pytest.fixture
def stopped() -> Iterator[list[psutil.Process]]:
    """Filled with what a test stops. It goes on afterwards, so that it holds no place in the engine for the next test."""
    found: list[psutil.Process] = []
    yield found
    processes.send(found, signal.SIGCONT)


@pytest.mark.full
@pytest.mark.covers("G3")
def test_a_retry_takes_the_window_and_the_job_that_wakes_up_late_commits_nothing(
    airflow: Airflow, site: Site, streams: dict[str, Path], stopped: list[psutil.Process]
) -> None:
    opened = open_stream(streams["everybody"] / "cdn_logs.yaml")
    assert airflow.run(DAG) == "success"
    produce(site.address("kafka"), "cdn-logs", 5_000, first=60_000)
    run = airflow.trigger(DAG)
    attempt = until(lambda: at_work(opened), "nobody has taken the window")
    job = until(lambda: in_engine(site), "there is no job in the engine")
    pending = opened.ledger.head(INGEST).head.pending  # type: ignore[union-attr]
    assert pending is not None
    stopped += job
    # The machine stands still: first the job, then the worker above it is gone.
    processes.send(job, signal.SIGSTOP)
    # A process that Spark had started for a moment may have ended before that.
    job = [process for process in job if process.is_running()]
    assert opened.ledger.head(INGEST).head.pending == pending  # type: ignore[union-attr]
    processes.send(workers_of(job), signal.SIGKILL)
    # A moment later, the kernel wakes a stopped group that has nobody above it any more. It sends SIGHUP too, which the run's
    # own starter may have had ignored, as `nohup` does.
    for _ in range(40):
        processes.send(job, signal.SIGSTOP)
        time.sleep(0.05)
    assert airflow.wait(DAG, run) == "success"
    assert tries(airflow, DAG, run, "process") == 2
    _, record = opened.ledger.record(INGEST, pending.window.seq)  # type: ignore[misc]
    assert record.window == pending.window
    assert record.attempt.generation > attempt.generation
    assert record.attempt.run == attempt.run
    head = opened.ledger.head(INGEST)
    # What wakes up now finds that the window is another's, and ends.
    processes.send(job, signal.SIGCONT)
    _, left = psutil.wait_procs(job, timeout=PATIENCE_SECONDS)
    assert not left
    assert opened.ledger.head(INGEST) == head
    assert verify(opened.ledger) == []


@pytest.mark.covers("F25")
def test_a_run_goes_on_after_all_of_airflow_was_killed(
    airflow: Airflow, site: Site, streams: dict[str, Path], start_airflow: Callable[[], None]
) -> None:
    """Its API server, scheduler, workers and what holds its database, with the job below them."""
    opened = open_stream(streams["everybody"] / "cdn_logs.yaml")
    assert airflow.run(DAG) == "success"
    produce(site.address("kafka"), "cdn-logs", 1_000, first=70_000)
    run = airflow.trigger(DAG)
    attempt = until(lambda: at_work(opened), "nobody has taken the window")
    pending = opened.ledger.head(INGEST).head.pending  # type: ignore[union-attr]
    assert pending is not None
    for server in control.AIRFLOW:
        processes.kill(site, server)
    assert opened.ledger.head(INGEST).head.pending == pending  # type: ignore[union-attr]
    start_airflow()
    assert airflow.wait(DAG, run) == "success"
    _, record = opened.ledger.record(INGEST, pending.window.seq)  # type: ignore[misc]
    assert record.window == pending.window
    assert (record.attempt.run, record.attempt.generation > attempt.generation) == (attempt.run, True)
    assert verify(opened.ledger) == []


def at_work(opened: OpenStream) -> Attempt | None:
    """The attempt at the pending window, once it gives signs of life."""
    head, beat = opened.ledger.head(INGEST), opened.ledger.last_beat(INGEST)
    pending = head.head.pending if head else None
    attempt = pending.attempt if pending else None
    return attempt if attempt and beat and beat.generation == attempt.generation else None


def in_engine(site: Site) -> list[psutil.Process] | None:
    """The processes of a window's job once its process in the engine is among them. To stop what waits for it is too little."""
    job = window_jobs(site)
    return job if len(job) > 1 else None


def workers_of(job: list[psutil.Process]) -> list[psutil.Process]:
    """The processes of Airflow between its scheduler and a job: the task's, and the worker's that watches over it."""
    above = [process.parents()[:2] for process in job if process.parent() not in job]
    # Above the job's process in the engine is the engine.
    return next(found for found in above if any("airflow" in word for word in found[0].cmdline()))
