"""A person at a terminal waits for a job, and sees no log; whoever reads a pipe gets it. The job stands for Spark's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import drawn
from tests.support.covering import REPOSITORY
from tests.support.streams_in_memory import StreamInMemory
from tidemark.cli.submitting import show_committed
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.runs.requests.answers import OffsetAnswer

COMMAND = [sys.executable, str(REPOSITORY / "tests" / "jobs" / "waiting_job.py")]
LOG = ["26/11/23 12:00:00 WARN Utils: first", "26/11/23 12:00:01 WARN Utils: second"]
WHY = "tidemark: Fenced: another run holds it"


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(folder)}


@pytest.mark.slow
def test_at_a_terminal_there_are_bars_and_then_the_answer(tmp_path: Path) -> None:
    code, said = drawn([*COMMAND, "0"], environment(tmp_path))
    assert code == 0, said
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines()]
    assert "Spark is starting" in said
    assert any("window 3 of orders/ingest: storing hbase" in line for line in lines)
    assert any(re.fullmatch(r"orders/0 \S+ 120/500 .*--:--", line) for line in lines)
    assert any(re.match(r"orders/1 \S+ 7/7 ", line) for line in lines)
    assert [line for line in lines if line][-1] == "the answer"
    assert "WARN" not in said
    assert "Stage" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_job_that_fails_says_why_and_where_its_log_is(tmp_path: Path) -> None:
    code, said = drawn([*COMMAND, "3"], environment(tmp_path))
    (log,) = tmp_path.iterdir()
    # A line of more than the terminal's width is cut at a space.
    assert (code, " ".join(said.split()).endswith(f"{WHY} The job's log: {log}")) == (3, True), said
    assert "WARN" not in said
    assert log.read_text().splitlines() == [*LOG, WHY]


@pytest.mark.slow
def test_a_log_is_printed_where_it_is_asked_for(tmp_path: Path) -> None:
    code, said = drawn([*COMMAND, "0", "-v"], environment(tmp_path))
    assert code == 0
    assert all(line in said for line in LOG)
    assert "window 3" not in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
def test_a_pipe_gets_the_log_and_no_bars(tmp_path: Path, code: int) -> None:
    done = subprocess.run(
        [*COMMAND, str(code)], env=environment(tmp_path), capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (code, "the answer\n" if code == 0 else "")
    assert all(line in done.stderr for line in LOG)
    assert "window 3" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_answers_of_a_replay_ask_the_ledger_as_often_for_many_ranges_as_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redrive of every third message has thousands of ranges, and their names took longer than the job."""
    made, asked = StreamInMemory(tmp_path), list[str]()
    read = made.opened.ledger.store.read

    def counted(key: Key) -> bytes | None:
        asked.extend(key[:1])
        return read(key)

    monkeypatch.setattr(made.opened.ledger.store, "read", counted)

    def questions(ranges: int) -> int:
        asked.clear()
        found = [OffsetRange(TopicPartition("orders", 0), at, at + 1) for at in range(0, 2 * ranges, 2)]
        answers = [OffsetAnswer(one, 1, "found and stored") for one in found]
        show_committed(made.opened, ["replay-r"], "r", as_json=False, answers=answers)
        return len(asked)

    assert questions(1) == questions(100) > 0
