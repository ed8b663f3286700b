"""What an audit finds in each kind of sink is repaired by a replay into the sinks that differ, and the next audit is clean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import happybase
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition

from tests.support.damage import delete_rows, place, rows_at
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tidemark.audit.levels import Level
from tidemark.audit.repair import verdict
from tidemark.audit.report import AuditReport
from tidemark.ledger.records import LaneKind
from tidemark.runs.auditing import repair_of
from tidemark.runs.requests import selecting
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")

KINDS = ("hbase", "parquet", "delta", "hbase_latest", "hbase_aggregates", "kafka")


def with_all(live: LiveStream) -> None:
    """A stream that writes every kind of sink."""
    live.kafka.create(f"{live.name}-out", 1)
    keyed = {"key": ["host", "method"], "regions": 2}
    aggregates = {**keyed, "values": {"rows": "count", "all": {"sum": "size"}}, "folder": f"{live.name}_sums"}
    live.rewrite(
        sinks=[
            {"type": "hbase", "table": live.name},
            {"type": "parquet", "folder": live.name},
            {"type": "delta", "folder": f"{live.name}_delta"},
            {"type": "hbase_latest", "table": f"{live.name}_newest", "folder": f"{live.name}_newest", **keyed},
            {"type": "hbase_aggregates", "table": f"{live.name}_sums", **aggregates},
            {"type": "kafka", "topic": f"{live.name}-out"},
        ]
    )


def place_of(live: LiveStream, kind: str) -> dict[str, str]:
    """Where the first window has written."""
    receipts = next(iter(live.opened.ledger.records_of("ingest"))).places
    return next(one.place for one in receipts if one.type == kind and one.name != "dead_letters")


def in_hbase(live: LiveStream) -> None:
    delete_rows(live, live.name, 0, 0, rows_at(live, 0, 0, 1)[0])


def in_parquet(live: LiveStream) -> None:
    folder = Path(place_of(live, "parquet")["folder"].removeprefix("file://"))
    file = next(one for one in sorted(folder.rglob("part-*.parquet")) if pq.read_metadata(one).num_rows > 1)
    (file.parent / f".{file.name}.crc").unlink()
    table = pq.read_table(file, partitioning=None)
    pq.write_table(table.slice(1), file, use_deprecated_int96_timestamps=True)


def in_delta(live: LiveStream) -> None:
    offset = rows_at(live, 0, 2, 1)[0]
    base = place_of(live, "delta")["base"].removeprefix("file://")
    DeltaTable(base).delete(f"_topic = '{live.topics[0]}' and _partition = 2 and _offset = {offset}")


@contextmanager
def one_row(live: LiveStream, name: str) -> Iterator[tuple[happybase.Table, bytes, dict[bytes, tuple[bytes, int]]]]:
    """A table, the key of its first row, and that row's newest cells with their timestamps."""
    with closing(happybase.Connection("127.0.0.1", live.site.port("thrift"))) as connection:
        table = connection.table(name)
        yield table, *next(row for row in table.scan(include_timestamp=True) if not row[0].startswith(b"\xff"))


def in_latest(live: LiveStream) -> None:
    """Change the newest value of a key. A delete would hide older values of the key, and those that a repair writes too."""
    with one_row(live, f"{live.name}_newest") as (table, key, cells):
        column, (value, timestamp) = next(iter(cells.items()))
        table.put(key, {column: value[:-1] + bytes([value[-1] ^ 1])}, timestamp=timestamp)


def in_aggregates(live: LiveStream) -> None:
    """Delete a row. With the cells' own timestamps: a marker with a later one would hide the repair too."""
    with one_row(live, f"{live.name}_sums") as (table, key, cells):
        for column, (_, timestamp) in cells.items():
            table.delete(key, [column], timestamp=timestamp)


def in_kafka(live: LiveStream) -> None:
    """Somebody sends a message once more: with the generation that counts, it is there twice."""
    at = KafkaTopicPartition(f"{live.name}-out", 0)
    consumer = KafkaConsumer(bootstrap_servers=live.kafka.servers, enable_auto_commit=False)
    consumer.assign([at])
    consumer.seek(at, 0)
    found = next(message for batch in consumer.poll(30_000).values() for message in batch)
    consumer.close()
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    producer.send(at.topic, found.value, found.key, headers=found.headers, partition=0).get(timeout=30)
    producer.close()


DAMAGE: dict[str, Callable[[LiveStream], None]] = {
    "hbase": in_hbase,
    "parquet": in_parquet,
    "delta": in_delta,
    "hbase_latest": in_latest,
    "hbase_aggregates": in_aggregates,
    "kafka": in_kafka,
}


def repaired(live: LiveStream, report: AuditReport, sinks: tuple[str, ...] | None) -> None:
    """As the button and `--repair execute` do."""
    planned = repair_of(live.opened, report)
    assert planned is not None
    assert (planned.replay.sinks, planned.replay.left_out) == (sinks, {})
    (record,) = live.select(LaneKind.REPLAY, planned.replay.ranges, sinks=planned.replay.sinks)
    assert {one.name for one in record.places} == ({*sinks} if sinks else {*KINDS, "dead_letters"})
    after = audit(live.opened, live.new_run(), selecting.stored_selection(live.opened, planned.audit_after))
    outcome = verdict(report, after)
    assert outcome.clean, outcome.sentence
    whole = audit(live.opened, live.new_run())
    assert whole.clean, whole.sentence()


@pytest.mark.full
@pytest.mark.covers("N10", "N14")
@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param(("hbase", "delta", "kafka"), marks=pytest.mark.full),
        ("parquet", "hbase_latest", "hbase_aggregates"),
    ],
)
def test_what_differs_is_repaired_and_the_other_sinks_are_left_alone(make: Make, kinds: tuple[str, ...]) -> None:
    live = make(CDN)
    with_all(live)
    live.produce(160)
    live.ingest()
    for kind in kinds:
        DAMAGE[kind](live)
    report = audit(live.opened, "damaged")
    assert {one.name for one in report.places if one.differences} == {*kinds}, report.sentence()
    repaired(live, report, tuple(kind for kind in KINDS if kind in kinds))


@pytest.mark.full
@pytest.mark.covers("N10")
def test_dead_letters_that_differ_are_repaired_with_all_sinks(make: Make) -> None:
    """They belong to the offset. What the level `sinks` has found is repaired too."""
    live = make(CDN)
    with_all(live)
    live.produce(160)
    live.kafka.send([(live.topics[0], 0, None, b"no line")])
    live.ingest()
    letter: Any = min(place for place in live.expected().dead if place[1] == 0)
    delete_rows(live, f"{live.name}_dead", 0, 0, letter[2])
    delete_rows(live, live.name, 0, 0, rows_at(live, 0, 0, 1)[0])
    report = audit(live.opened, "damaged", level=Level.SINKS)
    assert (place(report, "dead letters").blocks, place(report, "hbase").blocks) == (1, 1)
    repaired(live, report, None)
