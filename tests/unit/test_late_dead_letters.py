"""Dead letters of erased messages: none of their bytes stay; those that came late are named, and cleared when asked again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.grep import holding
from tests.support.letters_in_databases import write
from tests.support.protocol_world import NoWork
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.clients.connections import Connection
from tidemark.ledger.records import Receipt
from tidemark.ledger.register import note_places
from tidemark.runs import erasing
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.dead_letters.sql.letters import letters_in
from tidemark.sinks.parquet import files
from tidemark.sinks.sweeping import SinkSweeper

SECRET = "anna@secret.org, a value that is long enough to be in a page of its own" * 3
GONE = offsets((0, 3, 4))
LATE = "1 of its rows or files came late"


class Stream(StreamInMemory):
    """With dead letters in a store of one kind, which this writes as attempts do."""

    def __init__(self, folder: Path, kind: str) -> None:
        place = {"sql": "table: dl", "parquet": "folder: dl"}[kind]
        letters = f"dead_letters:\n  type: {kind}\n  {place}\n"
        text = TEXT.replace("dead_letters:\n  type: hbase\n  table: orders_dead\n", letters)
        super().__init__(
            folder, text=text.replace("  - type: hbase\n    table: orders\n", "  - type: parquet\n    folder: orders\n")
        )
        self.kind, before = kind, self.opened
        sweeper = SinkSweeper(self._connection)
        self.opened = OpenStream(before.file, before.ledger, before.log, sweeper, self._connection)

    def _connection(self, name: str) -> Connection:
        if name.startswith("sql"):
            return Connection(name, host=str(self.folder / "dl.db"), kind="sqlite")
        return super()._connection(name)

    def write(self, generation: int) -> None:
        register = self.opened.ledger.register()
        assert register is not None
        place = next(one for one in self.opened.places_now() if one.name == "dead_letters")
        note_places(self.opened.ledger, [place])
        if self.kind == "sql":
            letters = letters_in(self._connection, "sql_default", "dl", "orders")
            letters.prepare("orders", register[1].ledger)
            for offset, value in ((2, b"kept"), (3, SECRET.encode())):
                write(letters, generation, offset, at=at(0), value=value)
            return
        base = place.place["base"]
        files.own(base, "orders", register[1].ledger, "dead_letters")
        folder = Path(base.removeprefix("file://")) / f"lane=ingest/seq=1/generation={generation}"
        folder.mkdir(parents=True, exist_ok=True)
        columns = {"_topic": ["orders"] * 2, "_incarnation": pa.array([1, 1], pa.int32())}
        columns |= {"_partition": pa.array([0, 0], pa.int32()), "_offset": [2, 3], "value": [b"kept", SECRET.encode()]}
        pq.write_table(pa.table(columns), folder / "part-0.parquet")

    def remains(self) -> str:
        (said,) = (one.remains for one in erasing.remaining(self.opened, GONE) if one.name == "dead_letters")
        return said


@pytest.fixture(params=["sql", "parquet"])
def stream(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    done = Receipt(tallies=(), sinks=(), dead_letters=None, started_at=1, finished_at=2)
    monkeypatch.setattr(NoWork, "verify", lambda _: done)
    world = Stream(tmp_path, request.param)
    world.ends((0, 10))
    world.ingest()
    return world


@pytest.mark.covers("E64", "E65")
@pytest.mark.parametrize("counts", [True, False], ids=["of a committed window", "of an attempt that is dead"])
def test_dead_letters_that_come_late(stream: Stream, *, counts: bool) -> None:
    (window,) = stream.opened.ledger.committed()
    generation = window.generation if counts else window.generation - 1
    stream.write(generation)
    assert holding(stream.folder, SECRET)
    stream.now += 1000
    stream.erase(GONE)
    assert holding(stream.folder, SECRET) == set()
    assert stream.remains() == ""
    # An attempt wakes up, writes once more, and is killed before it finds out.
    stream.write(generation)
    assert LATE in stream.remains()
    erasing.clear_again(stream.opened, GONE)
    assert holding(stream.folder, SECRET) == set()
    assert stream.remains() == ""
    # Those of other messages stay, unless their attempt is dead.
    assert bool(holding(stream.folder, "kept")) == (counts or stream.kind == "sql")
