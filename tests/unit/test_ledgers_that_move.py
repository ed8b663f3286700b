"""A ledger that goes elsewhere while somebody works on it: nothing that the new one names is removed, and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, LANE, OTHER, RUN, NoWork, World, hold, plan
from tidemark.commit import protocol
from tidemark.commit.fence import fence_of, holding
from tidemark.commit.protocol import Fence, HeldWindow, Listener
from tidemark.errors import Fenced, HeldByAnother, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Attempt, Guarantee, Head, LaneKind, Record, Window, positions
from tidemark.ledger.recovery.backup import back_up, restore, retire
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import close_lane, open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.sinks.parquet import steps

KINDS = (MemoryStore, TransactionalStore)
TEN = RangeSet([OffsetRange(AT, 0, 10)])


def elsewhere(world: World, path: Path, store: MemoryStore) -> World:
    """The same stream after a restoration in another store, a minute later."""
    there = World(store)
    there.now = world.now + 60_000
    restore(there.ledger, path)
    return there


# a move while somebody works


@pytest.mark.covers("N13")
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("make", [DeltaLatestInMemory, IcebergLatestInMemory])
def test_a_compaction_beside_a_move_removes_nothing_that_the_new_ledger_names(
    make: type[LatestInMemory], number: int, tmp_path: Path
) -> None:
    world = make(tmp_path)
    world.code = lambda partition, offset: [Change(offset % 4, f"{partition}@{offset}")]
    for end in (3, 6, 9):
        world.now += 10
        world.ends((0, end), (0, 0))
        world.ingest(f"run {end}")
    old, moved = world.opened, list[Ledger]()
    heard: list[steps.CompactionStep] = []

    def move(step: steps.CompactionStep) -> None:
        if len(heard) == number:
            retire(old.ledger, "moved to PostgreSQL")
            back_up(old.ledger, tmp_path / "final")
            ledger = Ledger(MemoryStore(), world.name, clock=lambda: world.now)
            restore(ledger, tmp_path / "final")
            moved.append(ledger)
        heard.append(step)

    refused = pytest.raises(WrongUse, match="was retired, and is used no more: moved to PostgreSQL")
    # The last step leaves nothing to do.
    with refused if number < 4 else nullcontext():
        world.compact("compaction", on_step=move)
    (ledger,) = moved
    world.opened = replace(old, ledger=ledger)
    assert verify(ledger) == []
    assert world.counting() == world.wanted()
    world.compact("compaction of the new ledger")
    world.ends((0, 11), (0, 0))
    world.ingest("run 11")
    assert world.counting() == world.wanted() == world.shown()


class Moves(NoWork):
    """Work on a window of `at_most_once`: its ledger moves while it reads."""

    def __init__(self, move: Callable[[], object]) -> None:
        self._move = move

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._move()


def at_most_once(head: Head) -> Window:
    return structs.replace(plan(head), guarantee=Guarantee.AT_MAX_ONCE)


@pytest.mark.covers("N13")
@pytest.mark.parametrize("kind", KINDS)
def test_a_window_that_was_committed_before_it_is_read_is_written_no_further(kind: type[MemoryStore]) -> None:
    world = World(kind())
    world.open()
    pending = protocol.pin(world.ledger, world.sweeps, LANE, at_most_once)
    assert pending is not None
    work = Moves(lambda: retire(world.ledger, "moved"))
    held: list[HeldWindow] = []

    def hold_it(taken: HeldWindow) -> AbstractContextManager[Fence]:
        held.append(taken)
        return holding(world.ledger, lambda: ("reading", {}), taken)

    with pytest.raises(
        Fenced, match=r"is written no further: this ledger of s was retired, and is used no more: moved"
    ):
        protocol.process(world.ledger, world.sweeps, work, hold_it, LANE, pending.window.seq, RUN)
    with pytest.raises(Fenced, match="was retired"):
        fence_of(world.ledger, held[0]).check()


@pytest.mark.covers("N13")
@pytest.mark.parametrize("kind", KINDS)
def test_a_receipt_that_comes_after_the_move_is_not_said_to_be_stored(kind: type[MemoryStore], tmp_path: Path) -> None:
    """It retires after the last look at the fence."""
    world = World(kind())
    world.open()
    pending = protocol.pin(world.ledger, world.sweeps, LANE, at_most_once)
    assert pending is not None
    with pytest.raises(
        WrongUse, match=r"committed before it was read, and its ledger was retired .* replay its offsets"
    ):
        protocol.process(
            world.ledger,
            world.sweeps,
            Moves(lambda: None),
            hold,
            LANE,
            pending.window.seq,
            RUN,
            on_step=retiring(world),
        )
    back_up(world.ledger, tmp_path / "final")
    there = elsewhere(world, tmp_path / "final", kind())
    assert there.process(there.pin()).seq == 2


def retiring(world: World) -> Listener:
    def heard(step: protocol.Step) -> None:
        if step == protocol.Step.VERIFIED:
            retire(world.ledger, "moved")

    return heard


def test_a_ledger_is_not_retired_under_a_window_that_was_committed_before_it_is_read() -> None:
    """Its receipt would be lost. The command looks before it asks."""
    world = World()
    world.open()
    pending = protocol.pin(world.ledger, world.sweeps, LANE, at_most_once)
    assert pending is not None

    def ask() -> None:
        with pytest.raises(HeldByAnother, match="committed before it was read, is still written by run run 1"):
            protocol.check_nobody_writes(world.ledger)

    protocol.process(world.ledger, world.sweeps, Moves(ask), hold, LANE, pending.window.seq, RUN)
    protocol.check_nobody_writes(world.ledger)


@pytest.mark.parametrize("kind", KINDS)
def test_a_retired_ledger_settles_nothing(kind: type[MemoryStore], tmp_path: Path) -> None:
    """The one that replaces it does, and goes on."""
    world = World(kind())
    world.one_window()
    seq = world.pin()

    def heard(step: protocol.Step) -> None:
        if step == protocol.Step.COMMITTED:
            retire(world.ledger, "moved")
            back_up(world.ledger, tmp_path / "final")

    protocol.take(world.ledger, LANE, seq, OTHER)
    with pytest.raises(WrongUse, match="was retired"):
        world.process(seq, OTHER, on_step=heard)
    assert world.sweeps.swept == []
    there = elsewhere(world, tmp_path / "final", kind())
    assert there.process(there.pin()).seq == 3
    assert there.sweeps.swept == [world.ledger.head(LANE).head.last.attempt.generation]  # type: ignore[union-attr]


# a backup while a lane ends


class Killed(Exception):
    pass


def replay(world: World, run: str) -> Record:
    """A replay of the first ten offsets, whose lane is still open."""
    chosen = world.ledger.store_selection(TEN)
    lane = f"replay-{run}"
    open_lane(world.ledger, lane, LaneKind.REPLAY, run=run, start=positions({AT: 0}), selection=chosen)
    again = protocol.pin(
        world.ledger, world.sweeps, lane, lambda head: structs.replace(plan(head), selection=chosen, run=run)
    )
    assert again is not None
    return protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, 1, protocol.Run(run, "v1", "d"))


def half_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lane whose process dies between closing the head and releasing the claim."""

    def dies(*_: object) -> None:
        raise Killed

    lane = replay(world, "r").lane
    with monkeypatch.context() as patched:
        patched.setattr("tidemark.ledger.register._release", dies)
        with pytest.raises(Killed):
            close_lane(world.ledger, lane)
    return lane


@pytest.mark.covers("N13")
@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lane_that_was_being_closed_is_closed_in_the_restored_ledger(
    kind: type[MemoryStore], to: type[MemoryStore], final: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(kind())
    world.one_window()
    lane = half_closed(world, monkeypatch)
    if final:
        retire(world.ledger, "moved")
    back_up(world.ledger, tmp_path / "backup")
    there = elsewhere(world, tmp_path / "backup", to())
    register = there.ledger.register()
    assert register is not None
    assert (list(register[1].lanes), register[1].closed) == ([LANE], 1)
    assert there.process(there.pin()).seq == 2
    # Its claim is free, and closing it once more changes nothing.
    close_lane(there.ledger, lane)
    assert replay(there, "another").seq == 1
    assert verify(there.ledger) == []


class BetweenReads(TransactionalStore):
    """Calls `meanwhile` before the heads are read for a backup."""

    meanwhile: tuple[Callable[[], object], ...] = ()

    def scan(self, prefix: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bytes]]:
        if prefix == ("head",) and self.meanwhile:
            (meanwhile,), self.meanwhile = self.meanwhile, ()
            meanwhile()
        return super().scan(prefix)


@pytest.mark.covers("N13")
def test_a_replay_that_ends_beside_a_backup_stops_no_restored_ledger(tmp_path: Path) -> None:
    """Nobody dies: the register is read before its lane closes, and the head after."""
    store = BetweenReads()
    world = World(store)
    world.one_window()
    lane = replay(world, "r").lane
    store.meanwhile = (lambda: close_lane(world.ledger, lane),)
    back_up(world.ledger, tmp_path / "backup")
    there = elsewhere(world, tmp_path / "backup", TransactionalStore())
    assert there.process(there.pin()).seq == 2
    assert verify(there.ledger) == []


@pytest.mark.covers("N13")
def test_a_late_mark_of_an_older_window_keeps_no_lane_half_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was paused before it marked the lane's first window as settled wakes when the lane is being closed."""
    world = World(TransactionalStore())
    world.one_window()
    lane = half_closed(world, monkeypatch)
    world.store.put(("settled", lane), b"0000000000000000000")
    assert world.process(world.pin()).seq == 2
    register = world.ledger.register()
    assert register is not None
    assert list(register[1].lanes) == [LANE]
