"""Real processes, killed with SIGKILL or stopped with SIGSTOP: spark-submit's JVM, the Python driver and the workers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, ORDERS
from tests.support.submitted import KILLED_JOB, WINDOW_JOB, Submitted
from tests.support.waiting import until
from tidemark.audit.report import AuditReport
from tidemark.commit.protocol import LEASE_MS, Step
from tidemark.errors import EXIT_CONFLICT
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

Submit = Callable[..., Submitted]

LONG = pytest.param(100_000, marks=pytest.mark.full)


@pytest.fixture
def submit(tmp_path: Path) -> Iterator[Submit]:
    started: list[Submitted] = []

    def start(live: LiveStream, script: Path, run: str, seq: int, **variables: str) -> Submitted:
        log = tmp_path / f"job-{len(started)}.log"
        job = Submitted(live.site, log, script, *live.job_arguments(run, seq), conf=None, **variables)
        started.append(job)
        return job

    yield start
    for job in started:
        job.end()


# Swept only happens on a second try; test_cuts.py cuts there.
KILLED_AFTER = [step for step in Step if step not in (Step.PINNED, Step.SWEPT)]


# In every run jobs are killed within their writing below; test_cuts.py cuts after other steps too.
@pytest.mark.full
@pytest.mark.covers("F1")
@pytest.mark.parametrize("way", ["one pass", "kept"])
@pytest.mark.parametrize("step", KILLED_AFTER, ids=lambda step: step.value.replace(" ", "-"))
def test_killed_after_a_step_and_run_again(make: Make, submit: Submit, step: Step, way: str) -> None:
    live = make(CDN if list(Step).index(step) % 2 else ORDERS)
    live.produce(240)
    run = live.new_run()
    seq = live.pin(run).seq
    job = submit(live, KILLED_JOB, run, seq, TEST_STEP=step.value, TEST_SIGNAL="SIGKILL", TEST_WAY=way)
    assert job.wait() == -signal.SIGKILL, job.output
    before = live.head()
    assert (before.pending is None) == (step in (Step.COMMITTED, Step.PUBLISHED, Step.SETTLED))
    live.produce(60)
    # A retry of the same run takes at once: it does not wait for the lease.
    records = live.ingest(run)
    assert live.head().seq == 2 if before.pending is None else live.head().seq == 1
    assert records
    live.ingest()
    live.assert_exactly_what_was_read()


@pytest.mark.covers("F1")
@pytest.mark.parametrize("count", [pytest.param(10_000, marks=pytest.mark.covers("A45")), LONG])
def test_many_messages_and_three_kills(make: Make, submit: Submit, count: int) -> None:
    """Ten windows of one run, killed in the third, the fifth and the seventh while an audit reads."""
    live = make(CDN, limits={"max_records": count // 10})
    live.produce(count)
    run = live.new_run()
    live.pin(run)
    kept = len(live.opened.stream.sinks)
    reports: list[AuditReport] = []
    for committed in (2, 4, 6):
        pending = live.head().pending
        assert pending is not None
        job = submit(
            live,
            KILLED_JOB,
            run,
            pending.window.seq,
            TEST_STEP=Step.SINK_STORED.value,
            TEST_TIMES=str(2 * kept + 1),
            TEST_SIGNAL="SIGKILL",
        )
        audited = False
        while job.process.poll() is None:
            # One audit while each job is between its windows: more would only hold it up.
            if not audited and len(live.opened.ledger.committed()) > committed - 2:
                reports.append(audit(live.opened, live.new_run()))
                audited = True
            else:
                time.sleep(0.5)
        assert job.wait() == -signal.SIGKILL, job.output
        assert live.head().seq == committed
    live.ingest(run)
    assert live.head().seq == 10
    reports.append(audit(live.opened, live.new_run()))
    for report in reports:
        assert report.clean, report.sentence()
    assert len(reports) > 3
    assert reports[-1].expected == count
    live.assert_exactly_what_was_read()
    for record in live.independent.records():
        folder = next(sink["place"]["folder"] for sink in record["receipt"]["sinks"] if sink["type"] == "parquet")
        for file in Path(folder.removeprefix("file://")).rglob("*.parquet"):
            rows = pq.read_table(file, columns=["_topic", "_partition", "_offset", "_index"], partitioning=None)
            places = [tuple(row.values()) for row in rows.to_pylist()]
            assert all(before[2:] < after[2:] for before, after in pairwise(places) if before[:2] == after[:2])


@pytest.mark.covers("F5", "A46", "A50")
def test_a_paused_attempt_wakes_after_another_has_committed(make: Make, submit: Submit) -> None:
    live = make(CDN)
    # The last partition stays empty.
    live.kafka.send((live.topics[0], number % 3, *message) for number, message in enumerate(CDN.generate(240, 0)))
    run = live.new_run()
    seq = live.pin(run).seq
    paused = submit(live, KILLED_JOB, run, seq, TEST_STEP=Step.READ.value, TEST_SIGNAL="SIGSTOP")
    _until(lambda: _stopped(paused), paused)
    (record,) = live.ingest(run)
    paused.signal(signal.SIGCONT)
    assert paused.wait() == EXIT_CONFLICT, paused.output
    assert f"tidemark: Fenced: generation {_first_generation(live, record.attempt.generation)}" in paused.output
    assert paused.output.count("tidemark: Fenced") == 1
    assert live.positions()[live.topics[0], 3] == 0
    assert live.head().last == record
    live.assert_exactly_what_was_read()
    assert live.independent.hbase().debris == 0


@pytest.mark.full
@pytest.mark.covers("A39", "E39")
def test_another_run_waits_while_the_holder_gives_signs_of_life(make: Make, submit: Submit) -> None:
    live = make(CDN)
    live.produce(100)
    run, other = live.new_run(), live.new_run()
    seq = live.pin(run).seq
    holder = submit(live, KILLED_JOB, run, seq, TEST_STEP=Step.READ.value, TEST_SIGNAL="SIGSTOP")
    _until(lambda: _stopped(holder), holder)
    refused = submit(live, WINDOW_JOB, other, seq)
    assert refused.wait() == EXIT_CONFLICT, refused.output
    assert f"is held by run {run}" in refused.output
    # Nothing of the refused one is in the ledger.
    pending = live.head().pending
    assert pending is not None
    assert pending.attempt is not None
    assert pending.attempt.run == run
    # The lease runs out when the beats stop; then anybody may take the window.
    assert LEASE_MS <= 30_000
    _until(lambda: _silent_for(live, LEASE_MS), holder)
    (record,) = live.ingest(other)
    assert record.attempt.run == other
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_a_driver_whose_jvm_was_killed_ends_by_itself(make: Make, submit: Submit) -> None:
    live = make(CDN)
    live.produce(100)
    run = live.new_run()
    seq = live.pin(run).seq
    job = submit(live, KILLED_JOB, run, seq, TEST_STEP=Step.TAKEN.value, TEST_SIGNAL="SIGSTOP")
    _until(lambda: _stopped(job), job)
    driver = next(child for child in psutil.Process(job.process.pid).children() if "python" in child.name())
    # Only the JVM: Spark leaves the Python driver running, with its parent gone.
    job.process.kill()
    job.process.wait(60)
    job.signal(signal.SIGCONT)
    assert driver.wait(timeout=300) is not None or not driver.is_running()
    (record,) = live.ingest(run)
    live.assert_exactly_what_was_read()
    assert record.seq == 1


def _stopped(job: Submitted) -> bool:
    return psutil.Process(job.process.pid).status() == psutil.STATUS_STOPPED


def _silent_for(live: LiveStream, milliseconds: int) -> bool:
    beat = live.opened.ledger.last_beat("ingest")
    return beat is not None and live.opened.ledger.clock() - beat.at > milliseconds


def _first_generation(live: LiveStream, newest: int) -> str:
    return str(newest)[:6]


def _until(happened: Callable[[], bool], job: Submitted) -> None:
    def look() -> bool:
        assert job.process.poll() is None, job.output
        return happened()

    until(look, "the job has not come so far")
