"""A replay of very many scattered records: chosen, claimed, cut into windows and found again, in each ledger.

The windows read nothing here. Processing scattered records: test_scattered_ranges.py.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.bulk import unload
from tests.support.claiming import claim_lane
from tests.support.counting import CountingStore
from tests.support.stores import Stores
from tests.support.streams_in_memory import TEXT, StreamInMemory, at
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import LaneKind
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.selections import PIECE_BYTES
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.windows import lanes

PARTITIONS, RUN = 3, "a run"
# Kafka holds so many messages for each of the records.
SPREAD = 30


def scattered(number: int, chance: random.Random) -> RangeSet:
    chosen = chance.sample(range(number * SPREAD), number)
    return RangeSet.of_intervals((at(one % PARTITIONS), [(one // PARTITIONS, one // PARTITIONS + 1)]) for one in chosen)


@pytest.mark.parametrize(
    ("number", "piece_bytes"),
    [
        # In several pieces, as those of a million are.
        pytest.param(4_000, PIECE_BYTES // 20, marks=pytest.mark.covers("N19"), id="4000"),
        pytest.param(1_000_000, PIECE_BYTES, marks=pytest.mark.full, id="1000000"),
    ],
)
def test_very_many_scattered_records_are_replayed(
    stores: Stores, tmp_path: Path, number: int, piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemark.ledger.selections.PIECE_BYTES", piece_bytes)
    store, chance = stores.new(), random.Random(3)
    text = f"{TEXT}limits:\n  max_records: {number * 2 // 5}\n"
    stream = StreamInMemory(tmp_path, text=text, store=cast("Any", store))
    logs = [(0, number * SPREAD // PARTITIONS)] * PARTITIONS
    try:
        stream.ends(*logs)
        while stream.ingest():
            # What is to be replayed was read in windows of any size.
            pass
        wanted = scattered(number, chance)
        assert wanted.count() == number
        lane = claim_lane(stream.opened, LaneKind.REPLAY, RUN, wanted, "a test")
        stored = {key: len(value) for key, value in store.scan(("selection",))}
        assert max(stored.values()) <= piece_bytes
        assert len(stored) > 1
        assert sum(stored.values()) < 25 * number

        windows = []
        while lanes.plan_lane(stream.opened, lane, RUN) is not None:
            windows.append(stream.process(lane, RUN))
        lanes.finish(stream.opened, lane)
        assert len(windows) == 3
        # All windows name the lane's selection: none stores offsets again.
        assert {key for key, _ in store.scan(("selection",))} == stored.keys()

        ledger = Ledger(store, "orders")
        assert verify(ledger) == []
        selection = windows[0].window.selection
        assert selection is not None
        assert ledger.selection(selection) == wanted
        covers = [ledger.covers(one.window) for one in windows]
        assert sum(one.count() for one in covers) == number
        for _ in range(20):
            place = Coordinate(at(chance.randrange(PARTITIONS)), chance.randrange(logs[0][1]))
            for one in (place, Coordinate(place.partition, next_of(wanted, place))):
                counting = CountingStore(store)
                found = look_up(Ledger(counting, "orders"), one)
                within = [
                    record for record, held in zip(windows, covers, strict=True) if (one.partition, one.offset) in held
                ]
                assert [record for record in found.windows if record.kind == LaneKind.REPLAY] == within
                # The register, the heads, a page of closed lanes, the index, one piece, and a few windows.
                assert counting.values < 40
                assert len(within) == ((one.partition, one.offset) in wanted)
    finally:
        unload(store, dict(store.scan(())))


def next_of(wanted: RangeSet, place: Coordinate) -> int:
    """The next wanted offset."""
    return next((start for start, _ in wanted.of(place.partition) if start >= place.offset), place.offset)
