"""A stream without HBase and ZooKeeper from Airflow's UI: ledger and dead letters in PostgreSQL, its lake in a bucket of S3.

One stream for all tests, in their order. Its connections are kept by Airflow: the environment of no program has them.
"""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect
from pyarrow import fs
from pyarrow import parquet as pq

from demo.airflow import Airflow
from demo.window_jobs import window_jobs
from services import control, environment, processes
from services.site import Site
from tests.support.airflow_forms import choose, open_form, press_trigger, send_form, switch
from tests.support.browser import SCREENSHOTS, logged_in, pages_of
from tests.support.command_line import tidemark
from tests.support.live_streams import Kafka
from tests.support.task_tries import tries
from tests.support.waiting import until
from tidemark.clients.connections import variable
from tidemark.clients.object_stores import access_of
from tidemark.ledger.records import INGEST
from tidemark.offsets.authority import Authority
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.sinks.reading import parquet_tables

STREAM = f"elsewhere_{secrets.token_hex(3)}"
SQL, BUCKET = "elsewhere_sql", "elsewhere_bucket"
# Several windows: a kill meets one of them, however fast the job is.
MESSAGES, IN_A_WINDOW = 400, 200
# Dead letters until the stream's file is mended.
NOT_YET = range(100, 110)
# A dead letter for good.
BAD = 200
ERASED, REPLAYED = 300, (41, 43)
FILE = f"""stream: {STREAM}
source: {{topics: [{STREAM}]}}
scheme: {{type: json, fields: {{id: integer}}}}
checks: [{{invalid_when: "id BETWEEN {NOT_YET[0]} AND {NOT_YET[-1]}", reason: not yet}}]
sinks: [{{type: parquet, name: files, files: {BUCKET}, folder: {STREAM}}}]
dead_letters: {{type: sql, sql: {SQL}}}
ledger: {{type: sql, sql: {SQL}}}
limits: {{max_records: {IN_A_WINDOW}}}
schedule: {{cron: '0 0 29 2 *'}}
engine: {{retry_delay_seconds: 1}}
"""
MENDED = "".join(line for line in FILE.splitlines(keepends=True) if not line.startswith("checks:"))


@pytest.fixture(scope="module")
def connections(airflow: Airflow, site: Site) -> Iterator[None]:
    """The database and the bucket, as Airflow's own Connections. The tests, which open the stream too, have variables."""
    control.up(site, ["postgresql", "s3"])
    stored = {
        SQL: environment.connections(site)["AIRFLOW_CONN_SQL_DEFAULT"],
        BUCKET: environment.object_store(site)["AIRFLOW_CONN_AWS_DEFAULT"],
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, text in stored.items():
            given = json.loads(text)
            body = {**given, "connection_id": name, "extra": json.dumps(given["extra"])}
            status, said = airflow.call("POST", "/api/v2/connections", body)
            # 409: an earlier run of the tests has left its servers.
            assert status in (201, 409), said
            if status == 409:
                assert airflow.call("PATCH", f"/api/v2/connections/{name}", body)[0] == 200
            patch.setenv(variable(name), text)
        yield


@pytest.fixture(scope="module")
def opened(connections: None, airflow: Airflow, kafka: Kafka, streams: dict[str, Path]) -> Iterator[OpenStream]:
    kafka.create(STREAM, 1)
    kafka.send((STREAM, 0, None, b'{"id": %d}' % one if one != BAD else b"no JSON") for one in range(MESSAGES))
    file = streams["everybody"] / f"{STREAM}.yaml"
    file.write_text(FILE)
    for kind in ("ingest", "replay", "audit", "erase"):
        airflow.wait_for_dag(f"{STREAM}__{kind}", "cdn_logs__ingest")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    yield open_stream(file)
    file.unlink()


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    with logged_in(airflow, width=1280) as found:
        yield found


def stored(opened: OpenStream) -> list[int]:
    """The numbers in the rows that count, by a reader without Spark."""
    return sorted(row["id"] for table in parquet_tables(opened.ledger, "files") for row in table.to_pylist())


def dead(opened: OpenStream) -> list[int]:
    ledger = opened.ledger
    (whole,) = ledger.authority().covered().hull()
    return sorted(place.offset for place, _ in opened.dead_letter_table().rows(ledger.authority(), whole))


def bucket(opened: OpenStream) -> tuple[fs.S3FileSystem, list[str]]:
    """What another program finds in the bucket: the files with rows, newest generations or not."""
    access = access_of(opened.connections(BUCKET))
    assert access is not None
    store = fs.S3FileSystem(**access.for_arrow())
    found = store.get_file_info(fs.FileSelector(f"{access.bucket}/lake/{STREAM}", recursive=True))
    return store, [one.path for one in found if one.path.endswith(".parquet")]


@pytest.mark.covers("O14")
def test_an_ingest_is_killed_and_goes_on(airflow: Airflow, site: Site, opened: OpenStream, page: Page) -> None:
    """Its job hangs on the bucket, which stands still, and dies there. The task's retry takes the window."""
    dag = f"{STREAM}__ingest"
    run = press_trigger(open_form(page, airflow, dag), page)
    until(lambda: opened.ledger.last_beat(INGEST), "no attempt is at work")
    still = processes.running(site, "s3")
    try:
        processes.send(still, signal.SIGSTOP)
        job = until(lambda: window_jobs(site), "there is no job")
        killed = opened.ledger.head(INGEST)
        processes.send(job, signal.SIGKILL)
    finally:
        processes.send(still, signal.SIGCONT)
    assert killed is not None
    assert killed.head.pending is not None
    assert airflow.wait(dag, run) == "success", airflow.last_lines(dag, run)
    assert tries(airflow, dag, run, "process") == 2
    records = [one.record for one in opened.ledger.committed()]
    assert {one.attempt.run for one in records} == {f"{dag}/{run}"}
    assert len(records) == MESSAGES // IN_A_WINDOW
    expected = [one for one in range(MESSAGES) if one not in NOT_YET and one != BAD]
    assert (stored(opened), dead(opened)) == (expected, [*NOT_YET, BAD])


@pytest.mark.covers("O14")
def test_every_page_answers(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    failed: list[str] = []
    page.on(
        "response", lambda one: failed.append(one.url) if one.status >= 500 and one.status not in (503, 504) else None
    )
    _, window = airflow.call("GET", f"/tidemark/api/streams/{STREAM}/windows/ingest/1")
    run = quote(window["attempt"]["run"].partition("/")[2])
    for path, drawn in pages_of(STREAM):
        page.goto(f"{airflow.url}/tidemark/{path}{run if path.endswith('run_id=') else ''}")
        page.locator(drawn).first.wait_for(state="attached")
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/messages?topic={STREAM}&partition=0&offset={NOT_YET[0]}")
    page.locator("#fate", has_text="dead letter").wait_for()
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/messages?topic={STREAM}&partition=0&offset=1")
    page.locator("#fate", has_text="stored").wait_for()
    page.screenshot(path=SCREENSHOTS / "elsewhere.png", full_page=True)
    assert failed == []


@pytest.mark.full
@pytest.mark.covers("O14")
def test_dead_letters_are_redriven_after_a_fix(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    opened.file.path.write_text(MENDED)
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/dead-letters")
    group = page.locator(".group").filter(has=page.get_by_text("not yet"))
    group.get_by_role("button", name=f"Replay all {len(NOT_YET)} …").click()
    run = started(page)
    dag = f"{STREAM}__replay"
    assert airflow.wait(dag, run) == "success", airflow.last_lines(dag, run)
    assert (stored(opened), dead(opened)) == ([one for one in range(MESSAGES) if one != BAD], [BAD])


@pytest.mark.full
@pytest.mark.covers("O14")
def test_records_are_replayed_by_the_form(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    before = stored(opened)
    form = open_form(page, airflow, f"{STREAM}__replay")
    form.locator("#element_records").fill("\n".join(f"{STREAM}/0@{one}" for one in REPLAYED))
    form.locator("#element_reason").fill("bug 17")
    switch(form, "dry_run")
    run = send_form(form, page, "success")
    (window,) = airflow.result(f"{STREAM}__replay", run, "publish")["windows"]
    assert (window["read"], window["stored"], stored(opened)) == (2, 2, before)


@pytest.mark.full
@pytest.mark.covers("O14")
def test_a_lost_object_is_found_and_repaired(airflow: Airflow, opened: OpenStream, page: Page) -> None:
    """That of the replay. The audits' page shows what was missing, and starts what brings it back."""
    before = stored(opened)
    store, objects = bucket(opened)
    (lost,) = [one for one in objects if set(ids(store, one)) == set(REPLAYED)]
    store.delete_file(lost)
    audit = f"{STREAM}__audit"
    form = open_form(page, airflow, audit)
    choose(form, "level", "full")
    run = send_form(form, page, "failed")
    found = airflow.result(audit, run, "report")
    assert "missing 2, different 0, extra 0" in found["sentence"]
    page.goto(f"{airflow.url}/tidemark/streams/{STREAM}/audits")
    section = page.locator("#audits section").first
    section.get_by_text("✕ findings").wait_for()
    page.screenshot(path=SCREENSHOTS / "elsewhere-findings.png", full_page=True)
    section.get_by_role("button", name="Repair: replay the 2 offsets …").click()
    run = started(page)
    assert airflow.wait(audit, run) == "success", airflow.last_lines(audit, run)
    again = airflow.result(audit, run, "report_again")
    assert (again["clean"], again["stored"]) == (True, 2)
    assert stored(opened) == before


@pytest.mark.full
@pytest.mark.covers("O14")
def test_a_message_is_erased_for_good(airflow: Airflow, site: Site, opened: OpenStream, page: Page) -> None:
    """A row and a dead letter: no object in the bucket and no line of the database has them, and the audit is clean."""
    form = open_form(page, airflow, f"{STREAM}__erase")
    form.locator("#element_records").fill(f"{STREAM}/0@{ERASED}\n{STREAM}/0@{BAD}")
    form.locator("#element_reason").fill("request 4711")
    switch(form, "dry_run")
    run = send_form(form, page, "success")
    done = airflow.result(f"{STREAM}__erase", run, "publish")
    remains = {one["name"]: one["remains"] for one in done["remains"]}
    assert (done["erased"], remains["dead_letters"]) == (2, "")
    assert ERASED not in stored(opened)
    # A file that others share is written again by a compaction, as the answer says.
    assert remains["files"].endswith(f"until: tidemark compact {STREAM} --sink files")
    warm = environment.connections(site, warm=True)["AIRFLOW_CONN_SPARK_DEFAULT"]
    variables = {**environment.spark(site), **environment.engines(site), "AIRFLOW_CONN_SPARK_DEFAULT": warm}
    tidemark("compact", str(opened.file.path), "--yes", code=0, **variables)
    store, objects = bucket(opened)
    assert ERASED not in {one for path in objects for one in ids(store, path)}
    (whole,) = opened.ledger.authority().covered().hull()
    assert BAD not in {place.offset for place, _ in opened.dead_letter_table().rows(Authority([]), whole)}
    form = open_form(page, airflow, f"{STREAM}__audit")
    run = send_form(form, page, "success")
    report = airflow.result(f"{STREAM}__audit", run, "report")
    assert (report["clean"], report["erased"]) == (True, 2), report["sentence"]
    assert stored(opened) == [one for one in range(MESSAGES) if one not in (BAD, ERASED)]


def ids(store: fs.S3FileSystem, path: str) -> list[int]:
    found: list[int] = pq.ParquetFile(store.open_input_file(path)).read()["id"].to_pylist()
    return found


def started(page: Page) -> str:
    """Starts what the dialog says, for real; gives the run."""
    dialog = page.locator("dialog")
    dialog.locator("input[name=reason]").fill("the test without HBase")
    dialog.locator("input[name=dry_run]").uncheck()
    dialog.locator("button.primary").click()
    link = dialog.locator(".said a").last
    expect(link).to_be_visible()
    return link.inner_text()
