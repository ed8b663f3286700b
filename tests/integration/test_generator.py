"""The generator on a real Kafka: exactly what was asked for arrives, and what Kafka refuses is said."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import MessageSizeTooLargeError

from demo.cdn_lines import messages, produce
from tests.support.live_streams import Kafka


@pytest.fixture
def topic() -> str:
    return f"lines-{secrets.token_hex(3)}"


def test_exactly_the_messages_that_were_asked_for_arrive_in_order(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, 1)
    began = datetime.now(UTC)
    produce(kafka.servers, topic, 150, rate=1_000)
    produce(kafka.servers, topic, 250, first=150)
    with KafkaConsumer(bootstrap_servers=kafka.servers, group_id=None) as consumer:
        at = TopicPartition(topic, 0)
        consumer.assign([at])
        assert consumer.end_offsets([at]) == {at: 400}
        consumer.seek_to_beginning(at)
        found: list[Any] = []
        while len(found) < 400:
            found += consumer.poll(timeout_ms=1_000).get(at, [])
    expected = list(messages(400, began))
    assert [one.key for one in found] == [one.key for one in expected]
    assert [one.value is None for one in found] == [one.value is None for one in expected]
    # Each call's last message is from just before it: nothing is from the future, and all of it is from today.
    ends = [found[149].timestamp, found[399].timestamp]
    assert began.timestamp() * 1000 - 1_000 < ends[0] <= ends[1] < datetime.now(UTC).timestamp() * 1000


def test_batches_that_are_too_large_for_the_topic_arrive_in_parts(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, 1, **{"max.message.bytes": "4000"})
    produce(kafka.servers, topic, 400)
    with KafkaConsumer(bootstrap_servers=kafka.servers, group_id=None) as consumer:
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 400}


def test_what_kafka_refuses_is_raised(kafka: Kafka, topic: str) -> None:
    kafka.create(topic, 1, **{"max.message.bytes": "100"})
    with pytest.raises(MessageSizeTooLargeError):
        produce(kafka.servers, topic, 20)
