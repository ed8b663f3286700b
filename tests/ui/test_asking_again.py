"""Pages ask again every few seconds: what a person does there goes on, with the real Airflow, in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from demo.airflow import Airflow
from tests.support.browser import SCREENSHOTS, hurried, logged_in

STREAM = re.compile(r"/api/streams/cdn_logs(\?.*)?$")
COVERAGE = re.compile(r"/api/streams/cdn_logs/coverage\?")
TREND = re.compile(r"/api/streams/cdn_logs/trend$")
ALL = re.compile(r"/api/triage\?")
PATIENCE_SECONDS = 90
FAR = 2**53 + 1
FASTER = 5
SELECT = """(one) => {
    const range = document.createRange();
    range.selectNodeContents(one);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
}"""
HREF = "document.activeElement.getAttribute('href')"


@pytest.fixture
def page(ingested: Airflow) -> Iterator[Page]:
    """A browser that is logged in, where an ingest has run."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(ingested, width=1280, patience_ms=60_000) as opened:
        hurried(opened, FASTER)
        yield opened


class Answers:
    """The answers to a question, changed by `change` before the page has them. The first one comes late, as 504."""

    def __init__(self, page: Page, question: re.Pattern[str]) -> None:
        self.page, self.number, self.late = page, 0, 0
        self.change: Callable[[Any], None] = lambda found: None
        page.route(question, self._answer)

    def _answer(self, route: Route) -> None:
        if self.late == 0:
            self.late += 1
            route.fulfill(status=504, json={"detail": "HBase did not answer within 5 s; they are still being asked"})
            return
        answer = route.fetch()
        if not answer.ok:
            route.fulfill(response=answer)
            return
        found = answer.json()
        self.change(found)
        self.number += 1
        route.fulfill(json=found)

    def wait(self, more: int = 1) -> None:
        """Until the page has shown so many answers more."""
        until, deadline = self.number + more, time.monotonic() + PATIENCE_SECONDS
        while self.number < until:
            assert time.monotonic() < deadline, "the page asks no more"
            self.page.wait_for_timeout(200)
        self.page.wait_for_timeout(500)


@pytest.mark.covers("U17")
def test_a_text_stays_selected_and_a_link_has_the_focus_while_other_rows_change(airflow: Airflow, page: Page) -> None:
    answers = Answers(page, STREAM)
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    page.locator("#windows td.run").first.wait_for()
    # A stream that was only slow was no problem.
    assert answers.late == 1
    expect(page.locator("#problem")).to_be_hidden()
    position = page.locator("#partitions tbody tr").first.locator("td").nth(3)
    position.evaluate(SELECT)
    page.locator("#windows td.number a").first.focus()
    chosen, href = position.inner_text(), page.evaluate(HREF)
    assert "/windows/" in href
    scrolled = page.evaluate("scrollY")
    assert scrolled > 0

    def another(found: Any) -> None:
        found["partitions"][1] |= {"end": str(FAR), "lag": str(FAR)}
        newest = found["windows"][0]
        found["windows"].insert(0, {**newest, "seq": 999_999, "passed_over": {"lost": str(FAR), "skipped": "0"}})

    answers.change = another
    answers.wait(2)
    expect(page.locator("#partitions")).to_contain_text(f"{FAR:,}".replace(",", " "), use_inner_text=True)
    expect(page.locator("#windows tbody tr").first).to_contain_text(
        f"{FAR:,} lost".replace(",", " "), use_inner_text=True
    )
    assert page.evaluate("getSelection().toString()") == chosen
    assert page.evaluate(HREF) == href
    # Where there is a row more above it, the link may have been kept in its place.
    assert page.evaluate("scrollY") >= scrolled


def lane_of(seqs: range, left: int) -> dict[str, Any]:
    """A lane of two partitions, one of which is read meanwhile, that has committed some windows."""
    none = dict.fromkeys(("closed_early", "paused", "asked_by", "approved_by", "pace", "pending"))
    parts = [
        {"partition": f"cdn-logs/{number}", "from": "0", "until": "9", "offsets": "9", "left": str(left * number)}
        for number in range(2)
    ]
    committed = [
        {"window": f"replay-1/{seq}", "at": 1, "ranges": parts[:1], "more_ranges": 1, "read": seq}
        | dict.fromkeys(("stored", "skipped", "dead_letters"), 1)
        for seq in reversed(seqs)
    ]
    known = {"lane": "replay-1", "kind": "replay", "state": "open", "run": "cli/x", "reason": "a test", "opened_at": 1}
    counts = {"windows": len(seqs), "offsets": "18", "left": str(left), "more_partitions": 1}
    return {**none, **known, **counts, "committed": committed, "partitions": parts}


@pytest.mark.full
@pytest.mark.covers("U17", "U13")
def test_a_text_stays_selected_on_the_page_of_a_run_while_it_goes_on(airflow: Airflow, page: Page) -> None:
    lanes = [lane_of(range(1, 3), 9)]
    asked = 0

    def answer(route: Route) -> None:
        nonlocal asked
        asked += 1
        route.fulfill(json={"run": "cli/x", "now": 2, "lanes": lanes, "may_steer": False})

    page.route("**/api/streams/cdn_logs/progress?*", answer)
    page.goto(f"{airflow.url}/tidemark/run?stream=cdn_logs&run=replay-1")
    windows, partitions = page.locator("#lanes tbody").first, page.locator("#lanes tbody").last
    offsets = partitions.locator("tr").first.locator("td").first
    offsets.evaluate(SELECT)
    windows.get_by_role("link", name="replay-1/2").focus()
    chosen, href = offsets.inner_text(), page.evaluate(HREF)
    assert (chosen, href.endswith("/windows/replay-1/2")) == ("cdn-logs/0", True)
    lanes[:] = [lane_of(range(1, 4), 4)]
    windows.get_by_role("link", name="replay-1/3").wait_for()
    expect(partitions).to_contain_text("and 1 more partition")
    expect(partitions.locator("progress").nth(1)).to_have_attribute("value", "555")
    before = asked
    while asked < before + 2:
        page.wait_for_timeout(200)
    assert page.evaluate("getSelection().toString()") == chosen
    assert page.evaluate(HREF) == href
    expect(windows.locator("tr")).to_have_count(3)


@pytest.mark.covers("U13")
def test_a_run_says_what_was_asked_for_how_long_it_takes_and_what_it_has_read(airflow: Airflow, page: Page) -> None:
    """Of an audit and an ingest, which have no lane of their own. A key is not shown once more."""
    begun = (datetime.now(UTC) - timedelta(seconds=65)).isoformat()
    records = "\n".join(f"cdn-logs/0@{offset}" for offset in range(10_000))
    conf = {"level": "full", "records": records, "reason": "a test", "key": "secret", "repair": None, "compare": False}
    run = {"state": "running", "start_date": begun, "end_date": None, "conf": conf, "note": None}
    states = {"compare": "running", "report": None, "judge": None}
    tasks = [{"task_id": name, "state": state, "map_index": -1, "try_number": 2} for name, state in states.items()]
    part = {"partition": "cdn-logs/0", "offsets": "4000", "done": "1000"}
    job = {
        "run": "cdn_logs__audit/asked",
        "try_number": 2,
        "window": None,
        "step": "reading 4000 offsets",
        "more_partitions": 3,
    }
    job |= {"offsets": "4000", "done": "1000", "beat": 5_000, "partitions": [part]}
    progress: dict[str, Any] = {
        "run": job["run"],
        "now": 2,
        "lanes": [],
        "may_steer": False,
        "job": None,
        "ingest": None,
    }
    for kind in ("audit", "ingest"):
        of_run = f"**/api/v2/dags/cdn_logs__{kind}/dagRuns/asked"
        page.route(of_run, lambda route: route.fulfill(json=run))
        page.route(f"{of_run}/taskInstances", lambda route: route.fulfill(json={"task_instances": tasks}))
        page.route(f"{of_run}/**/xcomEntries?*", lambda route: route.fulfill(json={"total_entries": 0}))
    page.route("**/api/streams/cdn_logs/progress?*", lambda route: route.fulfill(json=progress))
    page.goto(f"{airflow.url}/tidemark/run?dag_id=cdn_logs__audit&run_id=asked")
    expect(page.locator("#took")).to_have_text(re.compile(r"Begun 1 min( \d+ s)? ago\. 0 of 3 steps have ended\."))
    expect(page.locator("#lanes")).to_have_text("Spark is starting.")
    asked = page.locator("#asked")
    expect(asked.locator("dt")).to_have_text(["run", "level", "records", "reason", "key"])
    expect(asked.locator("dd").nth(2)).to_contain_text("cdn-logs/0@2\nand 9 997 more lines", use_inner_text=True)
    expect(asked.get_by_role("button", name="Copy cdn_logs__audit/asked")).to_be_visible()
    expect(asked).not_to_contain_text("secret")
    # What the audit of another try, or after a repair, has read is not this one's.
    for another in ({"try_number": 1}, {"run": f"{job['run']}/after-repair"}):
        progress["job"] = {**job, **another}
        # It asks again once it has shown the first of these answers.
        for _ in range(2):
            page.wait_for_event("response", lambda one: "/progress?" in one.url)
        expect(page.locator("#lanes")).to_have_text("Spark is starting.")
    progress["job"] = job
    expect(page.locator("#lanes p")).to_have_text("Reading 4 000 offsets  1 000 of 4 000")
    expect(page.locator("#lanes p progress")).to_have_attribute("value", "250")
    progress["job"] = {**job, "beat": 7_000, "done": "2000", "partitions": [{**part, "done": "2000"}]}
    expect(page.locator("#lanes p")).to_have_text("Reading 4 000 offsets  2 000 of 4 000, 500 a second, about 4 s left")
    expect(page.locator("#lanes tbody tr")).to_have_text(["cdn-logs/02 0004 000", "and 3 more partitions"])
    page.screenshot(path=SCREENSHOTS / "run-asked.png")
    # One whose DAG is paused meanwhile offers to resume it, as a replay does.
    page.route("**/api/v2/dags/cdn_logs__audit", lambda route: route.fulfill(json={"is_paused": True}))
    expect(page.get_by_role("button", name="Resume the DAG cdn_logs__audit")).to_be_visible()
    # Nothing of what Airflow says goes away with the ledger.
    page.route(
        "**/api/streams/cdn_logs/progress?*", lambda route: route.fulfill(status=503, json={"detail": "it is away"})
    )
    expect(page.locator("#progress-problem")).to_have_text("it is away")
    run |= {"state": "success", "end_date": datetime.now(UTC).isoformat()}
    expect(page.locator("#took")).to_contain_text("It took 1 min")
    page.unroute("**/api/streams/cdn_logs/progress?*")
    # The window of an ingest, and those before it.
    run |= {"state": "running", "end_date": None}
    tasks[:] = [{"task_id": "process", "state": "running", "map_index": -1, "try_number": 1}]
    job |= {"run": "cdn_logs__ingest/asked", "window": "ingest/4", "step": "storing cdn_logs_hbase"}
    ingest = {"windows": 1, "committed": lane_of(range(1, 2), 9)["committed"]}
    progress |= {"job": job, "ingest": ingest}
    page.route("**/api/streams/cdn_logs/progress?*", lambda route: route.fulfill(json=progress))
    page.goto(f"{airflow.url}/tidemark/run?dag_id=cdn_logs__ingest&run_id=asked")
    expect(page.locator("#lanes p")).to_have_text("In work: window ingest/4, storing cdn_logs_hbase  1 000 of 4 000")
    expect(page.locator("#lanes th").nth(1)).to_have_text("Stored")
    expect(page.locator("#lanes h3")).to_have_text("Committed: 1 window")
    page.screenshot(path=SCREENSHOTS / "run-ingest.png")
    # Why a step is tried again, as its task has kept it.
    page.route("**/process/xcomEntries?*", lambda route: route.fulfill(json={"total_entries": 1}))
    kept = {"value": "Unreachable: h:1 did not answer for 30000 ms"}
    page.route("**/process/xcomEntries/tidemark_answer", lambda route: route.fulfill(json=kept))
    tasks[0]["state"] = "up_for_retry"
    said = "Under way: process is tried again. Unreachable: h:1 did not answer for 30 000 ms."
    expect(page.locator("#told")).to_have_text(said)


@pytest.mark.full
@pytest.mark.covers("U17")
def test_the_focus_stays_at_the_same_link_of_a_stream(airflow: Airflow, page: Page) -> None:
    answers = Answers(page, ALL)
    page.goto(f"{airflow.url}/tidemark/")
    line = page.locator("tr[data-stream=cdn_logs]")
    line.locator("td").nth(5).wait_for()
    assert answers.late == 1
    line.locator("td").nth(4).get_by_role("link").focus()
    href = page.evaluate(HREF)
    assert href.endswith("/dead-letters")
    answers.change = lambda found: [one["line"].update(lag="12345") for one in found["streams"] if one["line"]]
    answers.wait()
    expect(line).to_contain_text("12 345", use_inner_text=True)
    assert page.evaluate(HREF) == href
    title = line.locator("td").nth(4).get_by_role("link").get_attribute("title") or ""
    assert re.match(r"Written by the last (\d+ )?windows?\.", title)


@pytest.mark.full
@pytest.mark.covers("U17", "U2")
def test_the_picture_goes_on_while_a_bar_has_the_focus_and_waits_while_offsets_are_chosen(
    airflow: Airflow, page: Page
) -> None:
    answers = Answers(page, COVERAGE)
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    bar = page.locator(".bar-row").first.locator("svg.bar")
    bar.wait_for()
    expect(page.locator("#coverage-problem")).to_be_hidden()
    bar.focus()
    page.keyboard.press("Home")
    spoken = page.locator("#coverage-spoken").inner_text()

    def grown(found: Any) -> None:
        """As many unread offsets more as there are."""
        first = found["bars"][0]
        until, pixels = first["until"], first["pixels"]
        unread = {"pixel": pixels, "state": "unread", "from": until, "until": str(2 * int(until))}
        first["blocks"].append({**unread, "stretches": 1, "lane": None, "window": None, "windows": 0})
        first |= {"until": str(2 * int(until)), "last": str(2 * int(until)), "pixels": 2 * pixels}

    answers.change = grown
    answers.wait()
    bar.locator(".state-unread").wait_for()
    assert page.evaluate("document.activeElement.classList.contains('bar')")
    # Still marked, and the arrows go on from there.
    expect(bar.locator(".marked")).to_have_count(1)
    expect(page.locator("#coverage-spoken")).to_have_text(spoken, use_inner_text=True)
    page.keyboard.press("End")
    expect(page.locator("#coverage-spoken")).to_contain_text("unread", use_inner_text=True)
    page.keyboard.press(" ")
    expect(page.locator("#coverage-chosen")).to_contain_text("The picture stays as it is until you clear this")
    asked = answers.number
    page.wait_for_timeout(17_000 / FASTER)
    assert answers.number == asked
    page.get_by_role("button", name="Clear").click()
    answers.wait()


@pytest.mark.full
@pytest.mark.covers("U23")
def test_pending_windows_of_all_lanes_are_shown_alone(airflow: Airflow, page: Page) -> None:
    answers = Answers(page, STREAM)
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    rows = page.locator("#windows tbody tr")
    expect(rows.first).to_contain_text("committed")
    page.locator("[name=holding]").select_option("pending")
    expect(rows).to_have_text(["No window"])
    expect(page.locator("#shown-windows")).to_have_text("Pending of all lanes: 0.")

    def pending(found: Any) -> None:
        one = found["windows"][0]
        for number, run in enumerate(("cli/one", "cli/other")):
            waits = {
                "state": "pending: storing",
                "lane": f"replay-{number}",
                "seq": 7,
                "run": run,
                "dead_letters": None,
            }
            found["windows"].insert(0, {**one, **waits, "passed_over": None})

    answers.change = pending
    answers.wait()
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("pending: storing")
    page.locator("[name=run]").fill("one")
    page.keyboard.press("Enter")
    expect(rows).to_have_count(1)
    # The address is the table as it is shown.
    page.wait_for_url(lambda url: "holding=pending" in url and "run=one" in url)
    page.goto(page.url)
    expect(rows).to_have_count(1)
    expect(page.locator("#shown-windows")).to_have_text("Pending of all lanes: 1.")
    page.screenshot(path=SCREENSHOTS / "pending.png", full_page=True)
    page.locator("[name=holding]").select_option("")
    expect(page.locator("#shown-windows")).to_contain_text("1 of the newest")


@pytest.mark.full
@pytest.mark.covers("U1")
def test_while_kafka_is_away_a_stream_shows_what_its_ledger_knows(airflow: Airflow, page: Page) -> None:
    """And says once what it cannot know. It comes back by itself. The answer is that of a real stream, less what Kafka says."""
    answers = Answers(page, STREAM)
    away = "Unreachable: Kafka at k:1 did not answer"

    def without(found: Any) -> None:
        nothing = dict.fromkeys(
            ("log_start", "end", "lag", "status", "status_sentence", "retention", "retention_shown")
        )
        found["partitions"] = [{**one, **nothing} for one in found["partitions"]]
        found |= dict.fromkeys(("status", "lag", "lag_sentence")) | {"kafka_problem": away, "state": "UNREACHABLE"}
        why = {"state": "UNREACHABLE", "brief": away, "sentence": away, "remedy": "", "number": 0}
        found["reasons"] = [why]

    page.route("**/api/streams/cdn_logs/coverage?*", lambda one: one.fulfill(status=503, json={"detail": away}))
    answers.change = without
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    page.locator("#windows td.run").first.wait_for()
    status = page.locator("#status.bad")
    expect(status).to_contain_text(f"UNREACHABLE: {away}.")
    expect(status).to_contain_text("Positions, windows, lanes and holes are those of the ledger.")
    expect(page.locator(".problem:visible")).to_have_count(0)
    rows = page.locator("#partitions tbody tr")
    expect(rows).to_have_count(4)
    nothing = "\N{EN DASH}"
    expect(rows.first.locator("td")).to_have_text(["cdn-logs", "0", nothing, re.compile(r"^\d+$"), *[nothing] * 4])
    expect(page.locator("#lanes tbody tr").first).to_contain_text("ingest")
    # There is no picture to be explained.
    expect(page.locator("#coverage-legend")).to_be_hidden()
    expect(page.locator("#coverage-hint")).to_be_hidden()
    page.screenshot(path=SCREENSHOTS / "kafka-away.png", full_page=True)
    page.unroute("**/api/streams/cdn_logs/coverage?*")
    answers.change = lambda found: None
    page.locator(".bar-row").first.wait_for()
    expect(page.locator("#coverage-legend")).to_be_visible()
    expect(page.locator(".problem:visible")).to_have_count(0)


@pytest.mark.full
@pytest.mark.covers("U3")
def test_what_was_erased_is_not_offered_to_be_replayed(airflow: Airflow, page: Page) -> None:
    answers = Answers(page, COVERAGE)

    def erased(found: Any) -> None:
        for block in found["bars"][0]["blocks"]:
            block["state"] = "erase"
        # A long name takes few lines.
        found["bars"][0]["partition"] = f"{'t' * 249}/7"

    answers.change = erased
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    name = page.locator(".bar-row .name").first
    expect(name).to_have_text(f"{'t' * 35} … {'t' * 30}/7")
    expect(name).to_have_attribute("title", f"Only {'t' * 249}/7")
    for number, offered in enumerate((False, True)):
        bar = page.locator(".bar-row").nth(number).locator("svg.bar")
        bar.press("Home")
        bar.press(" ")
        assert page.get_by_role("button", name="Replay …").is_enabled() is offered
        page.get_by_role("button", name="Clear").click()


@pytest.mark.full
@pytest.mark.covers("U17")
def test_a_hundred_windows_are_reached_in_a_plot_with_the_arrows(airflow: Airflow, page: Page) -> None:
    answers = Answers(page, TREND)

    def hundred(found: Any) -> None:
        one = found["windows"][-1]
        found["windows"] = [{**one, "window": number, "lag": str(FAR + number)} for number in range(1, 101)]

    answers.change = hundred
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    lag = page.locator("#plots figure").first
    lag.wait_for()
    # Exact, though the columns are not.
    expect(lag).to_contain_text(f"{FAR + 100:,}".replace(",", " "), use_inner_text=True)
    lag.locator("a[tabindex='0']").focus()
    assert page.evaluate(HREF).endswith("/windows/ingest/100")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(HREF).endswith("/windows/ingest/99")
    page.screenshot(path=SCREENSHOTS / "plots.png")
    page.keyboard.press("Tab")
    assert page.evaluate(HREF).endswith("/windows/ingest/100")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url("**/windows/ingest/1")


@pytest.mark.full
@pytest.mark.covers("U7")
def test_a_committed_window_is_asked_for_once_and_leads_to_its_log(airflow: Airflow, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/api/" in request.url else None)
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs/windows/ingest/1")
    page.locator("#state", has_text=re.compile(r"^committed$")).wait_for()
    page.wait_for_timeout(6_000 / FASTER)
    # The window, and whether newer ones have replaced its results.
    assert [url.partition("/windows/")[2] for url in asked] == ["ingest/1", "ingest/1/newer"]
    log = page.locator("#facts a", has_text="the step that reads and stores")
    dag, run = re.search(r"/dags/([^/]+)/runs/([^/]+)/tasks/process$", log.get_attribute("href") or "").groups()  # type: ignore[union-attr]
    # And back, by the button of the task.
    path = f"/api/v2/dags/{dag}/dagRuns/{run}/taskInstances/process/links"
    back = airflow.call("GET", path)[1]["extra_links"]["Offsets"]
    log.click()
    page.wait_for_url(f"**/dags/{dag}/runs/**/tasks/process**")
    page.get_by_role("heading", name="process").or_(page.get_by_text("process", exact=True)).first.wait_for()
    page.goto(f"{airflow.url}{back}" if back.startswith("/") else back)
    page.locator("section a", has_text="ingest/1").first.wait_for()
    # Its answer stands first, as in the run's note.
    page.locator("#told", has_text=re.compile(r"^Finished: .*read \d+ = \d+ stored")).wait_for()


def fulfil(answer: dict[str, Any], route: Route) -> None:
    route.fulfill(**answer)


@pytest.mark.full
@pytest.mark.covers("U1")
def test_a_page_says_when_airflow_does_not_answer_and_asks_on(airflow: Airflow, page: Page) -> None:
    """When it refuses the connection, and when a request hangs for longer than a minute, which passes quickly here."""
    page.add_init_script(
        "const whole = AbortSignal.timeout; AbortSignal.timeout = (ms) => whole.call(AbortSignal, ms / 30)"
    )
    held: list[Route] = []
    page.route(STREAM, lambda route: route.abort())
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    problem = page.locator("#problem")
    expect(problem).to_have_text("Airflow did not answer. If that stays so, look whether its API server is up.")
    page.unroute(STREAM)
    expect(problem).to_be_hidden()
    page.route(STREAM, lambda route: held.append(route))
    expect(problem).to_have_text("Airflow did not answer. If that stays so, look whether its API server is up.")
    page.unroute(STREAM)
    expect(problem).to_be_hidden()
    assert held
    # What a proxy before Airflow says, whose pages are no data; and a login that has ended.
    for answer, said in (
        ({"status": 502, "body": "<html>"}, "/streams/cdn_logs was answered with 502 Bad Gateway"),
        ({"status": 200, "body": "<html>"}, "Something else than Airflow has answered"),
        (
            {"status": 401, "json": {"detail": "Not authenticated"}},
            "You are no longer logged in to Airflow: log in again",
        ),
    ):
        page.route(STREAM, partial(fulfil, answer))
        expect(problem).to_contain_text(said)
        page.unroute(STREAM)
