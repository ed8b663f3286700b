"""An erasure removes what any attempt has written, committed or not, and says what it cannot remove."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.erasures import ANN, REASON, Killed, receipt
from tests.support.lakes import Lake
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.commit import protocol
from tidemark.commit.fence import HeadFence
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.errors import Fenced, HeldByAnother
from tidemark.ledger.erasures import WrittenPlace
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    Heartbeat,
    LaneKind,
    Receipt,
    Record,
    SinkReceipt,
    Window,
)
from tidemark.ledger.register import note_places
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.parquet import compacting, compactions
from tidemark.sinks.parquet.compactions import Compactions
from tidemark.streams.loading import load

RESULTS = SinkReceipt(name="results", type="hbase", place={"connection": "hbase_default", "table": "orders"})


class Rows:
    """A table of rows: by offset, the generations with a row there. It is the sweeper of its stream too."""

    def __init__(self, folder: Path) -> None:
        self.stream = StreamInMemory(folder, text=TEXT.replace("scheme:", "guarantee: at_most_once\nscheme:", 1))
        self.stream.opened = replace(self.stream.opened, sweeper=self)
        self.stream.ends((0, 10))
        self.rows: dict[int, set[int]] = {}
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.fence: Fence | None = None

    def reach(self, stream: str, places: Sequence[WrittenPlace]) -> None: ...

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None: ...

    def erase(self, record: Record, erased: RangeSet, places: Sequence[WrittenPlace]) -> None:
        if any(place.place == RESULTS.place for _, place in places):
            for offset in [one for one in self.rows if (at(0), one) in erased]:
                self.rows[offset] = {one for one in self.rows[offset] if one >= record.attempt.generation}

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._covers = covers
        self.fence = HeadFence(self.stream.opened.ledger, INGEST, attempt.generation, committed=window)

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        note_places(self.stream.opened.ledger, [RESULTS])
        self.before()
        for one in self._covers:
            for offset in range(one.start, one.until):
                self.rows.setdefault(offset, set()).add(attempt.generation)
        self.after()

    def verify(self) -> Receipt:
        return receipt(RESULTS)

    def ingest(self) -> None:
        opened = self.stream.opened
        assert ingest.plan_ingest(opened, "run 1") is not None
        protocol.process(opened.ledger, opened.sweeper, self, hold, INGEST, 1, Run("run 1", "v", "d"))

    def erase_one(self) -> None:
        opened = self.stream.opened
        lane = erasing.open_erasure(opened, "e", erasing.choose(opened, offsets((0, 5, 6))), REASON, ANN)
        erasing.erase(opened, lane, "e")

    def erase_later(self) -> None:
        self.stream.now += protocol.LEASE_MS
        self.erase_one()


@pytest.mark.covers("N27")
@pytest.mark.parametrize("when", ["before it writes", "after", "and then it is killed"])
def test_a_window_that_was_committed_before_it_was_read(tmp_path: Path, when: str) -> None:
    made = Rows(tmp_path)

    def killed() -> None:
        made.erase_later()
        raise Killed

    if when == "before it writes":
        made.before = made.erase_later
    else:
        made.after = made.erase_later if when == "after" else killed
    with pytest.raises(Killed) if made.after is killed else nullcontext():
        made.ingest()
    assert (made.rows[5], len(made.rows[6])) == (set(), 1)
    named = [one.place for one in erasing.remaining(made.stream.opened, offsets((0, 5, 6)))]
    assert RESULTS.place in named


@pytest.mark.covers("N27")
def test_an_attempt_that_was_killed_before_its_receipt(tmp_path: Path) -> None:
    """The stream file names another table by now: only the attempt itself has said where it writes."""
    made = Rows(tmp_path)

    def killed() -> None:
        raise Killed

    made.after = killed
    with pytest.raises(Killed):
        made.ingest()
    path = tmp_path / "orders.yaml"
    path.write_text(path.read_text().replace("table: orders\n", "table: others\n"))
    made.stream.opened = replace(made.stream.opened, file=load(path))
    made.erase_later()
    assert made.rows[5] == set()


def test_an_erasure_waits_for_an_attempt_that_is_alive(tmp_path: Path) -> None:
    made = Rows(tmp_path)
    refused: list[str] = []

    def erasing_now() -> None:
        made.stream.now += protocol.LEASE_MS
        ledger = made.stream.opened.ledger
        generation = ledger.committed()[0].generation
        ledger.beat(INGEST, Heartbeat(generation=generation, run="run 1", at=made.stream.now, step="storing"))
        with pytest.raises(HeldByAnother) as problem:
            made.erase_one()
        refused.append(str(problem.value))

    made.before = erasing_now
    made.ingest()
    assert (
        "orders/0@5-6: window ingest/1, which was committed before it was read, is still written by run" in refused[0]
    )
    # With its receipt, nobody writes there any more.
    made.erase_one()
    assert made.rows[5] == set()


def test_an_attempt_stops_once_some_of_its_window_is_erased(tmp_path: Path) -> None:
    made = Rows(tmp_path)
    found: list[Any] = []

    def erasing_now() -> None:
        assert made.fence is not None
        made.fence.check()
        opened = made.stream.opened
        made.stream.now += protocol.LEASE_MS
        lane = erasing.open_erasure(opened, "e", erasing.choose(opened, offsets((0, 5, 6))), REASON, ANN)
        for step in (lambda: None, lambda: erasing.erase(opened, lane, "e")):
            step()
            with pytest.raises(Fenced, match=f"^{lane} erases messages of window ingest/1 of orders") as problem:
                made.fence.check()
            found.append(problem.value)

    made.before = erasing_now
    made.ingest()
    assert len(found) == 2


@pytest.mark.covers("N27")
def test_a_folder_that_a_cancelled_attempt_has_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Lake(tmp_path)
    made.ingest()
    lane = made.cancelled_replay()
    (own,) = [one for one in made.holding(5) if one.startswith("lane=ingest")]
    assert [one.partition("/")[0] for one in made.holding(5)] == ["lane=ingest", f"lane={lane}"]
    # In a dry run: the erasure will have removed it.
    assert lane not in made.remains()
    made.erase(monkeypatch)
    assert made.holding(5) == [own]
    assert made.remains() == (
        "no reader of Tidemark shows it; files of ingest/1 hold it until: tidemark compact orders --sink lake"
    )
    # A program that was believed dead goes on writing: nothing removes that, so it is named.
    made.write(offsets((0, 3, 8)), lane, 1, 999_999)
    assert f"plain readers see it in {made.base}/lane={lane}/seq=000000001/generation=999999" in made.remains()


@pytest.mark.covers("N27")
def test_a_folder_without_a_receipt_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Lake(tmp_path, "guarantee: at_most_once\n")
    made.dies = True
    with pytest.raises(Killed):
        made.ingest()
    made.stream.now += protocol.LEASE_MS
    made.erase(monkeypatch)
    (folder,) = made.holding(5)
    assert made.remains() == f"plain readers see it in {made.base}/{folder}, which has no receipt: remove this folder"


def test_a_compaction_removes_what_attempts_have_left(tmp_path: Path) -> None:
    """Only of lanes that the ledger knows: one that was restored from a backup does not know the windows after it."""
    made = Lake(tmp_path)
    made.ingest()
    lane = made.cancelled_replay()
    later = made.write(offsets((0, 3, 8)), INGEST, 2, 999_999).place["folder"].removeprefix(f"{made.base}/")
    of_nobody = made.write(offsets((0, 3, 8)), "replay-lost", 1, 999_998).place["folder"].removeprefix(f"{made.base}/")
    ledger = made.stream.opened.ledger
    held = compactions.claim(ledger, "lake", "c")
    assert held.value.claim is not None
    known: Compactions = held.value
    compacting.remove_replaced(ledger, known, made.base, held.value.claim.generation)
    left = made.holding(5)
    assert [one for one in left if lane in one] == []
    assert sorted(left) == sorted(
        [*(one for one in left if one.startswith("lane=ingest/seq=000000001")), later, of_nobody]
    )
    assert len(left) == 3


@pytest.mark.covers("N27")
def test_a_sink_that_has_got_another_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes below the same folder: what counts there under either name is named, and none of it is left by nobody."""
    made = Lake(tmp_path)
    made.ingest()
    made.name = "pond"
    path = tmp_path / "orders.yaml"
    path.write_text(path.read_text().replace("name: lake", "name: pond"))
    made.stream.opened = replace(made.stream.opened, file=load(path))
    opened = made.stream.opened
    lane = claim_lane(opened, LaneKind.REPLAY, "fill", offsets((0, 0, 10)), "fill the pond")
    lanes.plan_lane(opened, lane, "fill")
    made.work(lane, "fill")
    lanes.finish(opened, lane)
    made.erase(monkeypatch)
    said = {one.name: one.remains for one in erasing.remaining(opened, offsets((0, 5, 6))) if one.type == "parquet"}
    # As it is said, it is taken: with two sinks, a compaction has to know which.
    until = "hold it until: tidemark compact orders --sink"
    assert said == {
        "lake": f"no reader of Tidemark shows it; files of ingest/1 {until} lake",
        "pond": f"no reader of Tidemark shows it; files of {lane}/1 {until} pond",
    }
