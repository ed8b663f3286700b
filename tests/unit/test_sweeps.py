"""Which windows owe a sweep: all whose offsets an earlier attempt may have written at, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import structs

from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, LANE, OTHER, RUN, NoWork, Sweeps, World, hold, plan
from tidemark.commit import protocol
from tidemark.commit.protocol import Planner, Step
from tidemark.errors import LedgerContradiction, StaleLedger, WrongUse
from tidemark.ledger.ledger import StoredHead, record_key
from tidemark.ledger.records import Guarantee, Head, LaneKind, Record, SinkReceipt, Window, positions
from tidemark.ledger.register import open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet


@pytest.fixture(params=[MemoryStore, TransactionalStore])
def world(request: pytest.FixtureRequest) -> World:
    made = World(request.param())
    made.open()
    return made


def next_offsets(number: int) -> Planner:
    def planned(head: Head) -> Window:
        window = plan(head)
        return structs.replace(
            window, ranges=(structs.replace(window.ranges[0], until=window.ranges[0].start + number),)
        )

    return planned


def under(guarantee: Guarantee) -> Planner:
    return lambda head: structs.replace(plan(head), guarantee=guarantee)


def pinned(world: World, planned: Planner, lane: str = LANE) -> int:
    pending = protocol.pin(world.ledger, world.sweeps, lane, planned)
    assert pending is not None
    return pending.window.seq


def given_up(world: World, planned: Planner, *, taken: bool = True) -> None:
    seq = pinned(world, planned)
    if taken:
        protocol.take(world.ledger, LANE, seq, RUN)
    protocol.abandon(world.ledger, LANE, "wrong code", take_over=True)


def replay(world: World, start: int, until: int) -> str:
    selection = world.ledger.store_selection(RangeSet([OffsetRange(AT, start, until)]))
    lane = "replay-1"
    first = positions({AT: start})
    open_lane(world.ledger, lane, LaneKind.REPLAY, run="r", start=first, selection=selection, reason="a test")
    return lane


@pytest.mark.parametrize(("first", "second", "owing"), [(10, 3, 4), (3, 10, 4), (3, 9, 3), (10, 0, 4)])
def test_every_window_is_swept_that_begins_below_what_any_abandoned_one_reached(
    world: World, first: int, second: int, owing: int
) -> None:
    """Two windows are given up, one after the other; then three offsets at a time are read again."""
    given_up(world, next_offsets(first))
    if second:
        given_up(world, next_offsets(second))
    for number in range(1, 6):
        record = world.process(pinned(world, next_offsets(3)))
        assert record.owes_sweep == (number <= owing), number
    assert len(world.sweeps.swept) == owing
    assert world.head.abandoned is not None
    assert world.head.abandoned.count == (2 if second else 1)


def test_a_window_that_nobody_has_taken_is_given_up_as_well(world: World) -> None:
    given_up(world, plan, taken=False)
    assert world.head.abandoned is not None
    assert world.head.abandoned.generation is None
    assert protocol.abandon(world.ledger, LANE, "again", take_over=True) is None
    assert world.head.abandoned.count == 1


def test_abandon_gives_the_window_that_it_gave_up(world: World) -> None:
    seq = world.pin()
    pending = world.head.pending
    assert pending is not None
    window = protocol.abandon(world.ledger, LANE, "wrong code", take_over=True)
    assert window == pending.window
    assert (seq, world.head.seq) == (1, 0)


def test_a_reason_has_a_length_that_the_head_can_keep(world: World) -> None:
    world.pin()
    with pytest.raises(WrongUse, match="the reason has 501 characters; 500 is the most"):
        protocol.abandon(world.ledger, LANE, "r" * 501, take_over=True)
    assert world.head.pending is not None
    protocol.abandon(world.ledger, LANE, "r" * 500, take_over=True)
    assert world.head.pending is None


def test_a_take_by_itself_owes_nothing_and_the_second_one_does(world: World) -> None:
    assert not world.process(world.pin()).owes_sweep
    seq = world.pin()
    protocol.take(world.ledger, LANE, seq, RUN)
    assert world.process(seq).owes_sweep


def test_what_is_swept_is_what_the_window_covers_and_only_after_the_commit(world: World) -> None:
    swept: list[tuple[int, RangeSet, bool]] = []

    class Watching(Sweeps):
        def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
            swept.append((world.head.seq, covers, world.ledger.is_settled(record)))

    protocol.take(world.ledger, LANE, world.pin(), OTHER)
    steps: list[Step] = []
    protocol.process(world.ledger, Watching(), NoWork(), hold, LANE, 1, RUN, take_over=True, on_step=steps.append)
    assert swept == [(1, RangeSet([OffsetRange(AT, 0, 10)]), False)]
    assert steps[-3:] == [Step.PUBLISHED, Step.SWEPT, Step.SETTLED]


class Cut(BaseException):
    """A crash: nothing catches it."""


def test_a_sweep_that_was_cut_short_is_done_again_before_the_next_window(world: World) -> None:
    class Dying(Sweeps):
        def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
            raise Cut

    protocol.take(world.ledger, LANE, world.pin(), RUN)
    with pytest.raises(Cut):
        protocol.process(world.ledger, Dying(), NoWork(), hold, LANE, 1, RUN)
    assert world.head.seq == 1
    assert world.sweeps.swept == []
    assert world.pin() == 2
    assert len(world.sweeps.swept) == 1


def test_a_replay_always_sweeps_and_publishes_nothing(world: World) -> None:
    """Its offsets are lower than the ingest's; other tools go by those of the ingest alone."""
    world.process(world.pin())
    world.process(world.pin())
    published = list(world.store.published)
    lane = replay(world, 0, 10)
    steps: list[Step] = []
    seq = pinned(world, plan, lane)
    record = protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, seq, RUN, on_step=steps.append)
    assert record.owes_sweep
    assert world.sweeps.swept == [record.attempt.generation]
    assert world.store.published == published
    assert Step.PUBLISHED not in steps
    if isinstance(world.store, TransactionalStore):
        assert world.store.shown == [{"logs": {0: 10}}, {"logs": {0: 20}}, None]


@pytest.mark.covers("G4", "E37")
def test_at_most_once_commits_before_it_reads_and_sweeps_nothing(world: World) -> None:
    """Whoever took the window before has not written; and what is written now is nobody's to remove."""
    order: list[str] = []

    class LateMessages(NoWork):
        def read(self, window: Window, covers: RangeSet, attempt: object, fence: object) -> None:
            order.append(f"read at {world.head.seq}")

    protocol.take(world.ledger, LANE, pinned(world, under(Guarantee.AT_MAX_ONCE)), RUN)
    record = protocol.process(
        world.ledger, world.sweeps, LateMessages(), hold, LANE, 1, RUN, on_step=lambda step: order.append(str(step))
    )
    committed = ["taken", "committed", "offsets published", "settled"]
    assert order == [*committed, "read at 1", "read", "verified"]
    assert world.sweeps.swept == []
    assert record.receipt == NoWork().verify()
    # In the head it has none; the look-ups find the one that was stored behind it.
    assert world.head.last is not None
    assert world.head.last.receipt is None
    assert [one.record for one in world.ledger.committed()] == [record]
    assert world.ledger.newest_records(LANE, 5) == [record]


@pytest.mark.covers("G4")
def test_at_most_once_leaves_a_window_unproven_when_it_dies_behind_the_commit(world: World) -> None:
    class Dying(NoWork):
        def read(self, window: Window, covers: RangeSet, attempt: object, fence: object) -> None:
            raise Cut

    seq = pinned(world, under(Guarantee.AT_MAX_ONCE))
    with pytest.raises(Cut):
        protocol.process(world.ledger, world.sweeps, Dying(), hold, LANE, seq, RUN)
    assert [(one.record.receipt, one.record.tallies, one.record.places) for one in world.ledger.committed()] == [
        (None, (), ())
    ]
    # It is not read again by itself.
    assert pinned(world, plan) == 2
    assert world.head.offsets() == {AT: 10}


@pytest.mark.covers("G4")
def test_without_positions_nothing_moves_and_every_window_may_write_again(world: World) -> None:
    for number in (1, 2, 3):
        record = world.process(pinned(world, under(Guarantee.NONE)))
        assert record.owes_sweep
        assert world.head.offsets() == {AT: 0}
        assert world.head.unpositioned == number
    # From the first window that keeps positions on, they say which window has read what.
    world.process(pinned(world, plan))
    assert (world.head.unpositioned, world.head.seq) == (3, 4)
    assert world.head.offsets() == {AT: 10}


def test_a_commit_needs_a_pending_window(world: World) -> None:
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    empty = structs.replace(taken.stored.head, pending=None)
    without = protocol.HeldWindow(StoredHead(taken.stored.bytes, empty), taken.pending, taken.attempt)
    with pytest.raises(LedgerContradiction, match="s/ingest has no pending window to commit"):
        protocol.commit(world.ledger, without, NoWork().verify())


def test_a_window_is_not_pinned_behind_one_that_is_not_in_the_history(world: World) -> None:
    """The head was settled, and its record is gone when its digest is wanted."""
    world.process(world.pin())
    key = record_key(LANE, 1)
    record = world.store.values[key]

    def lose(head: Head) -> Window:
        del world.store.values[key]
        return plan(head)

    with pytest.raises(StaleLedger, match="window 1 of s/ingest is not settled"):
        protocol.pin(world.ledger, world.sweeps, LANE, lose)
    world.store.values[key] = record
    assert world.pin() == 2
