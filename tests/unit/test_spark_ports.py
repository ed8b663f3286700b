"""Whoever reaches the ports of a Spark of ours gets nothing, whichever way it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark import SparkConf

from tests.support.listening_jobs import JOB, OPEN, assert_nobody_gets_anything, gives_something, listening
from tests.support.quick_java import OPTIONS
from tests.support.spark_cluster import spark_cluster
from tidemark.clients.connections import Connection
from tidemark.errors import EXIT_WRONG_USE, WrongUse
from tidemark.spark.runtime.guarding import guarded
from tidemark.submit.command import INSECURE, settings_of

pytestmark = pytest.mark.slow
SUBMIT = str(Path(sys.executable).with_name("spark-submit"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight Javas are started here for a few tasks each: to compile these costs more than they take."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", OPTIONS)


def words(conf: dict[str, str]) -> list[str]:
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


@pytest.mark.full
def test_without_our_settings_anybody_gets_what_tasks_are_made_of() -> None:
    """The peer of the other tests can do it."""
    with listening([SUBMIT, "--master", "local[2]", str(JOB)], AS_SPARK_DOES="yes") as ports:
        assert gives_something(ports)


@pytest.mark.covers("Q40")
@pytest.mark.parametrize(
    "master", ["local[2,3]", *(pytest.param(one, marks=pytest.mark.full) for one in ("local", "local[*]"))]
)
def test_a_job_of_a_local_spark_lets_nobody_in(master: str) -> None:
    with listening([SUBMIT, "--master", master, *words(OPEN), str(JOB)]) as ports:
        assert_nobody_gets_anything(ports)


@pytest.mark.full
@pytest.mark.covers("Q40")
def test_a_cluster_with_a_secret_lets_nobody_else_in(tmp_path: Path) -> None:
    """The driver, and the executors, which are other programs."""
    with spark_cluster(tmp_path) as cluster:
        own = {
            "PYSPARK_PYTHON": str(cluster.python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with listening([SUBMIT, "--master", cluster.master, str(JOB)], **own) as ports:
            executors = [one for one in psutil.process_iter(["cmdline"]) if cluster.runs(one)]
            assert len(executors) == 2
            assert not any(str(os.environ["_SPARK_AUTH_SECRET"]) in " ".join(one.cmdline()) for one in executors)
            theirs = [port for one in executors for port in listened(one)]
            assert theirs
            assert not gives_something([*ports, *theirs])
        refused = subprocess.run(
            [SUBMIT, "--master", cluster.master, "--conf", "spark.authenticate=false", str(JOB)],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
    assert refused.returncode == EXIT_WRONG_USE
    # spark-submit passes on what its driver prints, all on standard output.
    assert b"without authentication: whoever reaches the ports" in refused.stdout


def listened(process: psutil.Process) -> list[tuple[str, int]]:
    found = process.net_connections("tcp")
    return [(one.laddr.ip.removeprefix("::ffff:"), one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN]


def given(master: str, **settings: str) -> SparkConf:
    conf = SparkConf(loadDefaults=False, _jvm=None)
    conf.setMaster(master)
    for name, value in settings.items():
        conf.set(name, value)
    return conf


CLUSTERS = ["spark://head:7077", "local-cluster[2,1,1024]", "mesos://head"]


@pytest.mark.covers("Q40")
@pytest.mark.parametrize("master", CLUSTERS)
def test_a_cluster_that_lets_anybody_in_is_refused(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_SPARK_AUTH_SECRET", raising=False)
    for settings in ({}, {"spark.authenticate": "true"}, {"spark.authenticate": "false"}):
        with pytest.raises(WrongUse, match=r"without authentication: .* spark-defaults\.conf .*allow_insecure"):
            guarded(given(master, **settings))
    with pytest.raises(WrongUse, match="without authentication"):
        guarded(given(master, **{"spark.authenticate": "false", "spark.authenticate.secret": "s"}))
    assert "spark.authenticate" not in guarded(given(master, **{INSECURE: "true"}))
    for one in (given(master, **{"spark.authenticate.secret": "s"}), given(master)):
        made = guarded(one)
        assert made["spark.authenticate"] == made["spark.network.crypto.enabled"] == "true"
        assert made["spark.authenticate.secret"] == "s"
        # As Spark's own daemons have it.
        monkeypatch.setenv("_SPARK_AUTH_SECRET", "s")


@pytest.mark.covers("Q40")
@pytest.mark.parametrize("master", ["yarn", "k8s://https://cluster"])
def test_a_cluster_that_makes_secrets_lets_nobody_in(master: str) -> None:
    for settings in ({}, {"spark.authenticate": "true"}, {INSECURE: "true"}):
        made = guarded(given(master, **settings))
        assert made["spark.authenticate"] == made["spark.network.crypto.enabled"] == "true"
    refused = {"spark.authenticate": "false"}
    with pytest.raises(WrongUse, match=r"take spark\.authenticate: false out of its settings"):
        guarded(given(master, **refused))
    assert "spark.authenticate" not in guarded(given(master, **refused, **{INSECURE: "true"}))
    own = {"spark.network.crypto.enabled": "false"}
    assert "spark.network.crypto.enabled" not in guarded(given(master, **own))


@pytest.mark.covers("Q40")
@pytest.mark.parametrize("master", ["local[2]", "yarn", "k8s://https://cluster"])
def test_nobody_ends_a_stage_on_sparks_page_unless_the_settings_say_so(master: str) -> None:
    made = guarded(given(master))
    assert made["spark.ui.killEnabled"] == "false"
    assert made.get("spark.ui.enabled") == ("false" if master == "local[2]" else None)
    own = {"spark.ui.enabled": "true", "spark.ui.killEnabled": "true"}
    assert not own.keys() & guarded(given(master, **own)).keys()


@pytest.mark.covers("Q40")
def test_only_the_connection_allows_what_is_insecure() -> None:
    assert settings_of(Connection("spark_default", "spark://head:7077")) == {}
    insecure = Connection("spark_default", "spark://head:7077", extra={"allow_insecure": True})
    assert settings_of(insecure) == {INSECURE: "true"}
