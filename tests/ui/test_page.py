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
from services.site import REPOSITORY
from tests.ui.conftest import EVIL

SCREENSHOTS = REPOSITORY / ".local" / "screenshots"

# What a browser in a closed room needs: without these it looks for hosts that it cannot reach.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


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


ROUTES = ["/", "/files/page.js", "/files/page.css", "/files/index.html", "/streams", "/streams/cdn_logs"]


@pytest.mark.covers("Q11")
@pytest.mark.parametrize("route", ROUTES)
def test_strangers_see_nothing(airflow: Airflow, route: str) -> None:
    assert airflow.call("GET", f"/tidemark{route}")[0] == 200
    assert airflow.call("GET", f"/tidemark{route}", token=None)[0] == 401
    status, answer = airflow.call("GET", f"/tidemark{route}", token="a.b.c")
    assert status in (401, 403)
    assert "cdn-logs" not in json.dumps(answer)


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
def test_the_page_changes_nothing(airflow: Airflow, method: str) -> None:
    for route in ROUTES:
        assert airflow.call(method, f"/tidemark{route}", {})[0] == 405


@pytest.mark.covers("Q11")
def test_a_stream_is_shown_to_those_who_may_see_its_dag(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastapi import HTTPException, Response
    from fastapi.routing import APIRoute

    from tidemark_plugin import access, app, streams

    class OnlyMine:
        """Stands in for Airflow's auth manager."""

        def is_authorized_dag(self, *, method: str, details: Any, user: str) -> bool:
            return (method, details.id, user) == ("GET", "mine__ingest", "somebody")

    monkeypatch.setattr(access, "get_auth_manager", OnlyMine)
    monkeypatch.setattr(streams, "known_streams", lambda: ({"mine": "mine", "theirs": "theirs"}, []))
    monkeypatch.setattr(streams, "opened", lambda file: file)
    monkeypatch.setattr(app, "overview", lambda opened: {"stream": opened})
    routes = {route.path: route.endpoint for route in app.build_app().routes if isinstance(route, APIRoute)}
    assert routes["/streams"]("somebody", Response())["streams"] == ["mine"]
    assert routes["/streams/{name}"]("mine", "somebody", Response()) == {"stream": "mine"}
    with pytest.raises(HTTPException) as refused:
        routes["/streams/{name}"]("theirs", "somebody", Response())
    assert refused.value.status_code == 404


@pytest.mark.covers("Q11")
def test_every_route_of_the_page_asks_who_is_there() -> None:
    from fastapi.routing import APIRoute

    from tidemark_plugin.access import get_user
    from tidemark_plugin.app import build_app

    routes = [route for route in build_app().routes if isinstance(route, APIRoute)]
    assert {route.path for route in routes} == {"/", "/files/{name}", "/streams", "/streams/{name}"}
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
    _, stream = airflow.call("GET", "/tidemark/streams/cdn_logs")
    assert {one["partition"]: one["lag"] for one in stream["partitions"]} == {0: "0", 1: "0", 2: "0", 3: "0"}
    rows = section.locator(".partitions tbody tr")
    assert rows.count() == 4
    shown = rows.nth(0).locator("td").all_inner_texts()
    first = stream["partitions"][0]
    assert [text.replace(" ", "") for text in shown] == [
        *("cdn-logs", "0", first["log_start"], first["position"], first["end"], "0", "safe")
    ]
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


def test_other_peoples_words_are_shown_as_text(airflow: Airflow, page: Page) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{airflow.url}/tidemark/")
    section = page.locator("section[data-stream=evil]")
    section.locator(".problem:visible").wait_for()
    assert section.locator(".description").inner_text() == EVIL
    assert "Topic orders does not exist" in section.locator(".problem").inner_text()
    assert page.title() == "Tidemark"
    assert section.locator("img, script").count() == 0
    assert all(url.startswith(airflow.url) for url in asked)
    # A file that is no stream file is named, and takes nothing else with it.
    page.locator("#refreshed").filter(has_text="broken.yaml").wait_for()
    page.screenshot(path=SCREENSHOTS / "hostile.png")


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
