"""Messages as brokers before 0.11 wrote them, which a newer broker keeps as they are and hands out."""

from __future__ import annotations

import secrets
import struct
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from services import control
from services.site import Site
from tests.support.live_streams import Kafka, Make
from tests.support.oracle import Example, Outcome
from tidemark.spark.jobs.audit import audit

TIME = 1_795_244_400_120
OLD: list[tuple[int, int | None, bytes | None, bytes | None]] = [
    # Format, time, key, value.
    (0, None, b"a", b"oldest"),
    (0, None, None, b""),
    (0, None, b"a", None),
    (1, TIME, b"b", b"older"),
    (1, -1, b"", b"no time"),
]
RAW: dict[str, Any] = {
    "source": {},
    "scheme": {"type": "raw", "keep": ["headers", "timestamp", "timestamp_type"]},
    "sinks": [{"type": "hbase", "table": "-"}, {"type": "parquet", "folder": "-"}],
    "dead_letters": {"type": "hbase", "table": "-"},
}


def put_before(site: Site, topic: str) -> None:
    """Put the old messages before what is in the log of a broker that is down."""
    (file,) = site.folder("kafka", "data", f"{topic}-0").glob("*.log")
    old = bytearray()
    for offset, (magic, time, key, value) in enumerate(OLD):
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=1_000)
        builder.append(0, time, key, value)
        # A message of these formats begins with its offset, and its checksum leaves that out.
        old += struct.pack(">q", offset) + builder.build()[8:]
    file.write_bytes(bytes(old) + struct.pack(">q", len(OLD)) + file.read_bytes()[8:])
    for index in [*file.parent.glob("*.index"), *file.parent.glob("*.timeindex"), *file.parent.glob("*.snapshot")]:
        index.unlink()
    for mark in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (site.folder("kafka", "data") / mark).unlink(missing_ok=True)


@pytest.mark.covers("E17")
@pytest.mark.usefixtures("spark")
def test_messages_without_headers_and_without_a_time_are_read(make: Make, other_kafka: tuple[Site, Kafka]) -> None:
    other, kafka = other_kafka
    topic = f"old-{secrets.token_hex(3)}"
    kafka.create(topic, 1)
    producer = KafkaProducer(bootstrap_servers=kafka.servers)
    producer.send(topic, b"today", b"c", [("h", b"\xff")], partition=0, timestamp_ms=TIME).get(timeout=30)
    producer.close()
    control.down(other, ("kafka",), report=lambda line: None)
    put_before(other, topic)
    control.up(other, ("kafka",), report=lambda line: None)

    example = Example("old", RAW, (), 1, lambda count, first: iter(()), lambda value: Outcome({}, None))
    live = make(example, source={"topics": [topic], "kafka": "kafka_other"})
    (record,) = live.ingest()
    (tally,) = record.tallies
    assert (tally.read.number, tally.first_timestamp, tally.last_timestamp) == (len(OLD) + 1, TIME, TIME)
    timed = {"timestamp": "2026-11-21 07:00:00.12", "timestamp_type": "CreateTime"}
    wanted = {
        (topic, 0, 0, 0): {"key": "a", "value": "oldest"},
        (topic, 0, 1, 0): {"value": ""},
        (topic, 0, 2, 0): {"key": "a"},
        (topic, 0, 3, 0): {"key": "b", "value": "older", **timed},
        (topic, 0, 4, 0): {"key": "", "value": "no time", "timestamp_type": "CreateTime"},
        (topic, 0, 5, 0): {"key": "c", "value": "today", "headers": '[{"key":"h","value":"/w=="}]', **timed},
    }
    fields = ["key", "value", "headers", "timestamp", "timestamp_type"]
    assert live.independent.hbase().by_place() == wanted
    assert live.independent.parquet(fields).by_place() == wanted
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
