"""The commit protocol with every answer lost, one after the other: a store in memory, and work that does nothing.

The same protocol runs on the real stores, with real work and real kills, in tests/integration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from tests.support.memory import FAULTS
from tests.support.protocol_world import AT, LANE, OTHER, RUN, NoWork, World, hold, plan
from tidemark.commit import protocol
from tidemark.commit.protocol import Step
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
from tidemark.ledger.codec import digest
from tidemark.ledger.ledger import head_key
from tidemark.ledger.records import (
    Head,
    Heartbeat,
    LaneKind,
    Receipt,
    Window,
    positions,
)
from tidemark.ledger.recovery.verifying import verify as verify_ledger
from tidemark.ledger.register import open_lane
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import Key, WriteInDoubt
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import NOTHING, Count, PartitionTally, verify


@pytest.fixture
def world() -> World:
    return World()


def swaps_of_one_window() -> int:
    counted = World()
    counted.one_window()
    return counted.store.swaps


@pytest.mark.slow
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
    assert [(window.record.seq, next(iter(window.covers)).start) for window in world.ledger.committed()] == [
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
        protocol.settle(world.ledger, world.sweeps, LANE)
    assert world.head.seq == 1
    assert world.head.offsets() == {AT: 10}
    assert world.ledger.record(LANE, 1) is not None
    assert len(world.ledger.committed()) == 1


@pytest.mark.covers("G3", "A46")
def test_runs_of_one_name_in_two_airflows_do_not_take_each_others_window(world: World) -> None:
    world.open()
    seq, here, there = world.pin(), replace(RUN, task="a"), replace(RUN, task="b")
    held = protocol.take(world.ledger, LANE, seq, here)
    for other in (there, RUN):
        with pytest.raises(
            HeldByAnother, match="has the name of this one, and another task has begun it, as where two Air"
        ):
            protocol.take(world.ledger, LANE, seq, other)
    again = protocol.take(world.ledger, LANE, seq, here)
    assert again.attempt.generation > held.attempt.generation
    world.now += protocol.LEASE_MS
    assert protocol.take(world.ledger, LANE, seq, there).attempt.task == "b"


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
    old = protocol.take(world.ledger, LANE, seq, RUN)
    new = protocol.take(world.ledger, LANE, seq, RUN)
    assert new.attempt.generation > old.attempt.generation
    with pytest.raises(Fenced, match=f"now held by run run 1 \\(generation {new.attempt.generation}\\)"):
        protocol.commit(world.ledger, old, NoWork().verify())
    protocol.commit(world.ledger, new, NoWork().verify())
    with pytest.raises(Fenced, match=f"was committed by run run 1 \\(generation {new.attempt.generation}\\)"):
        protocol.commit(world.ledger, old, NoWork().verify())
    assert world.head.last is not None
    assert world.head.last.attempt == new.attempt


@pytest.mark.covers("A39", "A46", "E40", "F5")
def test_a_run_that_slept_past_its_lease_is_refused_by_the_head(world: World) -> None:
    """Run 1 has planned at 1 and written; 90 s later run 2 takes over and commits 7; then run 1 tries to commit."""
    open_lane(world.ledger, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 1}))

    def until_7(head: Head) -> Window:
        window = plan(head)
        return structs.replace(window, ranges=(structs.replace(window.ranges[0], until=7),))

    assert protocol.pin(world.ledger, world.sweeps, LANE, until_7) is not None

    def overtake(done: Step) -> None:
        if done == Step.VERIFIED:
            world.now += 90_000
            protocol.commit(world.ledger, protocol.take(world.ledger, LANE, 1, OTHER), NoWork().verify())

    with pytest.raises(Fenced, match="was committed by run run 2") as caught:
        world.process(1, on_step=overtake)
    assert caught.value.exit_code == 3
    assert world.head.offsets() == {AT: 7}
    assert [window.record.attempt.run for window in world.ledger.committed()] == ["run 2"]


ONE = Count.of(1, 5)


@pytest.mark.covers("G1", "E46")
@pytest.mark.parametrize(
    "tally", [{"stored": ONE, "rows": ONE}, {"stored": NOTHING, "invalid": ONE}, {"stored": NOTHING}]
)
def test_a_window_with_a_message_that_nobody_holds_is_not_committed(world: World, tally: dict[str, Any]) -> None:
    class Short(NoWork):
        """Has read a message that neither a sink nor the dead letters acknowledge."""

        def verify(self) -> Receipt:
            verify([PartitionTally(topic="logs", incarnation=1, partition=0, read=ONE, **tally)], {"table": {}}, {})
            return super().verify()

    world.open()
    seq = world.pin()
    with pytest.raises(VerificationFailed):
        protocol.process(world.ledger, world.sweeps, Short(), hold, LANE, seq, RUN)
    assert world.head.offsets() == {AT: 0}
    assert world.ledger.committed() == []


@pytest.mark.covers("E29")
def test_a_partition_that_a_window_does_not_read_keeps_its_position(world: World) -> None:
    idle = TopicPartition("logs", 1)
    open_lane(world.ledger, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 0, idle: 7}))
    world.process(world.pin())
    assert world.head.offsets() == {AT: 10, idle: 7}


@pytest.mark.covers("A39")
def test_another_run_waits_for_the_lease_unless_told_to_take_over(world: World) -> None:
    world.open()
    seq = world.pin()
    first = protocol.take(world.ledger, LANE, seq, RUN)
    world.now += 5_000
    with pytest.raises(HeldByAnother, match="held by run run 1, which gave a sign of life 5 s ago"):
        protocol.take(world.ledger, LANE, seq, OTHER)
    assert world.head.pending is not None
    assert world.head.pending.attempt == first.attempt
    taken_over = protocol.take(world.ledger, LANE, seq, OTHER, take_over=True)
    world.now += protocol.LEASE_MS
    again = protocol.take(world.ledger, LANE, seq, RUN)
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

    assert protocol.pin(world.ledger, world.sweeps, LANE, other_plan) == before
    taken = protocol.take(world.ledger, LANE, seq, RUN)
    assert protocol.pin(world.ledger, world.sweeps, LANE, other_plan) == taken.pending
    # The next one is pinned when this one is committed, and not before.
    world.process(seq)
    assert (seq, world.pin()) == (1, 2)


def test_only_the_sweeps_that_are_owed(world: World) -> None:
    world.open()
    world.process(world.pin())
    assert world.sweeps.swept == []
    seq = world.pin()
    protocol.take(world.ledger, LANE, seq, RUN)
    record = world.process(seq)
    assert world.sweeps.swept == [record.attempt.generation]
    world.process(world.pin())
    assert world.sweeps.swept == [record.attempt.generation]


@pytest.mark.covers("G5")
def test_abandon_gives_the_offsets_back_and_touches_nothing_committed(world: World) -> None:
    world.one_window()
    committed = world.head
    seq = world.pin()
    taken = protocol.take(world.ledger, LANE, seq, RUN)
    with pytest.raises(WrongUse, match="needs a reason"):
        protocol.abandon(world.ledger, LANE, " ", take_over=True)
    protocol.abandon(world.ledger, LANE, "wrong code", take_over=True)
    head = world.head
    assert (head.seq, head.positions, head.last) == (committed.seq, committed.positions, committed.last)
    assert head.pending is None
    assert head.abandoned is not None
    assert (head.abandoned.reason, head.abandoned.generation) == ("wrong code", taken.attempt.generation)
    with pytest.raises(Fenced, match="abandoned"):
        protocol.commit(world.ledger, taken, NoWork().verify())
    with pytest.raises(StaleLedger, match="no longer pending: it was abandoned"):
        protocol.take(world.ledger, LANE, seq, RUN)
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
    records = [world.ledger.record(LANE, seq) for seq in (1, 2, 3)]
    previous = [found[1].previous for found in records if found]
    assert previous == [None, digest(stored[0]), digest(stored[1])]


def test_a_head_that_contradicts_its_history_is_refused_with_both_shown(world: World) -> None:
    world.one_window()
    key = ("history", LANE, f"{1:019d}")
    found = world.ledger.record(LANE, 1)
    assert found is not None
    from tidemark.ledger.codec import encode

    world.store.values[key] = encode(structs.replace(found[1], committed_at=5))
    for look in (lambda: world.pin(), lambda: world.ledger.committed()):
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


@pytest.mark.parametrize("over", [False, True])
def test_abandon_leaves_a_window_whose_holder_is_alive(world: World, over: bool) -> None:
    world.open()
    seq = world.pin()
    taken = protocol.take(world.ledger, LANE, seq, RUN)
    world.now += 60_000
    world.ledger.beat(LANE, Heartbeat(generation=taken.attempt.generation, run=RUN.name, at=world.now, step="reading"))
    world.now += protocol.LEASE_MS - 1
    if over:
        assert protocol.abandon(world.ledger, LANE, "it hangs", take_over=True) is not None
        return
    with pytest.raises(HeldByAnother, match="held by run run 1, which gave a sign of life 30 s ago"):
        protocol.abandon(world.ledger, LANE, "a wrong guess")
    world.now += 1
    assert protocol.abandon(world.ledger, LANE, "it is dead") is not None


def edited(world: World, old: str, new: str) -> None:
    """Change the head's pending window by hand."""
    before, pending, after = world.store.values["head", LANE].decode().partition('"pending":')
    assert pending
    assert after.count(old) >= 1
    world.store.values["head", LANE] = (before + pending + after.replace(old, new, 1)).encode()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"from":10', '"from":17', "reads or jumps over logs/0 from 17, and the lane is at 10"),
        ('"from":10', '"from":3', "reads or jumps over logs/0 from 3, and the lane is at 10"),
    ],
)
def test_a_pending_window_that_does_not_begin_at_the_positions_is_never_read(
    world: World, old: str, new: str, said: str
) -> None:
    world.one_window()
    world.pin()
    taken = protocol.take(world.ledger, LANE, 2, RUN)
    edited(world, old, new)
    for meets in (
        world.pin,
        lambda: protocol.take(world.ledger, LANE, 2, RUN),
        lambda: protocol.commit(world.ledger, taken, NoWork().verify()),
        lambda: protocol.abandon(world.ledger, LANE, "a test", take_over=True),
        lambda: verify_ledger(world.ledger),
    ):
        with pytest.raises(LedgerContradiction, match=said):
            meets()


def test_a_pending_window_that_leaves_out_a_part_of_its_selection_is_never_read(world: World) -> None:
    world.one_window()
    ref = world.ledger.store_selection(RangeSet([OffsetRange(AT, 0, 3), OffsetRange(AT, 5, 10)]))
    open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=positions({AT: 0}), selection=ref, reason="t")

    def chosen(head: Head) -> Window:
        return structs.replace(plan(head), selection=ref)

    assert protocol.pin(world.ledger, world.sweeps, "replay-1", chosen) is not None
    before = world.store.values["head", "replay-1"]
    # Where nothing is selected, it makes no difference.
    world.store.values["head", "replay-1"] = before.replace(b'"from":0', b'"from":2')
    for meets in (
        lambda: protocol.pin(world.ledger, world.sweeps, "replay-1", chosen),
        lambda: protocol.take(world.ledger, "replay-1", 1, RUN),
        lambda: verify_ledger(world.ledger),
    ):
        with pytest.raises(LedgerContradiction, match=r"leaves out logs/0@0-2"):
            meets()
    world.store.values["head", "replay-1"] = before
    protocol.take(world.ledger, "replay-1", 1, RUN)


def test_a_commit_that_was_refused_without_a_change_is_sent_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)
    world.open()
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    whole = world.store.commit
    sent: list[tuple[Any, ...]] = []

    def refused_once(*arguments: Any) -> bool:
        sent.append(arguments)
        return len(sent) > 1 and whole(*arguments)

    monkeypatch.setattr(world.store, "commit", refused_once)
    protocol.commit(world.ledger, taken, NoWork().verify())
    assert (world.head.seq, len(sent)) == (1, 2)


def test_a_window_is_processed_by_another_run_only_when_its_holder_is_gone_or_on_somebodys_word(world: World) -> None:
    world.open()
    seq = world.pin()
    protocol.take(world.ledger, LANE, seq, RUN)
    with pytest.raises(HeldByAnother):
        world.process(seq, OTHER)
    assert (
        protocol.process(world.ledger, world.sweeps, NoWork(), hold, LANE, seq, OTHER, take_over=True).attempt.run
        == "run 2"
    )


def test_who_has_committed_a_window_long_ago_is_said(world: World) -> None:
    world.one_window()
    world.process(world.pin(), OTHER)
    with pytest.raises(AlreadyCommitted, match="window 1 of s/ingest is already committed, by run run 1"):
        world.process(1, OTHER)


def test_the_time_of_a_commit_is_a_millisecond_after_the_one_before_when_the_clock_stands(world: World) -> None:
    world.one_window()
    assert world.process(world.pin()).committed_at == world.now + 1


def overtaken(world: World, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """The next change of the head is lost on its way, without an answer, and somebody else is faster than its repetition."""
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)
    whole = world.store.swap

    def lost(key: Key, expected: bytes | None, value: bytes) -> bool:
        if key != head_key(LANE):
            return whole(key, expected, value)
        monkeypatch.setattr(world.store, "swap", whole)
        meanwhile()
        raise WriteInDoubt("the connection was lost")

    monkeypatch.setattr(world.store, "swap", lost)


def test_a_take_that_was_lost_while_another_took_is_not_taken_for_its_own(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open()
    seq = world.pin()
    overtaken(world, monkeypatch, lambda: protocol.take(world.ledger, LANE, seq, OTHER))
    taken = protocol.take(world.ledger, LANE, seq, RUN, take_over=True)
    assert world.head.pending is not None
    assert world.head.pending.attempt == taken.attempt


def test_an_abandon_that_was_lost_while_another_abandoned_has_given_up_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.open()
    world.pin()
    overtaken(world, monkeypatch, lambda: protocol.abandon(world.ledger, LANE, "theirs"))
    assert protocol.abandon(world.ledger, LANE, "mine") is None
    assert world.head.abandoned is not None
    assert (world.head.abandoned.reason, world.head.abandoned.count) == ("theirs", 1)


def test_a_head_that_is_gone_when_its_window_is_committed_is_named(world: World) -> None:
    world.open()
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    del world.store.values[head_key(LANE)]
    with pytest.raises(LedgerContradiction, match="the head of s/ingest is gone"):
        protocol.commit(world.ledger, taken, NoWork().verify())
