"""What a run has read and written, as events of lineage name it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.protocol_world import NoWork, Sweeps, hold
from tests.support.streams_in_memory import StreamInMemory, at
from tidemark.clients.connections import Connection
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.records import INGEST, Receipt, SinkReceipt
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs.windows import ingest
from tidemark.views import lineage as views
from tidemark.views.lineage import DataSet, lineage
from tidemark.views.values import as_plain

PLACES = (
    SinkReceipt(name="hbase", type="hbase", place={"connection": "hbase_default", "table": "orders"}),
    SinkReceipt(name="kafka", type="kafka", place={"connection": "kafka_default", "topics": "big,small"}),
    SinkReceipt(name="parquet", type="parquet", place={"base": "s3a://lake/orders", "folder": "w1"}),
    SinkReceipt(name="delta", type="delta", place={"base": "/data/orders", "folder": "g1"}),
    SinkReceipt(name="lake", type="delta_latest", place={"base": "/data/s/_history", "location": "/data/s"}),
    SinkReceipt(
        name="state",
        type="hbase_latest",
        place={"base": "/data/h", "location": "/data/h", "connection": "hbase_default", "table": "state"},
    ),
    SinkReceipt(name="gone", type="of_a_package_that_is_gone", place={"base": "s3a://lake/gone"}),
    SinkReceipt(name="mine", type="shop", place={"shelf": "3"}),
)
DEAD = SinkReceipt(name="dead_letters", type="hbase", place={"connection": "hbase_default", "table": "orders_dead"})


class Counted(NoWork):
    """Each window has read ten messages of partition 0, which gave fourteen rows."""

    def verify(self) -> Receipt:
        tally = PartitionTally(
            topic="orders",
            incarnation=1,
            partition=0,
            read=Count(10),
            stored=Count(7),
            skipped=Count(1),
            invalid=Count(2),
            rows=Count(14),
        )
        return Receipt(tallies=(tally,), sinks=PLACES, dead_letters=DEAD, started_at=1, finished_at=2)


def connection(name: str) -> Connection:
    return {
        "hbase_default": Connection(name, host="first,second", port=9090),
        "kafka_default": Connection(name, extra={"bootstrap.servers": "k1:9092,k2:9092", "allow_insecure": True}),
    }[name]


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    stream = StreamInMemory(tmp_path)
    cast("Any", stream.kafka).endpoint = SimpleNamespace(servers="source:9092,other:9092")
    stream.opened = replace(stream.opened, connections=connection)
    for end in (10, 20, 30):
        stream.ends((0, end))
        run = "run" if end > 10 else "before"
        pending = ingest.plan_ingest(stream.opened, run)
        assert pending is not None
        protocol.process(
            stream.opened.ledger, Sweeps(), Counted(), hold, INGEST, pending.window.seq, Run(run, "v1", "d")
        )
    return stream


def test_what_a_run_has_read_and_written(made: StreamInMemory) -> None:
    found = lineage(made.opened, [INGEST], "run")
    assert found.inputs == (DataSet("kafka://source:9092", "orders", 20),)
    assert set(found.outputs) == {
        DataSet("hbase://first:9090", "orders", 28),
        DataSet("kafka://k1:9092", "big", 28),
        DataSet("kafka://k1:9092", "small", 28),
        DataSet("s3a://lake", "/orders", 28),
        DataSet("file", "/data/orders", 28),
        DataSet("file", "/data/s", 28),
        DataSet("hbase://first:9090", "state", 28),
        DataSet("s3a://lake", "/gone", 28),
        DataSet("tidemark://orders", "mine", 28),
        DataSet("hbase://first:9090", "orders_dead", 4),
    }
    shown = as_plain(found.windows)
    windows = shown.pop("windows")
    assert shown == {
        "stream": "orders",
        "lanes": ["ingest"],
        "run": "run",
        "committed": 2,
        "read": 20,
        "stored": 14,
        "skipped": 2,
        "dead_letters": 4,
        "offsets_lost": 0,
        "offsets_skipped": 0,
    }
    assert [(one["lane"], one["seq"], one["ranges"]) for one in windows] == [
        ("ingest", 2, [f"{at(0)}@10-20"]),
        ("ingest", 3, [f"{at(0)}@20-30"]),
    ]
    json.dumps(windows)


def test_totals_are_of_all_windows_whatever_is_named(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "MAX_WINDOWS", 1)
    found = lineage(made.opened, [INGEST], "run").windows
    assert (len(found.windows), found.committed, found.read) == (1, 2, 20)


def test_a_run_that_has_committed_nothing(made: StreamInMemory) -> None:
    found = lineage(made.opened, [INGEST], "another")
    assert (found.inputs, found.outputs, found.windows.committed, found.windows.read) == ((), (), 0, 0)
