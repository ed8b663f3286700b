"""What a person who never saw Tidemark wants to know: from Airflow's home page, without a document, in at most four clicks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from demo.airflow import Airflow
from tests.support.browser import SCREENSHOTS, hurried, logged_in
from tests.support.live_streams import Kafka

MAX = 4
# How far a stream is behind, on its page.
UNREAD = re.compile(r"offsets? (is|are) unread")


class Clicks:
    """Clicks of a person, counted. What is typed is no click."""

    def __init__(self, airflow: Airflow, page: Page) -> None:
        self.page, self.number = page, 0
        page.goto(f"{airflow.url}/")
        self.frame = page.frame_locator("iframe")

    def click(self, target: Locator) -> None:
        target.click()
        self.number += 1

    def open_tidemark(self) -> None:
        self.click(self.page.get_by_role("link", name="Tidemark"))
        self.frame.locator("tr[data-stream=cdn_logs] td").nth(5).wait_for()


@pytest.fixture
def clicks(ingested: Airflow) -> Iterator[Clicks]:
    """At Airflow's home page, in the size of a usual screen."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(ingested, width=1280, patience_ms=120_000) as page:
        hurried(page, 3)
        yield Clicks(ingested, page)


@pytest.mark.covers("U15")
def test_how_far_a_stream_is_behind_and_why(airflow: Airflow, kafka: Kafka, clicks: Clicks) -> None:
    kafka.send([("cdn-logs", 2, None, b"not read yet")])
    clicks.open_tidemark()
    row = clicks.frame.locator("tr[data-stream=cdn_logs]")
    lag = row.locator("td").nth(2)
    lag.filter(has_text="1").wait_for()
    # How far, in offsets and in time, and the rule that gave the word.
    expect(lag).to_contain_text("for ", use_inner_text=True)
    expect(row.locator("td").nth(1).locator("b").first).to_have_text("OK")
    expect(row.locator("td").nth(1)).to_contain_text("lag", use_inner_text=True)
    clicks.page.screenshot(path=SCREENSHOTS / "first-lag.png")
    clicks.click(row.get_by_role("link", name="cdn_logs", exact=True))
    clicks.frame.locator("#status", has_text=UNREAD).wait_for()
    # Why it is not read yet: when Airflow runs the ingest next.
    clicks.frame.locator("#next", has_text="The next run of the ingest: ").locator("time").wait_for()
    assert clicks.number == 2 <= MAX
    dag = "/api/v2/dags/cdn_logs__ingest"
    try:
        assert airflow.call("PATCH", dag, {"is_paused": True})[0] == 200
        # So the stream is not OK, whatever its lag: on its page, and among all streams.
        said = "PAUSED: the DAG cdn_logs__ingest is paused in Airflow: nothing is read until it is resumed; "
        expect(clicks.frame.locator("#status.busy")).to_contain_text(said)
        expect(clicks.frame.locator("#status.busy")).to_contain_text(UNREAD)
        _, found = airflow.call("GET", "/tidemark/api/triage?words=cdn_logs&state=PAUSED")
        assert [(one["stream"], one["scheduling"]["paused"]) for one in found["streams"]] == [("cdn_logs", True)]
    finally:
        assert airflow.call("PATCH", dag, {"is_paused": False})[0] == 200
    # Or Airflow has dropped it. The page says the state that the list of all streams says, also where the lag is none.
    _, stream = airflow.call("GET", "/tidemark/api/streams/cdn_logs")
    why = {"state": "NO DAG", "brief": "b", "sentence": "Airflow has dropped it", "remedy": "Mend it", "number": 0}
    dropped = {"state": "NO DAG", "reasons": [why], "scheduling": {**stream["scheduling"], "stale": True, "last": None}}
    clicks.page.route("**/api/streams/cdn_logs?*", lambda route: route.fulfill(json={**stream, **dropped}))
    expect(clicks.frame.locator("#status.bad")).to_contain_text("NO DAG: Airflow has dropped it. Mend it.")
    expect(clicks.frame.locator("#next")).to_be_hidden()


@pytest.mark.full
@pytest.mark.covers("U15")
def test_where_a_message_went(airflow: Airflow, clicks: Clicks) -> None:
    """Whoever has its coordinate need not know which stream reads its topic."""
    clicks.open_tidemark()
    frame = clicks.frame
    frame.locator("#coordinate").fill("nothing/0@1")
    frame.locator("#coordinate").press("Enter")
    frame.locator("#found", has_text="No stream that you may see reads nothing.").wait_for()
    # To fill in a field one clicks it, or comes with the tab key.
    clicks.click(frame.locator("#coordinate"))
    frame.locator("#coordinate").fill("cdn-logs/2@5")
    clicks.click(frame.locator("#find button"))
    frame.locator("#fate", has_text="stored").wait_for()
    expect(frame.locator("#sentence")).to_contain_text("Window ingest/", use_inner_text=True)
    window, run = (link.get_attribute("href") or "" for link in frame.locator("#sentence a").all())
    assert "/tidemark/streams/cdn_logs/windows/ingest/" in window
    assert "/dags/cdn_logs__ingest/runs/" in run
    # Inside Airflow's frame, the address says what is shown.
    clicks.page.wait_for_url("**/plugin/tidemark/tidemark/streams/cdn_logs/messages?**offset=5**")
    clicks.page.screenshot(path=SCREENSHOTS / "first-message.png")
    assert clicks.number == 3 <= MAX


@pytest.mark.full
@pytest.mark.covers("U15", "U8")
def test_how_to_replay_the_dead_letters_of_the_last_night(airflow: Airflow, clicks: Clicks) -> None:
    clicks.open_tidemark()
    frame = clicks.frame
    clicks.click(frame.locator("tr[data-stream=cdn_logs] td").nth(4).get_by_role("link"))
    frame.locator(".group").first.wait_for()
    clicks.click(frame.get_by_role("button", name="Last 12 hours"))
    frame.locator("#counted", has_text="dead letters in").wait_for()
    assert frame.locator("input[name=since]").input_value() != ""
    replay = frame.locator("button.primary", has_text="Replay").first
    replay.wait_for()
    clicks.page.screenshot(path=SCREENSHOTS / "first-dead-letters.png")
    clicks.click(replay)
    dialog = frame.locator("dialog")
    expect(dialog).to_contain_text("Only of messages from ", use_inner_text=True)
    assert dialog.locator("textarea").input_value() != ""
    clicks.page.screenshot(path=SCREENSHOTS / "first-replay.png")
    assert clicks.number == 4 <= MAX
    # What is left is to say why; it begins as a dry run, which changes nothing.
    dialog.locator("input[name=reason]").fill("how it is done")
    dialog.locator("button.primary").click()
    started = dialog.locator(".said a").last
    started.wait_for()
    run = started.inner_text()
    assert airflow.wait("cdn_logs__replay", run) == "success"
    conf = airflow.call("GET", f"/api/v2/dags/cdn_logs__replay/dagRuns/{run}")[1]["conf"]
    assert conf["dry_run"] is True
    assert conf["since"].endswith("Z")
