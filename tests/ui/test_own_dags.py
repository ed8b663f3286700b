"""A DAG of one's own, as docs/own-dags.md has it, in the real Airflow: a stream's work as its tasks."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import pytest

from demo.airflow import Airflow
from services.site import REPOSITORY
from tests.support.both_ledgers import ledger
from tests.support.playground import Kafka
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
from tidemark_dags.operators import CompleteSensor, WindowsSensor

with dag:
    windows = WindowsSensor(task_id="of_windows", stream_file="FILE", ranges="NAME/0@0-50", poke_interval=1)
    hour = CompleteSensor(
        task_id="of_an_hour", stream_file="FILE", since="2026-01-01T00:00Z", until="2026-01-01T01:00Z", poke_interval=1
    )
    ingest >> [windows, hour]
"""


@pytest.mark.covers("N74")
def test_the_example_runs(airflow: Airflow, kafka: Kafka, streams: dict[str, Path], own_dags: Path) -> None:
    name = f"own_{secrets.token_hex(3)}"
    kafka.create(name, 1)
    kafka.send((name, 0, None, b'{"id": %d}' % number) for number in range(50))
    file = streams["everybody"] / f"{name}.yaml"
    file.write_text(FILE.replace("NAME", name))
    (example,) = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs" / "own-dags.md").read_text(), re.DOTALL)
    own = f"day_of_{name}"
    text = example.replace('"orders_of_the_day"', f'"{own}"').replace('stream="orders"', f'stream="{name}"')
    # A run of today would start by itself, and meet the one that is triggered here.
    text = text.replace("catchup=False):", "catchup=False) as dag:").replace('schedule="@daily"', "schedule=None")
    (own_dags / f"{own}.py").write_text(text + SENSORS.replace("NAME", name).replace("FILE", str(file)))
    for one in (f"{name}__audit", own):
        airflow.wait_for_dag(one)
    run = airflow.trigger(own)
    assert airflow.wait(own, run) == "success", airflow.last_lines(own, run)
    assert airflow.result(own, run, "windows") == "1 windows"
    assert airflow.result(own, run, "ingest")["windows"][0]["read"] == 50
    assert airflow.result(own, run, "again")["windows"][0]["read"] == 50
    report = airflow.result(own, run, "audit")
    assert report["clean"] is True
    # What the operators ran are runs like others, under names that tell whose they are.
    opened = open_stream(file)
    lanes = {record.lane for record in (one.record for one in opened.book.committed())}
    assert INGEST in lanes
    assert len(lanes) == 2
    file.unlink()
