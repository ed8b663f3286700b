"""Reading records of Kafka one after another, without Spark: by a consumer that joins no group and stores no offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import TopicAuthorizationFailedError

from tidemark.clients.kafka.admission import kafka_errors, lacking
from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.errors import Unreachable
from tidemark.offsets import time_limit

# A broker that is up answers in milliseconds; a leader election takes a few seconds.
_TIMEOUT_MS = 20_000


@contextmanager
def consumer_of(cluster: KafkaEndpoint, isolation: str = READ_UNCOMMITTED, **more: Any) -> Iterator[Any]:
    """A consumer, by default one that reads uncommitted messages too; `more` settings as kafka-python has them.

    Errors of Kafka inside become Tidemark's.
    """
    with kafka_errors(cluster):
        settings = {
            **python_settings(cluster),
            "group_id": None,
            "enable_auto_commit": False,
            "isolation_level": isolation,
            "allow_auto_create_topics": False,
            "bootstrap_timeout_ms": _TIMEOUT_MS,
        }
        consumer = KafkaConsumer(**settings | more)
        with closing(consumer):
            yield consumer


@contextmanager
def reads_topic(cluster: KafkaEndpoint, topic: str) -> Iterator[None]:
    """Raises NotAuthorized, with the right that is lacking, where a topic may not be read."""
    try:
        yield
    except TopicAuthorizationFailedError as problem:
        raise lacking(cluster, "Read", f"topic {topic}") from problem


def records_of(consumer: Any, at: KafkaTopicPartition, end: int, start: int | None = None) -> Iterator[Any]:
    """The records of a partition from `start` (None: its beginning) up to `end`. Raises Unreachable."""
    consumer.assign([at])
    if start is None:
        consumer.seek_to_beginning(at)
    else:
        consumer.seek(at, start)
    last = None
    while True:
        time_limit.look()
        position = consumer.position(at, timeout_ms=_TIMEOUT_MS)
        if position is None:
            raise Unreachable(f"Kafka did not say in time where {at.topic}/{at.partition} begins; its end is {end}")
        if position >= end:
            return
        records = consumer.poll(timeout_ms=_TIMEOUT_MS).get(at, ())
        if not records and position == last:
            raise Unreachable(f"Kafka gave nothing of {at.topic}/{at.partition} from {position} on; its end is {end}")
        last = position
        yield from (record for record in records if record.offset < end)
