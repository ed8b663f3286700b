"""Finding windows among very many: the right ones, in few reads. On real servers: tests/integration/test_large_ledger.py."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.bulk import (
    ADDED,
    AGAIN,
    BEFORE,
    LOGS,
    STREAM,
    History,
    ingest_of,
    load,
)
from tests.support.counting import CountingStore
from tests.support.lookups import LANES, MAX_READS, newest, places
from tests.support.memory import MemoryStore
from tests.support.naive import Scan, named, names
from tests.support.protocol_world import RUN, NoWork, World, hold, plan
from tests.support.quick import quick
from tidemark.commit import protocol
from tidemark.errors import LedgerContradiction
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.ledger import Ledger, head_key, record_key
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import Guarantee, Head, LaneKind, Record, Window, positions
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import close_lane, open_lane
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.reading import read_at

PARTITIONS = [*LOGS, ADDED, BEFORE, AGAIN]


@pytest.fixture(scope="module", params=[20_000, pytest.param(100_000, marks=pytest.mark.full)])
def windows(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return 5_000 if quick() else number


@pytest.fixture(scope="module")
def large(windows: int) -> MemoryStore:
    store = MemoryStore()
    load(store, History(windows, LANES).values)
    return store


@pytest.fixture(scope="module")
def scan(large: MemoryStore) -> Scan:
    return Scan(Ledger(large, STREAM))


def test_the_large_ledger_is_whole(large: MemoryStore, scan: Scan, windows: int) -> None:
    ledger = Ledger(large, STREAM)
    assert verify(ledger) == []
    found = ledger.register()
    assert found is not None
    assert (len(scan.records), len(all_lanes(ledger))) == (windows, LANES)
    assert (len(found[1].lanes), found[1].closed) == (4, LANES - 4)


def test_a_head_is_read_in_one_read_of_one_value(large: MemoryStore, windows: int) -> None:
    store = CountingStore(large)
    found = Ledger(store, STREAM).head("ingest")
    assert found is not None
    assert found.head.seq > windows // 2
    assert (store.reads, store.values) == (1, 1)


def test_any_coordinate_is_found_among_many_windows(large: MemoryStore, scan: Scan, windows: int) -> None:
    chance, seen = random.Random(5), Counter[str]()
    for place, _ in zip(places(scan.records, chance), range(300), strict=False):
        store = CountingStore(large)
        found = look_up(Ledger(store, STREAM), place)
        assert named(found) == scan.at(place)
        assert store.reads <= MAX_READS
        # Most of what is read are records, and of those there are few too.
        assert store.values < max(500, windows // 200)
        assert found.generation == max((one.attempt.generation for one in found.windows), default=None)
        seen.update({one.kind.value for one in found.windows} or {"uncovered"})
        seen.update({"jumped over": len(found.gaps), "again": len(found.windows) > 1})
        seen[str(place.partition)] += 1
    # The coordinates were of all kinds.
    kinds = ("ingest", "replay", "backfill", "uncovered", "jumped over", "again", *map(str, PARTITIONS))
    assert min(seen[kind] for kind in kinds) >= 5, seen


def test_the_newest_windows_are_found_among_many(large: MemoryStore, scan: Scan) -> None:
    for limit in (1, 50, 200):
        store = CountingStore(large)
        assert names(newest(Ledger(store, STREAM), limit)) == scan.newest(limit)
        assert store.reads <= MAX_READS


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(30, 400), st.integers(2, 12), st.integers(0, 1_000))
def test_any_ledger_is_searched_as_if_every_window_was_looked_at(windows: int, lanes: int, seed: int) -> None:
    store = MemoryStore()
    load(store, History(max(windows, 10 * lanes), lanes, seed).values)
    ledger = Ledger(store, STREAM)
    assert verify(ledger) == []
    scan = Scan(ledger)
    for place, _ in zip(places(scan.records, random.Random(seed)), range(60), strict=False):
        assert named(look_up(ledger, place)) == scan.at(place)
    assert names(newest(ledger, 20)) == scan.newest(20)


SIZES = {
    "one": [7],
    "all alike": [5] * 4_000,
    "each twice the one before, again and again": [2 ** (number % 50) for number in range(4_000)],
    "the first is nearly everything": [2**60, *[1] * 4_000],
    "the last is nearly everything": [*[1] * 4_000, 2**60],
    "mostly nothing": [number % 100 == 99 for number in range(4_000)],
    "a giant among dwarfs": [*[1] * 1_234, 2**50, *[1] * 2_766],
}


@pytest.mark.slow
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_no_sizes_of_windows_make_a_search_long(sizes: list[int]) -> None:
    store = CountingStore(MemoryStore())
    load(store._store, ingest_of(sizes))
    end, chance = sum(sizes), random.Random(7)
    ends = [sum(sizes[:number]) for number in (1, 1_234, 1_235, len(sizes) // 2, len(sizes) - 1)]
    edges = [offset for one in ends for offset in (one - 1, one, one + 1)]
    scan = Scan(Ledger(store, STREAM))
    for offset in {0, end - 1, end, *edges, *(chance.randrange(end) for _ in range(50))}:
        if offset < 0:
            continue
        place = Coordinate(LOGS[0], offset)
        store.reads = 0
        found = look_up(Ledger(store, STREAM), place)
        assert named(found) == scan.at(place)
        assert bool(found.windows) == (offset < end)
        # The register, the head, and three for 4,000 windows: 17 to the power of 3 is 4,913.
        assert store.reads <= 5


def test_a_gap_is_named_with_the_window_that_jumped(large: MemoryStore, scan: Scan) -> None:
    jumping = next(record for record in scan.records if record.window.gaps)
    (gap, *_) = jumping.window.gaps
    found = look_up(Ledger(large, STREAM), Coordinate(gap.as_range().partition, gap.start))
    assert found.gaps == ((jumping, gap),)


def test_a_record_that_was_lost_is_never_taken_for_no_window() -> None:
    whole = ingest_of([10] * 1_000)
    # The last one stands in the head.
    for seq in [*range(1, 1_000, 37), 999]:
        store = MemoryStore()
        load(store, {key: value for key, value in whole.items() if key != record_key("ingest", seq)})
        place = Coordinate(LOGS[0], seq * 10 - 5)
        with pytest.raises(LedgerContradiction, match=rf"history/ingest/0*{seq} is missing"):
            look_up(Ledger(store, STREAM), place)


def test_a_record_in_the_place_of_another_is_found_out() -> None:
    store = MemoryStore()
    load(store, ingest_of([10] * 10))
    store.values[record_key("ingest", 4)] = store.values[record_key("ingest", 5)]
    with pytest.raises(LedgerContradiction, match="holds window 5 of lane ingest"):
        look_up(Ledger(store, STREAM), Coordinate(LOGS[0], 35))


def test_a_head_that_was_lost_is_never_taken_for_no_window() -> None:
    store = MemoryStore()
    load(store, ingest_of([10] * 10))
    del store.values[head_key("ingest")]
    with pytest.raises(LedgerContradiction, match="the head of bulk/ingest is missing"):
        look_up(Ledger(store, STREAM), Coordinate(LOGS[0], 35))


def test_nothing_is_found_in_a_ledger_that_is_not_there() -> None:
    ledger = Ledger(MemoryStore(), STREAM)
    assert look_up(ledger, Coordinate(LOGS[0], 0)).windows == ()
    assert newest(ledger, 50) == []


def replayed(world: World) -> Record:
    """A replay of offsets 10 to 19, which is left open."""
    ref = world.ledger.store_selection(RangeSet([OffsetRange(LOGS[0], 10, 20)]))
    open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=positions({LOGS[0]: 10}), selection=ref)
    assert protocol.pin(world.ledger, world.sweeps, "replay-1", plan) is not None
    return protocol.process(world.ledger, world.sweeps, NoWork(), hold, "replay-1", 1, RUN)


def test_rows_are_read_again_when_their_window_was_replayed_meanwhile() -> None:
    world = World()
    world.open()
    for _ in range(3):
        world.process(world.pin())
    asked: list[int | None] = []

    def read(record: Record) -> None:
        """While it reads for the first time, a replay commits (and would sweep what was to be read)."""
        asked.append(record.attempt.generation)
        if len(asked) == 1:
            replayed(world)

    place = Coordinate(LOGS[0], 15)
    before = look_up(world.ledger, place).generation
    found, _ = read_at(world.ledger, place, {"results": read})
    assert asked == [before, found.generation]
    assert named(found) == ([("replay-1", 1), ("ingest", 2)], [])


def test_what_the_protocol_leaves_is_found() -> None:
    """The register's entries as `open_lane` and `close_lane` write them, with a clock that goes back in between."""
    world = World()
    world.open()
    for _ in range(3):
        world.process(world.pin())
    record = replayed(world)
    world.now -= 60_000
    close_lane(world.ledger, "replay-1")
    found = world.ledger.register()
    assert found is not None
    assert "replay-1" not in found[1].lanes
    entry = all_lanes(world.ledger)["replay-1"]
    assert (entry.until, entry.windows) == ((20,), 1)
    assert entry.closed_at is not None
    assert entry.closed_at > record.committed_at
    scan = Scan(world.ledger)
    for offset in range(40):
        place = Coordinate(LOGS[0], offset)
        assert named(look_up(world.ledger, place)) == scan.at(place)
    assert named(look_up(world.ledger, Coordinate(LOGS[0], 15))) == ([("replay-1", 1), ("ingest", 2)], [])
    assert names(newest(world.ledger, 2)) == scan.newest(2)


def test_windows_that_kept_no_positions_are_found_too() -> None:
    """In between, every run began at its start again: positions do not lead to those windows."""
    world = World()
    world.open()
    kept = [Guarantee.AT_LEAST_ONCE] * 2 + [Guarantee.NONE] * 2 + [Guarantee.AT_LEAST_ONCE] * 2 + [Guarantee.NONE]
    for number, guarantee in enumerate(kept):

        def window(head: Head, guarantee: Guarantee = guarantee, number: int = number) -> Window:
            found = plan(head)
            if guarantee == Guarantee.NONE:
                again = structs.replace(found.ranges[0], start=0, until=5 + number)
                found = structs.replace(found, ranges=(again,), guarantee=guarantee)
            return found

        pending = protocol.pin(world.ledger, world.sweeps, "ingest", window)
        assert pending is not None
        world.process(pending.window.seq)
        scan = Scan(world.ledger)
        for offset in range(45):
            place = Coordinate(LOGS[0], offset)
            assert named(look_up(world.ledger, place)) == scan.at(place)
    assert world.head.offsets() == {LOGS[0]: 40}
    assert world.head.unpositioned == 7


def test_the_newest_windows_have_the_receipts_that_were_stored_apart() -> None:
    """A window that is committed before it is read gets its receipt later, beside its record."""
    world = World()
    world.open()
    for _ in range(2):
        pinned = protocol.pin(
            world.ledger,
            world.sweeps,
            "ingest",
            lambda head: structs.replace(plan(head), guarantee=Guarantee.AT_MAX_ONCE),
        )
        assert pinned is not None
        world.process(pinned.window.seq)
    found = newest(world.ledger, 5)
    assert [(record.seq, record.receipt is not None) for record in found] == [(2, True), (1, True)]


def test_a_replay_with_holes_is_found_where_it_has_read() -> None:
    world = World()
    world.one_window()
    at = LOGS[0]
    ref = world.ledger.store_selection(RangeSet([OffsetRange(at, 0, 3), OffsetRange(at, 5, 8)]))
    start = positions({at: 0})
    open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=start, selection=ref, reason="a test")

    def window(head: Head) -> Window:
        found = plan(head)
        return structs.replace(found, ranges=(structs.replace(found.ranges[0], until=8),), selection=ref)

    assert protocol.pin(world.ledger, world.sweeps, "replay-1", window) is not None
    protocol.process(world.ledger, world.sweeps, NoWork(), hold, "replay-1", 1, RUN)
    for offset in range(12):
        replay = [("replay-1", 1)] if offset in (0, 1, 2, 5, 6, 7) else []
        ingest = [("ingest", 1)] if offset < 10 else []
        assert named(look_up(world.ledger, Coordinate(at, offset))) == ([*replay, *ingest], [])
