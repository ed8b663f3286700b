"""The page and `tidemark status` only look: nothing in the ledger changes, also where work was left half done."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.protocol_world import NoWork
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, offsets
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Run, Step
from tidemark.ledger.book import head_key
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.store import Key
from tidemark.runs import lanes
from tidemark.views.overview import overview


class Cut(Exception):
    """The program has died here."""


@pytest.mark.covers("Q13")
def test_looking_at_a_stream_writes_nothing(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path, kafka=LookedAt(), text=TEXT)
    store, opened = orders.store, orders.opened
    orders.ends((0, 18), (0, 6))
    orders.ingest("run 1")
    orders.ends((0, 30), (0, 6))

    def looked_at() -> dict[str, object]:
        before = dict(store.values)
        found = overview(opened)
        assert store.values == before
        return found

    # Committed, and not settled yet.
    assert lanes.plan_ingest(opened, "run 2") is not None
    with pytest.raises(Cut):
        protocol.process(
            opened.book, orders.sweeps, NoWork(), unwatched, INGEST, 2, Run("run 2", "v1", "d"), on_step=_cut
        )
    swept = list(orders.sweeps.swept)
    assert len(looked_at()["windows"]) == 2  # type: ignore[arg-type]
    assert orders.sweeps.swept == swept

    # A replay whose opening was cut off: it is in the register, and has no head.
    def before_head(key: Key) -> None:
        if key == head_key(lanes.lane_name(LaneKind.REPLAY, "mine")):
            raise Cut

    store.before_swap = before_head
    with pytest.raises(Cut):
        lanes.open_selected(opened, LaneKind.REPLAY, "mine", offsets((0, 3, 5)), "a test")
    looked_at()


def _cut(step: Step) -> None:
    if step == Step.COMMITTED:
        raise Cut
