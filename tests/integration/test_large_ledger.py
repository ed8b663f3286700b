"""Finding windows in a large ledger on real servers. With more coordinates: tests/unit/test_lookup.py.

Loading a hundred thousand windows takes ZooKeeper a minute or more, so that is left to a full run.
"""

from __future__ import annotations

import random

import pytest

from tests.support.bulk import LOGS, STREAM, History, load, many_closed, unload
from tests.support.counting import CountingStore
from tests.support.lookups import LANES, MAX_READS, newest, places
from tests.support.naive import Scan, named, names
from tests.support.stores import Stores
from tidemark.ledger.ledger import REGISTER, Ledger
from tidemark.ledger.lookup import look_up
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.coordinates import Coordinate


@pytest.mark.full
@pytest.mark.parametrize("windows", [1_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_windows_are_found_in_few_reads(stores: Stores, windows: int) -> None:
    store = stores.new()
    values = History(windows, LANES).values
    load(store, values)
    try:
        ledger = Ledger(store, STREAM)
        assert verify(ledger) == []
        scan = Scan(ledger)
        assert len(scan.records) == windows
        kinds = set()
        for place, _ in zip(places(scan.records, random.Random(8)), range(100), strict=False):
            # The heads and the records of one coordinate are read anew for each: nothing is kept between two questions.
            counting = CountingStore(store)
            found = look_up(Ledger(counting, STREAM), place)
            assert named(found) == scan.at(place)
            assert counting.reads <= MAX_READS
            kinds |= {one.kind.value for one in found.windows} or {"uncovered"}
        assert kinds == {"ingest", "replay", "backfill", "uncovered"}
        counting = CountingStore(store)
        assert names(newest(Ledger(counting, STREAM), 50)) == scan.newest(50)
        assert counting.reads <= MAX_READS
        counting = CountingStore(store)
        assert Ledger(counting, STREAM).head("ingest") is not None
        assert (counting.reads, counting.values) == (1, 1)
    finally:
        unload(store, values)


@pytest.mark.full
@pytest.mark.parametrize("lanes", [400, pytest.param(100_000, marks=pytest.mark.full)])
def test_closed_lanes_cost_little(stores: Stores, lanes: int) -> None:
    # The tests' ZooKeeper has 256 MB of memory.
    lanes = min(lanes, 30_000) if stores.kind == "zookeeper" else lanes
    store = stores.new()
    values = many_closed(lanes)
    load(store, values)
    try:
        ledger = Ledger(store, STREAM)
        stored = store.read(REGISTER)
        assert stored is not None
        assert len(stored) < 2_000
        assert verify(ledger) == []
        scan = Scan(ledger)
        assert len(scan.records) == lanes + 10
        for offset in (0, 6, 500, 9_999):
            counting = CountingStore(store)
            place = Coordinate(LOGS[0], offset)
            assert named(look_up(Ledger(counting, STREAM), place)) == scan.at(place)
            # One for each two megabytes of closed lanes; the rest does not grow with them, but for those that have the offset.
            assert counting.reads <= 10 + lanes // 500
        counting = CountingStore(store)
        assert names(newest(Ledger(counting, STREAM), 50)) == scan.newest(50)
        assert counting.reads <= 60
        view, counting = ledger.view(), CountingStore(store)
        assert not Ledger(counting, STREAM).changed_since(view)
        assert counting.reads <= 3
    finally:
        unload(store, values)
