"""What the DAGs do, done by the command line: as a program that starts spark-submit, on real servers."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from services import environment
from services.site import Site
from tests.support.command_line import asked, tidemark
from tests.support.damage import delete_rows, rows_at
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tests.support.waiting import until
from tidemark.runs.windows import ingest

MILLION = 1_000_000


@pytest.fixture(autouse=True)
def submitting(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What spark-submit needs, in the environment."""
    for key, value in {**environment.spark(site), **environment.connections(site)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def counts(found: dict[str, Any]) -> list[int]:
    return [one["read"] for one in found["windows"]]


@pytest.mark.full
def test_runs_a_replay_and_audits(live: LiveStream) -> None:
    """The life of a stream: nothing yet, a first run, nothing new, damage, its repair."""
    file = str(live.file)
    live.produce(240)
    out, said = tidemark("run", file, "--run", "mine", "--json")
    found = json.loads(out)
    assert (found["lane"], found["run"], counts(found)) == ("ingest", "mine", [240])
    # The job's log is on standard error, and nothing else than the data on standard output.
    assert f"run mine: window 1 of {live.name}/ingest" in said
    assert f"{live.name}/ingest window 1: committed" in said
    live.assert_exactly_what_was_read()

    before = dict(live.opened.ledger.store.scan(("head",)))
    assert tidemark("run", file) == ("", "nothing is new\n")
    assert dict(live.opened.ledger.store.scan(("head",))) == before

    out, _ = tidemark("audit", file, "--run", "clean", "--json")
    report = json.loads(out)
    assert (report["clean"], report["expected"], report["findings"]) == (True, 240, None)
    assert all(isinstance(one["position"], str) for one in report["coverage"])
    gone = rows_at(live, 0, 1, 2)
    delete_rows(live, live.name, 0, 1, *gone)
    out, said = tidemark("audit", file, "--ranges", f"{live.topics[0]}/1@0-{gone[-1] + 1}", code=1)
    assert "missing 2, different 0, extra 0" in out
    assert [f"hbase: missing {live.topics[0]}/1@{offset}" in out for offset in gone] == [True, True]
    digest = said.rpartition("All findings are the selection ")[2].partition(";")[0]

    position = live.positions()
    shown = asked("replay", file, "--selection", digest, "--reason", "a repair", "--dry-run")
    assert (shown["offsets"], shown["left_out"]) == (2, {})
    assert shown["estimate"]["records"] == 2
    assert "comparison" not in shown
    # The rows that are missing would be new in HBase, and are the same in Parquet.
    heads = dict(live.opened.ledger.store.scan(("head",)))
    out, said = tidemark(
        *("replay", file, "--selection", digest, "--reason", "a repair", "--dry-run", "--compare", "--run", "what-if")
    )
    assert f"hbase: new {live.topics[0]}/1@{gone[0]} index 0: nothing was stored of its message" in out
    assert f"tidemark report {live.name} what-if" in said
    assert dict(live.opened.ledger.store.scan(("head",))) == heads
    found = asked("report", file, "what-if")
    assert [(one["name"], one["same"], one["new"]) for one in found["places"]][:2] == [
        ("hbase", 0, 2),
        ("parquet", 2, 0),
    ]
    replay = ("replay", "--yes", file, "--selection", digest, "--reason", "a repair", "--run", "repaired", "--json")
    out, _ = tidemark(*replay)
    assert counts(json.loads(out)) == [2]
    # What is done is done, and says the same again.
    assert tidemark(*replay) == (
        out,
        "the replay of run repaired is done, so this run reads nothing; a run's name is used once. Ask for the same again "
        "under another name of the run\n",
    )
    assert live.positions() == position
    live.produce(30)
    out, said = tidemark("run", file, "--run", "mine", "--json")
    assert (counts(json.loads(out)), said) == ([240], "run mine is done\n")
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("N10")
def test_an_audit_repairs_and_audits_again(live: LiveStream, tmp_path: Path) -> None:
    """Every level on its own, a plan that changes nothing, and a repair that ends with 0 only when it has helped."""
    file = str(live.file)
    live.produce(200)
    tidemark("run", file, "--run", "mine", "--json")
    for level in ("ledger", "source"):
        out, _ = tidemark("audit", file, "--level", level, "--json")
        report = json.loads(out)
        assert (report["level"], report["clean"], report["windows"], report["places"]) == (level, True, 1, [])
    gone = rows_at(live, 0, 1, 2)
    delete_rows(live, live.name, 0, 1, *gone)
    # Neither of these looks at the sinks, and neither says that it does.
    out, _ = tidemark("audit", file, "--level", "source")
    assert out.startswith(
        "source: 1 window covers 200 offsets, 200 of them in Kafka, 0 no longer; 0 are not read yet\n"
    )

    before, page = dict(live.opened.ledger.store.scan(("head",))), tmp_path / "report.html"
    out, _ = tidemark("audit", file, "--repair", "plan", "--run", "planned", "--html", str(page), code=1)
    assert "missing 2, different 0" in out
    assert "a repair replays 2 offsets into hbase alone; rows of 2 messages of them are stored" in out
    assert f"missing {live.topics[0]}/1@{gone[0]}" in page.read_text()
    assert dict(live.opened.ledger.store.scan(("head",))) == before

    out, _ = tidemark("audit", file, "--repair", "execute", "--yes", "--run", "repaired", "--json")
    found = json.loads(out)
    assert (found["clean"], found["findings"]["offsets"], found["repair"]["offsets"]) == (True, 2, 2)
    assert found["sentence"].startswith("repaired: expected 2, stored 2")
    assert (found["audit_after"]["clean"], found["audit_after"]["expected"]) == (True, 2)
    live.assert_exactly_what_was_read()
    # The report is in the ledger, and the page is made of it.
    tidemark("report", file, "repaired", "--html", str(page))
    assert "Repaired" in page.read_text()
    _, said = tidemark("report", file, "never", code=2)
    assert "has no report of the run 'never'" in said


@pytest.mark.full
def test_too_many_invalid_messages_are_said_in_one_line(make: Make) -> None:
    live = make(CDN, limits={"max_invalid": {"number": 0}})
    live.kafka.send((live.topics[0], 1, None, value) for value in (b"garbage", b"\xff"))
    _, said = tidemark("run", str(live.file), "--run", "mine", code=6)
    (line,) = [line for line in said.splitlines() if line.startswith("tidemark: TooManyInvalid: ")]
    assert f"1 x 'matches no pattern', such as {live.topics[0]}/1@0; 1 x 'not UTF-8'" in line
    assert line.endswith("raise limits.max_invalid, and run again.")
    # With a budget, the same run goes on with the window that it has pinned.
    live.rewrite(limits={"max_invalid": {"share": 1.0}})
    out, _ = tidemark("run", str(live.file), "--run", "mine", "--json")
    assert counts(json.loads(out)) == [2]
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_a_backfill_reads_what_the_ingest_left_out(make: Make) -> None:
    live = make(CDN, source={"start": "latest"})
    file, topic = str(live.file), live.topics[0]
    live.produce(200)
    assert ingest.plan_ingest(live.opened, "begin") is None
    shown = asked("backfill", file, "--before-first", "--reason", "a test", "--dry-run")
    assert (shown["offsets"], shown["stored_before"], shown["estimate"]) == (200, 0, None)
    out, _ = tidemark(
        "backfill", "--yes", file, "--from", f"{topic}/1@10", "--until", f"{topic}/1@30", "--reason", "part", "--json"
    )
    assert counts(json.loads(out)) == [20]
    again = ("backfill", "--yes", file, "--ranges", f"{topic}/1@20-40", "--reason", "again", "--strict")
    _, said = tidemark(*again, code=2)
    assert f"strict: 10 offsets cannot be read by a backfill. a window has read them: {topic}/1@20-30" in said
    # Bounds in time take what is left.
    out, said = tidemark(
        "backfill", "--yes", file, "--since", "2020-01-01T00:00:00Z", "--reason", "rest", "--run", "rest", "--json"
    )
    assert "left out, a window has read them: 20 offsets" in said
    assert counts(json.loads(out)) == [180]
    live.assert_exactly_what_was_read()
    shown, said = tidemark("backfill", "--yes", file, "--run", "rest", "--json")
    assert counts(json.loads(shown)) == [180]
    assert "the backfill of run rest is done" in said


@pytest.mark.full
@pytest.mark.covers("S8", "N19")
def test_840_000_dead_letters_and_a_million_records_of_a_file(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = make(CDN)
    file, (topic,) = str(live.file), live.topics
    # The others stand between them, so that the dead letters are in 160,000 ranges.
    fields = {
        "scheme": {"type": "delimited", "fields": {"id": "integer"}},
        "sinks": [{"type": "parquet", "folder": live.name}, {"type": "delta", "folder": f"{live.name}_delta"}],
    }
    live.rewrite(**fields, checks=[{"invalid_when": "id % 25 > 3", "reason": "not in the list"}])
    for start in range(0, MILLION, 100_000):
        live.kafka.send((topic, number % 4, None, b"%d" % number) for number in range(start, start + 100_000))
    tidemark("run", file)
    live.rewrite(**fields, checks=[])
    out, _ = tidemark("replay", "--yes", file, "--dead-letters", "not in the list", "--reason", "corrected", "--json")
    assert counts(json.loads(out)) == [840_000]
    shown = asked("results", file, "--dead-letters", "--limit", "1")
    assert shown == []

    selections = tmp_path / "selections"
    selections.mkdir()
    lines = (f"{topic},{partition},{offset}\n" for partition in range(4) for offset in range(MILLION // 4))
    (selections / "all.csv").write_text("topic,partition,offset\n" + "".join(lines))
    monkeypatch.setenv("TIDEMARK_SELECTIONS", str(selections))
    replay = ("replay", "--yes", file, "--records-file", "all.csv", "--reason", "all of them")
    assert asked(*replay, "--dry-run")["offsets"] == MILLION
    out, _ = tidemark(*replay, "--json")
    assert counts(json.loads(out)) == [MILLION]
    report = asked("audit", file)
    assert (report["clean"], report["expected"], report["stored"]) == (True, MILLION, MILLION)


@pytest.mark.full
def test_a_job_that_was_killed_is_run_again(live: LiveStream, tmp_path: Path) -> None:
    live.produce(240)
    with running(tmp_path, "run", str(live.file), "--run", "killed") as command:
        job = _job_that_holds(live, command, "killed")
        os.killpg(job.pid, signal.SIGKILL)
        assert command.wait(300) == 6
    said = (tmp_path / "said").read_text()
    assert (
        "tidemark: ProcessingFailed: the Spark job was killed by signal 9; what it has not committed does not" in said
    )
    assert "To go on: tidemark run" in said
    assert _gone(job)
    live.produce(60)
    # The same run goes on at once, with the window as it was pinned.
    out, _ = tidemark("run", str(live.file), "--run", "killed", "--json")
    assert counts(json.loads(out)) == [240]
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_an_interrupt_leaves_no_child(make: Make, tmp_path: Path) -> None:
    live = make(CDN)
    live.produce(240)
    for number in (signal.SIGINT, signal.SIGTERM):
        with running(tmp_path, "run", str(live.file), "--run", number.name, "--take-over") as command:
            _job_that_holds(live, command, number.name)
            family = psutil.Process(command.pid).children(recursive=True)
            # The JVM, the Python driver, and perhaps its workers.
            assert len(family) >= 2
            command.send_signal(number)
            assert command.wait(300) == 128 + number
        assert f"tidemark: interrupted by {number.name}" in (tmp_path / "said").read_text()
        assert all(_gone(one) for one in family)
        assert live.head().seq == 0
    out, _ = tidemark("run", str(live.file), "--take-over", "--json")
    assert counts(json.loads(out)) == [240]
    live.assert_exactly_what_was_read()


def test_an_interrupt_before_the_job_is_not_taken_for_differences(live: LiveStream, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": f"127.0.0.1:{silent.getsockname()[1]}"}}
        with running(tmp_path, "run", str(live.file), AIRFLOW_CONN_KAFKA_DEFAULT=json.dumps(kafka)) as command:
            # It has asked, and is waiting for an answer.
            silent.settimeout(300)
            silent.accept()[0].close()
            command.send_signal(signal.SIGINT)
            assert command.wait(300) == 128 + signal.SIGINT


@contextmanager
def running(folder: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """The command while it runs, with what it says in the file `said`."""
    with (folder / "said").open("wb") as said:
        command = subprocess.Popen(
            [sys.executable, "-m", "tidemark", *arguments], stdout=said, stderr=said, env={**os.environ, **variables}
        )
        try:
            yield command
        finally:
            command.kill()
            command.wait(60)


def _job_that_holds(live: LiveStream, command: subprocess.Popen[bytes], run: str) -> psutil.Process:
    """The command's spark-submit, once its job holds the window."""

    def holds() -> bool:
        found = live.opened.ledger.head("ingest")
        pending = found.head.pending if found else None
        return pending is not None and pending.attempt is not None and pending.attempt.run == run

    until(holds, "the job has not taken the window", 300)
    (job,) = psutil.Process(command.pid).children()
    return job


def _gone(process: psutil.Process) -> bool:
    try:
        process.wait(120)
    except psutil.TimeoutExpired:
        return False
    return True
