"""A warm engine: many runs in one Spark application, of which none touches another."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from services.site import REPOSITORY, Site
from tests.support.command_line import tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Example
from tests.support.submitted import KILLED_JOB, WINDOW_JOB, Submitted
from tests.support.waiting import until
from tests.support.warm import Engine, Run
from tidemark.commit.protocol import Step
from tidemark.errors import EXIT_CONFLICT, EXIT_FAILED, EXIT_INTERNAL, EXIT_UNREACHABLE, EXIT_WRONG_USE

JOB = Path(__file__).parent.parent / "jobs" / "engine_job.py"
SECRET, PLACE = "fs.s3a.secret.key", "s3a://lake"


@pytest.fixture(scope="module")
def engine(site: Site) -> Iterator[Engine]:
    """One engine for the tests of this file that do not end it."""
    found = Engine(site, site.folder("warm"), runs=2, conf={"spark.driver.memory": "1g"})
    yield found
    found.end()


@pytest.fixture
def own_engine(site: Site) -> Iterator[Engine]:
    """An engine for one test, which may end it."""
    found = Engine(site, site.folder("own"), runs=2, conf={"spark.driver.memory": "1g"})
    yield found
    found.end()


def seen(run: Run) -> dict[str, Any]:
    (line,) = (line for line in run.ends().splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


def at_work(file: Path) -> int:
    """The Python worker that has made the file."""
    until(lambda: file.exists() and file.read_text(), f"{file} is not there")
    return int(file.read_text())


# What a run is


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["0"], 0),
        (["0", "Fenced"], EXIT_CONFLICT),
        pytest.param(["1"], 1, marks=pytest.mark.full),
        pytest.param(["0", "InvalidStreamFile"], EXIT_WRONG_USE, marks=pytest.mark.full),
        pytest.param(["0", "ProcessingFailed"], EXIT_FAILED, marks=pytest.mark.full),
        pytest.param(["0", "NoSuchError"], EXIT_INTERNAL, marks=pytest.mark.full),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, list) else "",
)
def test_a_run_says_and_ends_as_after_spark_submit(
    engine: Engine, site: Site, tmp_path: Path, words: list[str], code: int
) -> None:
    said = engine.run(JOB, "say", *words).ends(code)
    submitted = Submitted(site, tmp_path / "job.log", JOB, "say", *words)
    try:
        assert submitted.wait(900) == code
    finally:
        submitted.end()
    assert lines_of(said) == lines_of(submitted.output)


def lines_of(output: str) -> list[str]:
    """What the job itself says, without times and numbers of lines."""
    ours = [line for line in output.splitlines() if any(word in line for word in ("this is", "INFO job", "tidemark: "))]
    assert ours
    return [line.partition(" INFO ")[2] or line for line in ours]


@pytest.mark.full
def test_a_run_has_its_own_folder_environment_and_session(engine: Engine) -> None:
    first = seen(
        engine.run(JOB, "see", "spark.sql.ansi.enabled", "spark.sql.shuffle.partitions", MINE="1", OWN_CODE="1")
    )
    second = seen(engine.run(JOB, "see", conf={"spark.sql.shuffle.partitions": "7"}))
    assert first["application"] == second["application"]
    assert (first["views"], second["views"]) == ([], [])
    assert first["settings"] == {"spark.sql.ansi.enabled": "true", "spark.sql.shuffle.partitions": "4"}
    assert second["settings"] == {}
    assert ("MINE" in first["environment"], "MINE" in second["environment"]) == (True, False)
    # A user's function in a worker sees its stream's environment, and no other worker does.
    assert ("MINE" in first["worker"]["environment"], "MINE" in second["worker"]["environment"]) == (True, False)
    assert first["pool"].startswith("place ")
    # The engine was started by a run. It took nothing of it that is a stream's own.
    started = psutil.Process(engine.status()["jvm"]).environ()
    assert not [name for name in started if name.startswith("AIRFLOW_CONN_")]


@pytest.mark.full
def test_an_engine_compiles_its_classes_once(own_engine: Engine) -> None:
    """At its start. Whatever a run compiles again, Spark logs as an error: it has a jar of that name."""
    for _ in range(2):
        assert "compiled anew: 0\n" in own_engine.run(JOB, "compile").ends()
    log = "".join(path.read_text(errors="replace") for path in own_engine.folder.glob("*.log"))
    assert "already registered" not in log


@pytest.mark.full
def test_workers_stay_warm_but_not_those_that_may_import_own_code(engine: Engine) -> None:
    # Spark itself ends a worker after a minute: what stays is the process that forks them, with all loaded.
    shared = {seen(engine.run(JOB, "see"))["worker"]["daemon"] for _ in range(2)}
    assert len(shared) == 1
    own = {seen(engine.run(JOB, "see", OWN_CODE="1"))["worker"]["daemon"] for _ in range(2)}
    assert len(own - shared) == 2
    until(lambda: not any(map(psutil.pid_exists, own)), "workers of runs that have ended are still there", 300)


@pytest.mark.full
def test_settings_that_only_a_new_application_can_have_are_refused(engine: Engine) -> None:
    said = engine.run(JOB, "see", conf={"spark.executor.memory": "9g"}).ends(EXIT_WRONG_USE)
    assert "spark.executor.memory is 9g in the stream file and not set in the engine" in said
    # What it has anyway is no difference.
    seen(engine.run(JOB, "see", conf={"spark.driver.memory": "1g", "spark.submit.deployMode": "client"}))


@pytest.mark.full
@pytest.mark.covers("Q5")
def test_secrets_of_a_streams_file_system_are_its_own(engine: Engine) -> None:
    files = json.dumps({SECRET: "canary-1"})
    mine = seen(engine.run(JOB, "see", SECRET, FILES=files, PLACES=PLACE))
    assert (mine["settings"], mine["hadoop"]) == ({SECRET: "canary-1"}, {SECRET: "canary-1"})
    other = seen(engine.run(JOB, "see", SECRET))
    assert (other["settings"], other["hadoop"]) == ({SECRET: None}, {SECRET: None})
    assert (mine["hadoop of all"], other["hadoop of all"], other["system"]) == ({SECRET: None}, {SECRET: None}, [])
    # Hadoop keeps a file system open for the whole JVM: another stream may not have it with other rights.
    for another in ("{}", json.dumps({SECRET: "canary-2"})):
        said = engine.run(JOB, "see", FILES=another, PLACES=PLACE).ends(EXIT_WRONG_USE)
        assert f"the warm engine has opened {PLACE} with other settings" in said
        assert "canary" not in said
    log = "".join(path.read_text(errors="replace") for path in engine.folder.glob("*.log"))
    assert "canary" not in log


@pytest.mark.full
def test_the_socket_is_for_its_owner_alone(engine: Engine) -> None:
    engine.run(JOB, "say", "0").ends()
    (socket,) = engine.folder.glob("*.sock")
    assert (socket.stat().st_mode & 0o777, engine.folder.stat().st_mode & 0o777) == (0o600, 0o700)
    words = []
    for process in _of(engine):
        # One that has just ended has no words.
        with suppress(psutil.NoSuchProcess):
            words += process.cmdline()
    assert words
    status = json.dumps(engine.status())
    secrets = {name for name in psutil.Process(engine.status()["pid"]).environ() if "SECRET" in name}
    assert not any("secret" in word.lower() for word in [*words, status])
    # The gateway that Spark itself opens has its secret in the environment, as with every spark-submit.
    assert secrets <= {"PYSPARK_GATEWAY_SECRET"}


# Streams beside each other


FUNCTION: dict[str, Any] = {
    "source": {},
    "scheme": {"type": "function", "function": "same_name:work", "fields": {"number": "integer", "word": "string"}},
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}
CALLS = Example("function", FUNCTION, ("calls",), 1, lambda count, first: iter(()), lambda value: None)  # type: ignore[arg-type,return-value]
MODULE = """
import helper
def work(message):
    return {"number": message.offset, "word": helper.WORD + "%s"}
"""


def words(live: LiveStream) -> dict[tuple[int, int], str]:
    """The word of each row by offset and index; nothing is there twice."""
    found = live.independent.hbase()
    assert found.twice() == 0
    return {place[2:]: fields["word"] for place, fields in found.rows}


def processed(engine: Engine, live: LiveStream, folder: Path) -> Run:
    live.kafka.send([(live.topics[0], 0, b"key", b"value")])
    run = live.new_run()
    seq = live.pin(run).seq
    return engine.run(WINDOW_JOB, *live.job_arguments(run, seq), PYTHONPATH=str(folder))


@pytest.mark.full
@pytest.mark.covers("N15")
def test_functions_of_one_name_and_a_function_that_changes(engine: Engine, make: Make, tmp_path: Path) -> None:
    first, second = make(CALLS), make(CALLS)
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        (folder / "same_name.py").write_text(MODULE % "!")
        (folder / "helper.py").write_text(f"WORD = {folder.name!r}\n")
    runs = [processed(engine, live, folder) for live, folder in zip((first, second), folders, strict=True)]
    for run in runs:
        assert "window 1: committed" in run.ends()
    # What a function imports counts as much as its own file. Python itself overlooks a change that keeps size and time.
    (folders[0] / "helper.py").write_text("WORD = 'once more'\n")
    processed(engine, first, folders[0]).ends()
    processed(engine, second, folders[1]).ends()
    assert words(first) == {(0, 0): "first!", (1, 0): "once more!"}
    assert words(second) == {(0, 0): "second!", (1, 0): "second!"}


@pytest.mark.full
@pytest.mark.covers("N15", "F1")
def test_a_run_that_is_killed_in_its_writing_leaves_the_others_alone(engine: Engine, make: Make) -> None:
    killed, other = make(CDN), make(CDN)
    for live in (killed, other):
        live.produce(240)
    run, its = killed.new_run(), other.new_run()
    arguments = killed.job_arguments(run, killed.pin(run).seq)
    dying = engine.run(KILLED_JOB, *arguments, TEST_STEP=Step.SINK_STORED.value, TEST_SIGNAL="SIGKILL")
    beside = engine.run(WINDOW_JOB, *other.job_arguments(its, other.pin(its).seq))
    # As after spark-submit, whose driver a signal has ended.
    dying.ends(128 + signal.SIGKILL)
    assert "window 1: committed" in beside.ends()
    assert killed.head().pending is not None
    said = engine.run(WINDOW_JOB, *arguments).ends()
    assert "window 1: committed" in said
    for live in (killed, other):
        live.assert_exactly_what_was_read()
    assert engine.status()["at_work"] == []


@pytest.mark.full
def test_killing_the_asking_program_ends_its_run(engine: Engine, tmp_path: Path) -> None:
    """As `on_kill` of Airflow's operator does."""
    run = engine.run(JOB, "work", str(tmp_path / "working"))
    worker, process = at_work(tmp_path / "working"), engine.process_of("work")
    run.process.kill()
    until(lambda: not psutil.pid_exists(process), "the run goes on", 300)
    # Its Spark job ends too.
    until(lambda: not psutil.pid_exists(worker), "the task of the run goes on", 300)
    until(lambda: engine.status()["at_work"] == [], "the engine has not noticed", 300)
    seen(engine.run(JOB, "see"))


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_run(engine: Engine, tmp_path: Path, number: signal.Signals) -> None:
    run = engine.run(JOB, "work", str(tmp_path / "working"))
    at_work(tmp_path / "working")
    run.process.send_signal(number)
    assert run.wait() in (128 + number, EXIT_INTERNAL)
    until(lambda: engine.status()["at_work"] == [], "the engine has not noticed", 300)


@pytest.mark.full
def test_a_run_that_stands_still_holds_up_no_other(engine: Engine, tmp_path: Path) -> None:
    run = engine.run(JOB, "work", str(tmp_path / "working"), "--lane", "ingest", OWN_CODE="1")
    at_work(tmp_path / "working")
    process = engine.process_of("work")
    # Its process stops before its task ends, which tells it what was counted.
    os.killpg(process, signal.SIGSTOP)
    (tmp_path / "working").unlink()
    time.sleep(2)
    seen(engine.run(JOB, "see", "--lane", "ingest"))
    os.killpg(process, signal.SIGCONT)
    run.ends()


@pytest.mark.full
def test_others_wait_in_order_and_an_ingest_does_not_wait_for_them(engine: Engine, tmp_path: Path) -> None:
    first = engine.run(JOB, "work", str(tmp_path / "first"))
    at_work(tmp_path / "first")
    waiting = []
    for before in range(2):
        # One after the other: of two that start together, either may be the first.
        waiting.append(engine.run(JOB, "say", "0"))
        waiting[-1].says(f"waiting for the warm engine: 1 run is at work, and {before} before this one")
    ingest = engine.run(JOB, "say", "0", "", "--lane", "ingest")
    ingest.ends()
    assert "waiting" not in ingest.output
    assert [run.process.poll() for run in waiting] == [None, None]
    (tmp_path / "first").unlink()
    assert "worked 1" in first.ends()
    for run in waiting:
        run.ends()


@pytest.mark.full
def test_a_topic_that_was_created_again_is_read_anew(engine: Engine, make: Make) -> None:
    """The JVM, with what Spark keeps of Kafka in it, is the same before and after."""
    live = make(CDN, source={"on_recreated": "accept"})
    for _ in range(2):
        live.produce(240)
        run = live.new_run()
        assert "committed" in engine.run(WINDOW_JOB, *live.job_arguments(run, live.pin(run).seq)).ends()
        assert [tally.read.number for tally in live.opened.ledger.committed()[-1].record.tallies] != []
        live.kafka.recreate(live.topics[0], CDN.partitions)
    counts = [sum(tally.read.number for tally in one.record.tallies) for one in live.opened.ledger.committed()]
    assert counts == [240, 240]


@pytest.mark.full
@pytest.mark.covers("N15")
def test_killed_runs_leave_nothing_in_memory(engine: Engine) -> None:
    before = seen(engine.run(JOB, "see"))
    for _ in range(6):
        assert "kept 200000" in engine.run(JOB, "keep", "200000").ends(128 + signal.SIGKILL)
    until(lambda: engine.status()["at_work"] == [], "the last run is not over", 300)
    after = seen(engine.run(JOB, "see"))
    assert (after["kept"], after["stored"]) == (before["kept"], before["stored"]) == (0, 0)
    # Six times the rows are some 100 MB.
    assert after["heap"] - before["heap"] < 30e6


# The engine's own end


@pytest.mark.full
@pytest.mark.covers("N15")
@pytest.mark.parametrize("victim", ["jvm", pytest.param("pid", marks=pytest.mark.full)], ids=["jvm", "forking process"])
def test_an_engine_that_is_killed_ends_its_runs_and_the_next_run_starts_another(
    own_engine: Engine, tmp_path: Path, victim: str
) -> None:
    run = own_engine.run(JOB, "work", str(tmp_path / "working"))
    at_work(tmp_path / "working")
    process, before = own_engine.process_of("work"), own_engine.status()
    os.kill(before[victim], signal.SIGKILL)
    said = run.ends(EXIT_UNREACHABLE)
    assert "tidemark: EngineEnded: " in said
    assert "What was not committed does not count" in said
    for pid in (process, before["jvm"], before["pid"]):
        until(lambda pid=pid: not _runs(pid), f"process {pid} is still there", 300)
    again = own_engine.run(JOB, "see")
    assert "starting the warm engine" in again.ends()
    assert own_engine.status()["pid"] != before["pid"]


@pytest.mark.full
def test_many_runs_start_one_engine(own_engine: Engine) -> None:
    runs = [own_engine.run(JOB, "say", "0") for _ in range(8)]
    said = [run.ends() for run in runs]
    assert sum("starting the warm engine; its log" in one for one in said) == 1
    assert own_engine.runs_done() == 8


@pytest.mark.full
def test_stop_and_a_change_of_code_let_runs_go_on_to_their_end(own_engine: Engine, tmp_path: Path) -> None:
    run = own_engine.run(JOB, "work", str(tmp_path / "first"))
    at_work(tmp_path / "first")
    waiting = own_engine.run(JOB, "say", "0")
    waiting.says("waiting for the warm engine")
    first = own_engine.status()
    _, said = tidemark("engine", "stop", **given(own_engine))
    assert "spark_default: takes no more runs, and ends when 1 have ended" in said
    # What was waiting starts the next engine, and does not wait for the first one's end.
    assert "starting the warm engine" in waiting.ends()
    assert run.process.poll() is None
    (tmp_path / "first").unlink()
    assert "worked 1" in run.ends()
    until(lambda: not _runs(first["jvm"]), "the engine has not ended", 300)

    second = own_engine.status()
    # Touching a file of Tidemark's changes it as far as anyone can tell without reading it.
    os.utime(REPOSITORY / "tidemark" / "errors.py")
    out, _ = tidemark("engine", "status", **given(own_engine))
    assert "errors.py has changed" in " ".join(out.split())
    assert "starting the warm engine" in own_engine.run(JOB, "say", "0").ends()
    assert own_engine.status()["pid"] != second["pid"]
    until(lambda: not _runs(second["jvm"]), "the old engine has not ended", 300)
    out, said = tidemark("engine", "stop", "--now", "--yes", **given(own_engine))
    assert "spark_default: ended" in said
    _, said = tidemark("engine", "stop", code=2, **given(own_engine))
    assert "no warm engine lives" in said


@pytest.mark.full
def test_an_engine_that_cannot_start_says_why(site: Site) -> None:
    broken = Engine(site, site.folder("broken"), conf={"spark.driver.memory": "much"})
    try:
        said = broken.run(JOB, "say", "0").ends(EXIT_UNREACHABLE)
        assert "tidemark: EngineEnded: the engine did not start: it ended with code 1" in said
        assert "much" in said
    finally:
        broken.end()


@pytest.mark.full
@pytest.mark.covers("N15")
def test_the_command_line_in_a_warm_engine(engine: Engine, live: LiveStream) -> None:
    live.produce(240)
    engine.run(JOB, "say", "0").ends()
    done = engine.runs_done()
    out, said = tidemark("run", str(live.file), "--run", "mine", "--json", **given(engine))
    assert [one["read"] for one in json.loads(out)["windows"]] == [240]
    assert f"run mine: window 1 of {live.name}/ingest" in said
    assert f"{live.name}/ingest window 1: committed" in said
    live.assert_exactly_what_was_read()
    out, said = tidemark("run", str(live.file), "--json", **given(engine))
    assert (json.loads(out)["windows"], said) == ([], "nothing is new\n")
    out, _ = tidemark("audit", str(live.file), "--json", **given(engine))
    assert json.loads(out)["clean"] is True
    assert engine.runs_done() == done + 2


def given(engine: Engine) -> dict[str, Any]:
    """The engine's connections and folder, as variables of the environment."""
    return dict(engine.variables)


def _of(engine: Engine) -> list[psutil.Process]:
    jvm = psutil.Process(engine.status()["jvm"])
    return [jvm, *jvm.children(recursive=True)]


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
