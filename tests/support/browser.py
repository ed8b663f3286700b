"""How the tests start chromium, and where screenshots go."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page, expect, sync_playwright

from demo.airflow import Airflow
from services import environment
from services.site import REPOSITORY

SCREENSHOTS = REPOSITORY / ".local" / "screenshots"
# Without these flags, a browser without internet looks for hosts that it cannot reach.
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextmanager
def browser(width: int = 1400, patience_ms: int = 120_000, zone: str = "UTC") -> Iterator[Page]:
    """A browser in which nobody has logged in."""
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        opened = found.new_context(viewport={"width": width, "height": 900}, timezone_id=zone).new_page()
        opened.set_default_timeout(patience_ms)
        # `expect` has a patience of its own, of five seconds.
        expect.set_options(timeout=patience_ms)
        yield opened
        found.close()


@contextmanager
def logged_in(airflow: Airflow, width: int = 1400, patience_ms: int = 120_000, zone: str = "UTC") -> Iterator[Page]:
    """A browser in which the administrator has logged in."""
    with browser(width, patience_ms, zone) as opened:
        opened.goto(airflow.url)
        opened.fill("input[name=username]", environment.ADMIN)
        opened.fill("input[name=password]", airflow.password)
        opened.click("button[type=submit]")
        opened.wait_for_url(f"{airflow.url}/")
        yield opened
