"""A ledger in memory, with the runs and sweeps that work on it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.support.memory import MemoryStore
from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.ledger.erasures import WrittenPlace
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import (
    Attempt,
    Head,
    LaneKind,
    Receipt,
    Record,
    SinkReceipt,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.register import open_lane
from tidemark.ledger.stores import doubt
from tidemark.offsets.ranges import RangeSet, TopicPartition

AT = TopicPartition("logs", 0)
LANE = "ingest"
RUN = Run("run 1", "v1", "digest")
OTHER = Run("run 2", "v1", "digest")
hold = unwatched


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


class NoWork:
    """Reads nothing and stores nothing, and gives an empty receipt."""

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None: ...

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt:
        dead = SinkReceipt(name="dead_letters", type="hbase", place={})
        return Receipt(tallies=(), sinks=(), dead_letters=dead, started_at=1, finished_at=2)


class Sweeps:
    """Remembers which generations were swept, and what was erased by which lane. `fails` while it cannot."""

    def __init__(self) -> None:
        self.swept: list[int] = []
        self.erased: list[tuple[str, RangeSet]] = []
        self.fails = False

    def reach(self, stream: str, places: Sequence[WrittenPlace]) -> None: ...

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
        self.swept.append(record.attempt.generation)

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None:
        if self.fails:
            raise RuntimeError("a sink is away")
        self.erased.append((record.lane, erased))


def plan(head: Head) -> Window:
    """The next ten offsets."""
    start = head.offsets()[AT]
    ranges = (
        WindowRange(topic="logs", incarnation=1, partition=0, start=start, until=start + 10, log_start=0, log_end=99),
    )
    ids = {"logs": "i"}
    return Window(seq=head.seq + 1, ranges=ranges, topic_ids=ids, isolation="read_committed", pinned_at=1, run="run 1")


class World:
    def __init__(self, store: MemoryStore | None = None) -> None:
        self.now = 1_000_000
        self.store = store or MemoryStore()
        self.ledger = Ledger(self.store, "s", clock=lambda: self.now)
        self.sweeps = Sweeps()

    def open(self) -> None:
        open_lane(self.ledger, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 0}))

    def pin(self) -> int:
        pending = protocol.pin(self.ledger, self.sweeps, LANE, plan)
        assert pending is not None
        return pending.window.seq

    def process(self, seq: int, run: Run = RUN, on_step: Listener = protocol.nobody) -> Record:
        return protocol.process(self.ledger, self.sweeps, NoWork(), hold, LANE, seq, run, on_step=on_step)

    def one_window(self) -> None:
        self.open()
        self.process(self.pin())

    @property
    def head(self) -> Head:
        found = self.ledger.head(LANE)
        assert found is not None
        return found.head
