"""How long the pages in Airflow take: 200 streams, and a picture of very many partitions and windows. In a real browser.

    ./run up
    python -m bench.pages [--partitions 1000] [--windows 100000] [--streams 200]

Not one of the pairs of `./run bench`: there is nothing to compare with. Prints seconds.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

from playwright.sync_api import Page

from demo.airflow import Airflow
from services import environment
from services.site import Site
from tests.support.browser import logged_in
from tests.support.known_dags import make_known
from tests.support.live_streams import Kafka
from tests.support.stream_text import MINIMAL
from tests.support.wide_history import give_history
from tidemark.clients.environment import from_environment
from tidemark.clients.kafka.endpoint import kafka_endpoint
from tidemark.runs.live.open_stream import open_stream

WIDE = "wide"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000)
    parser.add_argument("--windows", type=int, default=100_000)
    parser.add_argument("--streams", type=int, default=200)
    options = parser.parse_args()
    site = Site.from_environment()
    os.environ.update(environment.connections(site))
    airflow = Airflow(site)
    names = [f"many_{number:03}" for number in range(options.streams)]
    _make(site, names, options.partitions, options.windows)
    with logged_in(airflow, width=1280, patience_ms=1_200_000) as page:
        page.add_init_script("performance.setResourceTimingBufferSize(5000)")
        _streams(airflow, page, len(names))
        _picture(airflow, page)
    return 0


def _make(site: Site, names: list[str], partitions: int, windows: int) -> None:
    """The streams, of which each has read a topic of its own, and one with a long history. What is there is left alone."""
    kafka, folder = Kafka(kafka_endpoint(from_environment("kafka_default"))), site.folder("streams")
    topics = set(kafka.admin.list_topics())
    make_known(site, [f"{name}__ingest" for name in (*names, WIDE)])
    for name, number, history in (*((name, 1, 20) for name in names), (WIDE, partitions, windows)):
        file = folder / f"{name}.yaml"
        if file.exists():
            continue
        if name not in topics:
            kafka.create(name, number)
        kafka.send((name, one, None, b"{}") for one in range(number))
        text = MINIMAL.replace("stream: orders", f"stream: {name}").replace("topics: [orders]", f"topics: [{name}]")
        made = folder / f"{name}.tmp"
        made.write_text(text)
        began = time.monotonic()
        give_history(open_stream(made), history)
        made.rename(file)
        if name == WIDE:
            print(
                f"{windows} windows of {partitions} partitions, written into the ledger: {time.monotonic() - began:.1f} s"
            )


def _streams(airflow: Airflow, page: Page, number: int) -> None:
    asking = page.locator("#streams td", has_text="asking")
    for said in ("first look", "once more"):
        print(
            f"{number} streams, the 25 of a page, {said}: {_took(page, f'{airflow.url}/tidemark/', asking.first):.2f} s"
        )
    began = time.monotonic()
    page.get_by_role("button", name="Lag").click()
    while (
        page.evaluate("performance.getEntriesByType('resource').filter((one) => one.name.endsWith('/line')).length")
        < number
    ):
        page.wait_for_timeout(100)
    print(f"{number} streams, all their lines, for an order: {time.monotonic() - began:.1f} s")


def _picture(airflow: Airflow, page: Page) -> None:
    address = f"{airflow.url}/tidemark/streams/{WIDE}"
    bars = page.locator(".bar-row")
    for said in ("first look, which reads the history", "once more", "and once more"):
        began = time.monotonic()
        page.goto(address)
        bars.first.wait_for()
        print(f"the picture, {said}: {time.monotonic() - began:.2f} s, {_server(page)}")
    for said, act in _acts(page):
        page.evaluate("performance.clearResourceTimings()")
        began = time.monotonic()
        with page.expect_response(lambda answer: "/coverage" in answer.url and answer.ok):
            act()
        page.wait_for_function("() => document.querySelectorAll('.bar-row').length > 0")
        print(f"the picture, {said}: {time.monotonic() - began:.2f} s, {_server(page)}")
    print(f"blocks that are drawn: {page.locator('svg.bar rect').count()}")


def _acts(page: Page) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("the next 25 partitions", lambda: page.get_by_role("button", name="Next", exact=True).click()),
        ("one partition alone", lambda: page.locator(".bar-row .name").first.click()),
        ("closer", lambda: page.get_by_role("button", name="Zoom in").first.click()),
    ]


def _server(page: Page) -> str:
    """What of it the browser waited for the answer about the picture, and how large that was."""
    found = page.evaluate(
        "performance.getEntriesByType('resource').filter((one) => one.name.includes('/coverage'))"
        ".map((one) => [one.responseEnd - one.requestStart, one.encodedBodySize]).at(-1)"
    )
    return f"of that the answer {found[0] / 1000:.2f} s, {found[1] / 1000:.0f} kB"


def _took(page: Page, address: str, gone: object) -> float:
    """Seconds until a page has its lines."""
    began = time.monotonic()
    page.goto(address)
    page.locator("#streams tbody tr").nth(24).wait_for()
    gone.wait_for(state="detached")  # type: ignore[attr-defined]
    return time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
