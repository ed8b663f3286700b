"""Many streams, many partitions and many windows, with the real Airflow, in a real browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from demo.airflow import Airflow
from services.site import Site
from tests.support.both_ledgers import ledger
from tests.support.browser import SCREENSHOTS, logged_in
from tests.support.known_dags import make_known
from tests.support.live_streams import Kafka
from tests.support.stream_text import MINIMAL
from tests.support.wide_history import EACH, SIZE, give_history
from tidemark.runs.live.open_stream import OpenStream, open_stream

STREAMS = 500
# Every so many of them read a Kafka that is not there, by a connection of their own.
AWAY_EACH, NO_KAFKA = 50, "kafka_of_nobody"
# Of the streams, the one with a history, and unread messages.
WIDE, PARTITIONS, WINDOWS = "many_150", 60, 3_000
RARE = "the only one of its kind"
# The one whose windows have all of its many partitions.
DENSE, ALL = "many_151", 1_000
# From a click to the new order, with all streams known, on a machine that may be busy.
AT_ONCE_SECONDS = 5.0


def stream_file(folder: Path, name: str, more: str = "", kafka: str = "kafka_default") -> Path:
    """The file of a stream that only the pages know: its DAGs never run."""
    file = MINIMAL.replace("stream: orders", f"stream: {name}").replace("topics: [orders]", f"topics: [{name}]")
    if kafka != "kafka_default":
        file = file.replace("source:\n", f"source:\n  kafka: {kafka}\n")
    path = folder / f"{name}.yaml"
    path.write_text(more + file + ledger("hbase"))
    return path


@pytest.fixture(scope="module")
def many(airflow: Airflow, site: Site, streams: dict[str, Path], wide: OpenStream) -> Iterator[list[str]]:
    folder = streams["unknown"]
    names = [f"many_{number:03}" for number in range(STREAMS)]
    for number, name in enumerate(names):
        described = f"description: {RARE}\n" if name == "many_042" else ""
        if name not in (WIDE, DENSE):
            stream_file(folder, name, described, NO_KAFKA if number % AWAY_EACH == 7 else "kafka_default")
    stream_file(folder, DENSE)
    make_known(site, [f"{name}__ingest" for name in names])
    away = {"connection_id": NO_KAFKA, "conn_type": "kafka", "extra": '{"bootstrap.servers": "127.0.0.1:1"}'}
    assert airflow.call("POST", "/api/v2/connections", away)[0] in (201, 409)
    yield names
    for name in set(names) - {WIDE}:
        (folder / f"{name}.yaml").unlink(missing_ok=True)
    airflow.call("DELETE", f"/api/v2/connections/{NO_KAFKA}")


@pytest.fixture(scope="module")
def wide(airflow: Airflow, site: Site, kafka: Kafka, streams: dict[str, Path]) -> Iterator[OpenStream]:
    path = stream_file(streams["unknown"], WIDE)
    make_known(site, [f"{WIDE}__ingest"])
    kafka.create(WIDE, PARTITIONS)
    kafka.send((WIDE, number, None, b"{}") for number in range(PARTITIONS))
    opened = open_stream(path)
    give_history(opened, WINDOWS)
    yield opened
    path.unlink()


@pytest.fixture(scope="module")
def dense(airflow: Airflow, site: Site, kafka: Kafka, streams: dict[str, Path]) -> Iterator[None]:
    path = stream_file(streams["unknown"], DENSE)
    make_known(site, [f"{DENSE}__ingest"])
    kafka.create(DENSE, ALL)
    kafka.send((DENSE, number, None, b"{}") for number in range(ALL))
    give_history(open_stream(path), 60, ALL)
    yield
    path.unlink(missing_ok=True)
    kafka.admin.delete_topics([DENSE])


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(airflow, width=1280, patience_ms=120_000) as opened:
        yield opened


@pytest.mark.full
@pytest.mark.covers("U16", "U19")
def test_five_hundred_streams_are_filtered_ordered_and_paged(airflow: Airflow, page: Page, many: list[str]) -> None:
    """Of which ten read a Kafka that is not there: these say so, and hold up none of the others."""
    page.goto(f"{airflow.url}/tidemark/")
    rows = page.locator("#streams tbody tr")
    expect(rows).to_have_count(25)
    page.locator("#paging", has_text="page 1 of 21").wait_for()
    # All of them are asked, a moment later, and counted. Each has its line, also while a server is away.
    expect(page.locator("#states")).not_to_contain_text("not asked yet")
    expect(page.locator("#states")).to_contain_text("NO TOPIC")
    expect(page.locator("#states")).to_contain_text(f"{STREAMS // AWAY_EACH} UNREACHABLE")
    expect(rows.first).to_contain_text("UNREACHABLE")
    _, found = airflow.call("GET", "/tidemark/api/triage?words=many_&count=100&state=UNREACHABLE")
    assert {one["stream"] for one in found["streams"]} == set(many[7::AWAY_EACH])
    assert all(NO_KAFKA in one["problem"] or "127.0.0.1:1" in one["problem"] for one in found["streams"])
    page.screenshot(path=SCREENSHOTS / "many-streams.png", full_page=True)
    page.get_by_role("button", name="Next", exact=True).click()
    page.locator("#paging", has_text="page 2 of 21").wait_for()
    # By a word of the description, which is asked of all of them.
    took = [seconds(lambda: page.fill("#filter", RARE), lambda: expect(rows).to_have_count(1))]
    expect(rows).to_contain_text("many_042", use_inner_text=True)
    # By lag: the only one that has any is on top, whichever page it was on. Once more, and it is the last one.
    page.fill("#filter", "many_")
    page.locator("#paging", has_text="page 1 of 20").wait_for()
    by_lag = page.get_by_role("button", name="Lag")
    took.append(seconds(by_lag.click, lambda: expect(rows.first).to_contain_text(WIDE)))
    took.append(seconds(by_lag.click, lambda: expect(rows.first).not_to_contain_text(WIDE)))
    page.wait_for_url(lambda url: "sort=lag" in url and "down=true" in url)
    took.append(seconds(page.get_by_role("button", name="UNREACHABLE").click, lambda: expect(rows).to_have_count(10)))
    print(f"\n{STREAMS} streams: filtered and ordered within {', '.join(f'{one:.2f}' for one in took)} s")
    assert max(took) < AT_ONCE_SECONDS
    # The address is the page as it is shown.
    page.goto(page.url)
    expect(rows).to_have_count(10)
    expect(page.locator("#filter")).to_have_value("many_")


def seconds(act: Callable[[], object], shown: Callable[[], object]) -> float:
    began = time.monotonic()
    act()
    shown()
    return time.monotonic() - began


@pytest.mark.full
@pytest.mark.covers("U16")
@pytest.mark.usefixtures("dense")
def test_windows_of_a_thousand_partitions_are_a_small_answer(airflow: Airflow, page: Page) -> None:
    """The page asks every five seconds. Its table has the worst partitions, and each leads to its picture."""
    sizes: list[int] = []
    page.on("response", lambda one: sizes.append(len(one.body())) if "partitions=100" in one.url and one.ok else None)
    page.goto(f"{airflow.url}/tidemark/streams/{DENSE}")
    rows = page.locator("#partitions tbody tr")
    expect(rows).to_have_count(100)
    assert 10_000 < max(sizes) < 150_000
    expect(page.locator("#more-partitions")).to_contain_text("The worst 100 of 1 000")
    expect(page.locator("#windows tbody tr").first).to_contain_text("and 997 more")
    page.screenshot(path=SCREENSHOTS / "dense.png", full_page=True)
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(ALL)
    # Which of forty pages of the picture has the hole? None has one here.
    page.get_by_label("Only partitions with a hole").check()
    expect(page.locator("#coverage-bars")).to_contain_text("No partition has a hole")
    page.wait_for_url("**gaps=true")
    rows.nth(777).get_by_role("link").click()
    expect(page.locator(".bar-row")).to_have_count(1)
    assert page.locator(".bar-row").get_attribute("data-partition") == f"{DENSE}/777"
    # So has the page of a window. The picture of times asks for no other one.
    page.goto(f"{airflow.url}/tidemark/streams/{DENSE}/windows/ingest/60")
    expect(rows).to_have_count(100)
    expect(page.locator("#partitions tfoot")).to_contain_text("total")
    page.get_by_role("button", name="Show all").click()
    expect(rows).to_have_count(ALL)
    asked: list[str] = []
    page.on(
        "request",
        lambda one: asked.append(one.url.partition("?")[0]) if "/api/" in one.url and "/coverage" in one.url else None,
    )
    page.goto(f"{airflow.url}/tidemark/streams/{DENSE}?axis=hour")
    page.locator("#coverage-times svg rect").first.wait_for()
    assert {one.rpartition("/")[2] for one in asked} == {"times"}


@pytest.mark.covers("U16", "U2")
def test_a_long_history_of_many_partitions_is_drawn(airflow: Airflow, page: Page, wide: OpenStream) -> None:
    page.goto(f"{airflow.url}/tidemark/streams/{WIDE}")
    bars = page.locator(".bar-row")
    # The first look reads the whole history; the page asks again until it is there.
    expect(bars).to_have_count(25, timeout=300_000)
    page.locator("#coverage-controls", has_text=f"partitions 1 to 25 of {PARTITIONS}").wait_for()
    windows = WINDOWS * EACH // PARTITIONS
    end = windows * SIZE + 1
    _, found = airflow.call("GET", f"/tidemark/api/streams/{WIDE}/coverage?width=500")
    assert [(bar["from"], bar["until"]) for bar in found["bars"]] == [("0", str(end))] * 50
    for bar in found["bars"]:
        assert len(bar["blocks"]) <= 500
        # All of its windows, whatever their number, and the one that has read the first message of each partition.
        assert sum(block["windows"] for block in bar["blocks"]) >= windows
        assert {block["state"] for block in bar["blocks"]} == {"ingest"}
    page.screenshot(path=SCREENSHOTS / "wide.png", full_page=True)
    page.get_by_role("button", name="Next", exact=True).first.click()
    page.locator("#coverage-controls", has_text=f"partitions 26 to 50 of {PARTITIONS}").wait_for()
    # A click on a name, and then closer and closer, until there is one window.
    page.get_by_role("button", name=f"{WIDE}/30", exact=True).click()
    expect(bars).to_have_count(1)
    bar = page.locator("svg.bar")
    for _ in range(60):
        bar.wait_for()
        box = bar.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 5)
        page.wait_for_timeout(1_000)
        if "/windows/" in page.url:
            break
    page.locator("#state", has_text="committed").wait_for()
    expect(page.locator("#partitions tbody tr")).to_have_count(EACH)
