"""The example stream as its file says: split, normalise, aggregate by host and minute, and write to HBase, files and Kafka."""

from __future__ import annotations

import json
import sys
from typing import Any

import happybase
import pytest
from pyspark.sql import SparkSession

from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, Fields, Place, cdn_file, cdn_outcome, consume
from tests.support.sink_topics import counting
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.sinks.hbase.aggregates.settings import HBaseAggregatesSink
from tidemark.sinks.hbase.aggregates.sink import HBaseAggregatesAdmin
from tidemark.sinks.hbase.rows import PartitionKeys
from tidemark.spark.jobs import window
from tidemark.spark.jobs.audit import audit
from tidemark.spark.rows.pipeline import check_rows
from tidemark.streams.model import Stream

pytestmark = pytest.mark.usefixtures("spark")

# Of a window of the example with its four sinks.
MAX_JOBS = 5
# What the generated lines do not have: hosts and methods in whatever case, and queries.
LINES = [
    '203.0.113.9 - - [21/Nov/2026:07:10:59 +0100] "get https://IMG.Example.com/a?b=1&c=2 HTTPS/1.1" 200 10 0.5',
    '203.0.113.9 - - [21/Nov/2026:06:10:00 +0000] "GET http://img.example.COM/a?? HTTP/1.1" 404 20 1.25',
    "2026-11-21\t06:10:30\tFRA2\t30\t203.0.113.9\tPost\tImg.example.com\t/?q\t200\t2.5\tHTTP/2.0",
]


def normalised(fields: Fields) -> Fields:
    return {
        **fields,
        "method": fields["method"].upper(),
        "host": fields["host"].lower(),
        "path": fields["path"].partition("?")[0],
        "minute": f"{fields['time'][:16]}:00",
    }


def written_to(live: LiveStream) -> str:
    return f"{live.name}-normalised"


def as_the_file_says(make: Make) -> LiveStream:
    """A stream of the file, but for its name and those of topics, tables and folders."""
    file = cdn_file()
    live = make(CDN)
    place = {
        "hbase": {"table": live.name},
        "parquet": {"folder": live.name},
        "hbase_aggregates": {"table": f"{live.name}_sums", "folder": f"{live.name}_sums"},
        "kafka": {"topic": written_to(live)},
    }
    sinks = [{**sink, **place[sink["type"]]} for sink in file["sinks"]]
    live.rewrite(transform=file["transform"], sinks=sinks)
    live.kafka.create(written_to(live), 2)
    return live


def by_minute(rows: list[Fields]) -> dict[tuple[str | None, str | None], dict[str, Any]]:
    found: dict[tuple[str | None, str | None], dict[str, Any]] = {}
    for row in rows:
        total = found.setdefault((row.get("host"), row.get("minute")), {"requests": 0})
        total["requests"] += 1
        if row:
            total["bytes"] = total.get("bytes", 0) + int(row["size"])
            total["slowest"] = max(total.get("slowest", 0.0), float(row["dltime"]))
    return found


@pytest.mark.full
def test_a_small_window_takes_few_jobs_and_checks_its_rows_once(
    make: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def check(spark: SparkSession, stream: Stream) -> None:
        checked.append(stream.name)
        check_rows(spark, stream)

    monkeypatch.setattr(window, "check_rows", check)
    live = as_the_file_says(make)
    jobs = []
    for number in range(3):
        live.produce(300)
        if number == 2:
            monkeypatch.setenv("TIDEMARK_CODE_VERSION", "another")
        before = spark.sparkContext.statusTracker().getJobIdsForGroup(None)
        live.ingest()
        jobs.append(len(set(spark.sparkContext.statusTracker().getJobIdsForGroup(None)) - set(before)))
        # Other code may refuse what this code has written.
        assert len(checked) == (2 if number == 2 else 1)
    assert max(jobs) <= MAX_JOBS


@pytest.mark.covers("P1", "G6")
def test_all_four_steps(make: Make) -> None:
    live = as_the_file_says(make)
    live.kafka.send((live.topics[0], 1, None, line.encode()) for line in LINES)
    live.produce(300)
    live.ingest()
    live.produce(60)
    live.ingest()
    messages = consume(live.kafka.settings, live.topics, live.positions())
    outcomes = {(*place, 0): cdn_outcome(value) for *place, value in messages}
    wanted = {
        place: normalised(one.fields) if one.fields else {} for place, one in outcomes.items() if one.fields is not None
    }
    assert len(wanted) > 350

    # Rows of both formats have the same columns.
    names = [*live.fields, "minute"]
    found = live.independent.hbase()
    assert found.by_place() == wanted
    assert {frozenset(fields) for _, fields in found.rows} - {frozenset()} == {frozenset(names)}
    assert live.independent.parquet(names).by_place() == wanted
    first = [
        fields for place, fields in found.rows if place[:3] in {(live.topics[0], 1, number) for number in range(3)}
    ]
    assert [(one["method"], one["host"], one["path"], one["minute"]) for one in first] == [
        ("GET", "img.example.com", "/a", "2026-11-21 06:10:00"),
        ("GET", "img.example.com", "/a", "2026-11-21 06:10:00"),
        ("POST", "img.example.com", "/", "2026-11-21 06:10:00"),
    ]

    sums = by_minute(list(wanted.values()))
    assert sums["img.example.com", "2026-11-21 06:10:00"]["requests"] == 3
    opened = live.opened
    (sink,) = [one for one in opened.stream.sinks if isinstance(one, HBaseAggregatesSink)]
    types: dict[str, Any] = {"requests": int, "bytes": int, "slowest": float}

    def aggregated() -> dict[tuple[str | None, ...], dict[str, Any]]:
        return {
            tuple(row["key"].values()): {
                name: types[name](value) for name, value in row["values"].items() if value is not None
            }
            for row in HBaseAggregatesAdmin().rows(opened, sink, sys.maxsize)
        }

    assert aggregated() == sums

    # Written back: every row once, its key the host.
    sent = counting(live, written_to(live))
    assert len(sent) == len(wanted)
    assert {place: {} if value is None else texts(json.loads(value)) for place, (_, _, value) in sent} == wanted
    assert all((key.decode() if key else None) == wanted[place].get("host") for place, (_, key, _) in sent)

    # Ten rows are deleted behind Tidemark's back: the audit finds those, and a replay reads those and nothing else.
    gone: list[Any] = sorted(wanted)[:: len(wanted) // 10][:10]
    delete(live, gone)
    report = audit(opened, "audit")
    assert [place.name for place in report.places] == ["hbase", "parquet", "hbase_aggregates", "kafka", "dead letters"]
    assert [(place.missing, place.differences) for place in report.places] == [(10, 10), *[(0, 0)] * 4]
    assert report.findings is not None
    (again,) = live.select(LaneKind.REPLAY, opened.ledger.selection(report.findings))
    ten = RangeSet(OffsetRange(TopicPartition(one[0], one[1]), one[2], one[2] + 1) for one in gone)
    assert opened.ledger.covers(again.window) == ten
    assert sum(tally.read.number for tally in again.tallies) == 10
    assert live.independent.hbase().by_place() == wanted
    assert aggregated() == sums
    report = audit(opened, "audit again")
    assert report.clean, report.sentence()


def delete(live: LiveStream, rows: list[Place]) -> None:
    """Delete result rows with plain HBase calls."""
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    for topic, partition, offset, index in rows:
        connection.table(live.name).delete(PartitionKeys(TopicPartition(topic, partition)).key(offset, index))
    connection.close()


def texts(value: dict[str, Any]) -> Fields:
    """JSON as the text that HBase has."""
    found = {name: repr(one) if isinstance(one, float) else str(one) for name, one in value.items()}
    times = {name: found[name].replace("T", " ").removesuffix(".000000Z") for name in ("time", "minute")}
    return {**found, **times}
