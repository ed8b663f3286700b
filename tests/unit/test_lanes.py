"""Lanes that are half opened or half closed: whoever meets one finishes it, and no claim is kept for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.support.claiming import claim_lane
from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, RUN, NoWork, World, hold, plan
from tests.support.streams_in_memory import StreamInMemory, offsets
from tidemark.clients.kafka.topics import TopicLog
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import (
    AuthenticationFailed,
    ClaimOverlap,
    Conflict,
    ConnectionMissing,
    LaneClosed,
    LedgerContradiction,
    LogTruncated,
    NotAuthorized,
    OffsetsOutOfRange,
    TopicGone,
    TopicRecreated,
    TopicUnknown,
    WrongUse,
)
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import Ledger, StoredHead
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import Gap, GapKind, Head, LaneKind, LaneState, Window, positions
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import close_lane, open_lane
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import selecting
from tidemark.runs.requests.forms import ReplayRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import ingest, lanes

NAME = "replay-x"
TEN = RangeSet([OffsetRange(AT, 0, 10)])


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)


class Killed(BaseException):
    """The process dies."""


@pytest.fixture(params=[MemoryStore, TransactionalStore])
def world(request: pytest.FixtureRequest) -> World:
    """A stream whose ingest has committed [0, 10)."""
    made = World()
    made.store = request.param()
    made.ledger = Ledger(made.store, "s", clock=lambda: made.now)
    made.one_window()
    return made


def open_replay(world: World, lane: str = NAME, chosen: RangeSet = TEN) -> StoredHead:
    ref = world.ledger.store_selection(chosen)
    start = positions({AT: next(iter(chosen)).start})
    return open_lane(world.ledger, lane, LaneKind.REPLAY, run="r", start=start, selection=ref, reason="a test")


def as_opened(world: World) -> OpenStream:
    """As much of an open stream as opening, closing and looking back use."""
    return cast(OpenStream, SimpleNamespace(ledger=world.ledger, sweeper=world.sweeps))


def work_off(world: World, lane: str = NAME) -> None:
    register = world.ledger.register()
    assert register is not None
    ref = register[1].lanes[lane].selection
    pending = protocol.pin(world.ledger, world.sweeps, lane, lambda head: structs.replace(plan(head), selection=ref))
    assert pending is not None
    protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, pending.window.seq, RUN)


def killed_at(world: World, number: int, work: Callable[[], Any]) -> bool:
    """Whether the process died at its write of this number, before it was applied; else the work is done."""
    left = [number]

    def before(key: Key) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Killed

    world.store.before_swap = before
    try:
        work()
    except Killed:
        return True
    finally:
        world.store.before_swap = lambda key: None
    return False


def cuts(world: World, work: Callable[[], Any]) -> Iterator[int]:
    """Each number of a write at which the work can be cut, the world being as before each time."""
    before = dict(world.store.values)
    for number in range(20):
        world.store.values = dict(before)
        if not killed_at(world, number, work):
            assert number > 1, "the work has more than one write, or nothing was cut"
            return
        yield number


def state(world: World, lane: str = NAME) -> LaneState | None:
    found = world.ledger.register()
    assert found is not None
    entry = found[1].lanes.get(lane)
    return entry.state if entry else None


@pytest.mark.covers("E38")
@pytest.mark.parametrize("meets", ["ingest", "lane", "opening", "closing"])
def test_whoever_meets_a_lane_that_is_half_opened_goes_on(world: World, meets: str) -> None:
    for _ in cuts(world, lambda: open_replay(world)):
        if state(world) is None:
            continue
        assert verify(world.ledger) == []
        assert look_up(world.ledger, Coordinate(AT, 3)).generation is not None
        if meets == "ingest":
            world.process(world.pin())
            assert state(world) == LaneState.OPEN
        elif meets == "closing":
            close_lane(world.ledger, NAME, because="nobody goes on")
            open_replay(world, "replay-y")
            continue
        elif meets == "opening":
            open_replay(world)
        work_off(world)
        lanes.finish(as_opened(world), NAME)
        open_replay(world, "replay-y")
        assert verify(world.ledger) == []


@pytest.mark.covers("E38")
def test_an_ingest_pins_while_a_lane_is_opened(world: World) -> None:
    """Without any crash: right before each write of the one that opens."""
    before = dict(world.store.values)
    for number in range(3):
        world.store.values = dict(before)
        left = [number]
        pinned = []

        def meanwhile(key: Key, left: list[int] = left, pinned: list[int] = pinned) -> None:
            left[0] -= 1
            if left[0] == -1:
                pinned.append(world.pin())

        world.store.before_swap = meanwhile
        open_replay(world)
        world.store.before_swap = lambda key: None
        assert pinned == [2]
        assert state(world) == LaneState.OPEN
        work_off(world)


def test_a_lane_is_closed_from_wherever_closing_has_stopped(world: World) -> None:
    open_replay(world)
    work_off(world)
    for _ in cuts(world, lambda: lanes.finish(as_opened(world), NAME)):
        lanes.finish(as_opened(world), NAME)
        assert lanes.is_done(as_opened(world), NAME)
        open_replay(world, "replay-y")


@pytest.mark.parametrize("meets", ["ingest", "another replay"])
def test_whoever_meets_a_lane_that_is_half_closed_frees_its_claim(world: World, meets: str) -> None:
    open_replay(world)
    work_off(world)
    for _ in cuts(world, lambda: close_lane(world.ledger, NAME)):
        found = world.ledger.head(NAME)
        assert found is not None
        closed = found.head.state == LaneState.CLOSED
        if meets == "ingest":
            world.process(world.pin())
            assert (state(world) in (None, LaneState.CLOSED)) == closed
        if closed:
            open_replay(world, "replay-y")
        else:
            with pytest.raises(ClaimOverlap, match="tidemark cancel s replay-x --reason"):
                open_replay(world, "replay-y")


def test_a_lane_that_was_half_opened_and_worked_off_is_closed(world: World) -> None:
    """Killed after the head was made, before the register says that the lane is open."""
    assert killed_at(world, 2, lambda: open_replay(world))
    assert state(world) == LaneState.OPENING
    work_off(world)
    lanes.finish(as_opened(world), NAME)
    open_replay(world, "replay-y")


def test_what_is_done_is_opened_again_as_it_is(world: World) -> None:
    open_replay(world)
    work_off(world)
    close_lane(world.ledger, NAME)
    written = dict(world.store.values)
    assert open_replay(world).head.state == LaneState.CLOSED
    assert world.store.values == written
    with pytest.raises(LaneClosed, match="used once"):
        open_replay(world, chosen=RangeSet([OffsetRange(AT, 0, 5)]))
    del world.store.values["head", NAME]
    with pytest.raises(LedgerContradiction, match="the head of s/replay-x is missing"):
        protocol.settle(world.ledger, world.sweeps, NAME)


@pytest.mark.parametrize("ledger", [None, "before the first run"])
def test_a_lane_that_never_was_is_no_damage(world: World, ledger: str | None) -> None:
    """To give up its window, to settle it and to close it, before the first run too."""
    asked = world.ledger if ledger is None else Ledger(MemoryStore(), "s")
    for lane in (NAME, "ingest") if ledger else (NAME,):
        for what in (
            lambda lane=lane: protocol.abandon(asked, lane, "a test", take_over=True),
            lambda lane=lane: protocol.settle(asked, world.sweeps, lane),
        ):
            with pytest.raises(WrongUse, match=f"s has no lane {lane}"):
                what()
    with pytest.raises(WrongUse, match=f"s has no lane {NAME}"):
        close_lane(asked, NAME)


def test_closing_says_what_has_to_be_done_before(world: World) -> None:
    with pytest.raises(WrongUse, match="never closed"):
        close_lane(world.ledger, "ingest")
    with pytest.raises(WrongUse, match="has no lane replay-x"):
        close_lane(world.ledger, NAME)
    open_replay(world)
    assert protocol.pin(world.ledger, world.sweeps, NAME, plan) is not None
    with pytest.raises(Conflict, match=r"window 1 pending.*tidemark ledger abandon s replay-x"):
        close_lane(world.ledger, NAME)
    taken = protocol.take(world.ledger, NAME, 1, RUN)
    protocol.commit(world.ledger, taken, NoWork().verify())
    with pytest.raises(Conflict, match="committed and not settled yet"):
        close_lane(world.ledger, NAME)
    world.pin()
    close_lane(world.ledger, NAME, because="enough")
    close_lane(world.ledger, NAME, because="enough")
    found = world.ledger.head(NAME)
    assert found is not None
    assert found.head.closed_early == "enough"


def test_a_lane_that_was_given_up_is_not_taken_for_done(world: World) -> None:
    open_replay(world)
    close_lane(world.ledger, NAME, because="asked for the wrong hour")
    for again in (lambda: open_replay(world), lambda: lanes.is_done(as_opened(world), NAME)):
        with pytest.raises(LaneClosed, match="closed before it was done: asked for the wrong hour"):
            again()
    open_replay(world, "replay-y")


class NoLongerThere:
    """A Kafka log whose topics cannot be planned."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem

    def topics(self, names: object, isolation: str) -> Any:
        raise self.problem


def stream_over(world: World, problem: Exception) -> OpenStream:
    source = SimpleNamespace(isolation="read_committed", by_topic={}, **dict.fromkeys(POLICIES, "fail"))
    limits = SimpleNamespace(max_records=None, max_records_per_second=None, max_bytes=None, max_behind=None)
    stream = SimpleNamespace(source=source, limits=limits, sinks=(), guarantee="at_least_once")
    return cast(
        OpenStream,
        SimpleNamespace(ledger=world.ledger, sweeper=world.sweeps, stream=stream, log=NoLongerThere(problem)),
    )


POLICIES = ("on_out_of_range", "on_recreated", "on_truncated", "on_deleted")


def log_starts_later(made: StreamInMemory) -> None:
    made.ends((7, 50))


def topic_is_deleted(made: StreamInMemory) -> None:
    del made.kafka.logs["orders"]


def topic_is_recreated(made: StreamInMemory) -> None:
    made.kafka.ids["orders"] = "another"


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """The ingest has read 50 offsets."""
    stream = StreamInMemory(tmp_path)
    stream.ends((0, 50))
    stream.ingest()
    return stream


@pytest.mark.parametrize(
    ("gone", "problem"),
    [
        (log_starts_later, OffsetsOutOfRange),
        (topic_is_deleted, TopicGone),
        (topic_is_recreated, TopicRecreated),
    ],
)
def test_a_replay_that_can_never_be_planned_gives_its_claim_back(
    made: StreamInMemory, gone: Callable[[StreamInMemory], None], problem: type[Exception]
) -> None:
    lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 9)), "bug")
    gone(made)
    with pytest.raises(problem, match=f"what {lane} had claimed is free again"):
        lanes.plan_lane(made.opened, lane, "r")
    with pytest.raises(LaneClosed, match=problem.__name__):
        lanes.plan_lane(made.opened, lane, "r")
    claim_lane(made.opened, LaneKind.REPLAY, "s", offsets((0, 5, 9)), "bug")


@pytest.mark.parametrize(
    "problem", [AuthenticationFailed("expired"), NotAuthorized("no right"), TopicUnknown("not there yet")]
)
def test_what_kafka_refuses_for_a_while_closes_no_lane(made: StreamInMemory, problem: Exception) -> None:
    lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 9)), "bug")

    def refused(*_: object) -> Any:
        raise problem

    made.kafka.topics = refused  # type: ignore[method-assign]
    with pytest.raises(type(problem), match=f"What {lane} has not read stays claimed. To free it: tidemark cancel"):
        lanes.plan_lane(made.opened, lane, "r")
    del made.kafka.topics
    assert lanes.plan_lane(made.opened, lane, "r") is not None


def test_an_older_end_from_a_new_leader_closes_no_lane(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA-7703: asked again, the leader gives the end that was read."""
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)
    lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 40, 50)), "bug")
    topics, asked = made.kafka.topics, []

    def stale(names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        asked.append(isolation)
        made.ends((0, 45 if len(asked) == 1 else 50))
        return topics(names, isolation)

    monkeypatch.setattr(made.kafka, "topics", stale)
    pending = lanes.plan_lane(made.opened, lane, "r")
    assert pending is not None
    assert made.opened.ledger.reads(pending.window) == offsets((0, 40, 50))
    # A log that was cut has that end whenever it is asked.
    asked.clear()
    other = claim_lane(made.opened, LaneKind.REPLAY, "s", offsets((0, 30, 40)), "bug")
    monkeypatch.setattr(made.kafka, "topics", topics)
    made.ends((0, 35))
    with pytest.raises(LogTruncated, match=f"what {other} had claimed is free again"):
        lanes.plan_lane(made.opened, other, "s")


@pytest.mark.covers("E30")
def test_an_older_end_from_a_new_leader_is_no_end_for_anybody(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay since a time names what lies above it too, and an erasure by key looks for its messages there."""
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)
    topics, old = made.kafka.topics, list[bool]()

    def stale(names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        made.ends((0, 45 if old else 50))
        old.clear()
        return topics(names, isolation)

    monkeypatch.setattr(made.kafka, "topics", stale)
    looks: list[Callable[[], RangeSet]] = [
        lambda: (
            plan_request(made.opened, ReplayRequest(since="1970-01-01T00:00:40Z", reason="bug", dry_run=True)).ranges
        ),
        lambda: selecting.everything_from_the_start(made.opened),
        lambda: kafka_now.held_now(made.opened, ("orders",)),
    ]
    for look in looks:
        there = look()
        old.append(True)
        assert look() == there != RangeSet()
    assert not old


def test_what_another_lane_has_left_to_do_closes_no_lane(made: StreamInMemory) -> None:
    """This program lacks a connection that the settling of the other lane's last window needs."""
    other = claim_lane(made.opened, LaneKind.REPLAY, "other", offsets((0, 20, 30)), "bug")
    assert lanes.plan_lane(made.opened, other, "other") is not None
    ledger = made.opened.ledger
    protocol.commit(ledger, protocol.take(ledger, other, 1, Run("other", "v1", "d")), NoWork().verify())
    lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 9)), "bug")
    sweep = made.sweeps.sweep

    def missing(*_: object) -> None:
        raise ConnectionMissing("old_hbase")

    made.sweeps.sweep = missing  # type: ignore[method-assign]
    with pytest.raises(ConnectionMissing):
        lanes.plan_lane(made.opened, lane, "r")
    made.sweeps.sweep = sweep  # type: ignore[method-assign]
    assert lanes.plan_lane(made.opened, lane, "r") is not None


def test_a_sink_that_the_stream_file_lacks_for_a_while_closes_no_lane(made: StreamInMemory) -> None:
    lane = claim_lane(made.opened, LaneKind.REPLAY, "r", offsets((0, 5, 9)), "bug", sinks=("hbase",))
    without = made.opened.stream.model_copy(update={"sinks": ()})
    other = replace(made.opened, file=replace(made.opened.file, stream=without))
    with pytest.raises(WrongUse, match="has no sink hbase"):
        lanes.plan_lane(other, lane, "r")
    assert lanes.plan_lane(made.opened, lane, "r") is not None


def test_a_replay_that_is_half_read_keeps_its_claim_and_says_how_to_free_it(world: World) -> None:
    world.process(world.pin())
    open_replay(world, chosen=RangeSet([OffsetRange(AT, 0, 20)]))
    work_off(world)
    with pytest.raises(OffsetsOutOfRange, match="tidemark cancel s replay-x --reason"):
        lanes.plan_lane(stream_over(world, OffsetsOutOfRange("gone.")), NAME, "r")
    assert state(world) == LaneState.OPEN
    close_lane(world.ledger, NAME, because="gone for good")
    open_replay(world, "replay-y")


def test_what_may_succeed_later_keeps_its_claim(world: World) -> None:
    open_replay(world)
    with pytest.raises(Conflict):
        lanes.plan_lane(stream_over(world, Conflict("held")), NAME, "r")
    assert state(world) == LaneState.OPEN


def test_a_run_goes_no_further_than_to_the_end_that_it_saw(world: World) -> None:
    """Its job has committed, and is asked for again; another run's window is pending by then."""

    def window(head: Head) -> Window:
        return structs.replace(plan(head), run="run 1", goal=positions({AT: head.offsets()[AT] + 10}))

    seq = protocol.pin(world.ledger, world.sweeps, "ingest", window)
    assert seq is not None
    world.process(seq.window.seq)
    assert world.pin() == 3
    opened = stream_over(world, AssertionError("nothing is to be planned"))
    assert [one.seq for one in lanes.committed_before(opened, "ingest", RUN.name)] == [1, 2]
    assert ingest.plan_ingest(opened, RUN.name, again=True) is None
    assert ingest.next_window(opened, "ingest", RUN.name, seq.window.goal) is None
    further = positions({AT: 21})
    pending = ingest.next_window(opened, "ingest", RUN.name, further)
    assert pending is not None
    assert pending.window.seq == 3


def test_a_lane_with_windows_and_no_head_is_not_begun_anew(world: World) -> None:
    open_replay(world)
    work_off(world)
    lanes.finish(as_opened(world), NAME)
    del world.store.values["head", NAME]
    with pytest.raises(LedgerContradiction, match="has committed windows and no head"):
        open_replay(world)


def test_a_lane_whose_head_changes_while_it_is_closed_is_closed(world: World) -> None:
    open_replay(world)
    changed: list[Key] = []

    def before(key: Key) -> None:
        if key == ("head", NAME) and not changed:
            changed.append(key)
            found = world.ledger.head(NAME)
            assert found is not None
            world.store.values[key] = encode(structs.replace(found.head, token="another"))

    world.store.before_swap = before
    close_lane(world.ledger, NAME, because="a test")
    assert changed
    assert state(world) is None
    assert all_lanes(world.ledger)[NAME].closed_early == "a test"


@pytest.mark.parametrize(("number", "said"), [(5, r"28-29: at or above"), (6, r"28-29 and 1 more range: at or above")])
def test_of_many_ranges_five_are_named(world: World, number: int, said: str) -> None:
    chosen = RangeSet(OffsetRange(AT, 20 + 2 * one, 21 + 2 * one) for one in range(number))
    with pytest.raises(ClaimOverlap, match=said):
        open_replay(world, chosen=chosen)


def test_a_lane_that_has_committed_nothing_has_not_changed(world: World) -> None:
    assert World().ledger.view().closed == 0
    open_replay(world)
    view = world.ledger.view()
    assert not world.ledger.changed_since(view)
    work_off(world)
    assert world.ledger.changed_since(view)


def test_a_commit_is_seen_before_the_history_has_it_whatever_other_lanes_are_open(world: World) -> None:
    """The replay has committed nothing, and comes before the ingest or after it."""
    ref = world.ledger.store_selection(TEN)
    for lane in ("aaa", "zzz"):
        before = dict(world.store.values)
        open_lane(
            world.ledger, lane, LaneKind.REPLAY, run="r", start=positions({AT: 0}), selection=ref, reason="a test"
        )
        known = {key: value for key, value in world.store.values.items() if key[0] != "history"}
        world.store.values = {key: known[key] for key in sorted(known)}
        assert [(one.record.lane, one.record.seq) for one in world.ledger.committed()] == [("ingest", 1)]
        world.store.values = before


@pytest.mark.parametrize("what", ["two ranges", "a jump elsewhere"])
def test_a_pending_window_is_over_each_partition_once(world: World, what: str) -> None:
    world.pin()
    head = world.head
    assert head.pending is not None
    window = head.pending.window
    if what == "two ranges":
        wrong = structs.replace(window, ranges=window.ranges * 2)
    else:
        gap = Gap(topic="logs", incarnation=1, partition=1, start=0, until=5, kind=GapKind.LOST, policy="a test")
        wrong = structs.replace(window, gaps=(gap,))
    pending = structs.replace(head.pending, window=wrong)
    world.store.values["head", "ingest"] = encode(structs.replace(head, pending=pending))
    with pytest.raises(LedgerContradiction, match="two ranges of one partition, or jumps in one that it does not read"):
        world.ledger.head("ingest")
