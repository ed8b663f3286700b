"""A replay that waits in a pool of its own holds up no ingest."""

from __future__ import annotations

import secrets
from pathlib import Path
from urllib.parse import quote

import pytest

from demo.airflow import Airflow
from tests.support.both_ledgers import ledger
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.live_streams import Kafka
from tests.support.stream_text import MINIMAL
from tests.support.waiting import until
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.open_stream import open_stream

POOL = "pooled"


# The short forms: tests/dags/test_dag_files.py has the pools of tasks, and test_planner.py a lane that is paused and resumed.
@pytest.mark.full
@pytest.mark.covers("F21", "U13")
def test_a_replay_waits_in_its_pool_while_the_ingest_goes_on(
    airflow: Airflow, kafka: Kafka, streams: dict[str, Path]
) -> None:
    stream = f"pooled_{secrets.token_hex(3)}"
    kafka.create(stream, 1)
    # The scheduler starts nothing by itself before 2028.
    file = streams["everybody"] / f"{stream}.yaml"
    schedule = "schedule:\n  cron: '0 0 29 2 *'\n"
    file.write_text(f"{MINIMAL.replace('orders', stream)}{schedule}engine:\n  replay_pool: {POOL}\n{ledger('hbase')}")
    airflow.wait_for_dag(f"{stream}__ingest", "cdn_logs__ingest")
    airflow.wait_for_dag(f"{stream}__replay", "cdn_logs__ingest")
    opened = open_stream(file)

    def position() -> int:
        head = opened.ledger.head(INGEST)
        return head.head.offsets()[TopicPartition(stream, 0)] if head else 0

    def ingest() -> int:
        kafka.send((stream, 0, None, b'{"id": %d}' % number) for number in range(10))
        assert airflow.run(f"{stream}__ingest") == "success"
        return position()

    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    slots(airflow, 0)
    assert ingest() == 10
    replay = airflow.trigger(
        f"{stream}__replay", {"ranges": f"{stream}/0@0-5", "reason": "a fixed parser", "dry_run": False}
    )
    process = f"/api/v2/dags/{stream}__replay/dagRuns/{replay}/taskInstances/process/0"
    until(lambda: airflow.call("GET", process)[1].get("state") == "scheduled", "the replay does not wait for its pool")
    assert ingest() == 20
    assert airflow.call("GET", process)[1]["state"] == "scheduled"
    # Paused while it waits, it reads nothing; resumed on its page, it goes on as the same run.
    with logged_in(airflow, patience_ms=60_000) as page:
        page.goto(f"{airflow.url}/tidemark/run?dag_id={stream}__replay&run_id={quote(replay)}")
        page.click("text=Pause …")
        page.fill("dialog input[name=reason]", "until noon")
        page.click("dialog button.primary")
        page.locator(".lane .badge", has_text="paused").wait_for()
        slots(airflow, 1)
        assert airflow.wait(f"{stream}__replay", replay) == "failed"
        page.locator("#told", has_text="The run has stopped because it was paused. 0 of 5 offsets").wait_for()
        page.screenshot(path=SCREENSHOTS / "run-stopped.png", full_page=True)
        page.click("text=Resume")
        until(lambda: airflow.state(f"{stream}__replay", replay) != "failed", "nobody has cleared the run")
        assert airflow.wait(f"{stream}__replay", replay) == "success"
        page.locator("#told", has_text="Finished. 5 of 5 offsets are read and committed.").wait_for()
    (window,) = airflow.result(f"{stream}__replay", replay, "publish")["windows"]
    assert (window["ranges"], window["stored"], position()) == ([f"{stream}/0@0-5"], 5, 20)
    file.unlink()


def slots(airflow: Airflow, number: int) -> None:
    """The pool, with so many slots."""
    given = {"slots": number, "description": None, "include_deferred": False}
    status, said = airflow.call("POST", "/api/v2/pools", {"name": POOL, **given})
    if status == 409:
        status, said = airflow.call("PATCH", f"/api/v2/pools/{POOL}", {"pool": POOL, **given})
    assert status in (200, 201), said
