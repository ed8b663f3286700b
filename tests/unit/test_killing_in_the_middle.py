"""The demonstration kills a job after its first file and before its commit, however fast the job and the machine are."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from demo.killing import LOOK_SECONDS, KillInTheMiddle
from tests.support.protocol_world import NoWork
from tests.support.streams_in_memory import StreamInMemory
from tests.support.waiting import until
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import Unreachable
from tidemark.ledger.records import INGEST, Pending
from tidemark.runs.windows import ingest

DAG_RUN = "orders__ingest/manual"


class Job:
    """A job of one process, which claims a window, stores a file and commits, a step each time that it is told to."""

    def __init__(self, made: StreamInMemory) -> None:
        self.made = made
        self.received: list[signal.Signals] = []
        self.stored = 0
        # What comes just before a signal, as for a job that was quick.
        self.before: Callable[[], None] = lambda: None

    def claim(self, run: str = DAG_RUN) -> None:
        pending = ingest.plan_ingest(self.made.opened, run)
        assert pending is not None
        self.taken = protocol.take(self.made.opened.ledger, INGEST, pending.window.seq, Run(run, "v1", "d"))

    def store(self) -> None:
        self.stored += 1

    def commit(self) -> None:
        protocol.commit(self.made.opened.ledger, self.taken, NoWork().verify())

    def commit_once(self) -> None:
        self.before = lambda: None
        self.commit()

    def send_signal(self, number: signal.Signals) -> None:
        self.before()
        self.received.append(number)


class Scene:
    def __init__(self, folder: Path) -> None:
        self.made = StreamInMemory(folder)
        self.made.ends((0, 10))
        self.job = Job(self.made)
        self.said: list[str] = []
        self.there = True

    def files(self, _: Pending) -> int:
        return self.job.stored

    def jobs(self) -> Sequence[psutil.Process]:
        return [cast("psutil.Process", self.job)] if self.there else []

    def killing(self, ledger: Any = None) -> KillInTheMiddle:
        return KillInTheMiddle(ledger or self.made.opened.ledger, DAG_RUN, self.files, self.jobs, self.said.append)

    def says(self, words: str) -> None:
        until(lambda: any(words in one for one in self.said), f"{words!r} is not said", 60)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


@pytest.fixture
def _busy() -> Iterator[None]:
    """Two processes that are always at work."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.usefixtures("_busy")
def test_it_waits_for_the_claim_and_for_the_first_file(scene: Scene) -> None:
    with scene.killing() as killing:
        scene.says(f"for {DAG_RUN} to claim a window")
        scene.job.claim()
        scene.says("for the first file of window 1, which generation ")
        scene.there = False
        scene.job.store()
        scene.says("for the processes of window 1, which generation ")
        assert scene.said[-1].endswith(" has claimed; 1 file stored")
        assert scene.job.received == []
        scene.there = True
        until(lambda: killing.killed, "the job was not killed", 60)
    head = scene.made.opened.ledger.head(INGEST)
    assert head is not None
    assert killing.killed is not None
    assert killing.killed.pending == head.head.pending
    assert scene.job.received[:2] == [signal.SIGSTOP, signal.SIGKILL]
    assert "SIGKILL to 1 processes" in scene.said[-1]


def test_a_job_that_was_faster_goes_on_and_the_next_is_killed(scene: Scene) -> None:
    """It commits between the look at its files and the moment at which it stands still."""
    job = scene.job
    with scene.killing() as killing:
        job.claim()
        job.before = job.commit_once
        job.store()
        scene.says("the job was faster than the kill")
        assert (killing.killed, job.received) == (None, [signal.SIGSTOP, signal.SIGCONT])
        scene.made.ends((0, 20))
        job.claim()
        until(lambda: killing.killed, "the next job was not killed", 60)
    assert killing.killed is not None
    assert killing.killed.pending.window.seq == 2
    assert signal.SIGKILL in job.received


def test_a_window_of_another_run_is_left_alone(scene: Scene) -> None:
    with scene.killing() as killing:
        scene.job.claim("orders__ingest/scheduled")
        scene.job.store()
        time.sleep(10 * LOOK_SECONDS)
    assert (killing.killed, scene.job.received) == (None, [])


def test_a_ledger_that_does_not_answer_leaves_no_job_standing_still(scene: Scene) -> None:
    """It is asked again, and the job goes on meanwhile."""
    answers = iter([True, False])

    class Busy:
        def head(self, lane: str) -> Any:
            if next(answers, True):
                return scene.made.opened.ledger.head(lane)
            raise Unreachable("HBase is busy")

    scene.job.claim()
    scene.job.store()
    with scene.killing(Busy()) as killing:
        until(lambda: killing.killed, "the job was not killed", 60)
    assert scene.job.received[:4] == [signal.SIGSTOP, signal.SIGCONT, signal.SIGSTOP, signal.SIGKILL]
    assert any("for an answer: HBase is busy" in one for one in scene.said)


def test_what_goes_wrong_is_raised_at_the_end(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def files(_: Pending) -> int:
        raise PermissionError("the folder")

    monkeypatch.setattr(scene, "files", files)
    scene.job.claim()
    killing = scene.killing()
    with pytest.raises(PermissionError), killing:
        killing._thread.join(60)
