"""The messages that a sink in Kafka has of one source message. No key leads to them, so the time of the writing does."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from kafka import TopicPartition as KafkaTopicPartition

from tidemark.clients.kafka.consuming import consumer_of, reads_topic, records_of
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.kafka.messages import Origin
from tidemark.sinks.stored_rows import Mark, StoredRow

# This many messages of some hundred bytes take a consumer a second or two.
MAX_MESSAGES = 20_000
# A message may have any number of rows.
MAX_ROWS = 20
# Clocks of the machines that write, and of the broker that may set the time, differ by less.
_CLOCKS_MS = 60_000


def messages_of(
    cluster: KafkaEndpoint, topics: Sequence[str], stream: str, at: Coordinate, record: Record
) -> list[StoredRow] | str:
    """The messages of a source message as rows: with topic, partition and offset of each, its key and its value.

    In a sentence, why there are none: a topic may have deleted them. Raises TidemarkError.
    """
    with closing(KafkaLog(cluster)) as log:
        written = _written(log, topics, record)
    number = sum(one.until - one.start for one in written)
    if number > MAX_MESSAGES:
        within = ", ".join(map(str, written[:5])) + (f" and {len(written) - 5} more" if len(written) > 5 else "")
        return f"it is one of {_grouped(number)} messages in {within}; up to {_grouped(MAX_MESSAGES)} are searched"
    by_index: dict[int, StoredRow] = {}
    with consumer_of(cluster) as consumer:
        for one in written:
            place = KafkaTopicPartition(one.partition.topic, one.partition.partition)
            with reads_topic(cluster, place.topic):
                for message in records_of(consumer, place, one.until, one.start):
                    origin = _origin(message, stream, at, record.attempt.generation)
                    # A task that Spark ran twice has written its messages twice; the first of them counts.
                    if origin is not None and len(by_index) < MAX_ROWS:
                        by_index.setdefault(origin.place.index, _row(origin, message))
    if not by_index:
        among = number_of(_grouped(number), "message")
        return f"it is not among the {among} of its window's time; the topic may have deleted it"
    return [by_index[index] for index in sorted(by_index)]


def _grouped(number: int) -> str:
    """Digits in groups of three, as the pages write them."""
    return f"{number:,}".replace(",", " ")


def _written(log: KafkaLog, topics: Sequence[str], record: Record) -> list[OffsetRange]:
    """Where the attempt may have written, by the times of the messages."""
    logs = log.topics(topics, READ_UNCOMMITTED)
    first = log.first_at_or_after(logs, record.attempt.taken_at - _CLOCKS_MS, READ_UNCOMMITTED)
    after = log.first_at_or_after(logs, record.committed_at + _CLOCKS_MS, READ_UNCOMMITTED)
    ranges = []
    for topic, one in logs.items():
        for number, bounds in one.partitions.items():
            start, until = first.get((topic, number)), after.get((topic, number))
            if start is not None:
                ranges.append(OffsetRange(TopicPartition(topic, number), start, bounds.end if until is None else until))
    return [one for one in ranges if one.start < one.until]


def _origin(message: object, stream: str, at: Coordinate, generation: int) -> Origin | None:
    origin = Origin.of(message.headers)  # type: ignore[attr-defined]
    if origin is None or origin.stream != stream or origin.generation != generation:
        return None
    return origin if (origin.place.partition, origin.place.offset) == (at.partition, at.offset) else None


def _row(origin: Origin, message: object) -> StoredRow:
    topic, partition, offset, key, value = (
        getattr(message, name) for name in ("topic", "partition", "offset", "key", "value")
    )
    fields = {"written to": f"{topic}/{partition}@{offset}".encode(), "key": key, "value": value}
    mark = Mark(origin.generation, 0, origin.lane, origin.seq, tombstone=value is None)
    return StoredRow(origin.place, mark, {name: part for name, part in fields.items() if part is not None})
