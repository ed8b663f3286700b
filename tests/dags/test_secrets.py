"""A run in Airflow on a Kafka that asks for a password: where that must not be, it is not."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from tests.support.dag_streams import STREAM_FILE
from tests.support.oracle import CDN, stream_of
from tests.support.secure import SecureKafka, connect, marked, watched
from tidemark.clients.connections import variable
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import open_stream

pytestmark = [
    pytest.mark.usefixtures("airflow_home", "submitting"),
    # Airflow itself, in this process.
    pytest.mark.filterwarnings("ignore"),
]

NAME = "secure_logs"


@pytest.fixture
def file(tmp_path: Path, secure: SecureKafka, monkeypatch: pytest.MonkeyPatch, secret: str) -> Path:
    """A stream of the secure Kafka, and all of its connections that have a secret."""
    secure.create(NAME, 2)
    secure.allow(f"User:{NAME}", f"Read topic {NAME}")
    secure.send((NAME, number % 2, key, value) for number, (key, value) in enumerate(CDN.generate(50, 0)))
    connect(monkeypatch, "kafka_secure", secure.user(NAME, secret))
    # Its nodes belong to this login from their first write on.
    zookeeper = json.loads(os.environ[variable("zookeeper_default")])
    monkeypatch.setenv(variable("zookeeper_own"), json.dumps({**zookeeper, "login": NAME, "password": secret}))
    ledger = {"type": "zookeeper", "path": f"/{NAME}", "zookeeper": "zookeeper_own"}
    stream = stream_of(CDN, NAME, (NAME,), source={"kafka": "kafka_secure"}, ledger=ledger)
    path = tmp_path / "streams" / f"{NAME}.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump({**stream, "engine": CDN.stream["engine"]}))
    monkeypatch.setenv("TIDEMARK_STREAMS", str(path.parent))
    return path


@pytest.mark.full
@pytest.mark.covers("Q4", "Q5")
def test_no_secret_of_a_connection_is_shown_or_kept_by_airflow(
    file: Path, airflow_home: Path, capfd: pytest.CaptureFixture[str], secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command lines of all that is started, task logs, rendered fields and XCom; with the right password and a wrong one."""
    canary = marked(secret)
    dags: dict[str, Any] = dict(DagBag(dag_folder=str(STREAM_FILE.parent.parent)).dags)
    with watched(canary) as command_lines:
        run = dags[f"{NAME}__ingest"].test()
        assert {task.task_id: str(task.state) for task in run.get_task_instances()}["process"] == "success"
        found = open_stream(file).ledger.head(INGEST)
        assert found is not None
        assert found.head.last is not None
        kafka = json.loads(os.environ[variable("kafka_secure")])
        kafka["extra"]["sasl.password"] = f"{secret} wrong"
        monkeypatch.setenv(variable("kafka_secure"), json.dumps(kafka))
        failed = dags[f"{NAME}__ingest"].test()
        assert {task.task_id: str(task.state) for task in failed.get_task_instances()}["plan"] == "failed"
    logged = "".join(capfd.readouterr())
    assert f"{NAME}/ingest window 1: committed" in logged
    assert f"does not let in User:{NAME} by SCRAM-SHA-512" in logged
    assert command_lines == []
    assert canary not in logged
    kept = [path for path in airflow_home.rglob("*") if path.is_file()]
    assert [path for path in kept if canary.encode() in path.read_bytes()] == []
