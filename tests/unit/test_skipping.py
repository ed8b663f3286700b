"""Moving the ingest forward on somebody's word: `tidemark ledger skip`, over a Kafka and a ledger in memory."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.commit.protocol import pin
from tidemark.errors import Conflict, StaleLedger, WrongUse
from tidemark.ledger.records import INGEST, Window
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.skipping import skip
from tidemark.runs.windows import ingest
from tidemark.runs.windows.empty_windows import NothingToRead


@pytest.fixture
def orders(tmp_path: Path) -> StreamInMemory:
    """Two partitions, read up to 10 and 4; now they reach from 6 to 30, and from 0 to 9."""
    made = StreamInMemory(tmp_path)
    made.ends((0, 10), (0, 4))
    made.ingest()
    made.ends((6, 30), (0, 9))
    return made


def gaps(window: Window) -> list[tuple[str, int, int, int]]:
    return [(gap.kind.value, gap.partition, gap.start, gap.until) for gap in window.gaps]


@pytest.mark.parametrize("write", [True, False])
@pytest.mark.parametrize(
    ("to", "skipped", "after"),
    [
        ("latest", [("skipped", 0, 10, 30), ("skipped", 1, 4, 9)], {0: 30, 1: 9}),
        ({("orders", 0): 20}, [("skipped", 0, 10, 20)], {0: 20, 1: 4}),
        ({("orders", 1): 9, ("orders", 0): 30}, [("skipped", 0, 10, 30), ("skipped", 1, 4, 9)], {0: 30, 1: 9}),
        # Partition 1 has no message at or after that time: it goes to its end.
        (datetime.fromtimestamp(15, UTC), [("skipped", 0, 10, 15), ("skipped", 1, 4, 9)], {0: 15, 1: 9}),
    ],
)
def test_what_is_skipped_is_named_and_written_only_when_told(
    orders: StreamInMemory, to: Any, skipped: list[tuple[str, int, int, int]], after: dict[int, int], write: bool
) -> None:
    before = dict(orders.store.values)
    window = skip(orders.opened, to, "the tests were noisy", "run 2", write=write)
    assert gaps(window) == skipped
    assert {gap.policy for gap in window.gaps} == {"ledger skip: the tests were noisy"}
    assert window.hull() == RangeSet()
    if write:
        assert orders.positions() == after
        record = orders.opened.ledger.newest_records(INGEST, 1)[0]
        assert record.window == window
        assert record.attempt.run == "run 2"
        assert record.receipt is not None
        assert (record.receipt.tallies, record.receipt.sinks) == ((), ())
        assert record.receipt.started_at == record.receipt.finished_at == orders.now
    else:
        assert orders.store.values == before


def test_what_is_only_shown_teaches_the_ledger_nothing(orders: StreamInMemory) -> None:
    """A partition was added since, which a run would note."""
    orders.ends((6, 30), (0, 9), (0, 3))
    before = dict(orders.store.values)
    window = skip(orders.opened, "latest", "noise", "run 2", write=False)
    assert gaps(window) == [("skipped", 0, 10, 30), ("skipped", 1, 4, 9), ("skipped", 2, 0, 3)]
    assert orders.store.values == before
    skip(orders.opened, "latest", "noise", "run 2", write=True)
    assert orders.positions() == {0: 30, 1: 9, 2: 3}


def test_what_is_only_shown_accepts_no_other_topic(tmp_path: Path) -> None:
    made = StreamInMemory(
        tmp_path, text=TEXT.replace("  start: earliest\n", "  start: earliest\n  on_recreated: accept\n")
    )
    made.ends((0, 10))
    made.ingest()
    made.kafka.ids["orders"] = "another"
    before = dict(made.store.values)
    window = skip(made.opened, "latest", "noise", "run 2", write=False)
    assert gaps(window) == [("skipped", 0, 0, 10)]
    assert {gap.incarnation for gap in window.gaps} == {2}
    assert made.store.values == before


def test_a_window_with_offsets_to_read_is_not_worked_on_as_a_skip(orders: StreamInMemory) -> None:
    pending = ingest.plan_ingest(orders.opened, "run 2")
    assert pending is not None
    attempt: Any = None
    fence: Any = None
    with pytest.raises(StaleLedger, match="window 2 was given up meanwhile, and another run has pinned orders/0"):
        NothingToRead(1).read(pending.window, pending.window.hull(), attempt, fence)
    NothingToRead(1).read(pending.window, RangeSet(), attempt, fence)


def test_the_ingest_goes_on_where_it_was_moved_to(orders: StreamInMemory) -> None:
    skip(orders.opened, {("orders", 0): 20}, "noise", "run 2", write=True)
    record = orders.ingest("run 3")
    assert record is not None
    assert [(one.partition, one.start, one.until) for one in record.window.ranges] == [(0, 20, 30), (1, 4, 9)]


def test_what_kafka_has_lost_on_the_way_is_named_as_lost(orders: StreamInMemory) -> None:
    orders.ends((15, 30), (0, 9))
    window = skip(orders.opened, {("orders", 0): 20}, "noise", "run 2", write=False)
    assert gaps(window) == [("lost", 0, 10, 15), ("skipped", 0, 15, 20)]
    window = skip(orders.opened, {("orders", 0): 12}, "noise", "run 2", write=False)
    assert gaps(window) == [("lost", 0, 10, 12)]


@pytest.mark.parametrize(
    ("to", "reason", "said"),
    [
        ("latest", "  ", "a skip needs a reason"),
        ("earliest", "noise", "'earliest': expected latest, a time, or offsets"),
        ({("orders", 7): 5}, "noise", "orders/7 is not among the partitions that orders reads"),
        ({("others", 0): 5}, "noise", "others/0 is not among the partitions"),
        ({("orders", 0): 9}, "noise", "orders/0: the position is 10, and it never falls back to 9"),
        ({("orders", 0): 31}, "noise", "orders/0 ends at 30 now, 31 lies above it"),
        ({("orders", 0): 10}, "noise", "nothing would be skipped"),
    ],
)
def test_a_skip_that_makes_no_sense_changes_nothing(orders: StreamInMemory, to: Any, reason: str, said: str) -> None:
    before = dict(orders.store.values)
    for write in (False, True):
        with pytest.raises(WrongUse, match=said):
            skip(orders.opened, to, reason, "run 2", write=write)
    assert orders.store.values == before


def test_a_stream_that_has_no_positions_yet_skips_nothing(tmp_path: Path) -> None:
    with pytest.raises(WrongUse, match="orders has no positions yet: name where it begins as `start`"):
        skip(StreamInMemory(tmp_path).opened, "latest", "noise", "run 1", write=True)


def test_a_stream_without_positions_skips_nothing(tmp_path: Path) -> None:
    without = StreamInMemory(tmp_path, text=TEXT + "guarantee: none\n")
    without.ends((0, 5))
    without.ingest()
    with pytest.raises(WrongUse, match="orders keeps no positions"):
        skip(without.opened, "latest", "noise", "run 2", write=True)


@pytest.mark.parametrize("write", [True, False])
def test_a_window_that_is_pending_is_finished_first(orders: StreamInMemory, write: bool) -> None:
    ingest.plan_ingest(orders.opened, "run 2")
    with pytest.raises(Conflict, match="window 2 of orders is pending"):
        skip(orders.opened, "latest", "noise", "run 3", write=write)


def test_a_window_that_another_run_pins_meanwhile_is_not_committed(orders: StreamInMemory) -> None:
    """Between looking at the head and pinning the jump."""
    raced: list[object] = []

    def overtake(key: object) -> None:
        if not raced:
            raced.append(key)
            orders.store.before_swap = lambda key: None
            ingest.plan_ingest(orders.opened, "run 3")

    orders.store.before_swap = overtake
    with pytest.raises(Conflict, match="another run of orders has pinned a window meanwhile; nothing was skipped"):
        skip(orders.opened, "latest", "noise", "run 2", write=True)
    assert orders.positions() == {0: 10, 1: 4}
    pending = pin(orders.opened.ledger, orders.sweeps, INGEST, lambda head: None)
    assert pending is not None
    assert (pending.window.run, pending.takes) == ("run 3", 0)


def test_a_skip_is_not_at_most_once(tmp_path: Path) -> None:
    """There is nothing to read: the receipt is in the head at once, and nothing stays unproven."""
    made = StreamInMemory(tmp_path, text=TEXT + "guarantee: at_most_once\n")
    made.ends((0, 10))
    made.ingest()
    made.ends((0, 30))
    skip(made.opened, "latest", "noise", "run 2", write=True)
    found = made.opened.ledger.head(INGEST)
    assert found is not None
    assert found.head.last is not None
    assert found.head.last.receipt is not None
