"""The same job on a Spark standalone cluster: what the executors need reaches them, and what fails there changes nothing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services import environment
from services.site import Site
from tests.support.command_line import tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tests.support.spark_cluster import Cluster, spark_cluster
from tests.support.submitted import WINDOW_JOB, Submitted
from tests.support.waiting import until
from tests.support.warm import Engine
from tidemark.commit.protocol import Step
from tidemark.errors import EXIT_FAILED
from tidemark.ledger.records import LaneKind
from tidemark.sinks.hbase.keyed.table import keyed_table

EXECUTOR_KILLED_JOB = Path(__file__).parent.parent / "jobs" / "executor_killed_job.py"
MANY_TASKS_JOB = Path(__file__).parent.parent / "jobs" / "many_tasks_job.py"
MISBEHAVING_JOB = Path(__file__).parent.parent / "jobs" / "misbehaving_job.py"
# A second copy of a task as soon as a third of the others have ended.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.2",
    "spark.speculation.quantile": "0.3",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def submit(live: LiveStream, cluster: Cluster, log: Path, script: Path, **conf: str) -> str:
    """Plan a window and process it on the cluster by a script; gives what it said."""
    run = live.new_run()
    arguments = live.job_arguments(run, live.pin(run).seq)
    python = {"PYSPARK_PYTHON": str(cluster.python)}
    return Submitted(live.site, log, script, *arguments, master=cluster.master, conf=conf, **python).succeeds()


@pytest.mark.full
def test_a_cluster_with_the_settings_of_the_documents(
    make: Make, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.pyspark.python": str(cluster.python), "spark.pyspark.driver.python": sys.executable}
    live = make(CDN, engine={"master": cluster.master, "conf": conf})
    for name, value in {**environment.spark(live.site), **environment.connections(live.site)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": cluster.master}))
    live.produce(600)
    tidemark("run", str(live.file))
    assert len(cluster.executors()) == 2

    live.produce(600)
    assert "Lost executor" in submit(live, cluster, tmp_path / "job.log", EXECUTOR_KILLED_JOB)
    # Two more, and one in the place of the killed one.
    assert len(cluster.executors()) == 5
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("F3")
def test_dead_letters_that_are_lost_with_an_executor_are_read_again(
    make: Make, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KILL_BEHIND", Step.READ.value)
    live = make(CDN)
    live.produce(600)
    assert "Lost executor" in submit(live, cluster, tmp_path / "job.log", EXECUTOR_KILLED_JOB)
    (window,) = live.opened.ledger.committed()
    assert sum(tally.dead_letters for tally in window.record.tallies) > 0
    live.assert_exactly_what_was_read()


DRAWING = """
import secrets


def drawn(message):
    return {"word": secrets.token_hex(8)}
"""


@pytest.mark.full
@pytest.mark.covers("N15")
def test_a_warm_engine_on_a_cluster_whose_executors_come_and_go(
    make: Make, site: Site, cluster: Cluster, tmp_path: Path
) -> None:
    """Runs one after the other: the executors of each import its own code, and Tidemark's, whatever others have sent."""
    scheme = {"type": "function", "function": "drawing:drawn", "fields": {"word": "string"}}
    modules = []
    for word in ("first", "second"):
        folder = tmp_path / word
        folder.mkdir()
        modules.append(folder / "drawing.py")
        modules[-1].write_text(f"def drawn(message):\n    return {{'word': {word!r}}}\n")
    before = len(cluster.executors())
    engine = Engine(site, site.folder("of-a-cluster"), cluster.master, conf={"spark.driver.memory": "1g"})
    try:
        for number, module in enumerate((*modules, modules[0])):
            live = make(CDN)
            live.rewrite(scheme=scheme, checks=[], sinks=[{"type": "hbase", "table": live.name}])
            live.produce(600)
            run = live.new_run()
            arguments = live.job_arguments(run, live.pin(run).seq)
            conf, python = {"spark.submit.pyFiles": str(module)}, {"PYSPARK_PYTHON": str(cluster.python)}
            engine.run(WINDOW_JOB, *arguments, conf=conf, **python).ends()
            words = {fields["word"] for fields in live.independent.hbase().by_place().values()}
            assert words == {module.parent.name}
            assert len(cluster.executors()) == before + 2 * (number + 1)
            cluster.kill_executors()
            expected = before + 2 * (number + 2)
            until(lambda expected=expected: len(cluster.executors()) == expected, "no other executors come", 120)
    finally:
        engine.end()


@pytest.mark.full
@pytest.mark.covers("F3")
def test_rows_of_a_function_that_are_lost_with_an_executor_end_the_attempt(
    make: Make, cluster: Cluster, tmp_path: Path
) -> None:
    """Between two sinks: computed anew, the second one would hold other rows than the first."""
    (tmp_path / "drawing.py").write_text(DRAWING)
    live = make(CDN)
    scheme = {"type": "function", "function": "drawing:drawn", "fields": {"word": "string"}}
    latest = {"type": "hbase_latest", "table": f"{live.name}_latest", "folder": "latest", "key": "word"}
    live.rewrite(scheme=scheme, checks=[], sinks=[{"type": "hbase", "table": live.name}, latest])
    live.produce(600)
    run = live.new_run()
    arguments = live.job_arguments(run, live.pin(run).seq)
    conf = {"spark.submit.pyFiles": str(tmp_path / "drawing.py")}
    python = {"PYSPARK_PYTHON": str(cluster.python), "KILL_BEHIND": Step.SINK_STORED.value}

    def start(script: Path, log: str) -> Submitted:
        return Submitted(live.site, tmp_path / log, script, *arguments, master=cluster.master, conf=conf, **python)

    killed = start(EXECUTOR_KILLED_JOB, "killed.log")
    try:
        assert killed.wait(300) == EXIT_FAILED, killed.output[-3000:]
    finally:
        killed.end()
    assert "Lost executor" in killed.output
    assert "\ntidemark: RowsRecomputed: Spark has lost rows of this window" in killed.output
    assert live.head().last is None

    start(WINDOW_JOB, "again.log").succeeds()
    words = {fields["word"] for fields in live.independent.hbase().by_place().values()}
    assert len(words) == 600
    table = keyed_table(live.opened.connections, "hbase_default", latest["table"])
    assert {row.fields["word"].decode() for row in table.all_rows()} == words


@pytest.mark.covers("G1", "F3", "E35")
def test_only_what_three_counts_agree_on_is_committed(make: Make, cluster: Cluster, tmp_path: Path) -> None:
    """Sinks that lose a row, write one twice, or end too early; then a slow task and one that dies."""
    live = make(CDN)
    live.produce(600)
    conf = {**SPECULATION, "spark.log.level": "INFO"}
    said = submit(live, cluster, tmp_path / "job.log", MISBEHAVING_JOB, **conf)
    refused = dict(
        re.findall(r"^refused, (\w+): .*messages to store: (\d+, acknowledged by sink hbase: \d+)", said, re.M)
    )
    differences = {way: difference(counts) for way, counts in refused.items()}
    assert differences["loses_one"] == -1
    assert differences["writes_one_twice"] == 1
    assert differences["ends_too_early"] <= -7
    # The worker that was killed after its write, and the task that another copy of it has overtaken.
    assert "exited unexpectedly" in said
    assert re.search(r"Killing attempt 0 for task 1\.0 in stage .* as the attempt \d succeeded", said)
    (window,) = live.opened.ledger.committed()
    assert window.record.owes_sweep
    live.assert_exactly_what_was_read()


@pytest.mark.usefixtures("spark")
@pytest.mark.covers("A35")
def test_a_hundred_tasks_read_one_partition_eight_at_a_time(make: Make, tmp_path: Path) -> None:
    live = make(replace(CDN, topics=CDN.topics[:1], partitions=1))
    live.produce(1000)
    with spark_cluster(tmp_path, cores=4) as cluster:
        # On a quiet machine all tasks take about as long. Each that takes longer than the median gets a copy.
        often = {
            "spark.speculation.interval": "10ms",
            "spark.speculation.minTaskRuntime": "1ms",
            "spark.speculation.multiplier": "1",
            "spark.speculation.efficiency.enabled": "false",
        }
        conf = {**SPECULATION, **often, "spark.log.level": "INFO"}
        said = submit(live, cluster, tmp_path / "job.log", MANY_TASKS_JOB, **conf)
    assert re.search(r"Starting task 99\.\d+ in stage", said)
    # Copies of tasks were started beside them.
    assert " as speculatable " in said
    live.assert_exactly_what_was_read()

    read_by_many = live.opened.ledger.committed()[0].record
    (read_by_few,) = live.select(LaneKind.REPLAY, live.ranges(0, 0, (0, 1000)))
    assert read_by_few.receipt is not None
    assert read_by_many.receipt is not None
    assert read_by_few.receipt.tallies == read_by_many.receipt.tallies
    live.assert_exactly_what_was_read()


def difference(counts: str) -> int:
    """How many more were acknowledged than were to be stored."""
    stored, acknowledged = (int(number) for number in re.findall(r"\d+", counts))
    return acknowledged - stored
