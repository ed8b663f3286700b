"""Replay and backfill as people start them: by the forms in Airflow's own pages, in a real browser.

One stream for all tests, in their order: its scheduler has run it once, and it began in the middle of its topic.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import happybase
import pytest
from playwright.sync_api import Locator, Page, expect

from demo.airflow import PATIENCE_SECONDS, Airflow
from services.site import Site
from tests.support.airflow_forms import choose, open_form, open_section, send_form, switch
from tests.support.both_ledgers import ledger
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.live_streams import Kafka
from tests.support.stream_text import MINIMAL
from tests.support.task_tries import tries
from tests.support.waiting import until
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import INGEST, SelectionRef
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.reading import hbase_rows

STREAM = "forms"
AT = TopicPartition(STREAM, 0)
MESSAGES, FIRST = 60, 40
ERASED = 55
# A table of records, which another program has written.
RECORDS = f"{STREAM}_records"
# Where each row becomes a message too.
CHECKED = f"{STREAM}-checked"
PATIENCE_MS = 120_000
ENDED = ("success", "failed")
# The scheduler makes up for one time that is past, and for no other: the tests are alone with their runs.
ONCE_A_YEAR = "0 0 1 1 *"
FILE = (
    MINIMAL.replace("orders", STREAM)
    .replace(f"topics: [{STREAM}]", f"topics: [{STREAM}]\n  start: {{offsets: {{{STREAM}/0: {FIRST}}}}}")
    .replace("dead_letters:", f"  - {{type: kafka, topic: {CHECKED}, key: id}}\ndead_letters:")
    .replace("dead_letters:", f"schedule:\n  cron: '{ONCE_A_YEAR}'\nrecord_tables:\n- table: {RECORDS}\ndead_letters:")
) + ledger("zookeeper")


@pytest.fixture(scope="module")
def opened(airflow: Airflow, kafka: Kafka, streams: dict[str, Path]) -> Iterator[OpenStream]:
    """The stream, and its file among those of the running Airflow."""
    kafka.create(STREAM, 1)
    kafka.create(CHECKED, 1)
    kafka.send((STREAM, 0, None, b'{"id": %d}' % number) for number in range(MESSAGES))
    # The folder that Airflow reads; it finds what is put there later too.
    file = streams["everybody"] / f"{STREAM}.yaml"
    file.write_text(FILE)
    for kind in ("ingest", "replay", "backfill", "audit", "erase"):
        airflow.wait_for_dag(f"{STREAM}__{kind}", "cdn_logs__ingest")
    yield open_stream(file)
    file.unlink()


@pytest.fixture(scope="module")
def scheduled_run(airflow: Airflow, opened: OpenStream) -> dict[str, Any]:
    """The first run of the ingest, which nobody has triggered."""
    path = f"/api/v2/dags/{STREAM}__ingest/dagRuns?order_by=run_after&limit=1"

    def ended() -> list[dict[str, Any]]:
        return [run for run in airflow.call("GET", path)[1]["dag_runs"] if run["state"] in ENDED]

    return until(ended, "the scheduler has run no ingest", PATIENCE_SECONDS)[0]


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    """A browser that is logged in, and patient: Spark jobs run beside it."""
    with logged_in(airflow, patience_ms=PATIENCE_MS) as opened:
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        yield opened


@pytest.mark.usefixtures("airflow")
def test_the_scheduler_starts_the_ingest(opened: OpenStream, scheduled_run: dict[str, Any]) -> None:
    assert (scheduled_run["run_type"], scheduled_run["state"]) == ("scheduled", "success")
    found = opened.ledger.head(INGEST)
    assert found is not None
    assert found.head.offsets() == {AT: MESSAGES}
    assert found.head.last is not None
    assert found.head.last.attempt.run == f"{STREAM}__ingest/{scheduled_run['dag_run_id']}"
    assert stored(opened) == list(range(FIRST, MESSAGES))


@pytest.mark.full
@pytest.mark.covers("N16", "N5")
@pytest.mark.usefixtures("scheduled_run")
def test_a_dry_run_of_a_replay(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    """The form as it is at first: one field and a reason. The first task says what would be read."""
    before = dict(opened.ledger.store.scan(("head",)))
    form = form_of(page, airflow, "replay")
    form.locator("#element_records").fill(f"{STREAM}/0@41\n{STREAM}/0@43\n{STREAM}/0@{39}")
    form.locator("#element_reason").fill("bug 17")
    run = send_form(form, page, "success")
    path = f"/api/v2/dags/{STREAM}__replay/dagRuns/{run}/taskInstances/check/xcomEntries/found"
    _, found = airflow.call("GET", path)
    assert found["value"]["ranges"] == [f"{STREAM}/0@41-42", f"{STREAM}/0@43-44"]
    assert answers(airflow, page, run, "Before the run") == {
        f"{STREAM}/0 39 40 1 no window has read them",
        f"{STREAM}/0 41 42 1 to be read",
        f"{STREAM}/0 43 44 1 to be read",
        "total 2 to be read",
        "total 1 no window has read them",
    }
    assert dict(opened.ledger.store.scan(("head",))) == before


@pytest.mark.full
@pytest.mark.covers("N22")
@pytest.mark.usefixtures("scheduled_run")
def test_a_dry_run_that_compares(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    """Spark says what would change, the run's page shows it, and nothing else of the run is begun."""
    before = dict(opened.ledger.store.scan(("head",)))
    form = form_of(page, airflow, "replay")
    form.locator("#element_records").fill(f"{STREAM}/0@41\n{STREAM}/0@43")
    form.locator("#element_reason").fill("bug 17")
    switch(form, "compare")
    run = send_form(form, page, "success")
    _, tasks = airflow.call("GET", f"/api/v2/dags/{STREAM}__replay/dagRuns/{run}/taskInstances")
    assert {one["task_id"]: one["state"] for one in tasks["task_instances"]} == {
        **dict.fromkeys(("check", "compare", "show_changes"), "success"),
        **dict.fromkeys(("plan", "process", "publish"), "skipped"),
    }
    page.goto(f"{airflow.url}/dags/{STREAM}__replay/runs/{urllib.parse.quote(run, safe='')}")
    page.get_by_role("link", name="Offsets").click()
    section = page.frame_locator("iframe[title=Offsets]").locator("section", has_text="What the replay changes")
    expect(section.locator("tr").last).to_contain_text("dead letters")
    page.screenshot(path=SCREENSHOTS / "diff.png")
    # As stored: nothing but the same.
    assert [" ".join(line.split()) for line in section.locator("tbody tr").all_inner_texts()] == [
        "hbase 2 0 0 0",
        "kafka 2 0 0 0",
        "dead letters 0 0 0 0",
    ]
    assert dict(opened.ledger.store.scan(("head",))) == before


@pytest.mark.covers("N16", "N4", "N5")
@pytest.mark.usefixtures("scheduled_run")
def test_a_replay_of_records(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    position, before = opened.ledger.head(INGEST), generations(opened)
    form = form_of(page, airflow, "replay")
    send = form.get_by_role("button", name="Trigger", exact=True)
    expect(form.locator("#element_since")).to_be_hidden()
    form.locator("#element_records").fill(f"{STREAM}/0@41\n{STREAM},0,43")
    # What is required is marked, and nothing else is.
    expect(send).to_be_disabled()
    form.locator("#element_reason").fill("bug 17")
    expect(send).to_be_enabled()
    # At first it is a dry run.
    switch(form, "dry_run")
    page.screenshot(path=SCREENSHOTS / "replay.png")
    run = send_form(form, page, "success")
    (window,) = airflow.result(f"{STREAM}__replay", run, "publish")["windows"]
    assert window["ranges"] == [f"{STREAM}/0@41-44"]
    assert (window["read"], window["stored"]) == (2, 2)
    after = generations(opened)
    assert {offset for offset in after if after[offset] > before[offset]} == {41, 43}
    assert opened.ledger.head(INGEST) == position
    assert answers(airflow, page, run, "After the run") == {
        f"{STREAM}/0 41 42 1 found and stored",
        f"{STREAM}/0 43 44 1 found and stored",
        "total 2 found and stored",
    }
    # Tried again after it has committed, each task gives the same.
    clear(airflow, f"{STREAM}__replay", run, ["check", "plan", "process", "publish"])
    assert airflow.wait(f"{STREAM}__replay", run) == "success"
    assert tries(airflow, f"{STREAM}__replay", run, "process") == 2
    assert airflow.result(f"{STREAM}__replay", run, "publish")["windows"] == [window]
    assert generations(opened) == after


@pytest.mark.full
@pytest.mark.covers("N16", "N33")
@pytest.mark.usefixtures("scheduled_run")
def test_a_replay_of_the_records_of_a_table_in_two_lanes(
    airflow: Airflow, opened: OpenStream, page: Page, site: Site
) -> None:
    wanted = (46, 47, 51, 52)
    with closing(happybase.Connection("127.0.0.1", site.port("thrift"))) as hbase:
        hbase.create_table(RECORDS, {"d": {}})
        with hbase.table(RECORDS).batch() as some:
            for offset in wanted:
                number = b"%d" % offset
                some.put(number, {b"d:topic": STREAM.encode(), b"d:partition": b"0", b"d:offset": number})
    before = generations(opened)
    form = form_of(page, airflow, "replay")
    form.locator("#element_reason").fill("chosen elsewhere")
    switch(form, "dry_run")
    open_section(form, "What")
    form.locator("#element_records_file").fill(f"hbase:{RECORDS}")
    open_section(form, "How")
    form.locator("input[name=element_lanes]").fill("2")
    page.screenshot(path=SCREENSHOTS / "replay-in-lanes.png")
    run = send_form(form, page, "success")
    published = airflow.result(f"{STREAM}__replay", run, "publish")
    (one,), (other,) = published["windows"], published["then"][0]["windows"]
    assert (one["ranges"], one["read"], one["stored"]) == ([f"{STREAM}/0@46-48"], 2, 2)
    assert (other["ranges"], other["read"], other["stored"]) == ([f"{STREAM}/0@51-53"], 2, 2)
    assert published["totals"] == {"found and stored": "4"}
    after = generations(opened)
    assert {offset for offset in after if after[offset] > before[offset]} == set(wanted)


@pytest.mark.full
@pytest.mark.covers("N16", "N23", "N24", "N25")
@pytest.mark.usefixtures("scheduled_run")
def test_a_backfill_of_a_range(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    """With two offsets that the ingest has read already, which are read again by the same run."""
    before = generations(opened)
    form = form_of(page, airflow, "backfill")
    form.locator("#element_ranges").fill(f"{STREAM}/0@10-{FIRST + 2}")
    form.locator("#element_reason").fill("before the first window")
    switch(form, "dry_run")
    open_section(form, "What")
    choose(form, "mode", "reprocess")
    open_section(form, "How")
    form.locator("input[name=element_rate]").fill("1000")
    page.screenshot(path=SCREENSHOTS / "backfill.png")
    run = send_form(form, page, "success")
    published = airflow.result(f"{STREAM}__backfill", run, "publish")
    (window,), (again,) = published["windows"], published["then"][0]["windows"]
    assert (window["ranges"], window["stored"]) == ([f"{STREAM}/0@10-{FIRST}"], FIRST - 10)
    assert (again["ranges"], again["stored"]) == ([f"{STREAM}/0@{FIRST}-{FIRST + 2}"], 2)
    assert published["totals"] == {"found and stored": str(FIRST - 8)}
    for lane in (published["lane"], published["then"][0]["lane"]):
        entry = all_lanes(opened.ledger)[lane]
        assert (entry.rate, entry.state) == (1_000, "closed")
    assert stored(opened) == list(range(10, MESSAGES))
    after = generations(opened)
    assert {offset for offset in before if after[offset] > before[offset]} == {FIRST, FIRST + 1}


@pytest.mark.full
@pytest.mark.covers("N16", "N10")
@pytest.mark.usefixtures("scheduled_run")
def test_an_audit_with_repair(airflow: Airflow, opened: OpenStream, page: Page, site: Site) -> None:
    """A row was deleted: the audit names it, starts a replay, waits for it, and compares that row again."""
    everything = stored(opened)
    with closing(happybase.Connection("127.0.0.1", site.port("thrift"))) as hbase:
        table = hbase.table(STREAM)
        (key,) = [key for key, cells in table.scan() if cells.get(b"d:id") == b"45"]
        table.delete(key)
    form = form_of(page, airflow, "audit")
    # Nothing is required.
    expect(form.get_by_role("button", name="Trigger", exact=True)).to_be_enabled()
    form.locator("#element_records").fill(f"{STREAM}/0@44\n{STREAM}/0@45")
    choose(form, "repair", "execute")
    page.screenshot(path=SCREENSHOTS / "audit.png")
    run = send_form(form, page, "success")
    audit = f"{STREAM}__audit"
    found = airflow.result(audit, run, "report")
    assert not found["clean"]
    assert "missing 1, different 0, extra 0" in found["sentence"]
    assert opened.ledger.selection(SelectionRef(**found["findings"])) == RangeSet([OffsetRange(AT, 45, 46)])
    # The audit has waited for the replay, and compared again what that has read.
    _, answer = airflow.call("GET", f"/api/v2/dags/{STREAM}__replay/dagRuns?order_by=-run_after&limit=100")
    replays = [one for one in answer["dag_runs"] if one["run_type"] == "operator_triggered"]
    assert [(one["state"], one["dag_run_id"].partition("__")[0]) for one in replays] == [("success", "repair")]
    again = airflow.result(audit, run, "report_again")
    assert (again["clean"], again["expected"], again["stored"]) == (True, 1, 1)
    assert stored(opened) == everything
    assert_the_report_is_a_page(airflow, page, audit, run)


@pytest.mark.full
@pytest.mark.covers("N26")
@pytest.mark.usefixtures("scheduled_run")
def test_a_repair_that_is_triggered_twice_is_one_replay(airflow: Airflow, opened: OpenStream) -> None:
    """After the repair. As when the answer to the trigger was lost: Airflow says 409, and the run that is there goes on."""
    before = generations(opened)
    _, found = airflow.call("GET", f"/api/v2/dags/{STREAM}__audit/dagRuns?order_by=-run_after&limit=1")
    run = found["dag_runs"][0]["dag_run_id"]
    clear(airflow, f"{STREAM}__audit", run, ["repair"])
    assert airflow.wait(f"{STREAM}__audit", run) == "success"
    _, answer = airflow.call("GET", f"/api/v2/dags/{STREAM}__replay/dagRuns?order_by=-run_after&limit=100")
    assert [one["state"] for one in answer["dag_runs"] if one["run_type"] == "operator_triggered"] == ["success"]
    assert generations(opened) == before


def assert_the_report_is_a_page(airflow: Airflow, page: Page, audit: str, run: str) -> None:
    """The link of the task opens it, for those who may see the stream."""
    _, links = airflow.call("GET", f"/api/v2/dags/{audit}/dagRuns/{quote(run)}/taskInstances/report/links")
    address = links["extra_links"]["Report"]
    assert address == airflow.result(audit, run, "report")["page"]
    path = f"/tidemark{address.partition('/tidemark')[2]}"
    assert airflow.call("GET", path, token=None)[0] == 401
    # On a slow machine, at a second look.
    until(lambda: airflow.call("GET", path)[0] == 200, "the page of the report is not shown", PATIENCE_SECONDS)
    page.goto(f"{airflow.url}{path}")
    expect(page.get_by_role("heading", name=f"Audit of {STREAM}: Repaired")).to_be_visible()
    expect(page.get_by_text(f"missing {STREAM}/0@45")).to_be_visible()
    page.screenshot(path=SCREENSHOTS / "report.png")
    # Its own style is let in by the page's policy.
    assert page.get_by_text("Repaired", exact=True).evaluate("one => getComputedStyle(one).color") == "rgb(24, 121, 78)"
    no_report = f"/tidemark/streams/{STREAM}/audit?run=none"
    until(lambda: airflow.call("GET", no_report)[0] == 404, "a report that is not there is shown", PATIENCE_SECONDS)


@pytest.mark.full
@pytest.mark.covers("N16", "N10")
@pytest.mark.usefixtures("scheduled_run")
def test_an_audit_of_a_range(airflow: Airflow, page: Page) -> None:
    """After the repair. In tests/dags, an audit after a repair is part of every run."""
    form = form_of(page, airflow, "audit")
    form.locator("#element_ranges").fill(f"{STREAM}/0@{FIRST}-{MESSAGES}")
    run = send_form(form, page, "success")
    assert airflow.result(f"{STREAM}__audit", run, "report")["clean"]


TASKS = (["plan"], pytest.param(["check", "plan", "process", "publish"], marks=pytest.mark.full))


@pytest.mark.full
@pytest.mark.parametrize("tasks", TASKS, ids=len)
@pytest.mark.parametrize("kind", ["ingest", "backfill"])
@pytest.mark.usefixtures("scheduled_run")
def test_a_task_that_is_tried_again_after_the_commit_gives_the_same(
    airflow: Airflow, opened: OpenStream, kind: str, tasks: list[str]
) -> None:
    dag, before = f"{STREAM}__{kind}", generations(opened)
    tasks = [task for task in tasks if (kind, task) != ("ingest", "check")]
    _, found = airflow.call("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=run_after&limit=1")
    run = found["dag_runs"][0]["dag_run_id"]

    def results() -> dict[str, Any]:
        # A backfill has an instance of `process` for each of its lanes.
        mapped = {"process": 0} if kind == "backfill" else {}
        return {task: airflow.result(dag, run, task, mapped.get(task, -1)) for task in tasks}

    given = results()
    clear(airflow, dag, run, tasks)
    assert airflow.wait(dag, run) == "success"
    assert results() == given
    assert generations(opened) == before


@pytest.mark.full
def test_airflows_own_backfill_of_an_ingest_is_refused(airflow: Airflow) -> None:
    """It goes by dates. The DAG's own page says what to use instead."""
    dag = "cdn_logs__ingest"
    span = {"from_date": "2026-01-01T00:00:00Z", "to_date": "2026-01-02T00:00:00Z"}
    for path in ("/api/v2/backfills/dry_run", "/api/v2/backfills"):
        status, said = airflow.call("POST", path, {"dag_id": dag, **span})
        assert (status, "does not allow backfill runs" in str(said)) == (400, True), said
    assert "cdn_logs__backfill" in airflow.call("GET", f"/api/v2/dags/{dag}/details")[1]["doc_md"]


@pytest.mark.full
@pytest.mark.covers("N21")
def test_audits_run_after_a_commit_and_by_the_clock(
    airflow: Airflow, opened: OpenStream, scheduled_run: dict[str, Any]
) -> None:
    """The last test: from here on, every commit is followed by an audit."""
    dag = f"{STREAM}__audit"
    audit = f"{{after_commit: ledger, cron: '{ONCE_A_YEAR}', level: sinks, hours: 24}}"
    opened.file.path.write_text(f"{FILE}audit: {audit}\n")
    airflow.parse("cdn_logs__ingest")

    def report_of(kind: str) -> dict[str, Any]:
        def started() -> str | None:
            _, answer = airflow.call("GET", f"/api/v2/dags/{dag}/dagRuns?order_by=run_after&limit=100")
            return next((run["dag_run_id"] for run in answer["dag_runs"] if run["run_type"] == kind), None)

        run = until(started, f"no audit is {kind}", PATIENCE_SECONDS)
        assert airflow.wait(dag, run) == "success"
        found: dict[str, Any] = airflow.result(dag, run, "report")
        return found

    # The scheduler makes up for the time that is past, as for the ingest.
    by_clock = report_of("scheduled")
    assert (by_clock["level"], by_clock["clean"]) == ("sinks", True)
    assert by_clock["by_tallies"] > 0
    # A task that publishes again tells of what was committed again.
    clear(airflow, f"{STREAM}__ingest", scheduled_run["dag_run_id"], ["publish"])
    after = report_of("asset_triggered")
    assert (after["level"], after["clean"], after["windows"]) == ("ledger", True, len(opened.ledger.committed()))


@pytest.mark.full
@pytest.mark.covers("N16", "N27")
@pytest.mark.usefixtures("scheduled_run")
def test_an_erasure_of_a_record(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    """By the form, once as a dry run. What is erased is not replayed, and is missing for no audit."""
    form = form_of(page, airflow, "erase")
    form.locator("#element_records").fill(f"{STREAM}/0@{ERASED}")
    form.locator("#element_reason").fill("request 4711")
    run = send_form(form, page, "success")
    assert ERASED in stored(opened)
    assert answers(airflow, page, run, "Before the run", "erase") == {
        f"{STREAM}/0 {ERASED} {ERASED + 1} 1 to be erased",
        "total 1 to be erased",
    }
    frame = page.frame_locator("iframe[title=Offsets]")
    expect(frame.locator("#of-progress")).to_have_text(f"Erasure, dry run: {run}", use_inner_text=True)
    places = frame.locator("section", has_text="Where the results are, and what would remain").locator("tbody tr")
    for place in ("hbase", "the source"):
        expect(places.locator("td:first-child").get_by_text(place, exact=True)).to_have_count(1)
    form = form_of(page, airflow, "erase")
    form.locator("#element_records").fill(f"{STREAM}/0@{ERASED}")
    form.locator("#element_reason").fill("request 4711")
    switch(form, "dry_run")
    page.screenshot(path=SCREENSHOTS / "erase.png")
    run = send_form(form, page, "success")
    done = airflow.result(f"{STREAM}__erase", run, "publish")
    assert (done["erased"], {one["name"]: one["remains"] for one in done["remains"]}["hbase"]) == (1, "")
    assert ERASED not in stored(opened)
    assert any(
        f"{ERASED + 1} 1 erased by erase-" in line for line in answers(airflow, page, run, "After the run", "erase")
    )
    told = re.compile(r"^Finished\. 1 of 1 offset is erased\. Erased 1 message; (no|some)thing remains")
    expect(frame.locator("#told")).to_have_text(told)
    remains = frame.locator("section", has_text="What remains").locator("tbody tr", has_text="hbase").first
    expect(remains.locator("td").last).to_have_text("Nothing", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "erased.png")


def form_of(page: Page, airflow: Airflow, kind: str) -> Locator:
    form = open_form(page, airflow, f"{STREAM}__{kind}")
    form.locator("#element_reason, #element_ranges").first.wait_for()
    return form


def clear(airflow: Airflow, dag: str, run: str, tasks: list[str]) -> None:
    """Have Airflow run some tasks of a finished run again, as its button Clear does."""
    body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "task_ids": tasks}
    status, answer = airflow.call("POST", f"/api/v2/dags/{dag}/clearTaskInstances", body)
    assert (status, len(answer["task_instances"])) == (200, len(tasks))


def answers(airflow: Airflow, page: Page, run: str, title: str, kind: str = "replay") -> set[str]:
    """The lines of a table of answers, in the tab of a run's page."""
    page.goto(f"{airflow.url}/dags/{STREAM}__{kind}/runs/{urllib.parse.quote(run, safe='')}")
    page.get_by_role("link", name="Offsets").click()
    section = page.frame_locator("iframe[title=Offsets]").locator("section", has_text=title)
    expect(section.locator("tr").last).to_contain_text("total")
    page.screenshot(path=SCREENSHOTS / "answers.png")
    return {" ".join(line.split()) for line in section.locator("tbody tr, tfoot tr").all_inner_texts()}


def stored(opened: OpenStream) -> list[int]:
    return sorted(generations(opened))


def generations(opened: OpenStream) -> dict[int, int]:
    """The offsets whose rows count, and the generation of each."""
    rows = hbase_rows(opened.ledger, stream_table(opened, "hbase_default", STREAM), "hbase")
    return {row.place.offset: row.mark.generation for row in rows}
