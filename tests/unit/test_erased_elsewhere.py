"""What other streams have erased, as readers of a stream see it: all of it, in few reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.counting import CountingStore
from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.streams_in_memory import StreamInMemory, offsets
from tidemark.ledger.elsewhere import erased_elsewhere, for_readers
from tidemark.ledger.ledger import head_key
from tidemark.ledger.records import erases
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.windows import lanes
from tidemark.runs.windows.empty_windows import commit_unread

MESSAGES = 400


def world(folder: Path, streams: int, erasures: int, store: type[MemoryStore] = MemoryStore) -> StreamInMemory:
    """A stream, and others that have erased messages of its topic, each so many one after the other."""
    asks = StreamInMemory(folder, store=store())
    asks.ends((0, MESSAGES))
    asks.ingest()
    for number in range(streams):
        other = StreamInMemory(folder, kafka=asks.kafka, name=f"other_{number}", store=store())
        other.ingest()
        for each in range(erasures):
            first = number * erasures + each
            other.erase(offsets((0, first, first + 1)), f"erasure {each}")
        asks.store.beside[other.name] = other.store
    return asks


def reads(made: StreamInMemory) -> tuple[int, RangeSet]:
    """The reads of the other streams' ledgers for a reader of this one, and what is hidden from it."""
    counted = {name: CountingStore(store) for name, store in made.store.beside.items()}
    stores: dict[str, Any] = dict(counted)
    made.store.beside = stores
    hidden = for_readers(made.opened.ledger).hidden
    return sum(one.reads for one in counted.values()), hidden


@pytest.mark.slow
@pytest.mark.covers("Q26")
@pytest.mark.parametrize("store", [MemoryStore, TransactionalStore])
def test_reads_do_not_grow_with_the_erasures_of_others(tmp_path: Path, store: type[MemoryStore]) -> None:
    """They grow with the streams of the same topic, by a handful each."""
    found = {}
    for streams, erasures in ((2, 3), (2, 30), (6, 30)):
        folder = tmp_path / f"{streams}-{erasures}"
        folder.mkdir()
        found[streams, erasures], hidden = reads(world(folder, streams, erasures, store))
        assert hidden == offsets((0, 0, streams * erasures))
    assert found[2, 30] == found[2, 3]
    assert found[6, 30] == 3 * found[2, 30]
    assert found[2, 30] <= 2 * 5


@pytest.mark.covers("Q26")
def test_an_erasure_whose_lane_is_still_open_counts(tmp_path: Path) -> None:
    asks = world(tmp_path, 1, 1)
    other = StreamInMemory(tmp_path, kafka=asks.kafka, name="other_0", store=asks.store.beside["other_0"])
    chosen = erasing.choose(other.opened, offsets((0, 10, 20)))
    lane = erasing.open_erasure(other.opened, "e", chosen, "request 4711", Requesters("ann"))
    pending = lanes.plan_lane(other.opened, lane, "e")
    assert pending is not None
    assert for_readers(asks.opened.ledger).hidden == offsets((0, 0, 1))
    commit_unread(other.opened, lane, pending.window.seq, "e")
    assert for_readers(asks.opened.ledger).hidden == offsets((0, 0, 1), (0, 10, 20))


@pytest.mark.covers("Q26")
def test_what_was_erased_stays_so_when_the_lanes_head_was_lost(tmp_path: Path) -> None:
    asks = world(tmp_path, 1, 3)
    store = asks.store.beside["other_0"]
    lost = next(key for key in store.values if key[0] == "head" and erases(key[1]))
    del store.values[head_key(lost[1])]
    register = asks.opened.ledger.register()
    assert register is not None
    assert sum(len(one.offsets.partitions) for one in erased_elsewhere(asks.opened.ledger, register[1].topics)) == 3
