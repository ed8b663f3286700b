"""A head that somebody has edited by hand: its pending window begins behind offsets that its lane has selected."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tidemark.ledger.ledger import Ledger, StoredHead, head_key
from tidemark.ledger.records import INGEST
from tidemark.ledger.stores.contract import Key

if TYPE_CHECKING:
    from tests.simulation.world import World


class Edits:
    """What was edited in a world. As long as it is not put back, a command may say that something is damaged."""

    def __init__(self, world: World) -> None:
        self._world = world
        # The bytes before each edit, and those since.
        self._made: dict[Key, tuple[bytes, bytes]] = {}

    @property
    def is_damaged(self) -> bool:
        return any(self._world.store.values.get(key) == edited for key, (_, edited) in self._made.items())

    def edit(self, ledger: Ledger, which: int) -> None:
        """Leave out the first offset of the pending window of some lane that has selected it."""
        heads = [
            one for lane, one in sorted(ledger.heads().items()) if lane != INGEST and head_key(lane) not in self._made
        ]
        possible = [(one, edited) for one in heads if (edited := _without_its_first(ledger, one)) is not None]
        if possible:
            stored, edited = possible[which % len(possible)]
            key = head_key(stored.head.lane)
            self._made[key] = stored.bytes, edited
            self._world.store.values[key] = edited

    def put_back(self) -> None:
        """Somebody restores what they have changed. What has gone on without them stays."""
        for key, (before, edited) in self._made.items():
            if self._world.store.values.get(key) == edited:
                self._world.store.values[key] = before


def _without_its_first(ledger: Ledger, stored: StoredHead) -> bytes | None:
    pending = stored.head.pending
    if pending is None or pending.window.selection is None:
        return None
    selected = ledger.selection(pending.window.selection)
    for number, one in enumerate(pending.window.ranges):
        first = selected.at_or_above(one.at, one.start)
        if first is not None and first < one.until:
            value = json.loads(stored.bytes)
            value["pending"]["window"]["ranges"][number]["from"] = first + 1
            return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return None
