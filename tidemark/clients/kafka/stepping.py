"""Reading a partition's messages step by step, for people who look through them: whoever reads may stop after any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import OffsetOutOfRangeError

from tidemark.clients.kafka.consuming import consumer_of, reads_topic
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.slots import KafkaMessage, message_of
from tidemark.errors import OffsetsOutOfRange
from tidemark.offsets import time_limit

# One answer of the broker: little enough to be thrown away. A batch that is larger comes whole.
_FETCH_BYTES = 1 << 20
_MESSAGES = 500
_WAIT_MS = 250


@dataclass(frozen=True)
class MessageStep:
    """The messages below `until` that come after the step before; there are no others."""

    until: int
    messages: tuple[tuple[int, KafkaMessage], ...]


# The steps through offsets [start, until) of a topic's partition; the last one ends at `until`.
Steps = Callable[[str, int, int, int], Iterator[MessageStep]]


@contextmanager
def stepping(endpoint: KafkaEndpoint, isolation: str, timeout_ms: int) -> Iterator[Steps]:
    """Reads partitions, one after the other, at an isolation level. While Kafka says nothing, steps are empty.

    Raises Unreachable, NotAuthorized, and OffsetsOutOfRange for offsets that Kafka has just deleted.
    """
    more = {
        # An offset that Kafka no longer holds is an error, and nothing else is shown instead.
        "auto_offset_reset": "none",
        "max_partition_fetch_bytes": _FETCH_BYTES,
        "fetch_max_bytes": _FETCH_BYTES,
        "max_poll_records": _MESSAGES,
        "bootstrap_timeout_ms": timeout_ms,
    }
    with consumer_of(endpoint, isolation, **more) as consumer:

        def steps(topic: str, partition: int, start: int, until: int) -> Iterator[MessageStep]:
            with reads_topic(endpoint, topic):
                yield from _steps(consumer, KafkaTopicPartition(topic, partition), start, until)

        yield steps


def _steps(consumer: Any, at: KafkaTopicPartition, start: int, until: int) -> Iterator[MessageStep]:
    consumer.assign([at])
    consumer.seek(at, start)
    reached = start
    while reached < until:
        time_limit.look()
        try:
            polled = consumer.poll(timeout_ms=_WAIT_MS).get(at, ())
            position = consumer.position(at, timeout_ms=_WAIT_MS)
        except OffsetOutOfRangeError as problem:
            said = f"Kafka has just deleted offsets of {at.topic}/{at.partition} that were to be read; ask again"
            raise OffsetsOutOfRange(said) from problem
        # Markers and compacted offsets give no message, but the consumer's position passes them.
        reached = max(reached, min(until, position or 0))
        yield MessageStep(reached, tuple((one.offset, message_of(one)) for one in polled if one.offset < until))
