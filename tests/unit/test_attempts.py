"""The fence of an attempt: how often it looks, on the host where it was made and on another."""

from __future__ import annotations

import pickle
import time

import pytest

from tests.memory import MemoryStore
from tests.unit.test_protocol import LANE, OTHER, RUN, World
from tidemark import protocol
from tidemark.attempts import FENCE_SECONDS, HeadFence
from tidemark.errors import Fenced
from tidemark.ledger.book import Book


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
    taken = protocol.take(world.book, LANE, seq, RUN)
    fence = HeadFence(Book(Travelling(), "s"), LANE, taken.attempt.generation)
    fence.check_now_and_then()
    protocol.take(world.book, LANE, seq, OTHER, take_over=True)
    # Not yet: it has looked just now.
    fence.check_now_and_then()
    copy = pickle.loads(pickle.dumps(fence))
    now = uptime
    with pytest.raises(Fenced):
        copy.check_now_and_then()
    now = 1_000_000.0 + FENCE_SECONDS + 1
    with pytest.raises(Fenced):
        fence.check_now_and_then()
