"""How the tests start chromium, and where screenshots go."""

from __future__ import annotations

import atexit
import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

from playwright.sync_api import Browser, Page, expect, sync_playwright

from demo.airflow import Airflow
from services.site import REPOSITORY

SCREENSHOTS = REPOSITORY / ".local" / "screenshots"
# Without these flags, a browser without internet looks for hosts that it cannot reach.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
# Every page, with what is there once it has been drawn. The last one takes the name of a run.
PAGES = {
    "": "tr[data-stream=cdn_logs] td:nth-child(5)",
    "streams/cdn_logs": "main:has(.bar-row .name) #windows td.run",
    "streams/cdn_logs/messages?topic=cdn-logs&partition=0&offset=0": "#answer:not([hidden]) #windows td",
    "streams/cdn_logs/browse?where=cdn-logs/0": "#found td.time",
    "streams/cdn_logs/windows/ingest/1": "#answer:not([hidden]) #partitions td",
    "streams/cdn_logs/dead-letters": "#counted[aria-busy=false]",
    "streams/cdn_logs/completeness": "#calendar button",
    "streams/cdn_logs/audits": "#audits > *",
    "streams/cdn_logs/plan": "#sinks input",
    "run?dag_id=cdn_logs__ingest&run_id=": "#results td",
}


def pages_of(stream: str) -> Iterator[tuple[str, str]]:
    """As PAGES, of a stream whose only topic has its name."""
    for path, drawn in PAGES.items():
        yield re.sub("cdn[_-]logs", stream, path), drawn.replace("cdn_logs", stream)


_running = ExitStack()
atexit.register(_running.close)


@cache
def _chromium() -> Browser:
    """The browser of this process. It takes seconds to start, and nothing that a test does in its own context stays there."""
    playwright = _running.enter_context(sync_playwright())
    _running.callback(_chromium.cache_clear)
    found = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
    _running.callback(found.close)
    return found


def closed() -> None:
    """End the browser. While it runs, nothing else in this thread may have an event loop."""
    _running.close()


def hurried(page: Page, times: int) -> None:
    """Let pages do what they do in their own time so many times faster: their questions are those that they ask anyway."""
    page.add_init_script(
        f"const usual = setTimeout; setTimeout = (call, ms, ...more) => usual(call, ms / {times}, ...more)"
    )


@contextmanager
def browser(width: int = 1400, patience_ms: int = 120_000, zone: str = "UTC") -> Iterator[Page]:
    """A browser in which nobody has logged in."""
    context = _chromium().new_context(viewport={"width": width, "height": 900}, timezone_id=zone)
    try:
        opened = context.new_page()
        opened.set_default_timeout(patience_ms)
        # `expect` has a patience of its own, of five seconds.
        expect.set_options(timeout=patience_ms)
        yield opened
    finally:
        # An answer that a test is about to change would be missed by the next one.
        for one in context.pages:
            one.unroute_all(behavior="ignoreErrors")
        context.close()


@contextmanager
def logged_in(airflow: Airflow, width: int = 1400, patience_ms: int = 120_000, zone: str = "UTC") -> Iterator[Page]:
    """A browser in which the administrator has logged in: with the cookie that Airflow's form gives."""
    with browser(width, patience_ms, zone) as opened:
        opened.context.add_cookies([{"name": "_token", "value": str(airflow.token), "url": airflow.url}])
        yield opened
