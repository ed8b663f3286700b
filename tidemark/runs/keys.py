"""Which offsets hold messages with one key: by reading Kafka's logs, and by the dead letters, which keep keys."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.errors import TopicAuthorizationFailedError

from tidemark.clients.kafka.admission import kafka_errors, lacking
from tidemark.clients.kafka.clients import python_settings
from tidemark.errors import Unreachable, WrongUse
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.planner import offsets_within
from tidemark.runs.discovery import known_now, topics_now
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.reading import hbase_rows

_HEX = "hex:"
# As other questions to a broker that is up: it answers in milliseconds, and a leader election takes a few seconds.
_TIMEOUT_MS = 20_000


@dataclass(frozen=True)
class WithKey:
    """The offsets with a key: those that were read in Kafka, and dead letters. `unseen` offsets could not be looked at."""

    offsets: RangeSet
    read: int
    dead_letters: int
    unseen: int

    def sentence(self) -> str:
        text = (
            f"{self.offsets.count()} messages have the key, {self.dead_letters} of them dead letters: {self.read} offsets "
            "were read in Kafka"
        )
        if self.unseen:
            text += (
                f". {self.unseen} offsets that windows have read are no longer in Kafka: only dead letters of them have "
                "their keys. Name others by --records"
            )
        return text


def parse_key(said: str) -> bytes:
    """A key as people write it: text, or `hex:` with hexadecimal digits. Raises WrongUse."""
    if not said.startswith(_HEX):
        return said.encode()
    try:
        return bytes.fromhex(said.removeprefix(_HEX))
    except ValueError:
        raise WrongUse(f"--key {said!r}: expected hexadecimal digits after {_HEX}, two for each byte") from None


def with_key(opened: OpenStream, key: bytes) -> WithKey:
    """The offsets below the ingest positions with this key. Reads all of them that Kafka still holds, one by one.

    Messages that Kafka has deleted are found only where a dead letter counts. Raises WrongUse, Unreachable.
    """
    head = opened.book.head(INGEST)
    if head is None:
        raise WrongUse(f"{opened.book.stream} has not been read yet: there is nothing to erase")
    below = RangeSet(OffsetRange(at, 0, offset) for at, offset in head.head.offsets().items())
    held = offsets_within(known_now(opened, topics_now(opened), learn=False), below)
    found = RangeSet(one for part in held for one in _in_kafka(opened, part, key))
    letters = RangeSet(
        OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1)
        for row in hbase_rows(opened.book, opened.dead_letter_table(), None)
        if row.fields.get("key") == key
    )
    unseen = opened.book.authority().covered() - held
    return WithKey(found | letters, held.count(), letters.count(), unseen.count())


def _in_kafka(opened: OpenStream, wanted: OffsetRange, key: bytes) -> list[OffsetRange]:
    """The messages with a key in a range that Kafka holds. Also those of aborted transactions: they are harmless here."""
    cluster, at = opened.log.endpoint, wanted.partition
    place = KafkaTopicPartition(at.topic, at.partition)
    found = []
    with kafka_errors(cluster):
        consumer = KafkaConsumer(
            **python_settings(cluster),
            group_id=None,
            enable_auto_commit=False,
            isolation_level="read_uncommitted",
            allow_auto_create_topics=False,
            bootstrap_timeout_ms=_TIMEOUT_MS,
        )
        with closing(consumer):
            consumer.assign([place])
            consumer.seek(place, wanted.start)
            try:
                for offset in _with_key(consumer, place, wanted, key):
                    found.append(
                        OffsetRange(TopicPartition(at.topic, at.partition, at.incarnation), offset, offset + 1)
                    )
            except TopicAuthorizationFailedError as problem:
                raise lacking(cluster, "Read", f"topic {at.topic}") from problem
    return found


def _with_key(consumer: Any, place: Any, wanted: OffsetRange, key: bytes) -> Any:
    last = None
    while (position := consumer.position(place, timeout_ms=_TIMEOUT_MS)) is not None and position < wanted.until:
        records = consumer.poll(timeout_ms=_TIMEOUT_MS).get(place, ())
        if not records and position == last:
            raise Unreachable(f"Kafka gave nothing of {wanted.partition} from {position} on")
        last = position
        yield from (one.offset for one in records if one.offset < wanted.until and one.key == key)
    if position is None:
        raise Unreachable(f"Kafka did not say in time where {wanted.partition} is read")
