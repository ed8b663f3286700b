"""What an attempt is told that was paused, lost its answer, or meets another one; on a ledger of either kind, in memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest

from tests.support.memory import LOST_APPLIED, LOST_NOT_APPLIED, MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, LANE, OTHER, RUN, NoWork, World, hold, plan
from tests.support.protocol_world import _no_pause as _no_pause
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, HeldWindow, Listener, Step
from tidemark.errors import AlreadyCommitted, Fenced, HeldByAnother, LaneClosed, LedgerContradiction, StaleLedger
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import AUDITS, LAST_AUDIT, REGISTER, Ledger
from tidemark.ledger.records import Attempt, Heartbeat, LaneKind, Record, positions
from tidemark.ledger.register import close_lane, open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet


@pytest.fixture(params=[MemoryStore, TransactionalStore])
def world(request: pytest.FixtureRequest) -> World:
    made = World(request.param())
    made.open()
    return made


def beat(world: World, taken: HeldWindow) -> None:
    world.ledger.beat(
        LANE, Heartbeat(generation=taken.attempt.generation, run=taken.attempt.run, at=world.now, step="read")
    )


def commit(world: World, taken: HeldWindow) -> Record:
    return protocol.commit(world.ledger, taken, NoWork().verify())


@pytest.mark.covers("A46", "E40")
@pytest.mark.parametrize("later", [0, 1, 2, 5])
def test_an_attempt_that_wakes_after_others_have_committed_is_told_by_whom(world: World, later: int) -> None:
    """However many windows were committed meanwhile, it never hears that its own one was."""
    seq = world.pin()
    late = protocol.take(world.ledger, LANE, seq, RUN)
    world.now += protocol.LEASE_MS
    winner = world.process(seq, OTHER)
    for _ in range(later):
        world.process(world.pin(), OTHER)
    by = rf"window 1 .* was committed by run run 2 \(generation {winner.attempt.generation}\)"
    with pytest.raises(Fenced, match=by):
        commit(world, late)
    assert world.head.seq == 1 + later


def lose(world: World, fault: str, others: Callable[[], None]) -> None:
    """The next write is lost as `fault` says, and `others` go on before the attempt writes again."""
    writes: list[object] = []

    def before(key: object) -> None:
        writes.append(key)
        if len(writes) == 2:
            world.store.faults = []
            world.store.before_swap = lambda key: None
            others()

    world.store.faults = [fault]
    world.store.before_swap = before


@pytest.mark.covers("F2")
def test_a_commit_whose_answer_was_lost_is_known_again_after_later_windows(world: World) -> None:
    """The commit was applied and its answer lost; before the attempt asks again, others have committed the next window."""
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)

    def others() -> None:
        protocol.settle(world.ledger, world.sweeps, LANE)
        world.process(world.pin(), OTHER)

    lose(world, LOST_APPLIED, others)
    record = commit(world, taken)
    assert (record.seq, record.attempt) == (1, taken.attempt)
    assert world.head.seq == 2


@pytest.mark.covers("F2")
def test_a_commit_that_was_lost_on_the_way_is_not_known_again(world: World) -> None:
    """As above, but the write never arrived, and another attempt has committed the same window."""
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)

    def others() -> None:
        world.now += protocol.LEASE_MS
        world.process(1, OTHER)
        world.process(world.pin(), OTHER)

    lose(world, LOST_NOT_APPLIED, others)
    with pytest.raises(Fenced, match="was committed by run run 2"):
        commit(world, taken)


@pytest.mark.covers("A39")
def test_a_holder_that_beats_keeps_its_window_beyond_the_lease(world: World) -> None:
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    for _ in range(3):
        world.now += protocol.LEASE_MS - 1
        with pytest.raises(HeldByAnother, match="gave a sign of life 30 s ago"):
            protocol.take(world.ledger, LANE, 1, OTHER)
        beat(world, taken)
    world.now += protocol.LEASE_MS
    assert protocol.take(world.ledger, LANE, 1, OTHER).attempt.run == "run 2"


@pytest.mark.covers("A39")
def test_an_older_attempts_heartbeat_says_nothing_of_the_holder(world: World) -> None:
    first = protocol.take(world.ledger, LANE, world.pin(), RUN)
    beat(world, first)
    world.now += 2 * protocol.LEASE_MS
    protocol.take(world.ledger, LANE, 1, RUN)
    world.now += 1_000
    with pytest.raises(HeldByAnother, match="gave a sign of life 1 s ago"):
        protocol.take(world.ledger, LANE, 1, OTHER)


@pytest.mark.covers("A39")
def test_a_clock_behind_the_holders_is_no_reason_to_take_over(world: World) -> None:
    protocol.take(world.ledger, LANE, world.pin(), RUN)
    world.now -= 5_000
    with pytest.raises(HeldByAnother, match="gave a sign of life 0 s ago"):
        protocol.take(world.ledger, LANE, 1, OTHER)


@pytest.mark.parametrize("equal", [False, True])
def test_a_register_that_was_put_back_is_found_out_before_a_generation_is_drawn_twice(
    world: World, equal: bool
) -> None:
    world.pin()
    before = world.store.values[REGISTER]
    first = protocol.take(world.ledger, LANE, 1, RUN)
    if not equal:
        world.now += 50_000
        protocol.take(world.ledger, LANE, 1, RUN)
    world.store.values[REGISTER] = before
    world.now = first.attempt.taken_at
    with pytest.raises(LedgerContradiction, match="the register was put back to an older state"):
        protocol.take(world.ledger, LANE, 1, RUN)


@pytest.mark.parametrize("seq", [2, 7])
def test_a_window_that_was_never_pinned_cannot_be_taken(world: World, seq: int) -> None:
    world.pin()
    with pytest.raises(StaleLedger, match=f"window {seq} of s/ingest is no longer pending"):
        protocol.take(world.ledger, LANE, seq, RUN)


@pytest.mark.covers("A42")
def test_a_window_that_is_being_settled_is_committed_already(world: World) -> None:
    """The commit is there, and what follows from it is not: a retry is told who has committed."""
    commit(world, protocol.take(world.ledger, LANE, world.pin(), OTHER))
    with pytest.raises(AlreadyCommitted, match="window 1 of s/ingest is already committed, by run run 2"):
        protocol.take(world.ledger, LANE, 1, RUN)


def test_a_lane_that_was_closed_takes_no_window(world: World) -> None:
    world.process(world.pin())
    selection = world.ledger.store_selection(RangeSet([OffsetRange(AT, 0, 10)]))
    start = positions({AT: 0})
    open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=start, selection=selection, reason="a test")
    close_lane(world.ledger, "replay-1", because="not needed")
    with pytest.raises(LaneClosed, match="s/replay-1 was closed before it was done: not needed"):
        protocol.take(world.ledger, "replay-1", 1, RUN)
    with pytest.raises(LaneClosed, match="s has no open lane replay-1"):
        protocol.pin(world.ledger, world.sweeps, "replay-1", plan)


class Watched:
    """A fence that says when it was looked at, and raises from the `held` + 1st look on."""

    def __init__(self, log: list[str], held: int = 99) -> None:
        self.log = log
        self.held = held

    def check(self) -> None:
        self.log.append("fence")
        self.held -= 1
        if self.held < 0:
            raise Fenced("a newer attempt holds the window")


class Noted(NoWork):
    """Work that says what it was given."""

    def __init__(self, world: World) -> None:
        self.log: list[str] = []
        self.fence = Watched(self.log)
        self.world = world

    def read(self, window: object, covers: object, attempt: object, fence: Fence) -> None:
        assert fence is self.fence
        self.log.append(f"read {covers!r}")

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        assert fence is self.fence
        self.log.append(f"store {attempt.run} at {self.world.head.seq}")
        on_step(Step.SINK_STORED)

    def hold(self, taken: HeldWindow) -> AbstractContextManager[Fence]:
        assert taken.pending.window.seq
        return nullcontext(self.fence)


@pytest.mark.covers("F5")
def test_an_attempt_that_was_fenced_while_it_read_writes_nothing(world: World) -> None:
    work = Noted(world)
    work.fence.held = 0
    world.pin()
    with pytest.raises(Fenced):
        protocol.process(world.ledger, world.sweeps, work, work.hold, LANE, 1, RUN)
    assert work.log == ["read RangeSet(logs/0@0-10)", "fence"]
    assert world.head.seq == 0


def test_the_steps_of_a_window_in_their_order(world: World) -> None:
    heard: list[str] = []
    work = Noted(world)
    protocol.pin(world.ledger, world.sweeps, LANE, plan, heard.append)
    # Taken by another run before, so that a sweep is owed.
    protocol.take(world.ledger, LANE, 1, OTHER)
    record = protocol.process(
        world.ledger, world.sweeps, work, work.hold, LANE, 1, RUN, take_over=True, on_step=heard.append
    )
    assert work.log == ["read RangeSet(logs/0@0-10)", "fence", "store run 1 at 0"]
    assert [str(step) for step in heard] == [
        "pinned",
        "taken",
        "read",
        "sink stored",
        "verified",
        "committed",
        "offsets published",
        "swept",
        "settled",
    ]
    assert world.head.last == record
    attempt = record.attempt
    assert (attempt.run, attempt.code_version, attempt.stream_digest) == ("run 1", "v1", "digest")
    assert record.receipt == NoWork().verify()


def test_a_take_in_doubt_is_known_again(world: World) -> None:
    """Whether its answer was lost before or after, the attempt that `take` gives is the one in the head."""
    for fault in (LOST_APPLIED, LOST_NOT_APPLIED):
        world.pin()
        world.store.faults = ["", fault]
        taken = protocol.take(world.ledger, LANE, 1, RUN)
        assert world.head.pending is not None
        assert world.head.pending.attempt == taken.attempt
        assert Ledger(world.store, "s").head(LANE) == taken.stored
    assert commit(world, taken).attempt == taken.attempt


def test_hold_is_asked_for_the_fence(world: World) -> None:
    """`process` holds exactly what it took."""
    held: list[HeldWindow] = []

    def note(taken: HeldWindow) -> AbstractContextManager[Fence]:
        held.append(taken)
        return hold(taken)

    world.pin()
    record = protocol.process(world.ledger, world.sweeps, NoWork(), note, LANE, 1, RUN)
    assert [taken.attempt for taken in held] == [record.attempt]


@pytest.mark.parametrize(
    "stored", [b"", b"garbage", b"\xff\xfe", b"[]", b"7", b'{"format":1}', b"[" * 5_000, b'{"generation":"x","at":[]}']
)
def test_a_damaged_sign_of_life_stops_nobody(world: World, stored: bytes) -> None:
    """It is as good as none: the time of the take counts."""
    world.open()
    seq = world.pin()
    protocol.take(world.ledger, LANE, seq, RUN)
    for key in (("beat", LANE), ("beat", "audit"), LAST_AUDIT, (*AUDITS, "2026-11-26", "1", "x")):
        world.store.values[key] = stored
    assert (world.ledger.last_beat(LANE), world.ledger.last_progress(), world.ledger.last_audit()) == (None, None, None)
    assert world.ledger.newest_audits(5) == []
    world.now += protocol.LEASE_MS - 1
    with pytest.raises(HeldByAnother):
        protocol.take(world.ledger, LANE, seq, OTHER)
    world.now += 1
    assert protocol.take(world.ledger, LANE, seq, OTHER).attempt.run == OTHER.name


def test_a_newer_versions_sign_of_life_is_one(world: World) -> None:
    """It has a field that this version does not know, or another format."""
    world.open()
    seq = world.pin()
    taken = protocol.take(world.ledger, LANE, seq, RUN)
    world.now += 3_600_000
    sign = Heartbeat(generation=taken.attempt.generation, run=RUN.name, at=world.now, step="reading")
    newer = encode(sign).replace(b'"format":1', b'"format":7,"later":{"x":1}')
    world.store.values["beat", LANE] = newer
    assert world.ledger.last_beat(LANE) == sign
    with pytest.raises(HeldByAnother):
        protocol.take(world.ledger, LANE, seq, OTHER)
    world.now += protocol.LEASE_MS
    assert protocol.take(world.ledger, LANE, seq, OTHER).attempt.run == OTHER.name
