"""What retention is about to delete, and what it has deleted, on a real topic."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import ConfigResource, ConfigResourceType

from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tests.support.waiting import until

HOUR = 3_600_000


@pytest.fixture
def live(make: Make) -> LiveStream:
    """A stream of its own whose topic rolls a new segment for each day of messages."""
    live = make(CDN)
    alter(live, {"segment.ms": str(24 * HOUR), "retention.ms": str(168 * HOUR)})
    return live


def alter(live: LiveStream, settings: dict[str, str]) -> None:
    live.kafka.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, live.topics[0], settings)])


def send(live: LiveStream, partition: int, count: int, *, hours_ago: int) -> None:
    at = int(time.time() * 1000) - hours_ago * HOUR
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers)
    for _, value in live.example.generate(count, 500):
        producer.send(live.topics[0], value, partition=partition, timestamp_ms=at)
    producer.close()


def partitions(live: LiveStream) -> dict[int, dict[str, Any]]:
    return {one["partition"]: one for one in asked("status", str(live.file))["partitions"]}


@pytest.mark.covers("N8")
@pytest.mark.usefixtures("spark")
def test_a_warning_before_retention_deletes_the_next_unread_offset_and_lost_after_it(live: LiveStream) -> None:
    topic, file = live.topics[0], str(live.file)
    for partition in range(4):
        send(live, partition, 10, hours_ago=160)
    live.ingest()
    out, said = tidemark("status", file)
    assert (out.count("safe"), said) == (4, "")
    # Of a week, partition 1 has 10 hours left and partition 2 five days; partition 3 has nothing unread.
    send(live, 1, 5, hours_ago=158)
    send(live, 2, 5, hours_ago=48)
    now = partitions(live)
    assert {number: one["retention"] for number, one in now.items()} == {0: "safe", 1: "warning", 2: "safe", 3: "safe"}
    assert (now[1]["retention_reason"], now[2]["retention_reason"]) == ("time", "time")
    assert 9.9 * HOUR < now[1]["retention_ms"] <= 10 * HOUR
    assert 119.9 * HOUR < now[2]["retention_ms"] <= 120 * HOUR
    assert (now[0]["retention_ms"], now[3]["retention_ms"]) == (None, None)
    out, said = tidemark("status", file)
    assert said.startswith(f"EXPIRING: {topic}/1: retention.ms may delete offset 10, the next unread one, in 9 h 5")
    assert said.count("\n") == 1
    assert "warning: 9 h 5" in out
    # The stream file says how early to warn.
    live.rewrite(limits={"warn_retention_hours": 9})
    assert tidemark("status", file)[1] == ""
    # And how late is late: the window's messages were 160 hours old.
    live.rewrite(limits={"warn_retention_hours": 9}, alarm={"latency_minutes": 159 * 60, "windows": 1})
    late = "LATE: the last 1 window was late: 6 d 16 h; the limit is 6 d 15 h. "
    assert tidemark("status", file)[1].startswith(late)
    live.rewrite(limits={"warn_retention_hours": 9}, alarm={"latency_minutes": 161 * 60, "windows": 1})
    assert tidemark("status", file)[1] == ""

    # Retention becomes shorter, and the broker deletes what is too old.
    alter(live, {"segment.ms": str(24 * HOUR), "retention.ms": str(100 * HOUR)})
    until(lambda: partitions(live)[1]["log_start"] == "15", "Kafka has deleted nothing")
    now = partitions(live)
    assert {number: one["retention"] for number, one in now.items()} == {0: "safe", 1: "lost", 2: "safe", 3: "safe"}
    _, said = tidemark("status", file)
    assert said.startswith(f"LOST: {topic}/1@10-15: Kafka has deleted it before it was read. ")


@pytest.mark.full
@pytest.mark.usefixtures("spark")
def test_a_log_start_that_gains_on_the_position_is_warned_of_without_any_setting(live: LiveStream) -> None:
    """DeleteRecords by another program: no setting of the topic tells of it."""
    topic, file = live.topics[0], str(live.file)
    alter(live, {"retention.ms": "-1"})
    live.rewrite(source={"topics": list(live.topics), "start": {"offsets": {f"{topic}/0": 100}}})
    live.produce(404)
    live.ingest()
    live.produce(40)
    assert {one["retention"] for one in partitions(live).values()} == {"safe"}
    live.kafka.delete_records(topic, 0, 80)
    found = partitions(live)[0]
    assert (found["retention"], found["retention_reason"]) == ("warning", "movement")
    live.kafka.delete_records(topic, 0, 105)
    assert partitions(live)[0]["retention"] == "lost"
    said = tidemark("status", file)[1]
    assert said.startswith(f"LOST: {topic}/0@101-105: Kafka has deleted it before it was read. ")


def test_what_kafka_says_of_settings_sizes_and_timestamps(make: Make) -> None:
    live = make(CDN)
    topic, log = live.topics[0], live.opened.log
    alter(live, {"retention.ms": "-1", "retention.bytes": "5000000"})
    assert (log.retention([topic])[topic].time_ms, log.retention([topic])[topic].size_bytes) == (None, 5_000_000)
    alter(live, {"cleanup.policy": "compact", "retention.ms": "1000"})
    assert (log.retention([topic])[topic].time_ms, log.retention([topic])[topic].size_bytes) == (None, None)
    live.kafka.send([(topic, 1, b"k", b"x" * 10_000)] * 20)
    assert 200_000 < log.sizes([topic])[topic, 1] < 210_000
    assert log.sizes([topic])[topic, 0] == 0
    # A transaction's marker is no message: behind the last one there is none.
    producer = KafkaProducer(bootstrap_servers=live.kafka.servers, transactional_id=live.name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"x", b"k", partition=2, timestamp_ms=1_000_000_000_000)
    producer.commit_transaction()
    producer.close()
    assert log.timestamps({(topic, 2): (0, 2), (topic, 3): (0, 0)}) == {(topic, 2): 1_000_000_000_000}
    assert log.timestamps({(topic, 2): (1, 2)}) == {}
