"""The page in Airflow, with the real Airflow, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Page, Route, expect

from demo.airflow import Airflow
from demo.cdn_lines import produce
from services import environment
from services.site import Site
from tests.support.browser import SCREENSHOTS, browser, logged_in
from tests.support.evil import EVIL
from tests.support.page_routes import NO_STREAM
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import open_stream


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    """A browser that is logged in."""
    with logged_in(airflow) as opened:
        yield opened


@pytest.fixture(scope="module")
def tokens(airflow: Airflow, site: Site) -> dict[str, str]:
    """Of a user who may only look."""
    return {"viewer": airflow.token_of("viewer", environment.password(site, "viewer"))}


def _shown(airflow: Airflow, stream: str, token: str | None) -> tuple[int, Any]:
    """What a user is shown of a stream; on a slow machine, at the second or third look."""
    for _ in range(20):
        status, answer = airflow.call("GET", f"/tidemark/api/streams/{stream}", token=token)
        if status != 504:
            break
    return status, answer


@pytest.mark.covers("U1")
def test_the_pages_show_which_offsets_are_where(airflow: Airflow, page: Page) -> None:
    # A scheduled run may be on its way already; both end well.
    assert airflow.run("cdn_logs__ingest", {}) == "success"
    page.goto(f"{airflow.url}/plugin/tidemark")
    frame = page.frame_locator("iframe")
    line = frame.locator("tr[data-stream=cdn_logs]")
    line.get_by_text("no lag").wait_for()
    # A file that is no stream file is a line with its problem, and takes nothing else with it.
    broken = frame.locator("tr[data-stream=broken]")
    expect(broken.locator("td").nth(1)).to_contain_text("INVALID")
    expect(broken.locator("td").nth(1)).to_contain_text("broken.yaml")
    expect(broken.get_by_role("link")).to_have_count(0)
    # Nor is a stream whose file is right and which Airflow has never read: nothing of it runs.
    never = frame.locator("tr[data-stream=unknown]")
    expect(never.locator("td").nth(1)).to_contain_text("NO DAG")
    expect(never.locator("td").nth(1)).to_contain_text("Airflow has no DAG unknown__ingest")
    line.get_by_role("link", name="success").wait_for()
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "streams.png")
    expect(line.locator("td").nth(2).locator("div").first).to_have_text("0")
    line.get_by_role("link", name="cdn_logs", exact=True).click()
    # Airflow's own address follows the frame: whoever gets it sees the same page.
    page.wait_for_url(f"{airflow.url}/plugin/tidemark/tidemark/streams/cdn_logs")
    # Also what is chosen on a page, which the frame does not load anew.
    frame.locator("#which-windows select[name=holding]").select_option("dead letters")
    page.wait_for_url("**/plugin/tidemark/tidemark/streams/cdn_logs?holding=dead+letters")
    frame.locator("#which-windows select[name=holding]").select_option("")
    page.wait_for_url("**/plugin/tidemark/tidemark/streams/cdn_logs")
    page.goto(page.url)
    frame.locator("#windows tbody tr td.run").first.wait_for()
    _, stream = _shown(airflow, "cdn_logs", airflow.token)
    assert {one["partition"]: one["lag"] for one in stream["partitions"]} == {0: "0", 1: "0", 2: "0", 3: "0"}
    rows = frame.locator("#partitions tbody tr")
    expect(rows).to_have_count(4)
    shown = rows.nth(0).locator("td").all_inner_texts()
    first = stream["partitions"][0]
    assert [text.replace(" ", "") for text in shown] == [
        *("cdn-logs", "0", first["log_start"], first["position"], first["end"], "0", "OK", "safe")
    ]
    assert (stream["status"]["word"], stream["status"]["rule"]) == ("OK", "no lag")
    # No partition is worse than others.
    said = "OK (no lag): nothing is unread in 4 partitions."
    expect(frame.locator("#status")).to_have_text(said, use_inner_text=True)
    window = frame.locator("#windows tbody tr").nth(0)
    newest = stream["windows"][0]
    # Of the partitions that it has read: a message that another test has sent may be the only one.
    first_range = newest["ranges"][0]
    expect(window).to_contain_text(f"{first_range['partition']}@{first_range['from']}-{first_range['until']}")
    expect(window).to_contain_text("committed")
    expect(frame.locator("#plots figure")).to_have_count(4)
    # A page of a lane says which of how many it shows, and a window is opened by its number, or refused.
    frame.locator("#which-windows select[name=lane]").select_option("ingest")
    frame.locator("#shown-windows", has_text="of ingest").wait_for()
    expect(frame.locator("#windows tbody tr").first.locator("td").first).to_have_text("ingest", use_inner_text=True)
    frame.locator("#which-windows input[name=run]").fill("no such run")
    frame.locator("#which-windows input[name=run]").press("Enter")
    frame.locator("#shown-windows", has_text="0 of the windows 1 to").wait_for()
    frame.locator("#which-windows input[name=run]").fill("")
    frame.locator("#which-windows input[name=run]").press("Enter")
    frame.locator("#windows td.run a").first.wait_for()
    for wrong, said in (("zzz", "Write a number, such as 17"), ("9999", "There is no window ingest/9999.")):
        frame.locator("#open-window input").fill(wrong)
        frame.locator("#open-window button").click()
        frame.locator("#no-window", has_text=said).wait_for()
    frame.locator("#which-windows select[name=lane]").select_option("")
    frame.locator("#shown-windows", has_text="of all lanes").wait_for()
    # A run's name leads out of the frame, to the run's own page.
    frame.locator("#windows td.run a").first.click()
    page.wait_for_url("**/dags/cdn_logs__*/runs/**")


@pytest.mark.full
@pytest.mark.covers("U1", "N27")
def test_a_list_of_windows_says_whose_results_are_all_gone(
    ingested: Airflow, page: Page, streams: dict[str, Path], site: Site
) -> None:
    """A replay has replaced them, then an erasure has taken these."""
    opened = open_stream(streams["everybody"] / "cdn_logs.yaml")
    produce(site.address("kafka"), "cdn-logs", 1, first=90_000)
    assert ingested.run("cdn_logs__ingest", {}) == "success"
    (newest,) = opened.ledger.newest_records(INGEST, 1)
    (at,) = opened.ledger.covers(newest.window)
    record = f"cdn-logs/{at.partition.partition}@{at.start}"
    frame = page.frame_locator("iframe")

    def fates(shot: str) -> dict[str, str]:
        page.goto(f"{ingested.url}/plugin/tidemark/tidemark/streams/cdn_logs")
        rows = frame.locator("#windows tbody tr")
        rows.locator("td.run").first.wait_for()
        rows.first.scroll_into_view_if_needed()
        page.screenshot(path=SCREENSHOTS / shot)
        found: dict[str, str] = {}
        for row in rows.all():
            lane, seq, fate, *_ = row.locator("td").all_inner_texts()
            found.setdefault(f"{lane.partition('-')[0]}/{seq}", fate)
        return found

    asked = {"records": record, "reason": "whose results count", "dry_run": False}
    assert ingested.run("cdn_logs__replay", asked) == "success"
    assert fates("replaced.png")[f"ingest/{newest.seq}"] == "replaced"
    assert ingested.run("cdn_logs__erase", asked) == "success"
    shown = fates("erased-window.png")
    # The newest replay is the first of those with this number.
    assert (shown[f"ingest/{newest.seq}"], shown["replay/1"]) == ("erased", "erased")


@pytest.mark.full
@pytest.mark.covers("U19", "U1")
def test_the_worst_of_many_streams_are_first_and_the_counts_filter(airflow: Airflow, page: Page) -> None:
    """As the server says, whose answer for most of these streams is made up: it is asked once, whatever their number."""
    asked: list[dict[str, str]] = []
    _, real = airflow.call("GET", "/tidemark/api/triage?words=cdn_logs")
    (fine,) = (one for one in real["streams"] if one["stream"] == "cdn_logs")

    def reason(state: str) -> dict[str, object]:
        return {"state": state, "brief": "why", "sentence": "what is wrong", "remedy": "Mend it", "number": 0}

    away = {**fine, "state": "UNREACHABLE", "line": None, "problem": "Unreachable: HBase at h:1 did not answer"}
    away["reasons"] = [reason("UNREACHABLE")]
    stopped = {**fine, "state": "STOPPED", "reasons": [reason("STOPPED"), reason("PAUSED")]}
    behind = {"lag": str(2**60), "unread_since": 1, "lags": ["0", "7", str(2**60)], "letters": [0, 3, 0], "windows": 3}
    stopped["line"] = {**fine["line"], **behind, "status": {**fine["line"]["status"], "word": "STOPPED"}}
    states = [
        {"state": "UNREACHABLE", "streams": 3},
        {"state": "STOPPED", "streams": 57},
        {"state": "OK", "streams": 1},
    ]

    def triage(route: Route) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(route.request.url).query).items()}
        asked.append(query)
        first, state = int(query["first"]), query.get("state")
        known = [
            *({**away, "stream": f"away_{n}"} for n in range(3)),
            *({**stopped, "stream": f"s_{n}"} for n in range(57)),
        ]
        known = [one for one in [*known, fine] if state in (None, one["state"])]
        more = {"first": first, "found": len(known), "of": 61, "unknown": 0, "states": states}
        route.fulfill(json={**real, **more, "streams": known[first : first + 25], "owners": ["Ann"], "tags": ["money"]})

    page.route("**/api/triage?*", triage)
    page.goto(f"{airflow.url}/tidemark/")
    rows = page.locator("#streams tbody tr")
    rows.filter(has_text="away_2").get_by_text("HBase at h:1 did not answer").wait_for()
    expect(rows).to_have_count(25)
    expect(page.locator("#states button")).to_have_text(["61 streams", "3 UNREACHABLE", "57 STOPPED", "1 OK"])
    line = rows.nth(3)
    assert line.locator("td").nth(2).inner_text().splitlines()[0] == "1 152 921 504 606 846 976"
    assert line.locator("td").nth(2).evaluate("cell => cell.scrollWidth <= cell.clientWidth")
    expect(line.locator("td").nth(1)).to_contain_text("STOPPED PAUSED")
    expect(line.locator("td").nth(2).locator("svg path")).to_have_count(1)
    expect(line.locator("td").nth(4).locator("rect")).to_have_count(3)
    # Two lines of text, however much there is to say.
    heights = rows.evaluate_all("rows => rows.map((row) => row.getBoundingClientRect().height)")
    assert max(heights) < 60
    page.screenshot(path=SCREENSHOTS / "streams-sixty.png", full_page=True)
    # The arrow says which way it is sorted: the worst first, and of numbers the largest at the first click.
    for name, place, falls in (("State", ".of-state", True), ("Lag", ".of-lag", True), ("Stream", ".of-stream", False)):
        heading = page.locator(f"th{place}")
        if name != "State":
            heading.get_by_role("button", name=name).click()
        expect(heading).to_have_attribute("aria-sort", "descending" if falls else "ascending")
    heading.get_by_role("button", name="Stream").click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    assert [(one["sort"], one["down"]) for one in asked[-3:]] == [("lag", "true"), ("name", "false"), ("name", "true")]
    page.locator("th.of-state").get_by_role("button", name="State").click()
    expect(page.locator("th.of-state")).to_have_attribute("aria-sort", "descending")
    # Another page is asked of the server, and the counts filter.
    page.get_by_role("button", name="Next", exact=True).click()
    rows.filter(has_text="s_22").wait_for()
    page.locator("#paging", has_text="page 2 of 3, 61 streams").wait_for()
    page.get_by_role("button", name="3 UNREACHABLE").click()
    page.locator("#paging", has_text="3 of 61 streams").wait_for()
    expect(rows).to_have_count(3)
    page.wait_for_url(lambda url: "state=UNREACHABLE" in url)
    page.locator("#owner").select_option("Ann")
    page.wait_for_url(lambda url: "owner=Ann" in url)
    # The address is the page as it is shown.
    page.goto(page.url)
    rows.first.wait_for()
    assert {key: asked[-1].get(key) for key in ("state", "owner", "first")} == {
        "state": "UNREACHABLE",
        "owner": "Ann",
        "first": "0",
    }
    page.get_by_role("button", name="3 UNREACHABLE").click()
    rows.nth(24).wait_for()


@pytest.mark.full
@pytest.mark.covers("U2", "U3")
@pytest.mark.usefixtures("ingested")
def test_what_is_chosen_in_the_picture_is_replayed(airflow: Airflow, page: Page, tokens: dict[str, str]) -> None:
    _, coverage = airflow.call("GET", "/tidemark/api/streams/cdn_logs/coverage?width=300")
    assert [one["partition"] for one in coverage["bars"]] == [f"cdn-logs/{number}" for number in range(4)]
    bar = coverage["bars"][0]
    assert {block["state"] for block in bar["blocks"]} == {"ingest"}
    assert (bar["blocks"][0]["from"], bar["blocks"][-1]["until"]) == (bar["log_start"], bar["log_end"])
    page.goto(f"{airflow.url}/plugin/tidemark/tidemark/streams/cdn_logs")
    frame = page.frame_locator("iframe")
    frame.locator("#windows td.run").first.wait_for()
    frame.locator("#plots figure").first.wait_for()
    drawn = frame.locator(".bar-row[data-partition='cdn-logs/0'] svg.bar")
    # The keyboard: the first block, and its offsets.
    drawn.press("ArrowRight")
    drawn.press(" ")
    first = bar["blocks"][0]
    chosen = f"cdn-logs/0@{first['from']}-{first['until']}"
    expect(frame.locator("#coverage-chosen code")).to_have_text(chosen)
    frame.get_by_role("button", name="Clear").click()
    drawn.hover()
    expect(frame.locator("#coverage-tip")).to_contain_text("window ingest/", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "stream.png")
    box = drawn.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 4, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5, steps=4)
    page.mouse.up()
    chosen = frame.locator("#coverage-chosen code").inner_text()
    found = re.fullmatch(r"cdn-logs/0@([0-9]+)-([0-9]+)", chosen)
    assert found is not None
    start, until = map(int, found.groups())
    assert int(bar["log_start"]) < start < until < int(bar["log_end"])
    # Nothing of it is unread.
    expect(frame.get_by_role("button", name="Backfill …")).to_be_disabled()
    frame.get_by_role("button", name="Replay …").click()
    detail = frame.get_by_role("link", name="Plan it in detail").get_attribute("href") or ""
    assert unquote(detail).endswith(f"/streams/cdn_logs/plan?kind=replay&ranges={chosen}")
    frame.get_by_role("button", name="Start").click()
    # Without a reason, nothing is asked.
    expect(frame.locator(".said")).to_have_text("", use_inner_text=True)
    frame.locator("input[name=reason]").fill("seen in the picture")
    page.screenshot(path=SCREENSHOTS / "plan.png")
    frame.get_by_role("button", name="Start").click()
    # First to Tidemark's own page of the run, then to Airflow's.
    assert "/tidemark/run?" in (frame.locator(".said a").first.get_attribute("href") or "")
    run = frame.locator(".said a").last.inner_text()
    frame.locator(".said a").last.click()
    page.wait_for_url(lambda url: f"/dags/cdn_logs__replay/runs/{run}" in unquote(url))
    assert airflow.wait("cdn_logs__replay", run) == "success"
    _, started = airflow.call("GET", f"/api/v2/dags/cdn_logs__replay/dagRuns/{run}")
    assert started["triggering_user_name"] == environment.ADMIN
    assert started["conf"] == {"ranges": chosen, "reason": "seen in the picture", "dry_run": True}
    # As dark as Airflow.
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.goto(f"{airflow.url}/plugin/tidemark/tidemark/streams/cdn_logs")
    frame.locator("html.dark").wait_for()
    frame.locator("#windows td.run").first.wait_for()
    page.screenshot(path=SCREENSHOTS / "stream-dark.png")
    # Where Airflow follows the system, only its mark changes.
    page.evaluate("document.documentElement.classList.replace('dark', 'light')")
    frame.locator("html.light").wait_for()
    # By Airflow's rights: who may only look may not start.
    path = "/api/v2/dags/cdn_logs__replay/dagRuns"
    asked = {"logical_date": None, "conf": started["conf"]}
    assert airflow.call("POST", path, asked, tokens["viewer"])[0] == 403


@pytest.mark.full
@pytest.mark.covers("U29", "U17")
@pytest.mark.usefixtures("ingested")
def test_hours_are_chosen_by_event_time(airflow: Airflow, page: Page) -> None:
    """With the keyboard, and days with the pointer."""
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    page.get_by_role("button", name="By event time: hours").click()
    grid = page.locator("svg.grid")
    grid.locator("rect").first.wait_for()
    page.wait_for_url(lambda url: "axis=hour" in url)
    expect(page.locator(".bar-row").first).to_be_hidden()
    grid.press("Home")
    grid.press("Shift+End")
    expect(page.locator("#coverage-spoken")).to_contain_text("committed by the ingest", use_inner_text=True)
    page.screenshot(path=SCREENSHOTS / "event-time.png", full_page=True)
    grid.press(" ")
    chosen = page.locator("#coverage-chosen")
    expect(chosen).to_contain_text(re.compile("by a replay|committed by the ingest"))
    look = chosen.get_by_role("link", name="Look through the messages").get_attribute("href") or ""
    assert "/browse?where=cdn-logs&since=" in unquote(look)
    assert page.evaluate("document.activeElement.textContent") in ("Backfill …", "Replay …")
    chosen.get_by_role("button", name="Replay …").press("Enter")
    page.locator("dialog", has_text="Only of messages from").wait_for()
    page.keyboard.press("Escape")
    page.route(lambda url: "coverage/times" in url and "step=day" in url, lambda _: None)
    with page.expect_request(lambda one: "coverage/times" in one.url and "step=day" in one.url):
        page.get_by_role("button", name="Days").click()
    page.wait_for_url(lambda url: "axis=day" in url)
    # Until the days have come, nobody chooses columns of the hours.
    expect(grid).to_have_count(0)
    page.unroute_all()
    grid.locator("rect").first.wait_for()
    box = grid.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 5, steps=3)
    page.mouse.up()
    page.get_by_role("button", name="Zoom to its hours").click()
    page.wait_for_url(lambda url: "axis=hour" in url and "times_since=" in url)
    # The address is the picture as it is shown.
    page.goto(page.url)
    grid.locator("rect").first.wait_for()
    page.get_by_role("button", name="By offset").click()
    page.locator("svg.bar").first.wait_for()
    expect(grid).to_be_hidden()


@pytest.mark.covers("Q14")
def test_other_peoples_words_are_shown_as_text(airflow: Airflow, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{airflow.url}/tidemark/")
    line = page.locator("tr[data-stream=evil]")
    line.locator(".description").filter(has_text=EVIL).wait_for()
    expect(line.locator(".description")).to_have_text(EVIL, use_inner_text=True)
    expect(line).to_contain_text("orders is missing", use_inner_text=True)
    assert page.title() == "Tidemark"
    page.screenshot(path=SCREENSHOTS / "hostile.png")
    line.get_by_role("link", name="evil", exact=True).click()
    page.locator("#description").filter(has_text=EVIL).wait_for()
    expect(page.locator("#description")).to_have_text(EVIL, use_inner_text=True)
    expect(page.locator("#status")).to_contain_text("NO TOPIC: topic orders does not exist", use_inner_text=True)
    assert page.title() == "evil · Tidemark"
    expect(page.locator("main img, main script")).to_have_count(0)
    assert all(url.startswith(airflow.url) for url in asked)


@pytest.mark.full
@pytest.mark.covers("U1")
def test_a_link_that_a_colleague_sends_leads_through_the_login(airflow: Airflow) -> None:
    """Who is not logged in comes to the page, and sees no JSON."""
    path = "/tidemark/streams/cdn_logs/messages?topic=cdn-logs&partition=1"
    with browser() as page:
        page.goto(f"{airflow.url}{path}")
        page.get_by_text("You are not logged in.").wait_for()
        page.get_by_role("link", name="Log in to Airflow").click()
        page.fill("input[name=username]", environment.ADMIN)
        page.fill("input[name=password]", airflow.password)
        page.click("button[type=submit]")
        page.wait_for_url(f"{airflow.url}{path}")
        page.locator("#navigation [aria-current]", has_text="Message").wait_for()


@pytest.mark.covers("U1")
def test_a_stream_that_nobody_may_see_has_a_page_that_says_so(airflow: Airflow, page: Page) -> None:
    page.goto(f"{airflow.url}/tidemark/streams/nowhere")
    page.locator("#problem").filter(has_text="no such stream").wait_for()


@pytest.mark.full
@pytest.mark.covers("U22")
def test_a_window_and_a_stream_without_anything_say_so(airflow: Airflow, page: Page) -> None:
    """In the words of the page, and not in those of an address or of a filter that nobody has written."""
    stream = f"{airflow.url}/tidemark/streams/red_orders"
    page.goto(f"{stream}/windows/ingest/zzz")
    expect(page.locator("#problem")).to_contain_text("There is no window ingest/zzz: a window has a number")
    page.goto(f"{stream}/dead-letters")
    expect(page.locator("#counted")).to_have_text("No window has written dead letters.")
    page.locator("input[name=reason]").fill("no such reason")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.locator("#counted")).to_have_text("No window has dead letters of these.")
    page.goto(f"{stream}/browse?kind=dead-letters")
    expect(page.locator("#found tbody")).to_have_text("Nothing is there")
    expect(page.locator("#masking")).to_be_empty()
    page.goto(f"{stream}/browse?kind=dead-letters&filter=reason+%3D+%22x%22")
    expect(page.locator("#found tbody")).to_have_text("Nothing fits")


@pytest.mark.full
@pytest.mark.covers("U22")
def test_a_run_that_airflow_does_not_have_leads_on(ingested: Airflow, page: Page) -> None:
    page.goto(f"{ingested.url}/tidemark/run?dag_id=cdn_logs__ingest&run_id=gone")
    expect(page.locator("#progress-problem")).to_contain_text("Airflow has no run gone of cdn_logs__ingest")
    page.screenshot(path=SCREENSHOTS / "run-gone.png")
    page.get_by_role("link", name="What the ledger has of it").click()
    expect(page.locator("#shown-windows")).to_contain_text("0 of the windows 1 to")
    expect(page.locator("#which-windows input[name=run]")).to_have_value("gone")


@pytest.mark.full
@pytest.mark.covers("U13", "N98")
def test_the_page_and_the_note_of_a_failed_run_say_why(airflow: Airflow, page: Page) -> None:
    """Of an ingest whose topic does not exist. The page of all streams leads there."""
    assert airflow.run("evil__ingest") == "failed"
    page.goto(f"{airflow.url}/tidemark/")
    page.locator("tr[data-stream=evil] td.of-run").get_by_role("link", name="failed").click()
    told = page.locator("#told", has_text=re.compile(r"The run has failed: TopicUnknown: .*orders.*[^.][.]$"))
    told.wait_for()
    page.screenshot(path=SCREENSHOTS / "run-failed.png")
    # Airflow writes the note when the run has ended.
    _, found = airflow.call("GET", "/api/v2/dags/evil__ingest/dagRuns?limit=1&order_by=-run_after")
    assert f"{found['dag_runs'][0]['note']}." == told.inner_text().replace("The run has failed", "Answer")


@pytest.mark.full
@pytest.mark.covers("U17")
def test_times_are_of_the_viewers_zone_or_of_utc(ingested: Airflow) -> None:
    """In a zone that lies half an hour beside. The choice holds on all pages, and in the calendar."""
    committed = ingested.call("GET", "/tidemark/api/streams/cdn_logs/windows/ingest/1")[1]["times"][-1]["at"]
    at = datetime.fromtimestamp(committed / 1000, UTC)
    here, utc = (f"{one:%Y-%m-%d %H:%M:%S}" for one in (at.astimezone(ZoneInfo("America/St_Johns")), at))
    with logged_in(ingested, zone="America/St_Johns") as page:
        page.goto(f"{ingested.url}/tidemark/streams/cdn_logs/windows/ingest/1")
        last = page.locator("#times time").last
        last.wait_for()
        expect(last).to_have_text(here)
        expect(last).to_have_attribute("title", f"{utc} UTC")
        page.click("text=Times: America/St_Johns")
        page.locator("#navigation", has_text="Times: UTC").wait_for()
        last.wait_for()
        expect(last).to_have_text(utc)
        expect(last).to_have_attribute("title", f"{here} America/St_Johns")
        page.goto(f"{ingested.url}/tidemark/streams/cdn_logs/completeness")
        newest = page.locator("#calendar tbody tr").first.locator("button").last
        newest.wait_for(timeout=120_000)
        hour = newest.get_attribute("data-hour") or ""
        assert (newest.get_attribute("aria-label") or "").startswith(hour.replace("T", " ").replace("Z", ":00"))
        # The field stands below its hour.
        assert newest.evaluate("one => one.parentElement.cellIndex") == 1 + int(hour[11:13])


@pytest.mark.full
@pytest.mark.parametrize(
    "width", [1400, 1000, 480, *(pytest.param(one, marks=pytest.mark.full) for one in (1280, 640))]
)
@pytest.mark.parametrize(("shown", "path"), [("streams", ""), ("stream", "/tidemark/streams/cdn_logs")])
@pytest.mark.usefixtures("ingested")
def test_the_pages_stay_within_the_frame(airflow: Airflow, page: Page, width: int, shown: str, path: str) -> None:
    """As shown in Airflow, and with words as long as others please."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{airflow.url}/plugin/tidemark{path}")
    element = page.locator("iframe").element_handle()
    frame = element.content_frame()
    frame.locator("#windows td.run, tr[data-stream=evil] .description").first.wait_for()
    frame.locator("svg.bar, tr[data-stream=cdn_logs] a").first.wait_for()
    page.screenshot(path=SCREENSHOTS / f"{shown}-{width}.png")
    for _ in range(2):
        size = frame.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert size[0] <= size[1]
        # Nothing of a table is out of sight, except where it has to scroll in its own box.
        tables = frame.evaluate(
            "[...document.querySelectorAll('.box')].map((one) => [one.scrollWidth, one.clientWidth])"
        )
        assert tables
        assert width < 1000 or all(table <= box for table, box in tables)
        # Once more, with a topic of 249 letters and a window of many digits.
        frame.evaluate("""
            const long = "t".repeat(249);
            const words = "td.topic, td.lane, td.run, .description, .bar-row .name, .stream";
            for (const one of document.querySelectorAll(words)) one.textContent = long;
            for (const one of document.querySelectorAll("td.ranges")) one.textContent = long + "/0@0-1";
        """)
    page.screenshot(path=SCREENSHOTS / f"{shown}-long-{width}.png")


@pytest.mark.full
def test_an_unknown_stream_is_refused(airflow: Airflow) -> None:
    status, answer = airflow.call("GET", "/tidemark/api/streams/nowhere")
    assert (status, answer["detail"]) == (404, NO_STREAM)
