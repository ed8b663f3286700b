"""The windows that the page keeps: the same as the ledger has, whenever it was asked last."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.counting import CountingStore
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.errors import WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import LaneKind
from tidemark.offsets.authority import Segment
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.windows import ingest, lanes
from tidemark.views.coverage.bars import Bar, BarQuery, coverage_bars
from tidemark.views.coverage.window_index import WindowIndex


def merged(found: Iterable[Segment]) -> list[tuple[int, int]]:
    return list(RangeSet(OffsetRange(at(0), one.start, one.until) for one in found).of(at(0)))


def as_the_ledger_has(index: WindowIndex, ledger: Ledger) -> bool:
    view = ledger.view()
    kept = {part: tuple(index.segments(part)) for part in index.partitions}
    assert all(merged(found) == merged(index.runs(part)) for part, found in kept.items())
    named = {one.generation: (one.record.lane, one.record.seq) for one in view.windows}
    return named == index.names and all(found == view.authority.segments(part) for part, found in kept.items())


def replayed(orders: StreamInMemory, name: str, kind: LaneKind, *ranges: tuple[int, int, int]) -> str:
    claim_lane(orders.opened, kind, name, offsets(*ranges), "a test")
    lane = lanes.lane_name(kind, name)
    assert lanes.plan_lane(orders.opened, lane, name) is not None
    orders.process(lane, name)
    lanes.finish(orders.opened, lane)
    return lane


@pytest.mark.covers("U2")
def test_the_index_is_what_the_ledger_has_after_each_commit(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path)
    ledger, kept = orders.opened.ledger, WindowIndex()
    kept.refresh(ledger)
    assert kept.names == {}
    for end in (10, 20, 30):
        orders.ends((0, end), (0, end // 2))
        orders.ingest()
        kept.refresh(ledger)
        fresh = WindowIndex()
        fresh.refresh(ledger)
        assert as_the_ledger_has(kept, ledger)
        assert as_the_ledger_has(fresh, ledger)


@pytest.mark.covers("U2")
def test_a_window_is_read_once(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path)
    for end in range(10, 500, 10):
        orders.ends((0, end))
        orders.ingest()
    counting = CountingStore(orders.store)
    ledger, index = Ledger(counting, "orders"), WindowIndex()
    index.refresh(ledger)
    before = counting.values
    orders.ends((0, 600))
    orders.ingest()
    index.refresh(ledger)
    # Register, head and the new window, besides the one that was the newest before.
    assert counting.values - before <= 4 < before
    assert as_the_ledger_has(index, orders.opened.ledger)


@pytest.mark.covers("U2")
def test_the_bars_of_a_stream(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path)
    orders.ends((0, 40), (0, 10))
    orders.ingest()
    orders.ends((5, 70), (0, 10))
    # Pinned, and not committed.
    assert ingest.plan_ingest(orders.opened, "run 2") is not None
    index = WindowIndex()
    index.refresh(orders.opened.ledger)

    def bars(**asked: Any) -> list[Bar]:
        return coverage_bars(orders.opened, index, BarQuery(width=100, **asked)).bars

    def states(bar: Bar) -> list[tuple[str, int, int, str | None, int | None]]:
        return [(one.state, one.start, one.until, one.lane, one.window) for one in bar.blocks]

    first, second = bars()
    assert states(first) == [("ingest", 0, 40, "ingest", 1), ("pending", 40, 70, "ingest", 2)]
    assert (first.log_start, first.log_end, first.position, first.pixels) == (5, 70, 40, 70)
    assert states(second) == [("ingest", 0, 10, "ingest", 1)]
    assert [one.partition for one in bars(first=1)] == ["orders/1"]
    assert states(bars(partition="orders/0", start=35, until=45)[0]) == [
        ("ingest", 35, 40, "ingest", 1),
        ("pending", 40, 45, "ingest", 2),
    ]
    # Bounds outside of the bar, and those of nothing.
    assert states(bars(partition="orders/0", start=69, until=500)[0]) == [("pending", 69, 70, "ingest", 2)]
    assert bars(partition="orders/0", start=50, until=50)[0].blocks == []
    with pytest.raises(WrongUse, match="the stream has no partition orders/7 now"):
        bars(partition="orders/7")
    assert bars(gaps=True) == []
    assert len(bars(partition="orders/0", gaps=True)) == 1
    # A replay of committed offsets.
    orders.process("ingest", "run 2")
    lane = replayed(orders, "mine", LaneKind.REPLAY, (0, 10, 20))
    index.refresh(orders.opened.ledger)
    assert as_the_ledger_has(index, orders.opened.ledger)
    assert states(bars()[0]) == [
        ("ingest", 0, 10, "ingest", 1),
        ("replay", 10, 20, lane, 1),
        ("ingest", 20, 40, "ingest", 1),
        ("ingest", 40, 70, "ingest", 2),
    ]
    # The lane is closed. Closed lanes are read once too, and only those that are new.
    for number in range(3):
        replayed(orders, f"again{number}", LaneKind.REPLAY, (0, 12 + number, 15))
        index.refresh(orders.opened.ledger)
        assert as_the_ledger_has(index, orders.opened.ledger)
    assert [one.start for one in index.segments(at(0))] == [0, 10, 12, 13, 14, 15, 20, 40]


@pytest.mark.covers("U2")
def test_only_the_partitions_with_offsets_that_the_ingest_is_past_and_no_window_has_read(tmp_path: Path) -> None:
    text = TEXT.replace("  start: earliest\n", "  start: earliest\n  on_out_of_range: earliest\n")
    orders = StreamInMemory(tmp_path, text=text)
    orders.ends((0, 10), (0, 10), (8, 10), (0, 10))
    orders.ingest()
    # Partition 1 loses five offsets, and 3 has some that are not read yet.
    orders.ends((0, 20), (15, 20), (8, 20), (0, 10))
    orders.ingest()
    orders.ends((0, 20), (15, 20), (8, 20), (0, 30))
    index = WindowIndex()
    index.refresh(orders.opened.ledger)

    def found() -> tuple[list[str], int, int]:
        shown = coverage_bars(orders.opened, index, BarQuery(width=100, gaps=True))
        return [one.partition for one in shown.bars], shown.partitions, shown.of

    assert found() == (["orders/1"], 1, 4)
    # Windows that follow each other are told apart, and no hole is between them.
    replayed(orders, "mine", LaneKind.REPLAY, (0, 3, 15))
    index.refresh(orders.opened.ledger)
    assert [len(index.segments(at(0))), len(index.runs(at(0)))] == [3, 1]
    assert found() == (["orders/1"], 1, 4)
    # Kafka deletes offsets that no window has read.
    orders.ends((0, 20), (15, 20), (8, 20), (25, 30))
    assert found() == (["orders/1", "orders/3"], 2, 4)


def test_a_partition_is_found_without_its_incarnation(tmp_path: Path) -> None:
    """The table of partitions has topics as Kafka names them."""
    orders = StreamInMemory(
        tmp_path, text=TEXT.replace("  start: earliest\n", "  start: earliest\n  on_recreated: accept\n")
    )
    orders.ends((0, 10))
    orders.ingest()
    orders.kafka.ids["orders"] = "another"
    orders.ends((0, 5))
    orders.ingest()
    index = WindowIndex()
    index.refresh(orders.opened.ledger)
    for named in ("orders/0", "orders#2/0"):
        (bar,) = coverage_bars(orders.opened, index, BarQuery(width=10, partition=named)).bars
        assert (bar.partition, bar.until) == ("orders#2/0", 5)


@pytest.mark.covers("U2")
def test_a_topic_that_was_recreated_and_not_accepted_has_a_bar_of_its_own_log(tmp_path: Path) -> None:
    """As the status says of it: what the windows have read is of the topic before, and none of the new one is read."""
    orders = StreamInMemory(tmp_path)
    orders.ends((0, 40))
    orders.ingest()
    orders.kafka.ids["orders"] = "another"
    orders.ends((0, 25))
    index = WindowIndex()
    index.refresh(orders.opened.ledger)
    for named in (None, "orders/0", "orders#2/0"):
        (bar,) = coverage_bars(orders.opened, index, BarQuery(width=100, partition=named)).bars
        assert [(one.state, one.start, one.until) for one in bar.blocks] == [("unread", 0, 25)]
        assert (bar.partition, bar.position, bar.log_end) == ("orders#2/0", None, 25)
