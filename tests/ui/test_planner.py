"""The page of a plan and the page of a run, with the real Airflow, in a real browser."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from demo.airflow import Airflow
from services import environment
from services.site import Site
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.claiming import claim_lane
from tests.support.evil import EVIL
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import open_stream

TOPIC = "cdn-logs"


@pytest.fixture
def page(ingested: Airflow) -> Iterator[Page]:
    """A browser that is logged in, where an ingest has run."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(ingested, width=1280, patience_ms=60_000) as opened:
        yield opened


def asked(airflow: Airflow, path: str, method: str = "GET", body: Any = None, token: str | None = "") -> Any:
    """An answer; on a slow machine, at the second or third look."""
    for _ in range(20):
        status, answer = airflow.call(method, path, body, token=airflow.token if token == "" else token)
        if status != 504:
            break
    return status, answer


def test_a_window_is_planned_from_its_own_page(airflow: Airflow, page: Page) -> None:
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/windows/ingest/1")
    page.click("text=Replay this window")
    page.locator("#summary", has_text="would be read").wait_for()
    expect(page.locator("select[name=way]")).to_have_value("window")
    expect(page.locator("input[name=window]")).to_have_value("ingest/1")


@pytest.mark.full
@pytest.mark.covers("U12", "U13")
def test_records_are_planned_started_and_followed_to_their_answers(
    airflow: Airflow, page: Page, tmp_path: Path
) -> None:
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    page.click("#navigation >> text=Plan")
    records = page.locator("textarea[name=records]")
    records.fill(f"{TOPIC}/0@3\n{EVIL}\n")
    page.click("#resolve")
    page.locator("#problem", has_text="line 2: ").wait_for()
    expect(page.locator("main img, main script")).to_have_count(0)
    page.screenshot(path=SCREENSHOTS / "planner-wrong.png", full_page=True)
    # From a file, which is read in the browser.
    too_large = tmp_path / "large.csv"
    too_large.write_text("x" * 1_000_001)
    page.set_input_files("#file", too_large)
    page.locator("#counted", has_text="this field takes up to 1 000 000").wait_for()
    file = tmp_path / "records.csv"
    far = 2**53 + 1
    rows = [(0, 3), (0, 4), (1, 7), (1, far), (9, 1)]
    file.write_text("topic,partition,offset\n" + "\n".join(f"{TOPIC},{at},{offset}" for at, offset in rows))
    page.set_input_files("#file", file)
    page.locator("#counted", has_text="6 lines").wait_for()
    page.click("#more summary")
    page.fill("input[name=lanes]", "2")
    page.click("#resolve")
    page.locator("#summary", has_text="3 offsets of 2 partitions would be read. 2 offsets cannot be read.").wait_for()
    for said in (str(far), "never in the topic", "ingest/"):
        expect(page.locator("#parts")).to_contain_text(said)
    page.wait_for_url(lambda url: "records=" in url)
    page.screenshot(path=SCREENSHOTS / "planner.png", full_page=True)
    plan = page.locator("#digest").get_attribute("title")

    # Somebody else has the same address open, and so the same plan.
    other = page.context.new_page()
    other.set_default_timeout(60_000)
    other.goto(page.url)
    other.locator("#summary", has_text="3 offsets of 2 partitions").wait_for()
    expect(other.locator("#digest")).to_have_attribute("title", plan or "")

    page.click("#go")
    # Without a reason, nothing is asked.
    expect(page.locator("#said")).to_have_text("", use_inner_text=True)
    page.fill("input[name=reason]", "the planner's test")
    page.click("#go")
    page.wait_for_url("**/tidemark/run?**")
    page.locator("#progress .badge").first.wait_for(timeout=120_000)
    page.screenshot(path=SCREENSHOTS / "run-under-way.png", full_page=True)
    run = parse_qs(urlsplit(page.url).query)["run_id"][0]
    assert airflow.wait("cdn_logs__replay", run) == "success"
    page.locator("#told", has_text="Finished. 3 of 3 offsets are read and committed.").wait_for()
    after = page.locator("#results section", has_text="After the run")
    after.wait_for()
    expect(after).to_contain_text("found and stored", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "run-finished.png", full_page=True)
    _, started = airflow.call("GET", f"/api/v2/dags/cdn_logs__replay/dagRuns/{run}")
    assert (started["triggering_user_name"], started["conf"]["plan"]) == (environment.ADMIN, plan)
    # Of three records, one lane has read two and the other one.
    published = airflow.result("cdn_logs__replay", run, "publish")
    assert [one["windows"][0]["read"] for one in (published, *published["then"])] == [2, 1]

    # The other one's plan would replace other results than it has shown.
    other.fill("input[name=reason]", "the same, later")
    other.click("#go")
    other.locator(".stale", has_text="is stale").wait_for()
    other.screenshot(path=SCREENSHOTS / "planner-stale.png", full_page=True)
    other.click("text=Resolve again")
    other.locator(f"#digest[title]:not([title='{plan}'])").wait_for()
    expect(other.locator("#parts")).to_contain_text("replay-", use_inner_text=True)
    # Whoever does not ask the page is refused by the run, which changes nothing.
    refused = airflow.trigger("cdn_logs__replay", started["conf"])
    assert airflow.wait("cdn_logs__replay", refused) == "failed"
    other.goto(f"{airflow.url}/tidemark/run?dag_id=cdn_logs__replay&run_id={refused}")
    other.locator("#told", has_text="Refused: StaleLedger: the plan").wait_for()
    other.screenshot(path=SCREENSHOTS / "run-refused.png", full_page=True)
    # Its request can be planned anew.
    other.click("text=Plan it again")
    other.locator("#summary", has_text="3 offsets of 2 partitions").wait_for()
    expect(other.locator("input[name=reason]")).to_have_value("the planner's test")


@pytest.mark.full
@pytest.mark.covers("U13", "Q13")
def test_a_lane_is_paused_resumed_and_cancelled_by_those_who_may(
    airflow: Airflow, page: Page, site: Site, streams: dict[str, Path]
) -> None:
    opened = open_stream(streams["everybody"] / "cdn_logs.yaml")
    named = f"cli/{secrets.token_hex(4)}"
    chosen = RangeSet([OffsetRange(TopicPartition(TOPIC, 3), 5, 12)])
    lane = claim_lane(opened, LaneKind.REPLAY, named, chosen, EVIL)
    api = "/tidemark/api/streams/cdn_logs/progress"
    viewer = airflow.token_of("viewer", environment.password(site, "viewer"))
    status, seen = asked(airflow, f"{api}?run={lane}", token=viewer)
    assert (status, seen["may_steer"], seen["lanes"][0]["left"]) == (200, False, "7")
    assert asked(airflow, f"{api}/cancel", "POST", {"run": lane, "reason": "no right"}, viewer)[0] == 403
    assert asked(airflow, f"{api}/cancel", "POST", {"run": lane, "reason": "nobody"}, None)[0] == 401

    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    listed = page.locator("#lanes a", has_text=lane)
    listed.wait_for()
    # What is done here is said at once: the page of the run never asks again by itself.
    page.add_init_script(
        "const usual = setTimeout; setTimeout = (call, ms, ...more) => (ms < 3000 ? usual(call, ms, ...more) : 0)"
    )
    listed.click()
    page.locator(".lane", has_text=EVIL).wait_for()
    page.click("text=Pause …")
    page.fill("dialog input[name=reason]", "until noon")
    page.click("dialog button.primary")
    page.locator(".lane .badge", has_text="paused").wait_for()
    page.screenshot(path=SCREENSHOTS / "run-paused.png", full_page=True)
    page.click("text=Resume")
    page.locator(".lane .badge", has_text="open").wait_for()
    page.click("text=Cancel …")
    page.fill("dialog input[name=reason]", "the wrong hour")
    page.screenshot(path=SCREENSHOTS / "run-cancel.png")
    page.click("dialog button.primary")
    page.locator(".lane .badge", has_text="cancelled").wait_for()
    page.locator(".lane", has_text="Closed before it was done: the wrong hour").wait_for()
    expect(page.locator("img, main script")).to_have_count(0)
    _, found = airflow.call("GET", "/api/v2/eventLogs?dag_id=cdn_logs__replay&limit=100&order_by=-event_log_id")
    events = [
        one["event"]
        for one in found["event_logs"]
        if one["owner"] == environment.ADMIN and lane in (one["extra"] or "")
    ]
    assert sorted(events) == ["tidemark_cancel", "tidemark_pause", "tidemark_resume"]


@pytest.mark.full
@pytest.mark.covers("U12", "U17")
def test_times_are_planned_in_the_viewers_zone(ingested: Airflow) -> None:
    """A time of the address stays as exact as it is, until somebody changes it."""
    given = "2020-11-21T07:00:30.250Z"
    with logged_in(ingested, zone="America/St_Johns", patience_ms=60_000) as page:
        page.goto(f"{ingested.url}/tidemark/streams/cdn_logs/plan?since={given}")
        page.locator("#summary", has_text="would be read").wait_for()
        since, until = page.locator("input[name=since]"), page.locator("input[name=until_time]")
        expect(since).to_have_value("2020-11-21T03:30:30")
        page.screenshot(path=SCREENSHOTS / "planner-times.png", full_page=True)
        until.fill("2100-11-21T03:30")
        with page.expect_request("**/plan") as asked_for:
            page.click("#resolve")
        assert asked_for.value.post_data_json == {
            "kind": "replay",
            "fields": {"since": given, "until_time": "2100-11-21T07:00:00Z"},
        }
        since.fill("2020-11-21T03:31:00")
        with page.expect_request("**/plan") as asked_for:
            page.click("#resolve")
        assert asked_for.value.post_data_json["fields"]["since"] == "2020-11-21T07:01:00Z"
