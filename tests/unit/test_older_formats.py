"""A ledger of an older version goes on: read as what it means today, written in today's format when it changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_protocol import NoWork, World, hold, plan
from tidemark import protocol
from tidemark.ledger.codec import MIGRATIONS
from tidemark.ledger.records import FORMAT, Guarantee
from tidemark.ledger.verifying import verify
from tidemark.protocol import Run

STORED = Path(__file__).parent.parent / "stored"


@pytest.mark.covers("O5")
@pytest.mark.parametrize("file", sorted(STORED.glob("format_*.json")), ids=lambda file: file.stem)
def test_an_older_ledger_goes_on(file: Path) -> None:
    """Two committed windows, a third one taken, and an open replay lane."""
    world = World()
    stored = {tuple(name.split("/")): value.encode() for name, value in json.loads(file.read_text()).items()}
    assert all(b'"format":%d' % FORMAT not in value for value in stored.values())
    world.store.values.update(stored)
    world.now += 10_000
    assert verify(world.book) == []

    world.process(3, Run("run 1", "v2", "digest"))
    assert world.head.offsets()[next(iter(world.head.offsets()))] == 30
    assert protocol.pin(world.book, world.sweeps, "replay-1", plan) is not None
    protocol.process(world.book, world.sweeps, NoWork(), hold, "replay-1", 1, Run("r", "v2", "digest"))
    assert verify(world.book) == []

    # What has changed is written in today's format, the history stays byte for byte.
    for lane in ("ingest", "replay-1"):
        assert b'"format":%d' % FORMAT in world.store.values["head", lane]
    assert b'"format":%d' % FORMAT in world.store.values["register",]
    history = {key: value for key, value in stored.items() if key[0] == "history"}
    assert len(history) == 2
    assert {key: world.store.values[key] for key in history} == history
    assert {window.record.window.guarantee for window in world.book.committed()} == {Guarantee.AT_LEAST_ONCE}


def test_every_older_format_has_a_stored_ledger() -> None:
    assert {file.stem for file in STORED.glob("format_*.json")} == {f"format_{number}" for number in range(1, FORMAT)}
    assert all(number < FORMAT for number in MIGRATIONS)
