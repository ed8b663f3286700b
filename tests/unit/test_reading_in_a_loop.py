"""Other programs read a table in a loop while it is written: each of their answers is one of the states that were committed.

And they see these in their order: through windows, kills, replays, erasures, compactions and a restored ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support import iceberg_in_memory, latest_tables
from tests.support.delta_in_memory import DeltaInMemory
from tests.support.iceberg_in_memory import IcebergInMemory
from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory
from tests.support.memory import MemoryStore
from tests.support.reading_in_a_loop import Answer, LoopOfReaders, states_seen
from tests.support.streams_in_memory import offsets
from tidemark.commit.protocol import Step
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import LaneKind
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.runs.windows import lanes
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.iceberg.compacting import compact
from tidemark.sinks.iceberg.latest.compacting import where_of

# More offsets than keys of a table of newest rows.
KEYS = 7


def place(world: Any, kind: str) -> str:
    if kind == "delta":
        return str(world.base.removeprefix("file://"))
    where = where_of(world.opened, world._sink) if isinstance(world, IcebergLatestInMemory) else world.where
    return f"{where.server.host}#{where.catalog}#{where.table}"


def restored(world: Any, backup: Path) -> None:
    """The world goes on with a ledger that is made of a backup."""
    if hasattr(world, "restore"):
        world.restore(backup)
        return
    ledger = Ledger(MemoryStore(), "orders", clock=lambda: world.now)
    restore(ledger, backup)
    object.__setattr__(world.opened, "ledger", ledger)


class Writer:
    """A stream that is written, and the states of its table that were committed."""

    def __init__(self, make: Callable[..., Any], folder: Path) -> None:
        self.newest = make in (DeltaLatestInMemory, IcebergLatestInMemory)
        self.kind = "iceberg" if make in (IcebergInMemory, IcebergLatestInMemory) else "delta"
        self.killed = latest_tables.Killed if self.newest else iceberg_in_memory.Killed
        # What the code makes of a message: the number is that of the code's version.
        self.version = 0
        code = {"code": lambda _, offset: [Change(offset % KEYS, f"{self.version}")]} if self.newest else {}
        self.world = make(folder, **code)
        self.columns = ["id", "_offset", "value"] if self.newest else ["_offset", "id"]
        self.counting: dict[int, int] = {}
        self.states: list[Answer] = [None, []]

    def fix(self) -> None:
        """Another version of the code."""
        self.version += 1
        self.world.first = 1000 * self.version

    def committed(self, read: range = range(0), gone: range = range(0)) -> None:
        """What counts now is a state that others may see."""
        self.counting.update(dict.fromkeys(read, self.version))
        for offset in gone:
            del self.counting[offset]
        by_key = {offset % KEYS: offset for offset in sorted(self.counting)}
        rows = [[key, offset, f"{self.counting[offset]}"] for key, offset in by_key.items()]
        by_offset = [[offset, 1000 * version + offset] for offset, version in self.counting.items()]
        self.states.append(sorted(rows if self.newest else by_offset))

    def ingest(self, end: int, run: str) -> None:
        self.world.ends((0, end))
        self.world.now += 5_000
        self.world.ingest(run)

    def compact(self) -> None:
        if self.newest:
            self.world.compact("compaction")
            self.world.vacuum()
        elif self.kind == "iceberg":
            compact(self.world.opened, self.world.sink, "compaction", CompactionRequest())


@pytest.mark.covers("I1", "I2", "I3")
@pytest.mark.parametrize("make", [DeltaInMemory, IcebergInMemory, DeltaLatestInMemory, IcebergLatestInMemory])
def test_each_answer_is_a_committed_state(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    writer = Writer(make, tmp_path)
    world = writer.world
    with LoopOfReaders(writer.kind, place(world, writer.kind), writer.columns, tmp_path / "answers") as readers:
        world.ends((0, 10))
        for step in (Step.SINK_STORED, Step.VERIFIED):
            with pytest.raises(writer.killed):
                world.ingest(until=step)
            readers.wait()
        writer.ingest(10, "run 1")
        writer.committed(range(10))
        readers.wait()
        # A replay that dies between its commit and its publication: the next run publishes it.
        writer.fix()
        with pytest.raises(writer.killed):
            world.replay(offsets((0, 2, 9)), "fix", until=Step.COMMITTED)
        writer.committed(range(2, 9))
        readers.wait()
        writer.ingest(14, "run 2")
        writer.committed(range(10, 14))
        lanes.finish(world.opened, lanes.lane_name(LaneKind.REPLAY, "fix"))
        readers.wait()
        for number in range(3):
            writer.fix()
            world.replay(offsets((0, number, number + 6)), f"replay {number}")
            writer.committed(range(number, number + 6))
        readers.wait()
        world.erase(offsets((0, 4, 6)), "erasure")
        writer.committed(gone=range(4, 6))
        writer.compact()
        readers.wait()
        back_up(world.opened.ledger, tmp_path / "nightly")
        writer.ingest(17, "run 3")
        writer.committed(range(14, 17))
        readers.wait()
        world.now += 5_000
        restored(world, tmp_path / "nightly")
        if writer.newest:
            # What the ledger has lost is no newest row until it is read again. Other tables keep such rows.
            writer.states.append(writer.states[-2])
        writer.ingest(20, "run 4")
        writer.committed(range(14, 20))
        readers.wait()
        seen = states_seen(readers.answers(), writer.states)
        # All but what came and went between two looks.
        assert {1, 2, len(writer.states) - 1} <= seen
        assert len(seen) >= 6
        if writer.kind == "delta":
            # A row that somebody takes out is noticed.
            DeltaTable(world.base).delete("_offset = 13")
            readers.wait()
            with pytest.raises(AssertionError, match="which is none of"):
                states_seen(readers.answers(), writer.states)
