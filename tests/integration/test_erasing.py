"""Erased messages: no sink and no dead letter has them, nothing brings them back, and the audit knows who erased them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Place
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.sinks.contract import CompactionRequest
from tidemark.sinks.delta.settings import DeltaSink
from tidemark.sinks.kinds import sink_to_compact
from tidemark.spark.jobs.audit import audit
from tidemark.spark.sinks.parquet.compacting import compact

pytestmark = pytest.mark.usefixtures("spark")

COORDINATE = ["_topic", "_partition", "_offset"]


def in_files(live: LiveStream) -> set[tuple[str, int, int]]:
    """What any file of the Parquet sink holds, whether it counts or not."""
    sink = sink_to_compact(live.opened.stream.sinks, live.name, None)
    base = Path(sink.base(live.opened.connections).removeprefix("file://"))
    tables = [pq.read_table(path, columns=COORDINATE, partitioning=None) for path in base.rglob("*.parquet")]
    return {tuple(row.values()) for table in tables for row in table.to_pylist()}


def rows_left(live: LiveStream, erased: set[tuple[str, int, int]]) -> dict[Place, Any]:
    return {place: row for place, row in live.expected().rows.items() if place[:3] not in erased}


def in_delta(live: LiveStream) -> set[Place]:
    """What any reader of the Delta table sees."""
    (sink,) = [one for one in live.opened.stream.sinks if isinstance(one, DeltaSink)]
    rows = DeltaTable(sink.base(live.opened.connections)).to_pyarrow_table().to_pylist()
    assert len(rows) == len({tuple(row[name] for name in (*COORDINATE, "_index")) for row in rows})
    return {(row["_topic"], row["_partition"], row["_offset"], row["_index"]) for row in rows}


def assert_gone(live: LiveStream, erased: set[tuple[str, int, int]]) -> None:
    left = rows_left(live, erased)
    assert in_delta(live) == set(left)
    assert live.independent.hbase().by_place() == live.independent.parquet(live.fields).by_place() == left
    letters = live.independent.hbase(f"{live.name}_dead")
    assert {place[:3] for place, _ in letters.rows} == set(live.expected().dead) - erased
    # Not only hidden: the tables have no other rows.
    assert (live.independent.hbase().debris, letters.debris) == (0, 0)


@pytest.mark.covers("N27")
def test_erased_messages_stay_gone(make: Make) -> None:
    live = make(CDN)
    table, files = {"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}
    live.rewrite(sinks=[table, files, {"type": "delta", "folder": f"{live.name}_delta"}])
    live.produce(120)
    topic = live.topics[0]
    live.kafka.send([(topic, 0, b"me", b"no line")])
    live.ingest()
    rows = sorted(place[:3] for place in live.expected().rows if place[0] == topic)
    dead = sorted(live.expected().dead)
    erased = {rows[0], rows[5], dead[0]}
    named = [f"{name}/{partition}@{offset}" for name, partition, offset in sorted(erased)]
    options = [part for one in named for part in ("--records", one)]

    plan = asked("erase", str(live.file), *options, "--reason", "request 4711", "--dry-run")
    assert plan["to_erase"]["offsets"] == 3
    done = asked("erase", "--yes", str(live.file), *options, "--reason", "request 4711")
    assert (done["erased"]["offsets"], done["tombstones"][0]["reason"]) == (3, "request 4711")
    remains = {one["name"]: one["remains"] for one in done["places"] if one["type"] != "kafka"}
    assert (remains["hbase"], remains["dead_letters"]) == ("", "")
    assert f"tidemark compact {live.name}" in remains["parquet"]
    assert [one["remains"] for one in done["places"] if one["name"] == "the source"]
    assert_gone(live, erased)

    report = audit(live.opened, "audit")
    assert (report.clean, report.erased) == (True, 3), report.sentence()
    (stone,) = report.tombstones
    assert (stone.reason, stone.offsets, stone.window) == ("request 4711", 3, done["tombstones"][0]["window"])
    shown, _ = tidemark("show", str(live.file), named[0])
    assert "erased for good" in shown
    assert "request 4711" in shown

    # A compaction removes the bytes. It takes a single folder for that.
    assert erased & in_files(live) == erased - {dead[0]}
    compact(
        live.opened, sink_to_compact(live.opened.stream.sinks, live.name, None), "a compaction", CompactionRequest()
    )
    assert not erased & in_files(live)
    assert_gone(live, erased)

    # No request reads them again, and each says so.
    again = asked("replay", str(live.file), "--ignore-stored", "--reason", "all of it", "--dry-run")
    assert sum(part["offsets"] for why, part in again["left_out"].items() if why.startswith("erased by erase-")) == 3
    windows = live.select(LaneKind.REPLAY, live.opened.ledger.authority().covered())
    assert sum(tally.read.number for one in windows for tally in one.tallies) == 118
    assert_gone(live, erased)
    assert audit(live.opened, "audit 2").clean

    done = asked("erase", "--yes", str(live.file), *options, "--reason", "request 4711")
    assert {one["remains"] for one in done["places"] if one["type"] == "parquet"} <= {""}
    assert sum(part["offsets"] for part in done["erased_before"].values()) == 3


@pytest.mark.full
@pytest.mark.covers("N27")
def test_a_compaction_removes_the_files_of_a_sink_in_which_nothing_counts_any_more(make: Make) -> None:
    """There are no rows to write, and the files hold what was erased: a folder without rows takes their place."""
    live = make(CDN)
    for _ in range(2):
        live.kafka.send([(live.topics[0], 0, b"me", value) for _, value in CDN.generate(1, 0)])
        live.ingest()
    offsets = [part for at in (0, 1) for part in ("--records", f"{live.topics[0]}/0@{at}")]
    done = asked("erase", "--yes", str(live.file), *offsets, "--reason", "request 4712")
    (remains,) = (one["remains"] for one in done["places"] if one["type"] == "parquet")
    assert f"tidemark compact {live.name}" in remains
    assert len(in_files(live)) == 2
    sink = sink_to_compact(live.opened.stream.sinks, live.name, None)
    (made,) = compact(live.opened, sink, "a compaction", CompactionRequest())
    assert (made.rows, in_files(live)) == (0, set())
    # There is nothing left to do, and new rows are found.
    assert compact(live.opened, sink, "another one", CompactionRequest(again=True)) == []
    live.kafka.send([(live.topics[0], 0, b"me", value) for _, value in CDN.generate(1, 0)])
    live.ingest()
    assert len(in_files(live)) == 1
    compact(live.opened, sink, "all of it", CompactionRequest(again=True))
    assert len(in_files(live)) == 1
    assert audit(live.opened, "audit").clean


@pytest.mark.full
@pytest.mark.covers("N60")
def test_places_that_are_away_stop_no_stream(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is not mounted, and a connection that nobody has any more: both of sinks that the stream had once."""
    live = make(CDN)
    monkeypatch.setenv("AIRFLOW_CONN_HBASE_OLD", os.environ["AIRFLOW_CONN_HBASE_DEFAULT"])
    table, files = {"type": "hbase", "table": live.name}, {"type": "parquet", "folder": live.name}
    old = {"type": "hbase", "name": "old", "hbase": "hbase_old", "table": f"{live.name}_old"}
    live.rewrite(sinks=[table, files, old])
    live.produce(60)
    live.ingest()
    sink = sink_to_compact(live.opened.stream.sinks, live.name, None)
    base = Path(sink.base(live.opened.connections).removeprefix("file://"))
    elsewhere = base.with_name(f"{base.name}_unmounted")
    base.rename(elsewhere)
    monkeypatch.delenv("AIRFLOW_CONN_HBASE_OLD")
    live.rewrite(sinks=[table])
    topic, partition, offset, _ = min(place for place in live.expected().rows)
    erase = ("erase", "--yes", str(live.file), "--records", f"{topic}/{partition}@{offset}", "--reason", "request 4711")
    forget = ("ledger", "forget-place", "--yes", str(live.file))

    _, said = tidemark(*erase, code=5)
    assert f"forget-place {live.name} parquet base=file://{base} --reason" in said
    tidemark(*forget, "parquet", "--reason", "the disk broke")
    _, said = tidemark(*erase, code=2)
    assert f"forget-place {live.name} old connection=hbase_old table={live.name}_old --reason" in said
    live.produce(20)
    assert live.ingest()
    tidemark(*forget, "old", "--reason", "the cluster was switched off")
    done = asked(*erase)
    remains = {one["name"]: one["remains"] for one in done["places"] if one["type"] != "kafka"}
    assert (done["erased"]["offsets"], remains["hbase"], remains["dead_letters"]) == (1, "", "")
    assert "gone for good: the disk broke" in remains["parquet"]
    assert "gone for good: the cluster was switched off" in remains["old"]
    assert {*live.independent.hbase().by_place()} == {*rows_left(live, {(topic, partition, offset)})}
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert [one.name for one in report.forgotten] == ["parquet", "old"]

    # The disk is found again: nothing is written there before the message is cleared.
    elsewhere.rename(base)
    live.rewrite(sinks=[table, files])
    live.produce(20)
    run = live.new_run()
    with pytest.raises(WrongUse, match="--back"):
        live.ingest(run)
    tidemark(*forget, "parquet", "--back")
    assert live.ingest(run)
