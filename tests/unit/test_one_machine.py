"""A file of SQLite goes with a Spark on this machine alone, whoever opens the stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import tidemark
from tests.support.stream_text import MINIMAL
from tidemark.clients.environment import from_environment
from tidemark.errors import EXIT_WRONG_USE, WrongUse
from tidemark.runs.live.one_machine import check_one_machine
from tidemark.runs.live.open_stream import open_stream
from tidemark.streams.loading import load

LEDGER, DEAD = "ledger: {type: sql, sql: here}\n", "dead_letters: {type: sql, sql: here}\n"


@pytest.fixture(autouse=True)
def connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "HERE": {"conn_type": "sqlite", "host": str(tmp_path / "ledger.db")},
        "KAFKA_DEFAULT": {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}},
        "HBASE_DEFAULT": {"host": "127.0.0.1", "port": 1},
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "spark://master:7077"},
    }
    for name, said in known.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(said))


def file(tmp_path: Path, more: str) -> Path:
    path = tmp_path / "orders.yaml"
    text = MINIMAL[: MINIMAL.index("dead_letters:")] if "dead_letters:" in more else MINIMAL
    path.write_text(text + more)
    return path


@pytest.mark.slow
@pytest.mark.covers("O10", "O11")
@pytest.mark.parametrize(
    ("more", "what"),
    [
        (LEDGER, "its ledger is in a file of SQLite"),
        (DEAD, "its dead letters are in a file of SQLite"),
        (LEDGER + DEAD, "its ledger and its dead letters are in a file of SQLite"),
    ],
)
@pytest.mark.parametrize("master", ["spark://master:7077", "yarn", "k8s://https://cluster"])
def test_it_is_refused_for_workers_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, what: str, master: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": master}))
    path = file(tmp_path, more)
    said = f"{what}, which suits one machine, and Spark's master is {master}"
    with pytest.raises(WrongUse, match=said):
        open_stream(path)
    assert said in tidemark("streams", "check", str(path), code=EXIT_WRONG_USE)[1]
    assert said in tidemark("status", str(path), code=EXIT_WRONG_USE)[1]
    assert not (tmp_path / "ledger.db").exists()


@pytest.mark.covers("O10")
def test_it_is_taken_on_one_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = file(tmp_path, LEDGER)
    for master in ("local", "local[2]", "local[*]"):
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": master}))
        open_stream(path)
        tidemark("streams", "check", str(path))
    # Where nothing is known of Spark, or of the database, that is for others to say.
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    open_stream(path)
    monkeypatch.delenv("AIRFLOW_CONN_HERE")
    tidemark("streams", "check", str(path))


@pytest.mark.covers("O10")
def test_the_spark_at_work_counts_whatever_its_connection_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    stream = load(file(tmp_path, LEDGER)).stream
    check_one_machine(stream, from_environment)
    with pytest.raises(WrongUse, match="Spark's master is yarn"):
        check_one_machine(stream, from_environment, "yarn")


@pytest.mark.covers("O10")
def test_other_databases_go_with_any_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = {"conn_type": "postgres", "host": "127.0.0.1", "schema": "s", "login": "me"}
    monkeypatch.setenv("AIRFLOW_CONN_HERE", json.dumps(database))
    open_stream(file(tmp_path, LEDGER))
