"""The commit protocol with every answer lost, one after the other: a store in memory, and work that does nothing.

The same protocol runs on the real stores, with real work and real kills, in tests/integration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from msgspec import structs

from tests.memory import FAULTS, MemoryStore
from tidemark import protocol
from tidemark.errors import (
    AlreadyCommitted,
    Fenced,
    HeldByAnother,
    LedgerContradiction,
    LedgerUnreadable,
    StaleLedger,
    VerificationFailed,
    WrongUse,
)
from tidemark.ledger import doubt
from tidemark.ledger.book import Book
from tidemark.ledger.codec import digest
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
from tidemark.protocol import Fence, Listener, Run, Step, Taken
from tidemark.ranges import RangeSet, TopicPartition
from tidemark.tallies import NOTHING, Count, PartitionTally, verify

AT = TopicPartition("logs", 0)
LANE = "ingest"
RUN = Run("run 1", "v1", "digest")
OTHER = Run("run 2", "v1", "digest")


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


class NoWork:
    """Reads nothing and stores nothing, and says so in an empty receipt."""

    def read(self, window: Window, covers: RangeSet, fence: Fence) -> None: ...

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt:
        dead = SinkReceipt(name="dead_letters", type="hbase", place={})
        return Receipt(tallies=(), sinks=(), dead_letters=dead, started_at=1, finished_at=2)


class Sweeps:
    """Remembers which generations were swept."""

    def __init__(self) -> None:
        self.swept: list[int] = []

    def sweep(self, record: Record, covers: RangeSet) -> None:
        self.swept.append(record.attempt.generation)


class NoFence:
    def check(self) -> None: ...


@contextmanager
def hold(taken: Taken) -> Iterator[Fence]:
    yield NoFence()


def plan(head: Head) -> Window:
    """The next ten offsets."""
    start = head.offsets()[AT]
    ranges = (
        WindowRange(topic="logs", incarnation=1, partition=0, start=start, until=start + 10, log_start=0, log_end=99),
    )
    ids = {"logs": "i"}
    return Window(seq=head.seq + 1, ranges=ranges, topic_ids=ids, isolation="read_committed", pinned_at=1, run="run 1")


class World:
    def __init__(self) -> None:
        self.now = 1_000_000
        self.store = MemoryStore()
        self.book = Book(self.store, "s", clock=lambda: self.now)
        self.sweeps = Sweeps()

    def open(self) -> None:
        open_lane(self.book, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 0}))

    def pin(self) -> int:
        pending = protocol.pin(self.book, self.sweeps, LANE, plan)
        assert pending is not None
        return pending.window.seq

    def process(self, seq: int, run: Run = RUN, on_step: Listener = protocol.nobody) -> Record:
        return protocol.process(self.book, self.sweeps, NoWork(), hold, LANE, seq, run, on_step=on_step)

    def one_window(self) -> None:
        self.open()
        self.process(self.pin())

    @property
    def head(self) -> Head:
        found = self.book.head(LANE)
        assert found is not None
        return found.head


@pytest.fixture
def world() -> World:
    return World()


def swaps_of_one_window() -> int:
    counted = World()
    counted.one_window()
    return counted.store.swaps


@pytest.mark.covers("F2", "E38", "A42")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("number", range(swaps_of_one_window()))
def test_any_answer_may_get_lost(world: World, number: int, fault: str) -> None:
    none: list[str] = [""] * number
    world.store.faults = [*none, fault]
    world.one_window()
    world.process(world.pin())
    assert world.head.seq == 2
    assert world.head.offsets() == {AT: 20}
    assert [(window.record.seq, next(iter(window.covers)).start) for window in world.book.committed()] == [
        (1, 0),
        (2, 10),
    ]
    assert world.head.pending is None


class Cut(BaseException):
    """A crash: nothing catches it."""


@pytest.mark.covers("F1", "O9")
@pytest.mark.parametrize("step", [step for step in Step if step not in (Step.PINNED, Step.SINK_STORED)])
def test_a_crash_after_any_step_is_met_by_running_again(world: World, step: Step) -> None:
    def cut(done: Step) -> None:
        if done == step:
            raise Cut

    world.open()
    seq = world.pin()
    with pytest.raises(Cut) if step in _steps_of_one_window() else _passes():
        world.process(seq, on_step=cut)
    if world.head.seq == 0:
        # Taken at once: it is a retry of the same run.
        world.process(seq)
    else:
        with pytest.raises(AlreadyCommitted):
            world.process(seq)
        protocol.settle(world.book, world.sweeps, LANE)
    assert world.head.seq == 1
    assert world.head.offsets() == {AT: 10}
    assert world.book.record(LANE, 1) is not None
    assert len(world.book.committed()) == 1


@contextmanager
def _passes() -> Iterator[None]:
    yield


def _steps_of_one_window() -> set[Step]:
    heard: set[Step] = set()
    counted = World()
    counted.open()
    counted.process(counted.pin(), on_step=heard.add)
    return heard


@pytest.mark.covers("A46", "F5")
def test_an_older_attempt_cannot_commit(world: World) -> None:
    world.open()
    seq = world.pin()
    old = protocol.take(world.book, LANE, seq, RUN)
    new = protocol.take(world.book, LANE, seq, RUN)
    assert new.attempt.generation > old.attempt.generation
    with pytest.raises(Fenced, match=f"now held by run run 1 \\(generation {new.attempt.generation}\\)"):
        protocol.commit(world.book, old, NoWork().verify())
    protocol.commit(world.book, new, NoWork().verify())
    with pytest.raises(Fenced, match=f"was committed by run run 1 \\(generation {new.attempt.generation}\\)"):
        protocol.commit(world.book, old, NoWork().verify())
    assert world.head.last is not None
    assert world.head.last.attempt == new.attempt


@pytest.mark.covers("A39", "A46", "E40", "F5")
def test_a_run_that_slept_past_its_lease_is_refused_by_the_head(world: World) -> None:
    """Run 1 has planned at 1 and written; 90 s later run 2 takes over and commits 7; then run 1 tries to commit."""
    open_lane(world.book, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 1}))

    def until_7(head: Head) -> Window:
        window = plan(head)
        return structs.replace(window, ranges=(structs.replace(window.ranges[0], until=7),))

    assert protocol.pin(world.book, world.sweeps, LANE, until_7) is not None

    def overtake(done: Step) -> None:
        if done == Step.VERIFIED:
            world.now += 90_000
            protocol.commit(world.book, protocol.take(world.book, LANE, 1, OTHER), NoWork().verify())

    with pytest.raises(Fenced, match="was committed by run run 2") as caught:
        world.process(1, on_step=overtake)
    assert caught.value.exit_code == 3
    assert world.head.offsets() == {AT: 7}
    assert [window.record.attempt.run for window in world.book.committed()] == ["run 2"]


ONE = Count.of(1, 5)


@pytest.mark.covers("G1", "E46")
@pytest.mark.parametrize(
    "tally", [{"stored": ONE, "rows": ONE}, {"stored": NOTHING, "invalid": ONE}, {"stored": NOTHING}]
)
def test_a_window_with_a_message_that_nobody_holds_is_not_committed(world: World, tally: dict[str, Count]) -> None:
    class Short(NoWork):
        """Has read a message that neither a sink nor the dead letters acknowledge."""

        def verify(self) -> Receipt:
            verify([PartitionTally(topic="logs", incarnation=1, partition=0, read=ONE, **tally)], {"table": {}}, {})
            return super().verify()

    world.open()
    seq = world.pin()
    with pytest.raises(VerificationFailed):
        protocol.process(world.book, world.sweeps, Short(), hold, LANE, seq, RUN)
    assert world.head.offsets() == {AT: 0}
    assert world.book.committed() == []


@pytest.mark.covers("E29")
def test_a_partition_that_a_window_does_not_read_keeps_its_position(world: World) -> None:
    idle = TopicPartition("logs", 1)
    open_lane(world.book, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 0, idle: 7}))
    world.process(world.pin())
    assert world.head.offsets() == {AT: 10, idle: 7}


@pytest.mark.covers("A39")
def test_another_run_waits_for_the_lease_unless_told_to_take_over(world: World) -> None:
    world.open()
    seq = world.pin()
    first = protocol.take(world.book, LANE, seq, RUN)
    world.now += 5_000
    with pytest.raises(HeldByAnother, match="held by run run 1, which gave a sign of life 5 s ago"):
        protocol.take(world.book, LANE, seq, OTHER)
    assert world.head.pending is not None
    assert world.head.pending.attempt == first.attempt
    taken_over = protocol.take(world.book, LANE, seq, OTHER, take_over=True)
    world.now += protocol.LEASE_MS
    again = protocol.take(world.book, LANE, seq, RUN)
    assert first.attempt.generation < taken_over.attempt.generation < again.attempt.generation


@pytest.mark.covers("A42")
def test_a_window_is_committed_once_and_the_loser_is_told_by_whom(world: World) -> None:
    world.one_window()
    with pytest.raises(AlreadyCommitted, match="window 1 of s/ingest is already committed, by run run 1"):
        world.process(1, OTHER)


@pytest.mark.covers("S18", "G5")
def test_a_pending_window_is_used_as_it_is(world: World) -> None:
    world.open()
    seq = world.pin()
    before = world.head.pending

    def other_plan(head: Head) -> Window:
        raise AssertionError("a retry never plans again")

    assert protocol.pin(world.book, world.sweeps, LANE, other_plan) == before
    taken = protocol.take(world.book, LANE, seq, RUN)
    assert protocol.pin(world.book, world.sweeps, LANE, other_plan) == taken.pending
    # The next one is pinned when this one is committed, and not before.
    world.process(seq)
    assert (seq, world.pin()) == (1, 2)


def test_only_the_sweeps_that_are_owed(world: World) -> None:
    world.open()
    world.process(world.pin())
    assert world.sweeps.swept == []
    seq = world.pin()
    protocol.take(world.book, LANE, seq, RUN)
    record = world.process(seq)
    assert world.sweeps.swept == [record.attempt.generation]
    world.process(world.pin())
    assert world.sweeps.swept == [record.attempt.generation]


@pytest.mark.covers("G5")
def test_abandon_gives_the_offsets_back_and_touches_nothing_committed(world: World) -> None:
    world.one_window()
    committed = world.head
    seq = world.pin()
    taken = protocol.take(world.book, LANE, seq, RUN)
    with pytest.raises(WrongUse, match="needs a reason"):
        protocol.abandon(world.book, LANE, " ")
    protocol.abandon(world.book, LANE, "wrong code")
    head = world.head
    assert (head.seq, head.positions, head.last) == (committed.seq, committed.positions, committed.last)
    assert head.pending is None
    assert head.abandoned is not None
    assert (head.abandoned.reason, head.abandoned.generation) == ("wrong code", taken.attempt.generation)
    with pytest.raises(Fenced, match="abandoned"):
        protocol.commit(world.book, taken, NoWork().verify())
    with pytest.raises(StaleLedger, match="no longer pending: it was abandoned"):
        protocol.take(world.book, LANE, seq, RUN)
    # The same offsets again, whose debris is swept now, and only now.
    world.process(world.pin())
    assert len(world.sweeps.swept) == 1
    world.process(world.pin())
    assert len(world.sweeps.swept) == 1


def test_each_record_says_what_the_one_before_it_was(world: World) -> None:
    world.open()
    for _ in range(3):
        world.process(world.pin())
    stored = [world.store.values[("history", LANE, f"{seq:019d}")] for seq in (1, 2, 3)]
    records = [world.book.record(LANE, seq) for seq in (1, 2, 3)]
    previous = [found[1].previous for found in records if found]
    assert previous == [None, digest(stored[0]), digest(stored[1])]


def test_a_head_that_contradicts_its_history_is_refused_with_both_shown(world: World) -> None:
    world.one_window()
    key = ("history", LANE, f"{1:019d}")
    found = world.book.record(LANE, 1)
    assert found is not None
    from tidemark.ledger.codec import encode

    world.store.values[key] = encode(structs.replace(found[1], committed_at=5))
    for look in (lambda: world.pin(), lambda: world.book.committed()):
        with pytest.raises(LedgerContradiction, match=r"stands in the head as .* and in the history as"):
            look()


@pytest.mark.covers("A37")
def test_a_head_that_cannot_be_read_stops_the_stream_and_is_left(world: World) -> None:
    world.one_window()
    world.store.values["head", LANE] = b"garbage"
    before = dict(world.store.values)
    for step in (world.pin, world.open, world.pin):
        with pytest.raises(LedgerUnreadable, match="'garbage'") as caught:
            step()
        assert caught.value.exit_code == 7
    assert world.store.values == before


@pytest.mark.covers("E44")
def test_a_lost_head_is_not_begun_anew(world: World) -> None:
    world.one_window()
    del world.store.values[("head", LANE)]
    with pytest.raises(LedgerContradiction, match="the head of s/ingest is missing"):
        world.pin()
    with pytest.raises(LedgerContradiction, match="the head of s/ingest is missing"):
        world.open()
    assert ("head", LANE) not in world.store.values


@pytest.mark.covers("F20")
def test_commit_times_rise_whatever_the_clock_says(world: World) -> None:
    world.one_window()
    first = world.head.last
    world.now -= 60_000
    world.process(world.pin())
    second = world.head.last
    assert first is not None
    assert second is not None
    assert second.committed_at > first.committed_at
    assert second.attempt.generation > first.attempt.generation


def test_offsets_are_published_with_the_commits_time(world: World) -> None:
    world.one_window()
    last = world.head.last
    assert last is not None
    assert world.store.published == [(last.committed_at, {"logs": {0: 10}})]
