"""Counting messages by their timestamps: reads them, since Kafka has no index from which they could be counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import OffsetOutOfRangeError

from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.errors import OffsetsOutOfRange, Unreachable
from tidemark.offsets import time_limit

# How long to wait for a single answer.
_STEP_MS = 500


def count_between(
    endpoint: KafkaEndpoint,
    ranges: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
    times: tuple[int, int],
    isolation: str,
    timeout_ms: int,
    passed: Callable[[int], None],
) -> int:
    """How many messages at these offsets have a timestamp in [since, until) ms; (start, until) pairs per partition.

    Calls `passed` with the number of offsets that it has passed since the last call.
    Raises Unreachable when nothing comes for `timeout_ms`, and OffsetsOutOfRange when Kafka has deleted the offsets.
    """
    consumer = KafkaConsumer(
        **python_settings(endpoint),
        group_id=None,
        enable_auto_commit=False,
        isolation_level=isolation,
        # An offset that Kafka no longer holds is an error, and nothing else is counted instead.
        auto_offset_reset="none",
        bootstrap_timeout_ms=timeout_ms,
    )
    try:
        return sum(
            _count(consumer, KafkaTopicPartition(*place), interval, times, timeout_ms, passed)
            for place, intervals in ranges.items()
            for interval in intervals
        )
    except OffsetOutOfRangeError as problem:
        raise OffsetsOutOfRange(
            f"Kafka has just deleted offsets that were to be counted ({problem}); ask again"
        ) from None
    finally:
        consumer.close()


def _count(
    consumer: KafkaConsumer,
    at: KafkaTopicPartition,
    interval: tuple[int, int],
    times: tuple[int, int],
    timeout_ms: int,
    passed: Callable[[int], None],
) -> int:
    start, until = interval
    consumer.assign([at])
    consumer.seek(at, start)
    number, reached = 0, start
    deadline = time.monotonic() + timeout_ms / 1000
    while reached < until:
        time_limit.look()
        polled = consumer.poll(timeout_ms=_STEP_MS).get(at, ())
        number += sum(message.offset < until and times[0] <= message.timestamp < times[1] for message in polled)
        # Markers and compacted offsets give no message, but the consumer's position passes them.
        now = consumer.position(at, timeout_ms=_STEP_MS)
        if now is not None and now > reached:
            passed(min(now, until) - reached)
            reached, deadline = now, time.monotonic() + timeout_ms / 1000
        elif time.monotonic() > deadline:
            raise Unreachable(f"Kafka gave nothing of {at.topic}/{at.partition} from offset {reached} on; try again")
    return number
