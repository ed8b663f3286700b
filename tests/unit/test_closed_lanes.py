"""Lanes that are closed: out of the register, into pages, however many there are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.bulk import LOGS, STREAM, load, many_closed
from tests.support.counting import CountingStore
from tests.support.lookups import newest
from tests.support.memory import FAULTS, MemoryStore
from tests.support.naive import Scan, named, names
from tests.support.protocol_world import World
from tidemark.errors import LedgerContradiction
from tidemark.ledger import closed_lanes
from tidemark.ledger.closed_lanes import ClosedLanes, all_lanes, page_key
from tidemark.ledger.codec import decode
from tidemark.ledger.ledger import REGISTER, Ledger
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import LaneKind, LaneState, positions
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import close_lane, open_lane
from tidemark.ledger.stores import doubt
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet

AT = LOGS[0]


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


def replay(ledger: Ledger, lane: str) -> None:
    """A replay that is opened and given up at once."""
    ref = ledger.store_selection(RangeSet([OffsetRange(AT, 0, 10)]))
    open_lane(ledger, lane, LaneKind.REPLAY, run="r", start=positions({AT: 0}), selection=ref, reason="t" * 100)
    close_lane(ledger, lane, because="a test")


def pages(store: MemoryStore) -> Iterator[ClosedLanes]:
    for number in range(1_000):
        stored = store.values.get(page_key(number))
        if stored is None:
            return
        yield decode(stored, ClosedLanes, "page")


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1_500, pytest.param(100_000, marks=pytest.mark.full)])
def test_closed_lanes_cost_little(lanes: int) -> None:
    store = MemoryStore(max_value_bytes=320 * 1024)
    load(store, many_closed(lanes))
    ledger = Ledger(store, STREAM)
    assert len(store.values[REGISTER]) < 2_000
    assert verify(ledger) == []
    scan = Scan(ledger)
    for offset in (0, 6, 7, 500, 9_999):
        counting = CountingStore(store)
        place = Coordinate(AT, offset)
        assert named(look_up(Ledger(counting, STREAM), place)) == scan.at(place)
        assert counting.reads <= 10 + lanes // 4_000
    counting = CountingStore(store)
    assert names(newest(Ledger(counting, STREAM), 50)) == scan.newest(50)
    # One for each lane that is shown, and a few to find them.
    assert counting.reads <= 60
    # What readers ask again and again: whether anything was committed meanwhile.
    counting = CountingStore(store)
    view = Ledger(counting, STREAM).view()
    # The history and what its windows have selected, and no head of a closed lane.
    assert counting.values <= sum(key[0] in ("history", "selection") for key in store.values) + 10
    counting = CountingStore(store)
    assert not Ledger(counting, STREAM).changed_since(view)
    assert counting.reads <= 3
    assert counting.values <= 10


@pytest.mark.parametrize("fault", FAULTS)
def test_pages_are_filled_one_after_the_other(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """With small pages, and one answer of each closing lost, now this one and now that."""
    monkeypatch.setattr(closed_lanes, "PAGE_BYTES", 3_000)
    world = World()
    world.one_window()
    view = world.ledger.view()
    closing = [f"replay-{number:02d}" for number in range(40)]
    for number, lane in enumerate(closing):
        # Clocks that go back do not bring the order of the pages out of step.
        world.now += 5_000 if number % 3 else -7_000
        world.store.faults = [*[""] * (number % 7), fault]
        replay(world.ledger, lane)
        world.store.faults = []
        assert world.ledger.changed_since(view)
        view = world.ledger.view()
        assert not world.ledger.changed_since(view)
    found = list(pages(world.store))
    assert len(found) > 3
    assert [page.full for page in found] == [*[True] * (len(found) - 1), False]
    assert [lane for page in found for lane in page.lanes] == closing
    times = [entry.closed_at or 0 for page in found for entry in page.lanes.values()]
    assert times == sorted(times)
    register = world.ledger.register()
    assert register is not None
    assert (register[1].closed, register[1].closed_page) == (len(closing), len(found) - 1)
    assert register[1].lanes.keys() == {"ingest"}
    assert {lane: entry.state for lane, entry in all_lanes(world.ledger).items()} == {
        "ingest": LaneState.OPEN,
        **dict.fromkeys(closing, LaneState.CLOSED),
    }
    assert verify(world.ledger) == []


def test_a_page_that_was_lost_is_missed() -> None:
    world = World()
    world.one_window()
    replay(world.ledger, "replay-1")
    del world.store.values[page_key(0)]
    for missed in (
        lambda: look_up(world.ledger, Coordinate(AT, 0)),
        lambda: verify(world.ledger),
        lambda: replay(world.ledger, "replay-2"),
    ):
        with pytest.raises(LedgerContradiction, match="closed/0000000000000000000 is missing"):
            missed()
