"""A ledger of an older format goes on: read as what it means today, written in today's format when it changes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.protocol_world import AT, RUN, NoWork, World, hold, plan
from tidemark.commit import protocol
from tidemark.ledger import codec
from tidemark.ledger.book import REGISTER, head_key
from tidemark.ledger.closed import all_lanes
from tidemark.ledger.codec import digest
from tidemark.ledger.records import FORMAT, LaneKind, positions
from tidemark.ledger.register import close_lane, open_lane
from tidemark.ledger.store import Key
from tidemark.ledger.verifying import verify
from tidemark.offsets.ranges import OffsetRange, RangeSet

Plain = dict[str, Any]


def renamed(old: str, new: str) -> Callable[[Plain], Plain]:
    return lambda plain: {new if name == old else name: value for name, value in plain.items()}


# Two formats that no version ever wrote: in the first, heads and records have other names for `positions`, in the second
# the register has one for `generation` too.
OLDEST = FORMAT - 2
MIGRATIONS = {
    OLDEST: {"Head": renamed("at", "reached"), "Record": renamed("at", "reached")},
    OLDEST + 1: {
        "Head": renamed("reached", "positions"),
        "Record": renamed("reached", "positions"),
        "Register": renamed("drawn", "generation"),
    },
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Two committed windows, a third one taken, a replay that is open and one that is closed."""
    monkeypatch.setattr(codec, "MIGRATIONS", MIGRATIONS)
    world = World()
    world.open()
    for _ in range(2):
        world.process(world.pin())
    for lane in ("replay-0", "replay-1"):
        ref = world.book.store_selection(RangeSet([OffsetRange(AT, 0, 10)]))
        open_lane(world.book, lane, LaneKind.REPLAY, run="r", start=positions({AT: 0}), selection=ref, reason="t")
        if lane == "replay-0":
            assert protocol.pin(world.book, world.sweeps, lane, plan) is not None
            protocol.process(world.book, world.sweeps, NoWork(), hold, lane, 1, RUN)
            close_lane(world.book, lane)
    protocol.take(world.book, "ingest", world.pin(), RUN)
    return world


def aged(stored: dict[Key, bytes]) -> dict[Key, bytes]:
    """The values as the oldest format has them; each record with the digest of the one before, as it is then."""
    digests: dict[str, str] = {}

    def of_a_lane(plain: Plain) -> Plain:
        if plain.get("last"):
            plain = {**plain, "last": of_a_lane(plain["last"])}
        if plain.get("pending"):
            plain = {**plain, "pending": of_a_lane(plain["pending"])}
        if plain.get("previous"):
            plain = {**plain, "previous": digests[plain["previous"]]}
        return renamed("positions", "at")({**plain, "format": OLDEST} if "format" in plain else plain)

    found = {}
    # History before heads, which name its digests.
    for key in sorted(stored, key=lambda key: (key[0] == "head", key)):
        plain = {**json.loads(stored[key]), "format": OLDEST}
        if key[0] in ("head", "history"):
            plain = of_a_lane(plain)
        found[key] = json.dumps(renamed("generation", "drawn")(plain) if key == REGISTER else plain).encode()
        digests[digest(stored[key])] = digest(found[key])
    return found


@pytest.mark.covers("O5")
def test_a_ledger_of_an_older_format_goes_on(world: World) -> None:
    meant = [(one.generation, one.covers, one.record.positions) for one in world.book.committed()]
    lanes = all_lanes(world.book)
    stored = aged(world.store.values)
    assert b'"positions"' not in stored[head_key("ingest")]
    world.store.values = dict(stored)

    # It means what it meant.
    assert verify(world.book) == []
    assert [(one.generation, one.covers, one.record.positions) for one in world.book.committed()] == meant
    assert all_lanes(world.book) == lanes
    assert world.store.values == stored

    # A take writes the head anew. That the window before is settled says the history, in the oldest format.
    protocol.take(world.book, "ingest", 3, RUN)
    assert world.pin() == 3
    world.process(3)
    assert world.head.offsets() == {AT: 30}
    assert protocol.pin(world.book, world.sweeps, "replay-1", plan) is not None
    protocol.process(world.book, world.sweeps, NoWork(), hold, "replay-1", 1, RUN)
    assert verify(world.book) == []

    # What has changed is written in today's format; what has not, the history first of all, stays byte for byte.
    changed = {key for key, value in world.store.values.items() if stored.get(key) != value}
    assert changed & stored.keys() == {head_key("ingest"), head_key("replay-1"), REGISTER}
    assert all(world.store.values[key].startswith(b'{"format":%d,' % FORMAT) for key in changed)
    history = [key for key in stored if key[0] == "history"]
    assert len(history) == 3
