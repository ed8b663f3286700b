"""Many streams, many partitions and many windows, with the real Airflow, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
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

STREAMS = 200
# Of the streams, the one with a history, and unread messages.
WIDE, PARTITIONS, WINDOWS = "many_150", 60, 3_000
RARE = "the only one of its kind"
# The one whose windows have all of its many partitions.
DENSE, ALL = "many_151", 1_000


@pytest.fixture(scope="module")
def many(airflow: Airflow, site: Site, kafka: Kafka, streams: dict[str, Path]) -> Iterator[list[str]]:
    """Streams that only the pages know: their DAGs never run."""
    folder = streams["unknown"]
    names = [f"many_{number:03}" for number in range(STREAMS)]
    for name in names:
        file = MINIMAL.replace("stream: orders", f"stream: {name}").replace("topics: [orders]", f"topics: [{name}]")
        described = f"description: {RARE}\n" if name == "many_042" else ""
        (folder / f"{name}.yaml").write_text(described + file + ledger("hbase"))
    make_known(site, [f"{name}__ingest" for name in names])
    kafka.create(WIDE, PARTITIONS)
    kafka.send((WIDE, number, None, b"{}") for number in range(PARTITIONS))
    yield names
    for name in names:
        (folder / f"{name}.yaml").unlink()


@pytest.fixture(scope="module")
def wide(many: list[str], streams: dict[str, Path]) -> OpenStream:
    opened = open_stream(streams["unknown"] / f"{WIDE}.yaml")
    give_history(opened, WINDOWS)
    return opened


@pytest.fixture(scope="module")
def dense(many: list[str], kafka: Kafka, streams: dict[str, Path]) -> Iterator[None]:
    kafka.create(DENSE, ALL)
    kafka.send((DENSE, number, None, b"{}") for number in range(ALL))
    give_history(open_stream(streams["unknown"] / f"{DENSE}.yaml"), 60, ALL)
    yield
    kafka.admin.delete_topics([DENSE])


@pytest.fixture
def page(airflow: Airflow) -> Iterator[Page]:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with logged_in(airflow, width=1280, patience_ms=120_000) as opened:
        yield opened


@pytest.mark.full
@pytest.mark.covers("U16")
@pytest.mark.usefixtures("wide")
def test_two_hundred_streams_are_filtered_ordered_and_paged(airflow: Airflow, page: Page, many: list[str]) -> None:
    page.goto(f"{airflow.url}/tidemark/")
    rows = page.locator("#streams tbody tr")
    expect(rows).to_have_count(25)
    page.locator("#paging", has_text="page 1 of 9").wait_for()
    # All of them are asked, a moment later, and counted.
    expect(page.locator("#states")).not_to_contain_text("not asked yet")
    expect(page.locator("#states")).to_contain_text("NO TOPIC")
    expect(rows.first).not_to_contain_text("OK")
    page.get_by_role("button", name="Next", exact=True).click()
    page.locator("#paging", has_text="page 2 of 9").wait_for()
    page.screenshot(path=SCREENSHOTS / "many-streams.png", full_page=True)
    # By a word of the description, which is asked of all of them.
    page.fill("#filter", RARE)
    expect(rows).to_have_count(1)
    assert "many_042" in rows.inner_text()
    # By lag: the only one that has any is on top, whichever page it was on. Once more, and it is the last one.
    page.fill("#filter", "many_")
    page.get_by_role("button", name="Lag").click()
    expect(rows.first).to_contain_text(WIDE)
    page.get_by_role("button", name="Lag").click()
    page.locator("#paging", has_text="page 1 of 8").wait_for()
    page.wait_for_url(lambda url: "sort=lag" in url and "order=down" in url)
    expect(rows.first).not_to_contain_text(WIDE)
    # The address is the page as it is shown.
    page.goto(page.url)
    expect(rows).to_have_count(25)
    assert page.locator("#filter").input_value() == "many_"


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
    expect(page.locator("#windows tbody tr").first).to_contain_text("and 990 more")
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
    assert page.locator("#partitions tbody tr").count() == EACH
