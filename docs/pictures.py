"""The pictures of docs/airflow-pages.md: the pages of the demo, as a browser shows them.

./run demo --all          # once: fills the pages
python -m docs.pictures   # takes the pictures again, into docs/pictures/
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page

from demo.airflow import Airflow
from demo.on_servers import FROM_NOW, TOPIC
from services import environment
from services.site import Site
from tests.support.browser import logged_in
from tidemark.ledger.records import LaneKind
from tidemark.runs.live.open_stream import open_stream

FOLDER = Path(__file__).parent / "pictures"
WIDTH, HEIGHT = 1280, 800
# A page may be as long as a history; a picture of all of it could not be read.
MAX_HEIGHT = 1600
# Where the demo keeps its files is of no interest, and another place on each machine.
ELSEWHERE = "/srv/tidemark"
STREAM = "cdn_logs"

HeldWindow = Callable[[Page], None]


def main() -> int:
    site = Site.from_environment()
    os.environ.update(environment.everything(site))
    FOLDER.mkdir(exist_ok=True)
    airflow = Airflow(site)
    with logged_in(airflow, width=WIDTH, patience_ms=120_000) as page:
        page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
        for name, (path, ready, then) in pictures(site).items():
            page.goto(f"{airflow.url}{path}")
            page.locator(ready).first.wait_for()
            then(page)
            # What is loaded a moment later, such as the plots, is in the picture too.
            page.wait_for_timeout(3_000)
            without_folders(page, site)
            page.screenshot(path=FOLDER / f"{name}.png", **whole(page) if not path.startswith("/plugin") else {})
            print(f"docs/pictures/{name}.png")
    return 0


def whole(page: Page) -> dict[str, Any]:
    """The whole page, up to MAX_HEIGHT."""
    height = min(page.evaluate("document.documentElement.scrollHeight"), MAX_HEIGHT)
    return {"full_page": True, "clip": {"x": 0, "y": 0, "width": WIDTH, "height": height}}


def without_folders(page: Page, site: Site) -> None:
    """Names another folder than this machine's, where the page has one."""
    page.evaluate(
        """([here, elsewhere]) => {
          const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
          while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(here, elsewhere);
        }""",
        [str(site.state), ELSEWHERE],
    )


def pictures(site: Site) -> dict[str, tuple[str, str, HeldWindow]]:
    """For each picture the address of its page, what has to be there, and what is done then."""
    opened = open_stream(site.folder("streams") / f"{FROM_NOW}.yaml")
    replays = [one.record for one in opened.ledger.committed() if one.record.kind == LaneKind.REPLAY]
    # That of Airflow, which has steps and a report; the demo has begun it.
    dag, _, run = next(
        one.attempt.run for one in reversed(replays) if one.attempt.run.startswith(f"{FROM_NOW}__")
    ).partition("/")
    message = f"streams/{STREAM}/messages?topic={TOPIC}&partition=2&offset=1000"
    return {
        "streams": ("/plugin/tidemark", "iframe", nothing),
        "stream": (f"/tidemark/streams/{STREAM}", "svg.bar", nothing),
        "message": (f"/tidemark/{message}", "#fate", show_payloads),
        "dead-letters": (f"/tidemark/streams/{FROM_NOW}/dead-letters", ".group, #counted", nothing),
        "audits": (f"/tidemark/streams/{STREAM}/audits", "#audits section", nothing),
        "plan": (f"/tidemark/streams/{STREAM}/plan?ranges={TOPIC}/0@100-200", "#summary:not(:empty)", nothing),
        "window": (f"/tidemark/streams/{STREAM}/windows/ingest/1", "#times td", nothing),
        "run": (f"/tidemark/run?{urlencode({'dag_id': dag, 'run_id': run})}", "#results section", nothing),
        "completeness": (f"/tidemark/streams/{STREAM}/completeness", "#calendar tr:nth-child(7) button", nothing),
        # The last one: the choice is kept.
        "stream-dark": (f"/tidemark/streams/{STREAM}", "svg.bar", dark),
    }


def nothing(page: Page) -> None:
    """The page as it opens."""


def dark(page: Page) -> None:
    """As dark as Airflow, for whoever has chosen that there."""
    page.evaluate("localStorage.setItem('theme', 'dark')")
    page.reload()
    page.locator("html.dark svg.bar").first.wait_for()


def show_payloads(page: Page) -> None:
    page.get_by_role("button", name="Show payloads").click()
    page.locator("#message .value code, #message .value pre").first.wait_for()


if __name__ == "__main__":
    sys.exit(main())
