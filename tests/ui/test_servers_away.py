"""Servers that stand still while people look at the page: Airflow goes on answering its tasks."""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import expect

from demo.airflow import Airflow
from services import processes
from services.site import Site
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.page_routes import Answer, Route, asked, routes_of

# Airflow's API has forty threads for all that it does: the health of its parts, what people ask, its tasks' heartbeats.
LOOKERS = 120
PATHS = ["/api/v2/monitor/health", "/api/v2/dags?limit=5", "/execution/health"]
CALLS = 20
# A call that waits for a dead server would take up to a minute.
AT_MAX_SECONDS = 15.0
PATIENCE_SECONDS = 180
# The calendar keeps what it has read for half a minute.
SECONDS_THAT_ANSWERS_ARE_KEPT = 31
STREAMS = ["cdn_logs", "evil", "blue_orders", "red_orders"]


@pytest.mark.full
@pytest.mark.covers("Q25")
@pytest.mark.parametrize(
    ("server", "named", "away"),
    [
        ("thrift", "HBase", {"cdn_logs", "evil", "blue_orders"}),
        ("kafka", "Kafka", set(STREAMS)),
        ("zookeeper", "ZooKeeper", {"red_orders"}),
    ],
)
def test_airflow_answers_while_a_server_stands_still(
    airflow: Airflow, site: Site, other_zookeeper: Site, server: str, named: str, away: set[str]
) -> None:
    until_shown(airflow)
    before = [timed(airflow, path) for path in PATHS * CALLS]
    assert {status for _, status, _ in before} == {200}
    with still(other_zookeeper if server == "zookeeper" else site, server), ThreadPoolExecutor(LOOKERS) as lookers:
        # What a server has said a moment before may still be shown; everybody looks until it is not.
        looking = [lookers.submit(look, airflow, stream, away) for stream in STREAMS * (LOOKERS // len(STREAMS))]
        meanwhile: list[tuple[str, int, float]] = []
        while len(meanwhile) < len(PATHS) * CALLS or not all(one.done() for one in looking):
            meanwhile += [timed(airflow, path) for path in PATHS]
        # Nothing of what Airflow does waits for what the page waits for.
        assert [
            (path, status, took) for path, status, took in meanwhile if status != 200 or took > AT_MAX_SECONDS
        ] == []
        # The machine is as busy with the page as with its own calls; a held thread would cost seconds.
        usual = statistics.median(took for *_, took in before)
        assert statistics.median(took for *_, took in meanwhile) < max(10 * usual, 1.0)
        seen = [one.result() for one in looking]
        assert max(took for *_, took in seen) < 30
        for path, status, _ in seen:
            # A slow machine is late for some whose servers answer.
            assert status in ((503, 504) if path.rsplit("/", 1)[1] in away else (200, 504)), (path, status)
        # By now it is known: whoever looks is told at once which server it is.
        for stream in set(STREAMS) - away:
            until_shown(airflow, stream)
        took: list[float] = []
        for stream in STREAMS * 3:
            began = time.monotonic()
            status, answer = looked_at(airflow, f"/tidemark/api/streams/{stream}")
            if stream in away:
                assert status in (503, 504)
                assert named in (answer.get("kafka_problem") or answer["detail"])
            else:
                assert status in (200, 504), answer
            took.append(time.monotonic() - began)
        assert statistics.median(took) < 2
    until_shown(airflow)


DEAD_LETTERS = "/api/streams/{name}/dead-letters"
MESSAGE = "/api/streams/{name}/messages/{topic}/{partition}/{offset}"
# What is shown without what only Kafka knows, and says so.
WITHOUT_KAFKA = {"/api/streams/{name}", "/api/streams/{name}/line"}
# What Kafka is not needed for.
OF_THE_LEDGER = {
    "/api/streams/{name}/windows/{lane}",
    "/api/streams/{name}/windows/{lane}/{seq}",
    "/api/streams/{name}/audits",
    "/api/streams/{name}/comparison",
    "/api/streams/{name}/trend",
    DEAD_LETTERS,
    "/api/streams/{name}/progress",
    "/api/streams/{name}/progress/{action}",
    MESSAGE,
    "/streams/{name}/audit",
}


@pytest.mark.full
@pytest.mark.covers("Q25")
@pytest.mark.parametrize(
    ("server", "named", "stream"),
    [
        ("thrift", "HBase", "cdn_logs"),
        ("kafka", "Kafka", "cdn_logs"),
        ("zookeeper", "ZooKeeper", "red_orders"),
    ],
)
def test_every_route_says_which_server_is_away(
    airflow: Airflow, site: Site, other_zookeeper: Site, server: str, named: str, stream: str
) -> None:
    """Each within its time: the routes are those of the app itself. What needs the ledger alone is answered without Kafka."""
    routes = [route for route in routes_of(site) if "{name}" in route[1] and not route[1].startswith("/files/")]
    # As the page of a window links to its dead letters.
    routes += [("GET", f"{DEAD_LETTERS}?{one}") for one in ("window=ingest/1", "reason=bad")]
    until_shown(airflow, stream)

    def ask(route: Route) -> tuple[Route, Answer, float]:
        began = time.monotonic()
        # A run that there is not: nothing would be changed.
        answer = asked(airflow, route, airflow.token, tries=1, name=stream)
        return route, answer, time.monotonic() - began

    with still(other_zookeeper if server == "zookeeper" else site, server):
        # What was said a moment before is shown for some seconds.
        wait(lambda: look_once(airflow, stream) in (503, 504), lambda: look_once(airflow, stream))
        time.sleep(SECONDS_THAT_ANSWERS_ARE_KEPT)
        with ThreadPoolExecutor(len(routes)) as lookers:
            found = list(lookers.map(ask, routes))
        for route, answer, took in found:
            assert took < AT_MAX_SECONDS, route
            if route[1].startswith("/streams/") and not route[1].endswith("/audit"):
                # The page itself asks no server; its script says what the API says.
                assert answer.status == 200, route
            elif server == "kafka" and route[1].partition("?")[0] in OF_THE_LEDGER:
                assert answer.status in (200, 400, 404, 504), (route, answer.text)
                # Late on a slow machine: only who asks Kafka may say that it was Kafka.
                if answer.status == 504:
                    assert "HBase" in answer.detail, route
                    assert "Kafka" not in answer.detail or route[1] == MESSAGE, route
            elif server == "kafka" and route[1] in WITHOUT_KAFKA and answer.status == 200:
                shown = json.loads(answer.text)
                assert "Kafka" in shown["kafka_problem"], route
                assert shown["lag"] is None, route
            else:
                assert answer.status in (503, 504), (route, answer.text)
                assert named in answer.detail, route
        if server == "kafka":
            # The page shows it, and says once what it cannot know.
            with logged_in(airflow) as page:
                page.goto(f"{airflow.url}/tidemark/streams/{stream}")
                page.locator("#status.bad", has_text="UNREACHABLE: ").wait_for()
                page.locator("#windows td.run").first.wait_for()
                expect(page.locator("#partitions tbody tr")).to_have_count(4)
                page.locator("#plots figure").first.wait_for()
                page.wait_for_timeout(6_000)
                page.screenshot(path=SCREENSHOTS / "without-kafka.png", full_page=True)
                expect(page.locator(".problem:visible")).to_have_count(0)
    until_shown(airflow, stream)


def look_once(airflow: Airflow, stream: str) -> int:
    return looked_at(airflow, f"/tidemark/api/streams/{stream}")[0]


def looked_at(airflow: Airflow, path: str) -> tuple[int, Any]:
    """An answer and its status. What is shown without Kafka is, to these tests, of a server that is away: 503."""
    status, answer = airflow.call("GET", path)
    away = status == 200 and isinstance(answer, dict) and answer.get("kafka_problem") is not None
    return 503 if away else status, answer


def timed(airflow: Airflow, path: str) -> tuple[str, int, float]:
    """A path, the status of its answer, and how many seconds that took."""
    began = time.monotonic()
    status, _ = looked_at(airflow, path)
    return path, status, time.monotonic() - began


def look(airflow: Airflow, stream: str, away: set[str]) -> tuple[str, int, float]:
    """What somebody sees of a stream: once, or until its page says that its server is away."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        seen = timed(airflow, f"/tidemark/api/streams/{stream}")
        if stream not in away or seen[1] != 200 or time.monotonic() > deadline:
            return seen


@contextmanager
def still(site: Site, server: str) -> Iterator[None]:
    """A server that holds its connections and says nothing. Only what these tests have started."""
    stopped = processes.running(site, server)
    assert stopped
    processes.send(stopped, signal.SIGSTOP)
    try:
        yield
    finally:
        processes.send(stopped, signal.SIGCONT)


def until_shown(airflow: Airflow, *streams: str) -> None:
    def shown(stream: str) -> Any:
        return looked_at(airflow, f"/tidemark/api/streams/{stream}")

    for stream in streams or STREAMS:
        wait(lambda stream=stream: shown(stream)[0] == 200, lambda stream=stream: shown(stream))


def wait(happened: Callable[[], bool], shown: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not happened():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.5)
