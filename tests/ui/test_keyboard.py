"""The pages without a mouse, with the real Airflow, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from demo.airflow import Airflow
from tests.support.browser import PAGES, SCREENSHOTS, logged_in
from tidemark.offsets.coordinates import parse_ranges

# What a person can use, as far as it is there to be seen. A group of radio buttons, and the calendar, are one stop.
USABLE = """
    [...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")].filter((one) =>
        one.tabIndex >= 0 && !one.disabled && one.type !== "file" && !(one.type === "radio" && !one.checked)
        && one.checkVisibility({ visibilityProperty: true }))
"""
FOCUSED = """() => {
    const one = document.activeElement;
    if (!one || one === document.body || one === document.documentElement) return null;
    const style = getComputedStyle(one);
    one.dataset.visited = "yes";
    return { name: one.tagName + "#" + one.id + " " + (one.textContent || one.name || "").trim().slice(0, 30),
        outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 };
}"""

# Pages in other states than that of their plain address.
STATES = {
    "?words=cdn&sort=lag&down=true": "tr[data-stream=cdn_logs] td:nth-child(5)",
    "streams/cdn_logs?axis=hour&lane=ingest": "#coverage-times svg",
    "streams/cdn_logs/browse?kind=results&sink=parquet": "#found td.value-cell",
    "streams/cdn_logs/browse?kind=dead-letters&newest=true": "#searched:not(:empty)",
}


@pytest.fixture
def page(ingested: Airflow) -> Iterator[Page]:
    """A browser that is logged in, where an ingest has run."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(ingested, width=1280, patience_ms=60_000) as opened:
        yield opened


@pytest.mark.full
@pytest.mark.covers("U17")
@pytest.mark.parametrize("path", PAGES)
def test_the_tab_key_reaches_everything_and_the_focus_is_seen(airflow: Airflow, page: Page, path: str) -> None:
    run = ""
    if path.endswith("run_id="):
        window = airflow.call("GET", "/tidemark/api/streams/cdn_logs/windows/ingest/1")[1]
        run = quote(window["attempt"]["run"].partition("/")[2])
    page.goto(f"{airflow.url}/tidemark/{path}{run}")
    page.locator(PAGES[path]).first.wait_for(state="attached")
    stops: list[dict[str, Any]] = []
    for _ in range(400):
        page.keyboard.press("Tab")
        found = page.evaluate(FOCUSED)
        if found is None:
            break
        stops.append(found)
    assert 5 < len(stops) < 400
    assert [one["name"] for one in stops if not one["outline"]] == []
    # Rows may be drawn anew while the key goes round: what was reached before is then another element of the same name.
    missed = page.evaluate(
        f"{USABLE}.filter((one) => !one.dataset.visited).map((one) => (one.textContent || one.name || '').trim().slice(0, 30))"
    )
    assert set(missed) <= {one["name"].split(" ", 1)[1] for one in stops}


@pytest.mark.covers("U21")
@pytest.mark.parametrize("path", [*PAGES, *STATES])
def test_axe_finds_nothing_and_the_console_stays_empty(airflow: Airflow, page: Page, path: str) -> None:
    """Light and dark, with every rule of axe-core. What a page shows can be pasted into the fields that take offsets."""
    run = ""
    if path.endswith("run_id="):
        window = airflow.call("GET", "/tidemark/api/streams/cdn_logs/windows/ingest/1")[1]
        run = quote(window["attempt"]["run"].partition("/")[2])
    said: list[str] = []
    page.on("console", lambda one: said.append(one.text) if one.type in ("error", "warning") else None)
    page.on("response", lambda one: said.append(one.url) if one.status >= 400 and one.status != 504 else None)
    for theme in ("light", "dark"):
        page.goto(f"{airflow.url}/tidemark/{path}{run}")
        page.evaluate("theme => localStorage.setItem('theme', theme)", theme)
        page.reload()
        page.locator(f"html.{theme}").wait_for()
        page.locator({**PAGES, **STATES}[path]).first.wait_for(state="attached")
        page.locator("main h1").wait_for(state="attached")
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    # On a slow machine an answer comes late, which the page asks for again.
    assert [one for one in said if "504" not in one] == []
    shown = page.locator("[data-copy]").evaluate_all("all => all.map((one) => one.dataset.copy)")
    for one in shown:
        # The others are names of runs, and digests of plans.
        if "@" in one:
            assert parse_ranges(one)
    if path == "streams/cdn_logs":
        assert any("@" in one for one in shown)


@pytest.mark.covers("U17", "U3")
def test_offsets_are_chosen_and_replayed_without_a_mouse(airflow: Airflow, page: Page) -> None:
    _, coverage = airflow.call("GET", "/tidemark/api/streams/cdn_logs/coverage?width=300")
    page.goto(f"{airflow.url}/tidemark/streams/cdn_logs")
    bars = page.locator("svg.bar")
    bars.nth(3).wait_for()
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('bar')"):
            break
    bar = coverage["bars"][0]
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.screenshot(path=SCREENSHOTS / "keyboard.png", full_page=True)
    expect(page.locator("#coverage-spoken")).to_contain_text("window ingest/", use_inner_text=True)
    page.keyboard.press(" ")
    shown = page.locator("#coverage-chosen code").inner_text()
    assert shown == f"cdn-logs/0@{bar['blocks'][0]['from']}-{bar['blocks'][-1]['until']}"
    assert page.evaluate("document.activeElement.textContent") == "Replay …"
    page.keyboard.press("Enter")
    # The dialog asks for the reason first, and Escape leaves it.
    assert page.evaluate("document.activeElement.name") == "reason"
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.get_by_role("button", name="Clear").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.closest('.bar-row').dataset.partition") == "cdn-logs/0"
    # A single block: its window opens.
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    page.wait_for_url("**/windows/ingest/*")
