"""A DAG of one's own, as docs/own-dags.md has it, in the real Airflow: a stream's work as its tasks."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.airflow import Airflow
from services.site import REPOSITORY
from tests.support.both_ledgers import ledger
from tests.support.live_streams import Kafka
from tests.support.waiting import until
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import open_stream

FILE = f"""stream: NAME
source: {{topics: [NAME]}}
scheme: {{type: json, fields: {{id: integer}}}}
sinks: [{{type: parquet, folder: NAME}}]
dead_letters: {{type: parquet, folder: NAME_dead}}
schedule: {{cron: '0 0 29 2 *'}}
{ledger("zookeeper")}"""
SENSORS = """
from tidemark.airflow.operators import CompleteSensor, WindowsSensor

with dag:
    # It waits beside the ingest, for what the ingest reads.
    windows = WindowsSensor(task_id="of_windows", stream_file="FILE", ranges="NAME/0@0-50", poke_interval=1)
    hour = CompleteSensor(
        task_id="of_an_hour", stream_file="FILE", since="2026-01-01T00:00Z", until="2026-01-01T01:00Z", poke_interval=1
    )
    ingest >> hour
"""
# What nobody triggers: as docs/own-dags.md has it, with other numbers.
BOUND = 30


@pytest.fixture
def stream(airflow: Airflow, kafka: Kafka, streams: dict[str, Path]) -> Iterator[tuple[str, Path]]:
    """Its name and its file. Its topic is empty, and no run has looked at it."""
    name = f"own_{secrets.token_hex(3)}"
    kafka.create(name, 1)
    file = streams["everybody"] / f"{name}.yaml"
    file.write_text(FILE.replace("NAME", name))
    airflow.wait_for_dag(f"{name}__audit", "cdn_logs__ingest")
    yield name, file
    file.unlink()


@pytest.mark.full
@pytest.mark.covers("N74")
def test_the_example_runs(airflow: Airflow, kafka: Kafka, stream: tuple[str, Path], own_dags: Path) -> None:
    name, file = stream
    kafka.send((name, 0, None, b'{"id": %d}' % number) for number in range(50))
    example = examples()[0]
    own = f"day_of_{name}"
    text = example.replace('"orders_of_the_day"', f'"{own}"').replace('stream="orders"', f'stream="{name}"')
    # A run of today would start by itself, and meet the one that is triggered here.
    text = text.replace("max_active_runs=1):", "max_active_runs=1) as dag:").replace(
        'schedule="@daily"', "schedule=None"
    )
    (own_dags / f"{own}.py").write_text(text + SENSORS.replace("NAME", name).replace("FILE", str(file)))
    airflow.wait_for_dag(own)
    run = airflow.trigger(own)
    seen: set[str] = set()

    def look() -> None:
        _, found = airflow.call("GET", f"/api/v2/dags/{own}/dagRuns/{run}/taskInstances/of_windows")
        if found["state"] == "deferred" and found["trigger"]:
            seen.add(found["trigger"]["classpath"])

    assert airflow.wait(own, run, look) == "success", airflow.last_lines(own, run)
    # While the ingest was at work, its sensor was in the triggerer.
    assert seen == {"tidemark.airflow.triggers.WindowsTrigger"}
    assert airflow.result(own, run, "windows") == "1 windows"
    assert airflow.result(own, run, "ingest")["windows"][0]["read"] == 50
    assert airflow.result(own, run, "again")["windows"][0]["read"] == 50
    report = airflow.result(own, run, "audit")
    assert report["clean"] is True
    # What the operators ran are runs like others, under names that tell whose they are.
    opened = open_stream(file)
    lanes = {record.lane for record in (one.record for one in opened.ledger.committed())}
    assert INGEST in lanes
    assert len(lanes) == 2


@pytest.mark.full
@pytest.mark.covers("N75")
def test_a_watcher_starts_an_ingest(airflow: Airflow, kafka: Kafka, stream: tuple[str, Path], own_dags: Path) -> None:
    """When so many messages are unread, and not before: the first window has that many."""
    name, file = stream
    opened = open_stream(file)
    kafka.send((name, 0, None, b'{"id": %d}' % number) for number in range(BOUND - 1))
    dag = f"{name}_when_behind"
    text = examples()[2].replace('"orders_when_behind"', f'"{dag}"').replace('"orders"', f'"{name}"')
    text = text.replace('"/opt/airflow/dags/streams/orders.yaml"', f'"{file}"')
    text = re.sub("messages=[0-9_]+", f"messages={BOUND}", text)
    text = re.sub("seconds=[0-9_]+", "seconds=86400, poke_interval=1", text)
    (own_dags / f"{dag}.py").write_text(text)
    airflow.wait_for_dag(dag)
    kafka.send([(name, 0, None, b'{"id": %d}' % BOUND)])
    until(lambda: opened.ledger.head(INGEST), "no ingest was started")
    record = until(lambda: opened.ledger.record(INGEST, 1), "the ingest committed nothing")[1]
    assert sum(one.until - one.start for one in record.window.ranges) == BOUND
    assert record.attempt.run.startswith(f"{name}__ingest/{dag}__ingest__asset_triggered__")


def examples() -> list[str]:
    """The DAGs of the page, as it has them."""
    return re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "own-dags.md").read_text(), re.DOTALL)
