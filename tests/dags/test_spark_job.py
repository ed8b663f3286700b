"""The operator: real spark-submit, its exit codes as errors, and masters that nobody asked for."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from services.site import Site
from tests.support.stream_text import MINIMAL
from tests.support.waiting import until
from tests.support.warm import SPARK, Engine
from tidemark.airflow import spark_job
from tidemark.airflow.connections import exported, from_airflow
from tidemark.airflow.spark_job import SparkJob, SparkJobFailed, SparkJobRefused, of_stream
from tidemark.airflow.steps import airflow_errors
from tidemark.clients import on_one_machine
from tidemark.errors import ConnectionMissing
from tidemark.streams.loading import load
from tidemark.streams.model import Stream
from tidemark.submit.address import FOLDER
from tidemark.submit.command import job_script
from tidemark.views.summary import ANSWER

pytestmark = pytest.mark.usefixtures("airflow_home", "submitting")

# What a task's run has of Airflow that a job needs: where the answer is kept.
KEPT: dict[str, str] = {}


def in_an_airflow() -> Any:
    """The context of a task, with what Airflow keeps for its tries."""
    state: dict[str, str] = {}
    return {
        "ti": SimpleNamespace(xcom_push=lambda key, value: KEPT.update({key: value})),
        "task_state_store": SimpleNamespace(get=state.get, set=state.__setitem__),
    }


HERE = in_an_airflow()


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    path = tmp_path / "orders.yaml"
    path.write_text(MINIMAL)
    return load(path).stream


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job is one that ends with the code in its first argument."""
    monkeypatch.setattr(spark_job, "job_script", lambda: Path(__file__).parent / "exits.py")


@pytest.mark.usefixtures("exits")
@pytest.mark.parametrize(
    ("code", "error", "kind", "said"),
    [
        pytest.param(2, "InvalidStreamFile", SparkJobRefused, "wrong use or configuration", marks=pytest.mark.full),
        (4, "TopicGone", SparkJobRefused, "data lost, or the source changed"),
        pytest.param(5, "Unreachable", SparkJobFailed, "a server is not reachable", marks=pytest.mark.full),
        (6, "ProcessingFailed", SparkJobFailed, "processing or verification failed"),
        pytest.param(6, "TooManyInvalid", SparkJobRefused, "processing or verification failed", marks=pytest.mark.full),
        pytest.param(70, "SomeError", SparkJobFailed, "an internal error", marks=pytest.mark.full),
    ],
)
def test_an_exit_code_becomes_an_error_that_is_tried_again_or_not(
    stream: Stream, code: int, error: str, kind: type[Exception], said: str
) -> None:
    job = SparkJob(task_id="process", **of_stream(stream), application_args=[str(code), error])
    with pytest.raises(kind, match=rf"^{error}: what went wrong \(.* ended with code {code}: {said}") as caught:
        job.execute(HERE)
    assert isinstance(caught.value, AirflowFailException) == (kind is SparkJobRefused)
    assert KEPT[ANSWER] == str(caught.value)


@pytest.mark.usefixtures("exits")
def test_an_accepted_exit_code_is_the_tasks_result(stream: Stream) -> None:
    job = SparkJob(task_id="compare", **of_stream(stream), accepted=(0, 1), application_args=["1"])
    assert job.execute(HERE) == 1


@pytest.mark.covers("G3")
@pytest.mark.usefixtures("exits")
def test_a_job_knows_its_task_from_that_of_another_airflow(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[str] = []

    def submit(self: Any, application: str) -> None:
        given.append(self._env["TIDEMARK_TASK"])

    monkeypatch.setattr(SparkSubmitHook, "submit", submit)
    for context in (HERE, HERE, in_an_airflow()):
        SparkJob(task_id="process", **of_stream(stream)).execute(context)
    first, again, elsewhere = given
    assert first == again != elsewhere


@pytest.mark.parametrize(
    ("connection", "said"),
    [
        (None, "gives master yarn, which is also what a missing"),
        ("spark://local[2]", "gives master yarn, which is also what a missing"),
        (json.dumps({"conn_type": "spark", "host": "spark://other", "port": 7077}), "the stream file expects local"),
        (
            json.dumps({"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "cluster"}}),
            "jobs run in client mode",
        ),
    ],
    ids=["missing", "unreadable", "another", "cluster mode"],
)
def test_a_master_that_nobody_asked_for_is_refused(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, connection: str | None, said: str
) -> None:
    if connection is None:
        monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    else:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    expecting = stream.model_copy(update={"engine": stream.engine.model_copy(update={"master": "local[2]"})})
    job = SparkJob(task_id="process", **of_stream(expecting))
    with pytest.raises(SparkJobRefused, match=said):
        job.execute(HERE)


def test_a_missing_connection_is_named(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_HBASE_DEFAULT")
    job = SparkJob(task_id="process", **of_stream(stream))
    with pytest.raises((AirflowException, Exception), match="Airflow has no connection hbase_default"):
        job.execute(HERE)


@pytest.fixture
def warm(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The Spark connection has a warm engine."""
    engine = Engine(site, site.folder("warm-dags"))
    for name in (SPARK, FOLDER):
        monkeypatch.setenv(name, engine.variables[name])
    yield engine
    engine.end()


@pytest.mark.covers("N15")
@pytest.mark.usefixtures("exits")
def test_in_a_warm_engine_the_operator_is_the_same(stream: Stream, warm: Engine) -> None:
    for code, error, kind in ((4, "TopicGone", SparkJobRefused), (6, "ProcessingFailed", SparkJobFailed)):
        job = SparkJob(task_id="process", **of_stream(stream), application_args=[str(code), error])
        with pytest.raises(kind, match=rf"^{error}: what went wrong \(.* ended with code {code}: "):
            job.execute(HERE)
    job = SparkJob(task_id="compare", **of_stream(stream), accepted=(0, 1), application_args=["1"])
    assert job.execute(HERE) == 1
    assert warm.runs_done() == 3

    # Airflow kills a task by its operator.
    job = SparkJob(task_id="process", **of_stream(stream), application_args=["sleep"])
    ended: list[BaseException] = []

    def execute() -> None:
        try:
            job.execute(HERE)
        except AirflowException as problem:
            ended.append(problem)

    thread = threading.Thread(target=execute)
    thread.start()
    process = warm.process_of("sleep")
    job.on_kill()
    thread.join(300)
    assert isinstance(ended[0], SparkJobFailed)
    until(lambda: not psutil.pid_exists(process), "the run goes on")


def test_settings_of_a_warm_engine_that_are_wrong_are_refused(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "spark", "host": "local[2]", "extra": {"engine": {"runs": 0}}}
    monkeypatch.setenv(SPARK, json.dumps(connection))
    job = SparkJob(task_id="process", **of_stream(stream))
    with pytest.raises(SparkJobRefused, match="connection spark_default: engine among its extras: runs"):
        job.execute(HERE)


@pytest.mark.covers("N71")
def test_on_one_machine_a_task_brings_the_connector(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "AIRFLOW_CONN_SQL_DEFAULT", "AIRFLOW_CONN_LAKE_DEFAULT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))

    def command() -> str:
        job = SparkJob(task_id="process", **of_stream(stream))
        job._hook = job._get_hook()
        job._take_warm_engine()
        return " ".join(job._hook._build_spark_submit_command(job.application))

    assert "spark.jars.packages" not in command()
    with pytest.raises(ConnectionMissing, match="run `tidemark init`"):
        from_airflow("sql_default")
    monkeypatch.setenv("TIDEMARK_HOME", str(tmp_path / "home"))
    on_one_machine.begin()
    assert "spark.jars.packages=org.apache.spark:spark-sql-kafka-0-10_2.13:" in command()
    assert from_airflow("sql_default").host == str(tmp_path / "home" / "ledger.db")
    # The job is told by its environment, as of any other connection.
    with exported(["sql_default", "lake_default"]):
        assert json.loads(os.environ["AIRFLOW_CONN_LAKE_DEFAULT"])["extra"]["path"] == str(tmp_path / "home" / "lake")


@pytest.mark.covers("N71")
@pytest.mark.usefixtures("exits")
def test_a_task_whose_home_is_not_mounted_is_refused_and_begins_nothing(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Airflow does not try again: no retry mounts a disk. The folder where it would be mounted stays empty."""
    monkeypatch.delenv("AIRFLOW_CONN_SQL_DEFAULT", raising=False)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("TIDEMARK_HOME", str(home))
    job = SparkJob(task_id="process", **of_stream(stream) | {"connections": ["sql_default"]}, application_args=["0"])
    with pytest.raises(SparkJobRefused, match=rf"TIDEMARK_HOME is {home}, .* is its disk mounted\?"):
        job.execute(HERE)
    # Nor where the body of a task opens the stream.
    with pytest.raises(AirflowFailException, match=r"ConnectionMissing: .* is its disk mounted\?"), airflow_errors():
        from_airflow("sql_default")
    assert [*home.iterdir()] == []


def test_the_script_is_found() -> None:
    assert job_script().is_file()


@pytest.mark.usefixtures("exits")
def test_what_the_machine_lacks_is_refused_before_spark_starts(
    stream: Stream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sink, package in (("delta", "deltalake"), ("iceberg", "pyiceberg")):
        job = SparkJob(task_id="process", **of_stream(stream) | {"sinks": [sink]}, application_args=["0"])
        with monkeypatch.context() as lacking:
            lacking.setitem(sys.modules, package, None)
            with pytest.raises(
                SparkJobRefused, match=rf"a sink of type {sink} needs the package {package}: pip install"
            ):
                job.execute(HERE)
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkJobRefused, match=r"there is no bin/java in it. Spark needs Java 17 or 21"):
        job.execute(HERE)
