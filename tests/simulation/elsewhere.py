"""A ledger in another place: restored from a backup that was written beside others, or rebuilt without its register."""

from __future__ import annotations

import itertools
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, cast

from tests.simulation.world import World
from tests.support.memory import MemoryStore
from tidemark.ledger.ledger import REGISTER, Ledger
from tidemark.ledger.recovery.backup import restore
from tidemark.ledger.recovery.rebuilding import rebuild
from tidemark.ledger.stores.contract import Key
from tidemark.sinks.kinds import by_order
from tidemark.sinks.taking_over import take_over

_RESTORED_MS = 12_347

_numbers = itertools.count()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


def new_file() -> Path:
    return Path(_folder().name) / f"{next(_numbers)}.ledger"


def move_to_a_rebuilt_one(world: World) -> None:
    """The register is lost. What is left is made whole, and put into an empty place, where the stream goes on."""
    damaged = _like(world.store)
    damaged.values = {key: value for key, value in world.store.values.items() if key != REGISTER}
    path = new_file()
    register = world.opened.ledger.register()
    assert register is not None
    # The marks of folders and tables have it.
    rebuild(_ledger(world, damaged), path, lambda: register[1].ledger, by_order)
    move_to_a_restored_one(world, path)


def move_to_a_restored_one(world: World, path: Path) -> None:
    # Nobody restores a ledger within the millisecond of its last draw.
    world.pass_by(_RESTORED_MS)
    empty = _like(world.store)
    restore(_ledger(world, empty), path)
    world.store.values = empty.values
    world.opened = world.open()


def move(world: World, path: Path) -> tuple[MemoryStore, dict[Key, int]]:
    """A final backup is restored in another place, while others may be at work. Gives the older store, and its windows."""
    world.pass_by(_RESTORED_MS)
    empty = _like(world.store)
    register = world.opened.ledger.register()
    assert register is not None
    if not world.moved:
        # Until now nobody has asked whose the tables are.
        world.mark_tables(register[1].ledger)
        world.moved = True
    restore(_ledger(world, empty), path)
    older = world.move_ledger(empty.values)
    left = take_over(world.opened.ledger, world.opened.connections)
    assert world.away or not left, left
    return older, committed_in(older)


def committed_in(store: MemoryStore) -> dict[Key, int]:
    """The number of the last window of each lane that has any."""
    heads = {key: json.loads(value)["seq"] for key, value in store.values.items() if key[0] == "head"}
    return {key: seq for key, seq in heads.items() if seq}


def _like(store: MemoryStore) -> MemoryStore:
    made = type(store)()
    made.server_time = store.server_time
    return made


def _ledger(world: World, store: MemoryStore) -> Ledger:
    return Ledger(cast("Any", store), "orders", clock=world.clocks.local)
