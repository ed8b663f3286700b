"""Triggers that are sent twice, an erasure that a second person approves, and what a stream file says of its runs.

In the real Airflow, with its scheduler. No test here needs Spark: the replays' pool has no slots.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from demo.airflow import PATIENCE_SECONDS, Airflow
from services import environment
from services.site import REPOSITORY, Site
from tests.support.both_ledgers import ledger
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.live_streams import Kafka
from tests.support.noted_callbacks import SEEN
from tests.support.protocol_world import NoWork, hold
from tests.support.stream_text import MINIMAL
from tests.support.waiting import until
from tidemark.commit import protocol
from tidemark.ledger.records import INGEST, Receipt
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.windows import ingest, lanes

STREAM = f"triggers_{secrets.token_hex(3)}"
REPLAY, ERASE = f"{STREAM}__replay", f"{STREAM}__erase"
POOL = "triggers"
KEY = b"customer 4711"
FILE = f"""{MINIMAL.replace("orders", STREAM)}
schedule: {{cron: '0 0 29 2 *'}}
owner: team orders
tags: [critical]
access_control: {{Op: {{DAGs: [can_read, can_edit]}}}}
on_success: tests.support.noted_callbacks:succeeded
on_failure: tests.support.noted_callbacks:failed
limits: {{approve_above: 1}}
engine: {{replay_pool: {POOL}, retry_delay_seconds: 1, queue: evenings}}
{ledger("zookeeper")}"""


class Written(NoWork):
    """What has written no row anywhere, so that nothing has to be removed."""

    def verify(self) -> Receipt:
        return Receipt(tallies=(), sinks=(), dead_letters=None, started_at=1, finished_at=2)


@pytest.fixture(scope="module")
def opened(airflow: Airflow, kafka: Kafka, streams: dict[str, Path]) -> Iterator[OpenStream]:
    """A stream whose ingest has committed twenty offsets, and a pool without slots."""
    SEEN.unlink(missing_ok=True)
    kafka.create(STREAM, 1)
    kafka.send((STREAM, 0, KEY if number == 12 else None, b'{"id": %d}' % number) for number in range(20))
    file = streams["everybody"] / f"{STREAM}.yaml"
    file.write_text(FILE.replace("topics: [", "start: earliest\n  topics: ["))
    found = open_stream(file)
    pending = ingest.plan_ingest(found, "test")
    assert pending is not None
    run = lanes.this_run(found, "test")
    protocol.process(found.ledger, found.sweeper, Written(), hold, INGEST, pending.window.seq, run)
    pool = {"name": POOL, "slots": 0, "description": None, "include_deferred": False}
    assert airflow.call("POST", "/api/v2/pools", pool)[0] in (200, 201, 409)
    for dag in (REPLAY, ERASE):
        airflow.wait_for_dag(dag, "cdn_logs__ingest")
    yield found
    file.unlink()


def runs_of(airflow: Airflow, dag: str) -> list[dict[str, Any]]:
    return list(airflow.call("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=run_after&limit=100")[1]["dag_runs"])


@pytest.mark.full
@pytest.mark.covers("F22")
@pytest.mark.usefixtures("opened")
def test_another_program_that_sends_a_trigger_twice(airflow: Airflow, tmp_path: Path) -> None:
    """The recipe of docs/operating.md, as it stands there, by a shell."""
    text = (REPOSITORY / "docs" / "operating.md").read_text()
    (recipe,) = re.findall(r"### A trigger that is sent twice.*?```sh\n(.*?)```", text, re.DOTALL)
    # A dry run: what it is does not matter here.
    recipe = recipe.replace("orders", STREAM).replace('"dry_run": false', '"dry_run": true').replace("3@17", "0@17")
    env = {**os.environ, "AIRFLOW": airflow.url, "TOKEN": str(airflow.token)}
    said = [
        subprocess.run(
            ["bash", "-ec", recipe], capture_output=True, text=True, env=env, check=True, cwd=tmp_path
        ).stdout
        for _ in range(2)
    ]
    (run,) = runs_of(airflow, REPLAY)
    assert said == [f"{run['dag_run_id']}\n"] * 2
    assert re.fullmatch("replay__[0-9a-f]{16}", run["dag_run_id"])
    # The second answer was no 200.
    assert "dag_run_id" not in json.loads((tmp_path / "answer.json").read_text())
    assert airflow.wait(REPLAY, run["dag_run_id"]) == "success"


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    with logged_in(airflow, patience_ms=120_000) as opened:
        yield opened


@pytest.mark.covers("F22")
@pytest.mark.usefixtures("opened")
def test_a_page_that_sends_a_trigger_twice(airflow: Airflow, page: Page) -> None:
    """Airflow makes the run, and its answer is lost on the way. The person presses the button once more."""
    before = {one["dag_run_id"] for one in runs_of(airflow, REPLAY)}
    lost: list[str] = []

    def lose(route: Route) -> None:
        if route.request.method != "POST" or lost:
            route.continue_()
            return
        lost.append(route.fetch().json()["dag_run_id"])
        route.abort()

    page.route(f"**/api/v2/dags/{REPLAY}/dagRuns", lose)
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/plan?kind=replay&records={STREAM}/0@5")
    page.locator("#summary", has_text="1 offset of 1 partition would be read").wait_for()
    page.fill("input[name=reason]", "bug 17")
    page.click("#go")
    page.locator("#said.bad").wait_for()
    # Nobody knows whether there is a run now.
    expect(page.locator(".toast")).to_have_count(0)
    page.click("#go")
    page.wait_for_url("**/tidemark/run?**")
    # Also on the page that is opened then.
    expect(page.locator(".toast")).to_have_text(f"The same run of {REPLAY} is under way already.")
    (made,) = {one["dag_run_id"] for one in runs_of(airflow, REPLAY)} - before
    assert [made] == lost
    assert made in page.url


@pytest.mark.full
@pytest.mark.covers("U3")
@pytest.mark.usefixtures("opened")
def test_what_was_started_and_what_was_refused_is_said_beside_a_dialog(
    airflow: Airflow, page: Page, site: Site
) -> None:
    """In sight, though a dialog lies over all else; and on the page that somebody opens within the next seconds."""

    def press(token: str | None) -> None:
        page.context.add_cookies([{"name": "_token", "value": str(token), "url": airflow.url}])
        page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/messages?topic={STREAM}&partition=0&offset=6")
        page.get_by_role("button", name="Replay this message").click()
        page.fill("dialog input[name=reason]", "bug 19")
        page.click("dialog button.primary")

    press(airflow.token_of("viewer", environment.password(site, "viewer")))
    refused = page.locator(".toast.bad", has_text=f"Airflow has started no run of {REPLAY}.")
    refused.wait_for()
    page.locator("dialog .said.bad", has_text=f"Airflow does not let you start {REPLAY}").wait_for()
    press(airflow.token)
    started = page.locator(".toast", has_text=f"Airflow has taken a run of {REPLAY}.")
    started.wait_for()
    # In the browser's top layer, as the dialog is.
    expect(page.locator("#toasts:popover-open")).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "toast-over-a-dialog.png")
    page.locator("dialog .said a").first.click()
    page.wait_for_url("**/tidemark/run?**")
    started.wait_for()
    page.screenshot(path=SCREENSHOTS / "toast-on-the-next-page.png")


@pytest.mark.full
@pytest.mark.covers("N43")
@pytest.mark.usefixtures("opened")
def test_the_pages_say_that_a_dag_is_paused(airflow: Airflow, page: Page) -> None:
    """Before somebody asks for a run, and while the run waits: Airflow takes it, and does not begin it."""
    dag, said = f"/api/v2/dags/{REPLAY}", f"The DAG {REPLAY} is paused in Airflow"
    # As it was made.
    assert airflow.call("GET", dag)[1]["is_paused"] is False
    address = f"{airflow.url}/tidemark/streams/{STREAM}/plan?kind=replay&records={STREAM}/0@7"
    page.goto(address)
    page.locator("#summary", has_text="1 offset of 1 partition would be read").wait_for()
    expect(page.locator("#paused")).to_have_text("", use_inner_text=True)
    assert airflow.call("PATCH", dag, {"is_paused": True})[0] == 200
    try:
        page.goto(address)
        page.locator("#paused", has_text=said).wait_for()
        page.fill("input[name=reason]", "bug 18")
        page.click("#go")
        page.wait_for_url("**/tidemark/run?**")
        page.locator("#told", has_text=said).wait_for()
        # Whoever may do so in Airflow lets it go on from there.
        page.get_by_role("button", name=f"Resume the DAG {REPLAY}").click()
        page.locator("#told", has_not_text=said).wait_for()
        assert airflow.call("GET", dag)[1]["is_paused"] is False
        expect(page.get_by_role("button", name="Resume the DAG")).to_have_count(0)
    finally:
        assert airflow.call("PATCH", dag, {"is_paused": False})[0] == 200


@pytest.mark.full
@pytest.mark.covers("N27", "Q20")
def test_an_erasure_waits_for_a_second_person(airflow: Airflow, opened: OpenStream, site: Site) -> None:
    conf = {"records": f"{STREAM}/0@3\n{STREAM}/0@4", "reason": "request 4711"}
    dry = airflow.trigger(ERASE, conf)
    assert airflow.wait(ERASE, dry) == "success"
    found = airflow.call("GET", f"/api/v2/dags/{ERASE}/dagRuns/{dry}/taskInstances/check/xcomEntries/found")[1]
    assert found["value"]["totals"] == {"to be erased": "2"}

    run = airflow.trigger(ERASE, {**conf, "dry_run": False})
    task = f"/api/v2/dags/{ERASE}/dagRuns/{run}/taskInstances/approve"
    until(
        lambda: airflow.call("GET", task)[1]["state"] == "awaiting_input",
        "nobody is asked to approve",
        PATIENCE_SECONDS,
    )
    asked = airflow.call("GET", f"{task}/-1/hitlDetails")[1]
    assert asked["subject"] == f"{ERASE}: 2 offsets, for {environment.ADMIN}"
    assert opened.ledger.committed()[-1].record.lane == INGEST
    # Airflow 3.3 takes an answer for a mishap that comes before its scheduler has heard that the task waits.
    assert airflow.run(ERASE, conf) == "success"
    second = airflow.token_of("operator", environment.password(site, "operator"))
    given = {"chosen_options": ["Approve"], "params_input": {}}
    status, said = airflow.call("PATCH", f"{task}/-1/hitlDetails", given, token=second)
    assert status == 200, said
    assert airflow.wait(ERASE, run) == "success"
    done = airflow.result(ERASE, run, "publish")
    (stone,) = done["tombstones"]
    assert (done["erased"], stone["asked_by"], stone["approved_by"], stone["reason"]) == (
        2,
        environment.ADMIN,
        "operator",
        "request 4711",
    )


@pytest.mark.full
@pytest.mark.covers("U24", "N97", "N98")
@pytest.mark.usefixtures("opened")
def test_what_a_key_has_is_shown_and_erased_from_the_pages(airflow: Airflow, page: Page) -> None:
    """First from the page of a message, as far as the plan; then all with its key, and what remains."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/messages?topic={STREAM}&partition=0&offset=12")
    page.click("text=Erase it …")
    page.locator("#summary", has_text="1 message of 1 partition would be erased for good.").wait_for()
    expect(page.locator("input[name=kind]:checked")).to_have_value("erase")
    page.locator("select[name=way]").select_option("key")
    page.click("#resolve")
    page.locator("#problem", has_text="Key: nothing is filled in.").wait_for()
    page.fill("input[name=key]", KEY.decode())
    page.click("#resolve")
    page.locator("#estimate", has_text="1 message has the key").wait_for()
    places = page.locator("table.places")
    expect(places.locator("tr", has_text="the source")).to_contain_text("until Kafka deletes them", use_inner_text=True)
    assert "4711" not in page.url
    page.screenshot(path=SCREENSHOTS / "erasure-planned.png", full_page=True)
    page.fill("input[name=reason]", "request 4711")
    page.click("text=Erase 1 message for good")
    page.wait_for_url("**/tidemark/run?**")
    page.locator("#told", has_text="Finished. 1 of 1 offset is erased.").wait_for()
    page.locator("#results h2", has_text="What remains").wait_for()
    page.screenshot(path=SCREENSHOTS / "erasure-done.png", full_page=True)
    run = page.url.rpartition("run_id=")[2]
    ended = airflow.call("GET", f"/api/v2/dags/{ERASE}/dagRuns/{run}")[1]
    # Airflow's own page of the run says what came of it, and why it was asked for.
    assert ended["note"] == "Answer: erased 1 message; something remains in the source\n\nReason: request 4711"
    conf = ended["conf"]
    assert (conf["records"], conf["dry_run"], len(conf["plan"]), "key" in conf) == (
        f"{STREAM}#1/0@12",
        False,
        64,
        False,
    )
    events = airflow.call("GET", f"/api/v2/eventLogs?dag_id={ERASE}&event=tidemark_key_search")[1]["event_logs"]
    assert [one["owner"] for one in events] == [environment.ADMIN]
    assert "customer" not in events[0]["extra"]
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/messages?topic={STREAM}&partition=0&offset=12")
    page.locator("#fate", has_text="erased").wait_for()
    expect(page.locator("text=Erase it")).to_have_count(0)


@pytest.mark.covers("U25")
@pytest.mark.usefixtures("opened")
def test_a_run_of_many_results_shows_its_answer(airflow: Airflow, page: Page) -> None:
    """Airflow gives at most 100 entries at once, whatever is asked for, and a run of many lanes has more."""
    run = airflow.trigger(ERASE, {"records": f"{STREAM}/0@11", "reason": "many results"})
    assert airflow.wait(ERASE, run) == "success"
    task = f"/api/v2/dags/{ERASE}/dagRuns/{run}/taskInstances/check/xcomEntries"
    for number in range(110):
        assert airflow.call("POST", task, {"key": f"a{number}", "value": number})[0] == 201
    assert len(airflow.call("GET", f"{task}?limit=1000")[1]["xcom_entries"]) == 100
    page.goto(f"{airflow.url}/tidemark/run?dag_id={ERASE}&run_id={run}")
    page.locator("#results section", has_text="Before the run").locator("tfoot", has_text="to be erased").wait_for()


@pytest.mark.full
@pytest.mark.usefixtures("opened")
def test_what_a_stream_file_says_of_its_runs(airflow: Airflow) -> None:
    """Owner, tags and queue as Airflow has them; and the callbacks of a run that has succeeded, and of one that has failed."""
    details = airflow.call("GET", f"/api/v2/dags/{REPLAY}/details")[1]
    assert details["owners"] == ["team orders"]
    assert {one["name"] for one in details["tags"]} == {"tidemark", STREAM, "critical"}
    good = airflow.trigger(REPLAY, {"records": f"{STREAM}/0@7", "reason": "a dry run"})
    bad = airflow.trigger(REPLAY, {"records": "no record", "reason": "a mistake"})
    assert (airflow.wait(REPLAY, good), airflow.wait(REPLAY, bad)) == ("success", "failed")
    check = airflow.call("GET", f"/api/v2/dags/{REPLAY}/dagRuns/{good}/taskInstances/check")[1]
    assert check["queue"] == "evenings"

    def called() -> bool:
        seen = [json.loads(line) for line in SEEN.read_text().splitlines()] if SEEN.exists() else []
        return ["success", REPLAY, good] in seen and ["failure", REPLAY, bad] in seen

    until(called, "the callbacks were not called", PATIENCE_SECONDS)
