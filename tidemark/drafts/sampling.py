"""The newest messages of a topic, to look at before there is a stream."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from kafka import TopicPartition as KafkaTopicPartition

from tidemark.clients.kafka.consuming import consumer_of, reads_topic, records_of
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_COMMITTED, PartitionLog
from tidemark.errors import WrongUse
from tidemark.offsets.ranges import MAX_OFFSET

# Messages can have megabytes each, and a look needs no more than this of all of them.
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class SampledMessage:
    """A message: its place, as `orders/0@17`, its value, and the names of its headers."""

    at: str
    value: bytes | None
    headers: tuple[str, ...] = ()


def newest(log: KafkaLog, topic: str, most: int) -> list[SampledMessage]:
    """Up to `most` messages from the ends of a topic's partitions, about as many of each; up to 64 MiB of values.

    Raises WrongUse when there is no such topic, or no message in it; NotAuthorized and Unreachable.
    """
    topic_log = log.topics([topic], READ_COMMITTED).get(topic)
    if topic_log is None:
        near = difflib.get_close_matches(topic, sorted(log.names()), 3)
        raise WrongUse(
            f"{log.endpoint} has no topic {topic}: name one that is there"
            + (f", as {' or '.join(near)}" if near else "")
        )
    # The last offsets of a compacted topic may have no messages left.
    seen = list(_newest(log, topic, topic_log.partitions, most))
    seen = seen or list(islice(_newest(log, topic, topic_log.partitions, MAX_OFFSET), most))
    if not seen:
        raise WrongUse(
            f"{topic} has no messages, and a stream file is drafted from them: produce some, or write the file by hand "
            "(docs/stream-files.md)"
        )
    return seen


def _newest(log: KafkaLog, topic: str, partitions: Mapping[int, PartitionLog], most: int) -> Iterator[SampledMessage]:
    left, size = most, 0
    filled = sorted(
        (partition.end - partition.start, number)
        for number, partition in partitions.items()
        if partition.end > partition.start
    )
    with consumer_of(log.endpoint, READ_COMMITTED) as consumer, reads_topic(log.endpoint, topic):
        for index, (held, number) in enumerate(filled):
            # Short partitions leave their share to the others.
            share = min(held, -(-left // (len(filled) - index)))
            left -= share
            end = partitions[number].end
            at = KafkaTopicPartition(topic, number)
            for record in records_of(consumer, at, end, end - share) if share else ():
                names = tuple(name for name, _ in record.headers or ())
                yield SampledMessage(f"{topic}/{number}@{record.offset}", record.value, names)
                size += len(record.value or b"")
                if size > MAX_BYTES:
                    return
