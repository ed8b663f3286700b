"""From what the pages show to what mends it: a hole is dragged and filled, an hour completed, a deleted row repaired.

One stream for all tests, in their order. It began in the middle of its topic, two hours ago in event time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import happybase
import pytest
from kafka import KafkaProducer
from playwright.sync_api import Page, Route, expect

from demo.airflow import Airflow
from services import environment
from services.site import Site
from tests.support.both_ledgers import ledger
from tests.support.browser import SCREENSHOTS, logged_in, pages_of
from tests.support.live_streams import Kafka
from tests.support.stream_text import MINIMAL
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.reading import hbase_rows

STREAM = "mended"
AT = TopicPartition(STREAM, 0)
MESSAGES, FIRST = 60, 40
# The last message is a dead letter.
BAD, END = MESSAGES, MESSAGES + 1
HOUR_MS = 3_600_000
FILE = (
    MINIMAL.replace("orders", STREAM)
    .replace(f"topics: [{STREAM}]", f"topics: [{STREAM}]\n  start: {{offsets: {{{STREAM}/0: {FIRST}}}}}")
    .replace("dead_letters:", "  - type: parquet\n    folder: mended\ndead_letters:\n  hbase: hbase_other")
    + ledger("zookeeper", "zookeeper_other")
    + "schedule:\n  cron: '0 0 29 2 *'\nengine:\n  retry_delay_seconds: 1\n"
)


@pytest.fixture(scope="module")
def hour() -> int:
    """The hour before the last one, which is over, and has room for the allowed lateness."""
    return int(time.time() * 1000) // HOUR_MS * HOUR_MS - 2 * HOUR_MS


@pytest.fixture(scope="module")
def opened(airflow: Airflow, kafka: Kafka, streams: dict[str, Path], hour: int) -> Iterator[OpenStream]:
    """The stream, of which an ingest has read the last messages. All but the very last two are of one hour."""
    kafka.create(STREAM, 1)
    with closing(KafkaProducer(**kafka.settings)) as producer:
        for number in range(END):
            at = hour + 1000 * number if number < MESSAGES - 1 else int(time.time() * 1000)
            value = b'{"id": %d}' % number if number != BAD else b"no JSON"
            producer.send(STREAM, value, partition=0, timestamp_ms=at)
        producer.flush()
    file = streams["everybody"] / f"{STREAM}.yaml"
    file.write_text(FILE)
    for kind in ("ingest", "replay", "backfill", "audit"):
        airflow.wait_for_dag(f"{STREAM}__{kind}", "cdn_logs__ingest")
    assert airflow.run(f"{STREAM}__ingest") == "success"
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    yield open_stream(file)
    file.unlink()


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    """A browser that is logged in, and patient: Spark jobs run beside it."""
    with logged_in(airflow, width=1280, patience_ms=120_000) as found:
        yield found


def started(airflow: Airflow, page: Page, dag: str) -> dict[str, Any]:
    """Starts what the dialog says, for real; gives its request, when the run has ended well."""
    dialog = page.locator("dialog")
    dialog.locator("input[name=reason]").fill("the test of mending")
    dialog.locator("input[name=dry_run]").uncheck()
    dialog.locator("button.primary").click()
    link = dialog.locator(".said a").last
    link.wait_for()
    run = link.inner_text()
    page.click("dialog >> text=Close")
    assert airflow.wait(dag, run) == "success", airflow.last_lines(dag, run)
    _, found = airflow.call("GET", f"/api/v2/dags/{dag}/dagRuns/{quote(run)}")
    assert found["triggering_user_name"] == environment.ADMIN
    asked_for: dict[str, Any] = found["conf"]
    return asked_for


def covered(opened: OpenStream) -> RangeSet:
    return opened.ledger.authority().covered()


def stored(opened: OpenStream) -> list[int]:
    table = stream_table(opened, "hbase_default", STREAM)
    return sorted(row.place.offset for row in hbase_rows(opened.ledger, table, "hbase"))


@pytest.mark.covers("U2", "U3")
def test_what_is_dragged_in_the_picture_is_backfilled(airflow: Airflow, page: Page, opened: OpenStream) -> None:
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}")
    bar = page.locator("svg.bar")
    bar.locator("rect.state-before").first.wait_for()
    box = bar.bounding_box()
    assert box is not None
    # From the tenth to the twentieth offset, and a bit within the pixels of the first and the last.
    page.mouse.move(box["x"] + box["width"] * 10 / END + 1, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 20 / END - 1, box["y"] + 5, steps=5)
    page.mouse.up()
    chosen = page.locator("#coverage-chosen code").inner_text()
    start, until = (int(one) for one in chosen.removeprefix(f"{STREAM}/0@").split("-"))
    assert (start, until) in {(10, 20), (10, 19)}
    page.get_by_role("button", name="Backfill …").click()
    assert started(airflow, page, f"{STREAM}__backfill")["ranges"] == chosen
    assert covered(opened) == RangeSet([OffsetRange(AT, start, until), OffsetRange(AT, FIRST, END)])
    assert stored(opened) == [*range(start, until), *range(FIRST, MESSAGES)]
    # What lies between is no hole: the ingest began above it, and nobody has asked for it.
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}")
    bar.locator("rect.state-backfill").first.wait_for()
    expect(bar.locator("rect.state-before")).to_have_count(2)
    expect(bar.locator("rect.state-hole")).to_have_count(0)
    page.screenshot(path=SCREENSHOTS / "before.png", full_page=True)
    between = bar.locator("rect.state-before").last.bounding_box()
    assert between is not None
    page.mouse.click(between["x"] + between["width"] / 2, between["y"] + 5)
    expect(page.locator("#coverage-chosen code")).to_have_text(f"{STREAM}/0@{until}-{FIRST}", use_inner_text=True)


@pytest.mark.full
@pytest.mark.covers("U10", "U12", "U13")
def test_an_hour_is_completed_by_a_backfill_from_the_planner(
    airflow: Airflow, page: Page, opened: OpenStream, hour: int
) -> None:
    named = time.strftime("%Y-%m-%dT%HZ", time.gmtime(hour / 1000))
    calendar = f"{airflow.url}/tidemark/streams/{STREAM}/completeness"
    page.goto(calendar)
    cell = page.locator(f"#calendar button[data-hour='{named}']")
    expect(cell).to_have_class("hour hour-missing")
    cell.focus()
    page.keyboard.press("Enter")
    page.locator("#hour").wait_for()
    left = RangeSet([OffsetRange(AT, 0, FIRST)]) - covered(opened)
    for one in left:
        page.locator("#partitions code", has_text=f"{STREAM}/0@{one.start}-{one.until}").wait_for()
    page.screenshot(path=SCREENSHOTS / "hour-missing.png", full_page=True)
    page.click("text=Backfill what is missing …")
    page.click("dialog >> text=Plan it in detail")
    page.locator("#summary", has_text=f"{left.count()} offsets of 1 partition would be read.").wait_for()
    expect(page.locator("input[name=kind][value=backfill]")).to_be_checked()
    expect(page.locator("#parts")).to_contain_text(
        "Nothing: no window has read any of these offsets.", use_inner_text=True
    )
    # What no window has read goes into all sinks: there is nothing to choose.
    page.locator("#more summary").click()
    expect(page.locator("#sinks")).to_be_hidden()
    page.fill("input[name=reason]", "the rest of the hour")
    page.screenshot(path=SCREENSHOTS / "planner-backfill.png", full_page=True)
    page.click("#go")
    page.wait_for_url("**/tidemark/run?**")
    run = parse_qs(urlsplit(page.url).query)["run_id"][0]
    assert airflow.wait(f"{STREAM}__backfill", run) == "success", airflow.last_lines(f"{STREAM}__backfill", run)
    page.locator("#told", has_text=f"Finished. {left.count()} of {left.count()} offsets are read").wait_for()
    page.screenshot(path=SCREENSHOTS / "run-backfill.png", full_page=True)
    assert stored(opened) == list(range(MESSAGES))
    page.goto(calendar)
    # The history is read again after half a minute.
    for _ in range(20):
        cell.wait_for(timeout=120_000)
        if "hour-complete" in (cell.get_attribute("class") or ""):
            break
        page.wait_for_timeout(5_000)
        page.click("#again")
    expect(cell).to_have_class("hour hour-complete")


def running(tasks: dict[str, Any]) -> dict[str, Any]:
    """Airflow's answer, as it was while the job of the audit was at work."""
    (job,) = (one for one in tasks["task_instances"] if one["task_id"] == "compare")
    job["state"] = "running"
    return tasks


def repairing(run: dict[str, Any]) -> dict[str, Any]:
    """Airflow's answer, if the run had been asked to repair what it finds, and were at it."""
    return {**run, "state": "running", "conf": {**run["conf"], "repair": "execute"}}


@pytest.mark.covers("U11", "N10", "U13")
def test_a_row_that_was_deleted_is_found_and_repaired(
    airflow: Airflow, page: Page, opened: OpenStream, site: Site
) -> None:
    everything = stored(opened)
    gone = (44, 45)
    with closing(happybase.Connection("127.0.0.1", site.port("thrift"))) as hbase:
        for offset in gone:
            hbase.table(STREAM).delete(PartitionKeys(AT).key(offset, 0))
    assert stored(opened) == [one for one in everything if one not in gone]
    audit = {"level": "full"}
    # It fails, since there are findings.
    assert airflow.run(f"{STREAM}__audit", audit) == "failed"
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/audits")
    found = page.locator("#audits section").first
    found.get_by_text("✕ findings").wait_for()
    # Neighbours are named as a range.
    expect(found.get_by_role("link", name=f"{STREAM}/0@44-46")).to_have_count(1)
    page.screenshot(path=SCREENSHOTS / "audit-findings.png", full_page=True)
    # The page of the audit's run leads to the report, while it is not repaired.
    run = found.locator("p a").first.inner_text()
    page.goto(f"{airflow.url}/tidemark/run?dag_id={STREAM}__audit&run_id={quote(run)}")
    page.locator("#of-progress", has_text=f"Audit: {run}").wait_for()
    page.locator("#told", has_text="The audit found something").wait_for()
    expect(page.locator("#navigation .stream")).to_have_text(STREAM, use_inner_text=True)
    # The verdict stands there, with a link to each finding.
    verdict = page.locator("#verdict section")
    verdict.get_by_text("✕ findings").wait_for()
    expect(verdict.get_by_role("link", name=f"{STREAM}/0@44-46")).to_have_count(1)
    page.screenshot(path=SCREENSHOTS / "run-audit.png", full_page=True)
    # While its job was at work, the page showed what that had noted last, under the number of its try in Airflow.
    page.route("**/taskInstances", lambda route: route.fulfill(json=running(route.fetch().json())))
    page.reload()
    expect(page.locator("#lanes")).to_have_text("Checking the ledger")
    expect(verdict.get_by_role("button", name="Repair")).to_have_count(1)
    # While the run itself repairs, nobody is asked to do so.
    page.route("**/dagRuns/*", lambda route: route.fulfill(json=repairing(route.fetch().json())))
    page.reload()
    verdict.get_by_text("This run repairs what it has found.").wait_for()
    expect(verdict.get_by_role("button", name="Repair")).to_have_count(0)
    page.unroute_all()
    page.get_by_role("link", name="The report of the audit").click()
    page.get_by_text(f"missing {STREAM}/0@44").wait_for()
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/audits")
    # A finding leads to its message, which says the same.
    found.get_by_role("link", name=f"{STREAM}/0@44").click()
    page.locator("#fate", has_text="missing").wait_for()
    page.go_back()
    found.get_by_role("button", name="Repair: replay the 2 offsets …").click()
    # The files are right, and stay as they are.
    expect(page.locator("dialog")).to_contain_text("Only hbase would be written")
    page.screenshot(path=SCREENSHOTS / "audit-repair.png")
    asked = started(airflow, page, f"{STREAM}__audit")
    assert (asked["repair"], asked["level"], asked["reason"]) == ("execute", "full", "the test of mending")
    assert stored(opened) == everything
    # The audit found the two again, replayed them, and looked again at what it had replayed.
    _, replays = airflow.call("GET", f"/api/v2/dags/{STREAM}__replay/dagRuns?order_by=-run_after&limit=1")
    conf = replays["dag_runs"][0]["conf"]
    assert (conf["sinks"], conf["reason"]) == (["hbase"], "the test of mending")
    page.reload()
    newest = page.locator("#audits section").first
    newest.get_by_text("✓ clean").wait_for()
    newest.get_by_text("After the repair of").wait_for()
    expect(page.locator("#audits section")).to_have_count(3)
    expect(page.get_by_role("link", name="By its form in Airflow")).to_have_count(1)
    page.screenshot(path=SCREENSHOTS / "audits.png", full_page=True)
    # The page of the run that repaired says both: what was found, and what the audit after the repair says.
    _, runs = airflow.call("GET", f"/api/v2/dags/{STREAM}__audit/dagRuns?order_by=-run_after&limit=1")
    page.goto(f"{airflow.url}/tidemark/run?dag_id={STREAM}__audit&run_id={quote(runs['dag_runs'][0]['dag_run_id'])}")
    verdict.get_by_text("After the repair of").wait_for()
    expect(verdict).to_have_count(2)
    expect(verdict.last).to_contain_text("the audit after that was clean", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "run-repaired.png", full_page=True)
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/audits")
    page.locator("#audits section").last.get_by_text("the whole report").click()
    page.get_by_text(f"missing {STREAM}/0@44").wait_for()


@pytest.mark.covers("U12", "N14", "N22")
def test_only_compared_and_into_one_sink_alone(airflow: Airflow, page: Page, opened: OpenStream) -> None:
    """Nothing is committed, and what is said is of the one sink."""
    before = dict(opened.ledger.store.scan(("head",)))
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/plan")
    page.locator("#sinks input").first.wait_for(state="attached")
    page.fill("textarea[name=records]", f"{STREAM}/0@41\n{STREAM}/0@43")
    page.locator("#more summary").click()
    page.locator("#sinks label", has_text="parquet").click()
    page.click("#resolve")
    page.locator(
        "#summary", has_text="2 offsets of 1 partition would be read. Only parquet would be written."
    ).wait_for()
    page.wait_for_url(lambda url: "sinks=parquet" in url)
    page.fill("input[name=reason]", "what would it change?")
    page.click("#only-compare")
    page.wait_for_url("**/tidemark/run?**")
    run = parse_qs(urlsplit(page.url).query)["run_id"][0]
    assert airflow.wait(f"{STREAM}__replay", run) == "success", airflow.last_lines(f"{STREAM}__replay", run)
    section = page.locator("#results section", has_text="What the replay changes")
    section.wait_for()
    assert [" ".join(line.split()) for line in section.locator("tbody tr").all_inner_texts()] == ["parquet 2 0 0 0"]
    page.screenshot(path=SCREENSHOTS / "run-compared.png", full_page=True)
    _, found = airflow.call("GET", f"/api/v2/dags/{STREAM}__replay/dagRuns/{run}")
    assert (found["conf"]["sinks"], found["conf"]["dry_run"], found["conf"]["compare"]) == (["parquet"], True, True)
    assert dict(opened.ledger.store.scan(("head",))) == before
    # The dry run is started for real by its plan: the same request, and no other.
    sent: list[dict[str, object]] = []
    plan = airflow.call("GET", f"/api/v2/dags/{STREAM}__replay/dagRuns/{run}/taskInstances/check/xcomEntries/found")[1]

    def begun(route: Route) -> None:
        sent.append(json.loads(route.request.post_data or ""))
        route.fulfill(status=403, json={"detail": "not in this test"})

    page.route("**/dagRuns", begun)
    page.get_by_role("button", name="Start this for real").click()
    expect(page.locator("dialog input[name=reason]")).to_have_value("what would it change?")
    page.locator("dialog button.primary").click()
    page.locator("dialog .said", has_text="not in this test").wait_for()
    page.keyboard.press("Escape")
    assert sent[0]["conf"] == {**found["conf"], "dry_run": False, "plan": plan["value"]["plan"]}
    # The request is taken again as it was.
    page.click("text=Plan it again")
    page.locator("#summary", has_text="Only parquet would be written.").wait_for()
    assert page.locator("#sinks input:checked").evaluate_all("all => all.map((one) => one.value)") == ["parquet"]


@pytest.mark.full
@pytest.mark.covers("O6", "U17")
def test_every_page_of_a_stream_with_connections_of_its_own(airflow: Airflow, page: Page, opened: OpenStream) -> None:
    """With the other kind of ledger than the example stream, which the tests of the keyboard look at; and the dead letter."""
    failed: list[str] = []
    page.on("response", lambda one: failed.append(one.url) if one.status >= 500 and one.status != 504 else None)
    window = airflow.call("GET", f"/tidemark/api/streams/{STREAM}/windows/ingest/1")[1]
    run = quote(window["attempt"]["run"].partition("/")[2])
    for path, drawn in pages_of(STREAM):
        page.goto(f"{airflow.url}/tidemark/{path}{run if path.endswith('run_id=') else ''}")
        page.locator(drawn).first.wait_for(state="attached")
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/dead-letters")
    page.get_by_role("checkbox", name=f"Pick {STREAM}/0@{BAD}", exact=True).wait_for()
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/messages?topic={STREAM}&partition=0&offset={BAD}")
    page.locator("#fate", has_text="dead letter").wait_for()
    page.click("text=Show payloads")
    page.locator("#message .value code, #message .value pre").first.wait_for()
    page.screenshot(path=SCREENSHOTS / "other-ledger.png", full_page=True)
    assert failed == []
