"""A reader of a Delta table beside commits: only one that takes what is read makes it begin again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.memory import MemoryStore
from tests.support.protocol_world import AT, LANE, RUN, NoWork, World, hold, plan
from tests.support.protocol_world import _no_pause as _no_pause
from tidemark.commit import protocol
from tidemark.ledger.records import LaneKind, positions
from tidemark.ledger.register import open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.delta import reading
from tidemark.sinks.parquet.parts import FolderPart, parts


@pytest.fixture
def world() -> World:
    """The ingest began at 5 and has committed [5, 15) and [15, 25)."""
    made = World(MemoryStore())
    open_lane(made.ledger, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 5}))
    made.process(made.pin())
    made.process(made.pin())
    return made


def ingest(world: World) -> None:
    world.process(world.pin())


def replay(world: World) -> None:
    some = world.ledger.store_selection(RangeSet([OffsetRange(AT, 7, 9)]))
    start = positions({AT: 7})
    open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="run 7", start=start, selection=some, reason="a test")
    assert protocol.pin(world.ledger, world.sweeps, "replay-1", plan) is not None
    protocol.process(world.ledger, world.sweeps, NoWork(), hold, "replay-1", 1, RUN)


@pytest.mark.parametrize(("commit", "looks"), [(ingest, 1), (replay, 2)])
def test_only_what_takes_something_makes_a_reader_begin_again(
    world: World, monkeypatch: pytest.MonkeyPatch, commit: Callable[[World], None], looks: int
) -> None:
    """Something is committed between the ledger and the table. With an ingest at work, this is at each look."""
    seen = []

    def beside(*given: Any, **more: Any) -> list[FolderPart]:
        seen.append(given)
        if commit is ingest or len(seen) == 1:
            assert len(seen) < 10, "it begins again for ever"
            commit(world)
        return parts(*given, **more)

    monkeypatch.setattr(reading, "parts", beside)
    before = world.ledger.view("delta").authority
    authority, _ = reading.parts_that_count(world.ledger, "delta")
    assert len(seen) == looks
    assert (authority == before) == (commit is ingest)
    assert before.holds_in(authority) == (commit is ingest)
    # Whoever asks later sees what was committed.
    assert world.ledger.view("delta").authority.covered() - before.covered() or commit is replay
