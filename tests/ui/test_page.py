"""The page in Airflow, with the real Airflow, in a real browser."""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, sync_playwright

from demo.airflow import Airflow
from services import environment
from services.site import REPOSITORY, Site
from tests.support.browser import FLAGS, SCREENSHOTS
from tests.support.evil import EVIL


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    """A browser that is logged in."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        opened = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
        opened.goto(airflow.url)
        opened.fill("input[name=username]", environment.ADMIN)
        opened.fill("input[name=password]", airflow.password)
        opened.click("button[type=submit]")
        opened.wait_for_url(f"{airflow.url}/")
        yield opened
        browser.close()


ROUTES = [
    "/",
    "/run",
    "/files/page.js",
    "/files/run.js",
    "/files/page.css",
    "/files/index.html",
    "/streams",
    "/streams/cdn_logs",
]
# A run that nobody has made: 404 for those who may see the stream.
REPORT = "/streams/cdn_logs/audit?run=nowhere"
# Whoever may see them, and which streams that are.
NO_TEAM = {"cdn_logs", "evil"}
SEEN = {
    environment.ADMIN: {*NO_TEAM, "red_orders", "blue_orders"},
    "red_viewer": {*NO_TEAM, "red_orders"},
    "blue_viewer": {*NO_TEAM, "blue_orders"},
    "viewer": NO_TEAM,
    "nobody": set(),
}


@pytest.fixture(scope="module")
def tokens(airflow: Airflow, site: Site) -> dict[str, str]:
    """Of each user, who has logged in."""
    return {user: airflow.token_of(user, environment.password(site, user)) for user in SEEN}


@pytest.mark.covers("Q11")
@pytest.mark.parametrize("route", [*ROUTES, "/streams/red_orders", "/streams/nowhere", REPORT, "/nowhere"])
def test_strangers_see_nothing(airflow: Airflow, route: str) -> None:
    expected = (404, 504) if route == REPORT else (404,) if "nowhere" in route else (200, 504)
    assert airflow.call("GET", f"/tidemark{route}")[0] in expected
    status, answer = airflow.call("GET", f"/tidemark{route}", token=None)
    # What is no route asks nobody, and says nothing.
    assert (status, "orders" in str(answer)) == (404 if route == "/nowhere" else 401, False)
    status, answer = airflow.call("GET", f"/tidemark{route}", token="a.b.c")
    assert status in ((404,) if route == "/nowhere" else (401, 403))
    assert "cdn-logs" not in json.dumps(answer)


@pytest.mark.covers("Q11")
@pytest.mark.parametrize("user", SEEN)
def test_a_stream_is_shown_to_those_who_may_see_its_dag(airflow: Airflow, tokens: dict[str, str], user: str) -> None:
    """As Airflow itself decides, for real users of two teams."""
    _, listed = airflow.call("GET", "/tidemark/streams", token=tokens[user])
    assert set(listed["streams"]) == SEEN[user]
    for stream in (*SEEN[environment.ADMIN], "unknown"):
        may = stream in SEEN[user]
        if not may:
            report = airflow.call("GET", f"/tidemark/streams/{stream}/audit?run=any", token=tokens[user])
            assert report == (404, {"detail": "no such stream"})
        shown, answer = _shown(airflow, stream, tokens[user])
        assert (shown, answer.get("stream")) == ((200, stream) if may else (404, None))
        if not may:
            # Nothing tells it from one that there is not.
            assert answer == {"detail": "no such stream"}
        # Airflow answers 403 or 404 for a DAG that the user may not see, or that it does not know.
        assert (airflow.call("GET", f"/api/v2/dags/{stream}__ingest", token=tokens[user])[0] == 200) == may
    # Of which team a file is that cannot be read, nobody knows: only who may see all of them is told.
    assert ["broken.yaml" in problem for problem in listed["problems"]] == [True] * (user == environment.ADMIN)


def _shown(airflow: Airflow, stream: str, token: str | None) -> tuple[int, Any]:
    """What a user is shown of a stream; on a slow machine, at the second or third look."""
    for _ in range(20):
        status, answer = airflow.call("GET", f"/tidemark/streams/{stream}", token=token)
        if status != 504:
            break
    return status, answer


@pytest.mark.covers("Q13")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_page_changes_nothing(airflow: Airflow, method: str) -> None:
    for route in ROUTES:
        assert airflow.call(method, f"/tidemark{route}", {})[0] == 405


@pytest.mark.covers("Q11", "Q13")
def test_every_route_of_the_page_asks_who_is_there() -> None:
    from fastapi.routing import APIRoute

    from tidemark_plugin.access import get_user
    from tidemark_plugin.app import build_app

    routes = [route for route in build_app().routes if isinstance(route, APIRoute)]
    paths = {"/", "/run", "/files/{name}", "/streams", "/streams/{name}", "/streams/{name}/audit"}
    assert {route.path for route in routes} == paths
    for route in routes:
        assert get_user in [dependency.call for dependency in route.dependant.dependencies]
        assert route.methods == {"GET"}


def test_the_page_shows_which_offsets_are_where(airflow: Airflow, page: Page) -> None:
    # A scheduled run may be on its way already; both end well.
    assert airflow.run("cdn_logs__ingest", {}) == "success"
    page.goto(f"{airflow.url}/plugin/tidemark")
    frame = page.frame_locator("iframe")
    section = frame.locator("section[data-stream=cdn_logs]")
    section.locator(".windows tbody tr").first.wait_for()
    _, stream = _shown(airflow, "cdn_logs", airflow.token)
    assert {one["partition"]: one["lag"] for one in stream["partitions"]} == {0: "0", 1: "0", 2: "0", 3: "0"}
    rows = section.locator(".partitions tbody tr")
    assert rows.count() == 4
    shown = rows.nth(0).locator("td").all_inner_texts()
    first = stream["partitions"][0]
    assert [text.replace(" ", "") for text in shown] == [
        *("cdn-logs", "0", first["log_start"], first["position"], first["end"], "0", "OK", "safe")
    ]
    assert (stream["status"]["word"], stream["status"]["rule"]) == ("OK", "no lag")
    assert section.locator(".status").inner_text() == f"OK (no lag): {stream['status']['sentence']}"
    window = section.locator(".windows tbody tr").nth(0).inner_text()
    newest = stream["windows"][0]
    assert f"cdn-logs/0 [{newest['ranges'][0]['from']}, {newest['ranges'][0]['until']})" in window
    assert "committed" in window
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / "page.png")
    # On the page by itself, a run's name leads to the run; Airflow's frame would not let it.
    assert section.locator(".windows a").count() == 0
    page.goto(f"{airflow.url}/tidemark/")
    page.locator("section[data-stream=cdn_logs] .windows a").first.click()
    page.wait_for_url("**/dags/cdn_logs__ingest/runs/**")


@pytest.mark.covers("Q14")
def test_other_peoples_words_are_shown_as_text(airflow: Airflow, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{airflow.url}/tidemark/")
    section = page.locator("section[data-stream=evil]")
    section.locator(".description").filter(has_text=EVIL).wait_for()
    assert section.locator(".description").inner_text() == EVIL
    assert "Topic orders does not exist" in section.locator(".problem").inner_text()
    assert page.title() == "Tidemark"
    assert section.locator("img, script").count() == 0
    assert all(url.startswith(airflow.url) for url in asked)
    # A file that is no stream file is named, and takes nothing else with it.
    page.locator("#refreshed").filter(has_text="broken.yaml").wait_for()
    page.screenshot(path=SCREENSHOTS / "hostile.png")


@pytest.mark.parametrize("width", [1400, 1280, 1024, 480])
def test_the_tables_stay_within_the_frame(airflow: Airflow, page: Page, width: int) -> None:
    """As shown in Airflow, and with words as long as others please."""
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{airflow.url}/plugin/tidemark")
    element = page.locator("iframe").element_handle()
    frame = element.content_frame()
    # The windows are those of the test before, or of this one alone.
    if not _shown(airflow, "cdn_logs", airflow.token)[1]["windows"]:
        assert airflow.run("cdn_logs__ingest", {}) == "success"
    frame.locator("section[data-stream=cdn_logs] .windows td.run").first.wait_for()
    frame.locator("section[data-stream=evil] .description").filter(has_text=EVIL).wait_for()
    page.screenshot(path=SCREENSHOTS / f"page-{width}.png")
    for _ in range(2):
        size = frame.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
        assert size[0] <= size[1]
        # Nothing of a table is out of sight, except where it has to scroll in its own box.
        tables = frame.evaluate(
            "[...document.querySelectorAll('.box')].map((one) => [one.scrollWidth, one.clientWidth])"
        )
        assert len(tables) >= 4
        assert width < 1280 or all(table <= box for table, box in tables)
        # Once more, with a topic of 249 letters and a window of many digits.
        frame.evaluate("""
            const long = "t".repeat(249);
            for (const one of document.querySelectorAll("td.topic, td.lane, td.run, .description")) one.textContent = long;
            for (const one of document.querySelectorAll("td.ranges")) one.textContent = long + "/0 [0, 1)";
        """)
    page.screenshot(path=SCREENSHOTS / f"page-long-{width}.png")


def test_the_page_may_not_load_anything_from_elsewhere(airflow: Airflow) -> None:
    request = urllib.request.Request(f"{airflow.url}/tidemark/", headers={"Authorization": f"Bearer {airflow.token}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        headers = dict(answer.headers)
    assert headers["content-security-policy"].startswith("default-src 'self'; frame-ancestors 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    script = (REPOSITORY / "plugins" / "tidemark_plugin" / "page" / "page.js").read_text()
    assert "innerHTML" not in script


def test_an_unknown_stream_is_refused(airflow: Airflow) -> None:
    status, answer = airflow.call("GET", "/tidemark/streams/nowhere")
    assert (status, answer["detail"]) == (404, "no such stream")
