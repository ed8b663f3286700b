"""An erasure removes what any attempt has written, committed or not, and says what it cannot remove."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.lakes import Lake
from tests.support.protocol_world import hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tests.support.sums_in_memory import ANN, REASON, Contributions, Killed, Sums, key_of, receipt
from tidemark.commit import protocol
from tidemark.commit.fence import HeadFence
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.errors import Fenced, HeldByAnother
from tidemark.ledger.book import head_key
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
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import erasing, steering
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.hbase.aggregates.rows import block_qualifier
from tidemark.sinks.parquet import compacting, compactions
from tidemark.sinks.parquet.compactions import Compactions
from tidemark.streams.loading import load


@pytest.mark.covers("N27")
def test_a_block_whose_first_offset_was_erased_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second erasure does not cover the first offset of the block, by which the block's column is named."""
    made = Sums(tmp_path, monkeypatch, 10)
    made.ingest(20)
    for offset in (0, 5, 15):
        made.erase(offset)
    assert [made.left_of(one) for one in (0, 5, 15)] == [{}, {}, {}]
    # The others of the two blocks have been made anew, and once.
    assert [len(made.left_of(one)) for one in (1, 9, 10, 19)] == [1, 1, 1, 1]


@pytest.mark.covers("N27")
@pytest.mark.parametrize("block", [100, 10])
def test_a_table_that_a_replay_has_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Its columns are those of the windows that have read the messages first, and have not written there."""
    made = Sums(tmp_path, monkeypatch, block)
    made.writes = False
    made.ingest(20)
    made.writes = True
    made.work(made.replay(offsets((0, 0, 20)), "fill"), "fill")
    assert len(made.left_of(5)) == 1
    made.erase(5)
    assert made.left_of(5) == {}
    assert len(made.left_of(6)) == 1


@pytest.mark.covers("N27")
@pytest.mark.parametrize("block", [100, 10])
def test_a_table_that_only_a_cancelled_attempt_has_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """No receipt names the table, and a window that was given up has read other offsets under its name."""
    made = Sums(tmp_path, monkeypatch, block)
    made.writes = False
    made.ingest(12)
    made.writes, made.dies = True, True
    lane = made.replay(offsets((0, 0, 12)), "wrong")
    with pytest.raises(Killed):
        made.work(lane, "wrong")
    steering.cancel(made.stream.opened, lane, "the wrong hour")
    # An attempt at [12, 20), whose window is given up: then two windows read these offsets.
    made.stream.ends((0, 20))
    with pytest.raises(Killed):
        made.work(INGEST, "run 20")
    protocol.abandon(made.stream.opened.book, INGEST, "too large", take_over=True)
    made.dies = made.writes = False
    made.ingest(15, 20)
    assert [len(made.left_of(one)) for one in (5, 16)] == [1, 1]
    for offset in (5, 16):
        made.erase(offset)
    assert [made.left_of(one) for one in (5, 16)] == [{}, {}]


@pytest.mark.covers("N27")
def test_a_column_that_is_of_no_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backfill that was given up has begun within what another one has read as a whole."""
    text = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20}}")
    monkeypatch.setattr("tests.support.sums_in_memory.TEXT", text)
    made = Sums(tmp_path, monkeypatch, 10)
    made.ingest(30)
    made.dies = True
    lane = claim_lane(made.stream.opened, LaneKind.BACKFILL, "wrong", offsets((0, 3, 10)), "bug 17")
    with pytest.raises(Killed):
        made.work(lane, "wrong")
    steering.cancel(made.stream.opened, lane, "the wrong offsets")
    made.dies = False
    made.work(claim_lane(made.stream.opened, LaneKind.BACKFILL, "right", offsets((0, 0, 10)), "bug 17"), "right")
    assert len(made.left_of(5)) == 2
    made.erase(5)
    assert (made.left_of(5), len(made.left_of(1))) == ({}, 1)


@pytest.mark.covers("N27")
def test_an_erasure_is_given_the_columns_of_its_blocks_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settling waits for it, and all runs of the stream wait for that."""
    given = []
    for messages in (100, 400):
        folder = tmp_path / str(messages)
        folder.mkdir()
        made = Sums(folder, monkeypatch, 10, lambda offset: key_of(offset % 3))
        made.ingest(messages // 2, messages)
        made.cells.given = 0
        made.erase(13)
        given.append(made.cells.given)
        # Block 10 to 19 is made anew, of nine messages.
        assert [len(made.left_of(key)) for key in range(3)] == [messages // 10] * 3
        # Later, the table is looked through once, however many erasures there were. What was made anew did not come late.
        made.erase(47)
        made.cells.scans = made.cells.given = 0
        (left,) = (one for one in erasing.remaining(made.stream.opened, offsets((0, 0, 100))) if one.name == "sums")
        assert (left.remains, made.cells.scans, made.cells.given) == ("", 16, 6)
        made.cells.put(key_of(0), b"d:" + block_qualifier(at(0), 10), 5, b"late")
        (left,) = (one for one in erasing.remaining(made.stream.opened, offsets((0, 13, 14))) if one.name == "sums")
        assert left.remains.startswith("1 of its rows or files came late")
    # Before and after they are made anew.
    assert given[0] == given[1] <= 6


def test_an_erasure_of_many_blocks_asks_for_what_lies_between_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Sums(tmp_path, monkeypatch, 10)
    made.ingest(2000)
    wanted = offsets(*((0, offset, offset + 1) for offset in range(5, 1505, 20)))
    chosen = erasing.choose(made.stream.opened, wanted)
    made.work(erasing.open_erasure(made.stream.opened, "erase", chosen, REASON, ANN), "erase")
    assert {bool(made.left_of(offset)) for offset in range(5, 1505, 20)} == {False}
    assert {bool(made.left_of(offset)) for offset in range(6, 1506, 20)} == {True}


def test_an_erasure_leaves_what_may_still_be_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ingest is at work in the other half of the block, when its messages below are erased."""
    made = Sums(tmp_path, monkeypatch, 10)
    made.ingest(5)
    made.stream.ends((0, 10))
    pending = ingest.plan_ingest(made.stream.opened, "run 10")
    assert pending is not None
    book = made.stream.opened.book
    taken = protocol.take(book, INGEST, 2, Run("run 10", "v", "d"))
    work = Contributions(made, INGEST)
    work.read(pending.window, book.covers(pending.window), taken.attempt, None)  # type: ignore[arg-type]
    work.store(taken.attempt, None, protocol.nobody)  # type: ignore[arg-type]
    made.erase(3)
    assert (made.left_of(3), len(made.left_of(7))) == ({}, 1)
    protocol.commit(book, taken, work.verify())
    assert len(made.left_of(7)) == 1


@pytest.mark.parametrize("block", [100, 10])
def test_an_attempt_that_draws_before_an_erasure_and_takes_its_window_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    """Its generation is lower than that of the erasure, which has seen it in no head. It commits, and its rows count."""
    made = Sums(tmp_path, monkeypatch, block, lambda _: key_of(0))
    made.ingest(5)
    made.stream.ends((0, 10))
    book = made.stream.opened.book
    pending = ingest.plan_ingest(made.stream.opened, "run 10")
    assert pending is not None
    drawn, scanned, written = Event(), Event(), Event()

    def sleep(key: Key) -> None:
        if key == head_key(INGEST):
            drawn.set()
            assert scanned.wait(60)

    def scan() -> None:
        scanned.set()
        assert written.wait(60)

    def attempt() -> int:
        taken = protocol.take(book, INGEST, 2, Run("run 10", "v", "d"))
        work = Contributions(made, INGEST)
        work.read(pending.window, book.covers(pending.window), taken.attempt, None)  # type: ignore[arg-type]
        work.store(taken.attempt, None, protocol.nobody)  # type: ignore[arg-type]
        written.set()
        return protocol.commit(book, taken, work.verify()).attempt.generation

    made.stream.store.before_swap = sleep
    with ThreadPoolExecutor(1) as beside:
        going_on = beside.submit(attempt)
        assert drawn.wait(60)
        made.cells.between = scan
        made.erase(3)
        generation = going_on.result()
    assert generation < book.committed()[0].generation
    assert [generation] in made.left_of(0).values()


def test_what_is_written_after_a_wrong_clock_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The erasure has a generation of tomorrow. A ledger that is restored to before it draws generations of today."""
    made = Sums(tmp_path, monkeypatch, 10)
    made.ingest(10)
    made.stream.now = tomorrow = time.time_ns() // 1_000_000 + 86_400_000
    made.erase(5)
    ((column, (made_anew,)),) = made.left_of(6).items()
    assert made_anew >= tomorrow
    # The mark of the removal is that of the cell that it has removed.
    assert made.cells.marks[key_of(6), column.encode()] < tomorrow - 86_400_000


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
        self.fence = HeadFence(self.stream.opened.book, INGEST, attempt.generation, committed=window)

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        note_places(self.stream.opened.book, [RESULTS])
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
        protocol.process(opened.book, opened.sweeper, self, hold, INGEST, 1, Run("run 1", "v", "d"))

    def erase_one(self) -> None:
        opened = self.stream.opened
        lane = erasing.open_erasure(opened, "e", erasing.choose(opened, offsets((0, 5, 6))), REASON, ANN)
        assert erasing.erase_without_spark(opened, lane, "e") is None

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
        book = made.stream.opened.book
        generation = book.committed()[0].generation
        book.beat(INGEST, Heartbeat(generation=generation, run="run 1", at=made.stream.now, step="storing"))
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
        for step in (lambda: None, lambda: erasing.erase_without_spark(opened, lane, "e")):
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
    book = made.stream.opened.book
    held = compactions.claim(book, "lake", "c")
    assert held.value.claim is not None
    known: Compactions = held.value
    compacting.remove_replaced(book, known, made.base, held.value.claim.generation)
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
