"""A large replay waits for a second person, in the real Airflow; and a replay that is cancelled ends there too.

The last test repairs. No other one waits for Spark to read anything: the replays' pool has no slots until the lane is
cancelled.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.airflow import PATIENCE_SECONDS, Airflow
from services import environment
from services.site import Site
from tests.support.both_ledgers import ledger
from tests.support.command_line import tidemark
from tests.support.live_streams import Kafka
from tests.support.protocol_world import NoWork, hold
from tests.support.stream_text import MINIMAL
from tests.support.task_tries import tries
from tests.support.waiting import until
from tidemark.commit import protocol
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import INGEST, LaneEntry, LaneKind
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.windows import ingest, lanes

STREAM = f"approved_{secrets.token_hex(3)}"
DAG, AUDIT = f"{STREAM}__replay", f"{STREAM}__audit"
POOL = "approved"
FILE = (
    f"{MINIMAL.replace('orders', STREAM)}schedule:\n  cron: '0 0 29 2 *'\nlimits:\n  approve_above: 10\n"
    f"engine:\n  replay_pool: {POOL}\n  retry_delay_seconds: 1\n{ledger('hbase')}"
)


@pytest.fixture(scope="module")
def opened(airflow: Airflow, kafka: Kafka, streams: dict[str, Path]) -> Iterator[OpenStream]:
    """A stream whose ingest has committed twenty offsets, and a pool without slots."""
    kafka.create(STREAM, 1)
    kafka.send((STREAM, 0, None, b'{"id": %d}' % number) for number in range(20))
    file = streams["everybody"] / f"{STREAM}.yaml"
    file.write_text(FILE)
    found = open_stream(file)
    pending = ingest.plan_ingest(found, "test")
    assert pending is not None
    run = lanes.this_run(found, "test")
    protocol.process(found.ledger, found.sweeper, NoWork(), hold, INGEST, pending.window.seq, run)
    slots(airflow, 0)
    airflow.wait_for_dag(DAG, "cdn_logs__ingest")
    yield found
    file.unlink()


@pytest.fixture(scope="module")
def second(airflow: Airflow, site: Site) -> str:
    """The token of another user than the administrator."""
    return airflow.token_of("operator", environment.password(site, "operator"))


def slots(airflow: Airflow, number: int) -> None:
    given = {"slots": number, "description": None, "include_deferred": False}
    status, said = airflow.call("POST", "/api/v2/pools", {"name": POOL, **given})
    if status == 409:
        status, said = airflow.call("PATCH", f"/api/v2/pools/{POOL}", {"pool": POOL, **given})
    assert status in (200, 201), said


def trigger(airflow: Airflow, offsets: str) -> str:
    return airflow.trigger(DAG, {"ranges": f"{STREAM}/0@{offsets}", "reason": "a fixed parser", "dry_run": False})


def task(airflow: Airflow, run: str, name: str) -> str:
    return f"/api/v2/dags/{DAG}/dagRuns/{run}/taskInstances/{name}"


def wait_for(airflow: Airflow, run: str, name: str, state: str) -> None:
    # The one lane of a run is the first of a mapped task.
    path = f"{task(airflow, run, name)}{'/0' if name == 'process' else ''}"
    until(lambda: airflow.call("GET", path)[1].get("state") == state, f"{name} is not {state}", PATIENCE_SECONDS)


def answer(airflow: Airflow, run: str, option: str, **token: str) -> None:
    """Answer what the run asks, once it does; as the administrator, who has triggered it, or with another one's token."""
    wait_for(airflow, run, "approve", "awaiting_input")
    # Airflow 3.3 takes an answer for a mishap that comes before its scheduler has heard that the task waits. No person is so
    # quick. A dry run passes through the scheduler meanwhile.
    dry = {"ranges": f"{STREAM}/0@0-1", "reason": "a dry run", "dry_run": True}
    assert airflow.run(DAG, dry) == "success"
    given = {"chosen_options": [option], "params_input": {}}
    status, said = airflow.call("PATCH", f"{task(airflow, run, 'approve')}/-1/hitlDetails", given, **token)
    assert status == 200, said


def entry(opened: OpenStream, run: str) -> LaneEntry | None:
    return all_lanes(opened.ledger).get(lanes.lane_name(LaneKind.REPLAY, f"{DAG}/{run}"))


def open_lanes(opened: OpenStream) -> set[str]:
    found = opened.ledger.register()
    assert found is not None
    return set(found[1].lanes)


@pytest.mark.covers("Q20", "N17")
def test_a_second_person_approves_and_a_cancelled_replay_ends(
    airflow: Airflow, opened: OpenStream, second: str
) -> None:
    run = trigger(airflow, "0-15")
    wait_for(airflow, run, "approve", "awaiting_input")
    _, asked = airflow.call("GET", f"{task(airflow, run, 'approve')}/-1/hitlDetails")
    assert asked["subject"] == f"{DAG}: 15 offsets, for {environment.ADMIN}"
    assert "a fixed parser" in asked["body"]
    # The one who asks does not approve. Nothing is claimed until another one does.
    answer(airflow, run, "Approve")
    assert airflow.wait(DAG, run) == "failed"
    assert "admin has asked for it, and cannot approve it" in airflow.last_lines(DAG, run, 50)
    assert entry(opened, run) is None
    body = {
        "dry_run": False,
        "dag_run_id": run,
        "only_failed": False,
        "task_ids": ["approve"],
        "include_downstream": True,
    }
    status, said = airflow.call("POST", f"/api/v2/dags/{DAG}/clearTaskInstances", body)
    assert status == 200, said
    answer(airflow, run, "Approve", token=second)
    wait_for(airflow, run, "plan", "success")
    found = entry(opened, run)
    assert found is not None
    people: Any = (found.reason, found.asked_by, found.approved_by)
    assert people == ("a fixed parser", environment.ADMIN, "operator")

    # Its job would begin now. Cancelled, it fails at once, and no retry takes it for a mishap.
    wait_for(airflow, run, "process", "scheduled")
    tidemark("cancel", "--yes", str(opened.file.path), f"{DAG}/{run}", "--reason", "the wrong hour")
    slots(airflow, 1)
    assert airflow.wait(DAG, run) == "failed"
    slots(airflow, 0)
    assert "closed before it was done: the wrong hour" in airflow.last_lines(DAG, run, 50)
    assert tries(airflow, DAG, run, "process") == 1
    assert open_lanes(opened) == {INGEST}


@pytest.mark.full
def test_a_small_replay_waits_for_nobody_and_a_rejected_one_reads_nothing(
    airflow: Airflow, opened: OpenStream, second: str
) -> None:
    rejected, small = trigger(airflow, "0-12"), trigger(airflow, "12-20")
    answer(airflow, rejected, "Reject", token=second)
    assert airflow.wait(DAG, rejected) == "success"
    assert airflow.call("GET", task(airflow, rejected, "plan"))[1]["state"] == "skipped"
    assert entry(opened, rejected) is None
    wait_for(airflow, small, "plan", "success")
    found = entry(opened, small)
    assert found is not None
    assert (found.asked_by, found.approved_by) == (environment.ADMIN, None)
    # A run that is marked as failed keeps its claim, so that it can go on; whoever gives it up says so.
    status, said = airflow.call("PATCH", f"/api/v2/dags/{DAG}/dagRuns/{small}", {"state": "failed"})
    assert status == 200, said
    assert entry(opened, small) == found
    tidemark("cancel", "--yes", str(opened.file.path), f"{DAG}/{small}", "--reason", "given up")
    assert open_lanes(opened) == {INGEST}


def xcom(airflow: Airflow, run: str, of_task: str, key: str) -> Any:
    path = f"/api/v2/dags/{AUDIT}/dagRuns/{run}/taskInstances/{of_task}/xcomEntries/{key}"
    return until(lambda: airflow.call("GET", path)[1].get("value"), f"{of_task} gives no {key}", PATIENCE_SECONDS)


def states(airflow: Airflow, run: str) -> dict[str, str]:
    _, found = airflow.call("GET", f"/api/v2/dags/{AUDIT}/dagRuns/{run}/taskInstances")
    return {one["task_id"]: one["state"] for one in found["task_instances"]}


@pytest.mark.full
@pytest.mark.covers("N10", "Q20")
def test_a_second_person_decides_on_a_repair_and_its_audit_follows(
    airflow: Airflow, opened: OpenStream, second: str
) -> None:
    """The ingest has stored nothing, so all rows are missing. The repair is rejected; asked for again, it is approved."""
    slots(airflow, 1)
    run = airflow.trigger(AUDIT, {"repair": "execute"})
    replay = xcom(airflow, run, "plan_repair", "replay_run")
    wait_for(airflow, replay, "approve", "awaiting_input")
    _, asked = airflow.call("GET", f"{task(airflow, replay, 'approve')}/-1/hitlDetails")
    # Whoever has triggered the audit asks for its repair.
    assert asked["subject"] == f"{DAG}: 20 offsets, for {environment.ADMIN}"
    reason = f"repair of what {AUDIT}/{run} found"
    assert reason in asked["body"]
    answer(airflow, replay, "Reject", token=second)
    assert airflow.wait(AUDIT, run) == "failed"
    after = ("repair", "compare_again", "report_again")
    assert {name: state for name, state in states(airflow, run).items() if name in after} == dict.fromkeys(
        after, "skipped"
    )
    said = airflow.last_lines(AUDIT, run)
    assert f"operator has rejected the repair {DAG}/{replay}: " in said
    assert "missing 20" in said
    assert entry(opened, replay) is None

    body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "task_ids": ["repair"]}
    status, answered = airflow.call(
        "POST", f"/api/v2/dags/{AUDIT}/clearTaskInstances", {**body, "include_downstream": True}
    )
    assert status == 200, answered
    answer(airflow, replay, "Approve", token=second)
    assert airflow.wait(AUDIT, run) == "success", airflow.last_lines(AUDIT, run)
    found = entry(opened, replay)
    assert found is not None
    assert (found.reason, found.asked_by, found.approved_by) == (reason, environment.ADMIN, "operator")
    again = airflow.result(AUDIT, run, "report_again")
    assert (again["clean"], again["expected"], again["stored"]) == (True, 20, 20)
    slots(airflow, 0)
