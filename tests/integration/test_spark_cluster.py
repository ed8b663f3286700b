"""The same job on a Spark standalone cluster: what the executors need reaches them, and one that is killed changes nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services import environment
from tests.integration.test_command_line import tidemark
from tests.oracle import CDN
from tests.playground import Make
from tests.spark_cluster import Cluster, spark_cluster
from tests.submitted import Submitted
from tidemark import runs
from tidemark.errors import EXIT_DONE

EXECUTOR_KILLED_JOB = Path(__file__).parent.parent / "executor_killed_job.py"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with spark_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def test_a_cluster_with_the_settings_of_the_documents(
    make: Make, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {"spark.pyspark.python": str(cluster.python), "spark.pyspark.driver.python": sys.executable}
    play = make(CDN, engine={"master": cluster.master, "conf": conf})
    for name, value in {**environment.spark(play.site), **environment.connections(play.site)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": cluster.master}))

    play.produce(600)
    tidemark("run", str(play.file))
    assert len(cluster.executors()) == 2

    play.produce(600)
    run = play.new_run()
    pending = runs.plan_ingest(play.opened, run)
    assert pending is not None
    arguments = ["--stream-file", str(play.file), "--lane", "ingest", "--seq", "2", "--run", run]
    log, python = tmp_path / "job.log", {"PYSPARK_PYTHON": str(cluster.python)}
    job = Submitted(play.site, log, EXECUTOR_KILLED_JOB, *arguments, master=cluster.master, **python)
    try:
        assert job.wait(300) == EXIT_DONE, job.output[-3000:]
    finally:
        job.end()
    assert "Lost executor" in job.output
    # Two more, and one in the place of the killed one.
    assert len(cluster.executors()) == 5
    play.assert_exactly_what_was_read()
