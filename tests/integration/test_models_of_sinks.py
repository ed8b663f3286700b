"""The simulation takes messages to the sinks row by row, without Spark: here a window goes both ways, and comes out alike."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.dataset as ds
import pytest

from tests.simulation import hbase
from tests.simulation.hbase import Cluster
from tests.simulation.kafka import Message
from tests.simulation.others import Topic, prepare
from tests.simulation.work import ROWS, Place, Work
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import ORDERS
from tidemark.clients.connections import Connection
from tidemark.commit.protocol import Step
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import lanes
from tidemark.sinks.delta.attempts import written
from tidemark.sinks.delta.table import files_of
from tidemark.sinks.hbase.rows import MARK
from tidemark.sinks.kafka import messages
from tidemark.sinks.mounts import FolderMarks
from tidemark.sinks.owners import OWNER_ROW
from tidemark.sinks.parquet import folders
from tidemark.sinks.stored_rows import Mark

pytestmark = pytest.mark.usefixtures("spark")

# What is replayed of the first partition.
UNTIL = 8


def sinks(live: LiveStream) -> list[dict[str, Any]]:
    name = live.name
    return [
        {"type": "hbase", "table": name},
        {"type": "parquet", "folder": name},
        {"type": "delta", "folder": f"{name}_delta"},
        {"type": "kafka", "topic": f"{name}-out", "key": "id", "value": "number"},
    ]


class RowByRow:
    """The servers of the simulation, as far as an attempt writes to them. It reads what the test has produced."""

    def __init__(self, live: LiveStream, folder: Path) -> None:
        self.hbase, self.target = Cluster(), Topic()
        self.setting = SimpleNamespace(one_pass=False, copies=False)
        self.gateway = SimpleNamespace(repeated=lambda _, act: act(None))
        self.kafka = SimpleNamespace(read=self._read)
        self.made_of: dict[Any, Any] = {}
        self.sent: dict[tuple[int, int], Message] = {}
        self._connections = live.opened.connections
        self._folder = folder
        for name in ("was_read", "writes_rows", "row_stored", "made"):
            setattr(self, name, lambda *_, **__: None)

    def connections(self, name: str) -> Connection:
        """The same, with another folder."""
        found = self._connections(name)
        return replace(found, extra={**found.extra, "path": str(self._folder)}) if "path" in found.extra else found

    def _read(self, covers: RangeSet, _: str) -> dict[Place, Message]:
        places = ((one.partition, at) for one in covers for at in range(one.start, one.until))
        return {
            (at, offset): self.sent[at.partition, offset]
            for at, offset in places
            if (at.partition, offset) in self.sent
        }

    def work(self, opened: OpenStream, lane: str) -> None:
        """The pending window, by the attempt that has taken it."""
        found = opened.ledger.head(lane)
        assert found is not None
        pending = found.head.pending
        assert pending is not None
        assert pending.attempt is not None
        there = replace(opened, connections=self.connections)
        work = Work(cast("Any", self), there, lane, FolderMarks(there.ledger, there.connections, ()))
        for one in work.opened.stream.sinks:
            if one.type in ("parquet", "delta"):
                prepare(work.opened, one)
        fence: Any = SimpleNamespace(check=lambda: None)
        work.read(pending.window, opened.ledger.covers(pending.window), pending.attempt, fence)
        work.store(pending.attempt, fence, lambda step: None)


def send(live: LiveStream, rows: RowByRow, number: int) -> None:
    for n in range(number):
        value = b"no JSON" if n % 5 == 4 else json.dumps({"id": n % 3, "number": n}).encode()
        live.kafka.send([(live.topics[0], n % 2, b"%d" % n, value)])
        rows.sent[n % 2, n // 2] = Message(n, n % 3, 0, bad=n % 5 == 4)


def cells(rows: Iterator[tuple[bytes, dict[bytes, tuple[bytes, int]]]]) -> dict[Any, Any]:
    """Each newest cell by row and column: its time, and what it holds; digests are Spark's alone."""
    return {
        (row, column): (at, of_row(column, value))
        for row, columns in rows
        for column, (value, at) in columns.items()
        if row != OWNER_ROW
    }


def of_row(column: bytes, value: bytes) -> object:
    return Mark.decode(value)._replace(digest=0) if column == MARK else value


def rows_in(paths: list[str]) -> list[dict[str, Any]]:
    """The rows of files by coordinate; without the digests."""
    found: list[dict[str, Any]] = []
    for one in paths:
        with folders.opened(one) as (filesystem, path):
            table = ds.dataset(path, filesystem=filesystem, format="parquet").to_table()
            found += table.drop_columns(["_digest"]).to_pylist()
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


def test_a_window_goes_the_same_way_through_spark_and_row_by_row(make: Make, tmp_path: Path) -> None:
    stream = copy.deepcopy(ORDERS.stream)
    stream["scheme"] = {"type": "json", "fields": {"id": "integer", "number": "integer"}}
    stream["checks"] = []
    live = make(replace(ORDERS, stream=stream, topics=("orders",), partitions=2))
    live.rewrite(sinks=sinks(live))
    out = f"{live.name}-out"
    live.kafka.create(out, 2)
    rows = RowByRow(live, tmp_path / "rows")

    def meanwhile(lane: str) -> Any:
        return lambda step: rows.work(live.opened, lane) if step == Step.DEAD_LETTERS_STORED else None

    send(live, rows, 20)
    records = live.ingest(on_step=meanwhile(INGEST))
    at = TopicPartition(live.topics[0], 0)
    run = live.new_run()
    name = lanes.lane_name(LaneKind.REPLAY, run)
    records += live.select(LaneKind.REPLAY, RangeSet([OffsetRange(at, 0, UNTIL)]), run, on_step=meanwhile(name))
    assert len(records) == 2
    with closing(live.independent._connection()) as connection:
        real = cells(connection.table(live.name).scan(include_timestamp=True))
    assert real == cells(hbase.Connection(rows.hbase).table(ROWS).scan(include_timestamp=True))
    assert real
    for record in records:
        (parquet,) = (one.place for one in record.places if one.type == "parquet")
        moved = parquet["folder"].replace(parquet["base"], f"file://{tmp_path / 'rows'}/{live.name}")
        assert rows_in([parquet["folder"]]) == rows_in([moved])
        (delta,) = (one.place for one in record.places if one.type == "delta")
        theirs = files_of(delta["base"]).get(record.attempt.generation, [])
        mine = f"file://{tmp_path / 'rows'}/{live.name}_delta"
        ours = {**written(mine), **files_of(mine)}.get(record.attempt.generation, [])
        # What the replay has read again is taken out of the table.
        again = record.kind == LaneKind.REPLAY
        left = [row for row in rows_in(ours) if again or row["_partition"] != at.partition or row["_offset"] >= UNTIL]
        assert rows_in(theirs) == left
    real_messages = list(messages._messages(live.kafka.endpoint, [out]))
    wanted = [(headers, out, key, value) for headers, _, key, value in rows.target.messages]
    assert sorted(map(str, real_messages)) == sorted(map(str, wanted))
