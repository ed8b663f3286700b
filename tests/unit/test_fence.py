"""What an attempt does while it works: how often its fence looks, on its own host and on another, and signs of life."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from dataclasses import replace
from queue import Queue

import pytest
from msgspec import structs

from tests.support.memory import MemoryStore
from tests.support.protocol_world import LANE, OTHER, RUN, NoWork, World
from tidemark.commit import fence as attempts
from tidemark.commit import protocol
from tidemark.commit.fence import FENCE_SECONDS, HeadFence, holding
from tidemark.errors import Fenced, Unreachable
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Guarantee, Heartbeat


class Travelling(MemoryStore):
    """A store that travels as one of a real server does: with nothing but where its values are."""

    everywhere = MemoryStore()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Travelling, ()

    def __init__(self) -> None:
        super().__init__()
        self.values = self.everywhere.values


@pytest.mark.covers("F5")
@pytest.mark.parametrize("uptime", [0.0, 5.0, 999_999.0, 2_000_000.0])
def test_a_fence_that_has_travelled_looks_at_once(monkeypatch: pytest.MonkeyPatch, uptime: float) -> None:
    """A host's monotonic clock counts from its start: that of a worker may be far behind the driver's, or before it."""
    now = 1_000_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    world = World()
    Travelling.everywhere = world.store
    world.open()
    seq = world.pin()
    taken = protocol.take(world.ledger, LANE, seq, RUN)
    fence = HeadFence(Ledger(Travelling(), "s"), LANE, taken.attempt.generation)
    fence.check_now_and_then()
    protocol.take(world.ledger, LANE, seq, OTHER, take_over=True)
    # Not yet: it has looked just now.
    fence.check_now_and_then()
    copy = pickle.loads(pickle.dumps(fence))
    now = uptime
    with pytest.raises(Fenced):
        copy.check_now_and_then()
    now = 1_000_000.0 + FENCE_SECONDS + 1
    with pytest.raises(Fenced):
        fence.check_now_and_then()


@pytest.mark.covers("F5")
def test_a_fence_says_who_has_the_window_now() -> None:
    world = World()
    world.open()
    seq = world.pin()
    generation = protocol.take(world.ledger, LANE, seq, RUN).attempt.generation
    fence = HeadFence(world.ledger, LANE, generation)
    fence.check()
    newer = protocol.take(world.ledger, LANE, seq, OTHER, take_over=True)
    with pytest.raises(Fenced, match=rf"run run 2 holds it \(generation {newer.attempt.generation}\)"):
        fence.check()
    protocol.commit(world.ledger, newer, NoWork().verify())
    with pytest.raises(Fenced, match=rf"run run 2 has committed it \(generation {newer.attempt.generation}\)"):
        fence.check()
    # What was committed before the fence's own generation was drawn has not taken its window.
    world.pin()
    own = protocol.take(world.ledger, LANE, seq + 1, RUN).attempt.generation
    protocol.abandon(world.ledger, LANE, "a test", take_over=True)
    for late in (own, newer.attempt.generation):
        with pytest.raises(Fenced, match="it was abandoned"):
            HeadFence(world.ledger, LANE, late).check()
    # That of a lane which has never been opened, too.
    with pytest.raises(Fenced, match="it was abandoned"):
        HeadFence(world.ledger, "replay-1", own).check()


def test_a_fence_looks_again_only_when_the_last_look_is_older_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    world = World()
    world.open()
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    fence = HeadFence(world.ledger, LANE, taken.attempt.generation)
    fence.check()
    protocol.abandon(world.ledger, LANE, "a test", take_over=True)
    now += FENCE_SECONDS
    fence.check_now_and_then()
    now += 0.1
    with pytest.raises(Fenced):
        fence.check_now_and_then()


def test_signs_of_life_are_given_until_the_block_ends_and_a_lost_one_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attempts, "BEAT_SECONDS", 0.01)
    world = World()
    world.open()
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    given: Queue[Heartbeat] = Queue()

    def beat(lane: str, sign: Heartbeat) -> None:
        assert lane == LANE
        given.put(sign)
        if sign.done == {"logs/0": 1}:
            raise Unreachable("nobody answers")

    monkeypatch.setattr(world.ledger, "beat", beat)
    done = itertools.count(1)
    with holding(world.ledger, lambda: ("read", {"logs/0": next(done)}), taken) as fence:
        signs = [given.get(timeout=30) for _ in range(3)]
        fence.check()
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "heartbeats"] == [True]
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeats"]
    generation = taken.attempt.generation
    assert signs == [
        Heartbeat(generation=generation, run="run 1", at=world.now, step="read", done={"logs/0": number})
        for number in (1, 2, 3)
    ]
    assert "no heartbeat for s/ingest: nobody answers" in caplog.text
    protocol.abandon(world.ledger, LANE, "a test", take_over=True)
    with pytest.raises(Fenced):
        fence.check()


def test_nobody_can_take_a_window_that_was_committed_before_it_is_read() -> None:
    world = World()
    world.open()
    taken = protocol.take(world.ledger, LANE, world.pin(), RUN)
    window = structs.replace(taken.pending.window, guarantee=Guarantee.AT_MAX_ONCE)
    taken = replace(taken, pending=structs.replace(taken.pending, window=window))
    with holding(world.ledger, lambda: ("read", {}), taken) as fence:
        protocol.commit(world.ledger, taken, None)
        fence.check()
