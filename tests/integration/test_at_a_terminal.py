"""What a person sees at a terminal who waits for a run, an audit and a replay; and who reads what a pipe gives."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services import environment
from services.site import Site
from tests.support.command_line import at_a_terminal, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN

# As a job's own log begins its lines, and as Spark does.
LOGGED = re.compile(r"\d\d:\d\d:\d\d\S* (INFO|WARN|ERROR)")


@pytest.fixture(autouse=True)
def submitting(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What spark-submit needs, in the environment; and a folder for the logs of jobs."""
    for key, value in {**environment.spark(site), **environment.connections(site)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def logs(folder: Path) -> list[Path]:
    return list(folder.glob("tidemark-*.log"))


@pytest.mark.full
def test_a_run_shows_its_step_and_a_bar_for_each_partition_and_no_log(make: Make, tmp_path: Path) -> None:
    live = make(CDN, limits={"max_invalid": {"number": 0}})
    live.kafka.send((live.topics[0], 1, None, value) for value in (b"garbage", b"\xff"))
    said = at_a_terminal("run", str(live.file), "--run", "mine", code=6)
    # A job that fails says why, as without a terminal, and where its log is.
    (log,) = logs(tmp_path)
    why = next(line for line in said.splitlines() if line.startswith("tidemark: TooManyInvalid: "))
    assert why in log.read_text()
    # A line of more than the terminal's width is cut at a space.
    words = " ".join(said.split())
    assert words.index(why) < words.index(f"The job's log: {log}") < words.index("To go on: tidemark run")
    assert LOGGED.search(log.read_text())
    assert not LOGGED.search(said)

    log.unlink()
    live.rewrite(limits={})
    live.produce(240)
    said = at_a_terminal("run", str(live.file), "--run", "mine")
    live.assert_exactly_what_was_read()
    name = f"window 1 of {live.name}/ingest"
    assert f"{name}: Spark is starting" in said
    assert f"{name}: committed" in said
    bars = re.findall(rf"{re.escape(live.topics[0])}/1 +\S+ +(\d+)/(\d+) ", said)
    assert ("0", "2") in bars
    assert bars[-1] == ("2", "2")
    # Below the bars stands the answer, which is all that stays of it.
    heading = said.rindex("generation")
    assert heading > said.rindex("committed")
    assert re.search(r"^ *1 +\d+ +2 +0 +2 *$", said[heading:].replace("\r", ""), re.MULTILINE)
    assert not LOGGED.search(said)
    assert "[Stage" not in said
    assert logs(tmp_path) == []

    # Without Spark: the command itself looks for a key.
    words = ("erase", str(live.file), "--key", "nobody's", "--reason", "a test", "--dry-run")
    said = at_a_terminal(*words)
    assert "looking for the key" in said
    assert "Spark" not in said
    assert re.findall(rf"{re.escape(live.topics[0])}/1 +\S+ +(\d+)/(\d+) ", said)[-1] == ("2", "2")
    assert said.rindex("0 messages have the key") > said.rindex("looking for the key")
    assert "looking" not in "".join(tidemark(*words))


@pytest.mark.full
def test_an_audit_and_its_repair_show_their_steps(live: LiveStream, tmp_path: Path) -> None:
    live.produce(240)
    # Without a terminal, and with -v at one, there are the lines of the log, and no bars.
    _, said = tidemark("run", str(live.file))
    assert f"{live.name}/ingest window 1: committed" in said
    assert "window 1 of" not in said.partition("\n")[2]
    live.produce(60)
    said = at_a_terminal("run", str(live.file), "-v")
    assert f"{live.name}/ingest window 2: committed" in said
    assert "Spark is starting" not in said
    said = at_a_terminal("audit", str(live.file), "--run", "mine")
    for step in ("Spark is starting", "reading 300 offsets", "comparing hbase", "checking the ledger"):
        assert step in said
    # A look a second, and the step that reads says at its end what it has read.
    assert re.search(rf"{re.escape(live.topics[0])}/1 +\S+ +\d+/\d+ ", said)
    assert "expected 300, stored" in said[said.rindex("checking the ledger") :]
    assert not LOGGED.search(said)
    said = at_a_terminal("replay", "--yes", str(live.file), "--records", f"{live.topics[0]}/1@5", "--reason", "a test")
    assert re.search(rf"{re.escape(live.topics[0])}/1 +\S+ +1/1 ", said)
    assert not LOGGED.search(said)
    # Lanes that read at the same time have a bar each.
    records = "\n".join(f"{live.topics[0]}/{number}@{offset}" for number in (0, 1) for offset in (3, 4))
    said = at_a_terminal("replay", "--yes", str(live.file), "--records", records, "--lanes", "2", "--reason", "a test")
    assert "2 lanes" in said
    bars = re.findall(r"lane (\d): window 1 +\S+ +(\d+)/(\d+) ", said)
    assert {lane for lane, *_ in bars} == {"1", "2"}
    assert {lane: counts for lane, *counts in bars} == {lane: ["2", "2"] for lane, *_ in bars}
    assert not LOGGED.search(said)
    assert logs(tmp_path) == []
