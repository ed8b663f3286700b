"""The same job on YARN, in client mode, with the Python of an archive: what its containers need reaches them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from services import control, environment, processes
from services.site import Site
from tests.support.command_line import tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tests.support.submitted import KILLED_JOB, WINDOW_JOB, Submitted
from tests.support.waiting import until
from tests.support.yarn import EXECUTOR, MASTER, NODES, Yarn, yarn
from tidemark.commit.protocol import Step

CANARY = "canary-in-a-connection-51d0"
EXECUTOR_KILLED_JOB = KILLED_JOB.with_name("executor_killed_job.py")

Submit = Callable[..., Submitted]


@pytest.fixture(scope="module")
def cluster(site: Site) -> Iterator[Yarn]:
    with yarn(site) as made:
        yield made


@pytest.fixture(autouse=True)
def submitting(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command needs, in the environment."""
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"queue": "nightly"}}
    settings = {**environment.spark(site), **environment.connections(site), **environment.yarn(site)}
    for name, value in {**settings, "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(connection)}.items():
        monkeypatch.setenv(name, value)
    for name in ("PYSPARK_SUBMIT_ARGS", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def live(make: Make, cluster: Yarn) -> LiveStream:
    return make(CDN, engine={"master": "yarn", "conf": cluster.conf})


@pytest.mark.covers("N117", "Q40")
def test_an_ingest_in_a_queue_with_the_python_of_an_archive(
    live: LiveStream, cluster: Yarn, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = json.loads(os.environ["AIRFLOW_CONN_LAKE_DEFAULT"])
    lake["extra"]["hadoop"] = {"fs.azure.account.key.account.dfs.core.windows.net": CANARY}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps(lake))
    live.produce(600)
    _, said = tidemark("run", str(live.file))
    live.assert_exactly_what_was_read()
    (application,) = cluster.applications(live.name)
    assert (application["queue"], application["finalStatus"]) == ("root.nightly", "SUCCEEDED")

    # How each container was started, and what it has said.
    files = cluster.log_files(application)
    logs = [file.read_text() for file in files if file.name == "stderr"]
    assert len(logs) == 3
    assert all("SecurityManager: authentication enabled" in log for log in logs)
    assert {"launch_container.sh", "directory.info"} <= {file.name for file in files}
    assert not [file for file in files if CANARY in file.read_text()]
    assert CANARY not in said


@pytest.mark.full
@pytest.mark.covers("N117")
def test_a_replay_and_audits(live: LiveStream, cluster: Yarn) -> None:
    live.produce(600)
    file = str(live.file)
    tidemark("run", file)
    tidemark("audit", file)
    tidemark("replay", "--yes", file, "--ranges", f"{live.topics[0]}/0@0-40", "--reason", "a test")
    live.assert_exactly_what_was_read()
    tidemark("audit", file)
    assert [one["queue"] for one in cluster.applications(live.name)] == ["root.nightly"] * 4


@pytest.fixture
def submit(live: LiveStream, cluster: Yarn, tmp_path: Path) -> Iterator[Submit]:
    """Starts the job of a script for the first window of a stream, always for the same run."""
    live.produce(600)
    run = live.new_run()
    arguments = live.job_arguments(run, live.pin(run).seq)
    started: list[Submitted] = []

    def start(script: Path, **variables: str) -> Submitted:
        log = tmp_path / f"job-{len(started)}.log"
        started.append(Submitted(live.site, log, script, *arguments, master="yarn", conf=cluster.conf, **variables))
        return started[-1]

    yield start
    for job in started:
        job.end()


@pytest.mark.full
@pytest.mark.covers("F3")
def test_an_executor_is_killed(live: LiveStream, submit: Submit) -> None:
    assert "Lost executor" in submit(EXECUTOR_KILLED_JOB).succeeds()
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("F3")
@pytest.mark.parametrize("what", ["the application master", "its node", "another node"])
def test_something_is_killed_while_the_driver_waits(live: LiveStream, cluster: Yarn, submit: Submit, what: str) -> None:
    """Behind the step that leaves dead letters on executors."""
    job = submit(KILLED_JOB, TEST_STEP=Step.READ.value, TEST_SIGNAL="SIGSTOP")
    until(lambda: psutil.Process(job.process.pid).status() == psutil.STATUS_STOPPED, "the job does not stop", 300)
    (application,) = cluster.applications(live.name)
    (master,) = cluster.containers(application, MASTER)
    if what == "the application master":
        master.kill()
    else:
        lost = next(node for node in NODES if (node in master.cwd()) == (what == "its node"))
        processes.kill(live.site, lost)
    job.signal(signal.SIGCONT)
    try:
        said = job.succeeds()
    finally:
        control.up(live.site, NODES)
    # The other node has an executor too, and the job may end before Spark misses those of a lost node.
    assert what != "the application master" or "Lost executor" in said
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("F1")
def test_the_driver_is_killed(live: LiveStream, cluster: Yarn, submit: Submit) -> None:
    """As with its task in Airflow. YARN ends the rest of the application, and the next attempt does the window."""
    job = submit(KILLED_JOB, TEST_STEP=Step.READ.value, TEST_SIGNAL="SIGKILL")
    assert job.wait() < 0
    (application,) = cluster.applications(live.name)
    until(
        lambda: (
            cluster.applications(live.name)[0]["state"] == "FINISHED" and not cluster.containers(application, EXECUTOR)
        ),
        "the application goes on",
        120,
    )
    assert live.opened.ledger.committed() == []
    submit(WINDOW_JOB).succeeds()
    live.assert_exactly_what_was_read()
