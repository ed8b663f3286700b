"""Results in Kafka: the headers of every message, and a reader that returns only messages that count.

    tidemark.format       1
    tidemark.stream       the stream that wrote it
    tidemark.topic        the coordinate: where the source message was read
    tidemark.incarnation
    tidemark.partition
    tidemark.offset
    tidemark.index        of the row in its message
    tidemark.generation   of the attempt that wrote it
    tidemark.lane         the window: its lane
    tidemark.window       and its number there

All values are UTF-8 text, numbers are decimal.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from kafka import TopicPartition as KafkaTopicPartition

from tidemark.clients.kafka.consuming import consumer_of, reads_topic, records_of
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.errors import NotAuthorized, WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.ledger import Ledger
from tidemark.offsets.authority import Authority
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.stored_rows import Place

TYPE = "kafka"
FORMAT = "1"

HEADER_NAMES = tuple(
    f"tidemark.{name}"
    for name in (
        "format",
        "stream",
        "topic",
        "incarnation",
        "partition",
        "offset",
        "index",
        "generation",
        "lane",
        "window",
    )
)
# Messages of each partition that say whose a topic is; the last one may be of another program.
_NEWEST = 100
_BLOCK_BITS = 16
# A list of this many offsets is as large as a bit for each offset of the block.
_FEW = 1 << (_BLOCK_BITS - 4)


@dataclass(frozen=True, slots=True)
class Origin:
    """The contents of a message's headers: the stream and coordinate of the result, and the attempt that wrote it."""

    stream: str
    place: Place
    generation: int
    lane: str
    seq: int

    def headers(self) -> list[tuple[str, bytes]]:
        at = self.place.partition
        values = (FORMAT, self.stream, at.topic, at.incarnation, at.partition, self.place.offset, self.place.index)
        texts = map(str, (*values, self.generation, self.lane, self.seq))
        return [(name, text.encode()) for name, text in zip(HEADER_NAMES, texts, strict=True)]

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes]]) -> Origin | None:
        """The origin in these headers; None for a message of another program. Raises ValueError for another format."""
        values = {name: value for name, value in headers if name in HEADER_NAMES}
        if not values:
            return None
        if values.get("tidemark.format") != FORMAT.encode() or len(values) < len(HEADER_NAMES):
            raise ValueError(f"not the headers of format {FORMAT}: {values!r}")
        _, stream, topic, incarnation, partition, offset, index, generation, lane, seq = (
            values[name].decode() for name in HEADER_NAMES
        )
        place = Place(TopicPartition(topic, int(partition), int(incarnation)), int(offset), int(index))
        return cls(stream, place, int(generation), lane, int(seq))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message that counts: its origin, topic, key and value. `value` None: a tombstone."""

    origin: Origin
    topic: str
    key: bytes | None
    value: bytes | None


def kafka_messages(ledger: Ledger, cluster: KafkaEndpoint, topics: Sequence[str], sink: str) -> Iterator[StoredMessage]:
    """The messages of a stream's sink that count when this is called, each once; partition after partition.

    An attempt writes its messages before the commit makes them count, and Tidemark never removes messages. So the
    reader takes the ledger first, then the ends of the topics, and has to read nothing again. Raises WrongUse,
    Unreachable.
    """
    authority = for_readers(ledger).authority(sink)
    return only_counting(_messages(cluster, topics), ledger.stream, authority)


def only_counting(
    messages: Iterable[tuple[Sequence[tuple[str, bytes]], str, bytes | None, bytes | None]],
    stream: str,
    authority: Authority,
) -> Iterator[StoredMessage]:
    """The messages (headers, topic, key, value) of the stream whose generation counts at their coordinate, each once.

    A task that Spark ran twice has written its messages twice, with the same generation. The first of them is given.
    """
    seen = _PlacesRead()
    for headers, topic, key, value in messages:
        origin = Origin.of(headers)
        if origin is None or origin.stream != stream:
            continue
        if authority.of(origin.place.partition, origin.place.offset) == origin.generation and seen.add(origin.place):
            yield StoredMessage(origin, topic, key, value)


class _PlacesRead:
    """The places that the reader has given: for each index of a row, the offsets in blocks of 65,536."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[TopicPartition, int], dict[int, _Offsets]] = {}

    def add(self, place: Place) -> bool:
        """Whether the place is new."""
        by_index = self._blocks.setdefault((place.partition, place.offset >> _BLOCK_BITS), {})
        offsets = by_index.get(place.index)
        if offsets is None:
            offsets = by_index[place.index] = _Offsets()
        return offsets.add(place.offset & ((1 << _BLOCK_BITS) - 1))


class _Offsets:
    """Offsets of a block: a few as a sorted list of two bytes each, many as a bit for each offset of the block.

    A message with thousands of rows needs thousands of these objects, and most of them hold few other offsets.
    """

    __slots__ = ("_bits", "_few")

    def __init__(self) -> None:
        self._few: array[int] | None = array("H")
        self._bits = bytearray()

    def add(self, offset: int) -> bool:
        """Whether the offset is new."""
        if self._few is None:
            return _set(self._bits, offset)
        at = bisect_left(self._few, offset)
        if at < len(self._few) and self._few[at] == offset:
            return False
        self._few.insert(at, offset)
        if len(self._few) >= _FEW:
            self._bits, few, self._few = bytearray(1 << (_BLOCK_BITS - 3)), self._few, None
            for one in few:
                _set(self._bits, one)
        return True


def _set(bits: bytearray, number: int) -> bool:
    """Set a bit; returns whether it was unset before."""
    at, bit = divmod(number, 8)
    if bits[at] >> bit & 1:
        return False
    bits[at] |= 1 << bit
    return True


def newest_origins(cluster: KafkaEndpoint, topics: Sequence[str]) -> Iterator[tuple[str, Origin]]:
    """The origins of the last messages of some topics, with the topic; of a few in each partition.

    A topic that is not there yet, or that this user may only write to, says nothing. Raises Unreachable.
    """
    for topic in topics:
        try:
            for headers in _newest(cluster, topic):
                with suppress(ValueError):
                    if (origin := Origin.of(headers)) is not None:
                        yield topic, origin
        except NotAuthorized:
            continue


def _newest(cluster: KafkaEndpoint, topic: str) -> Iterator[list[tuple[str, bytes]]]:
    """The headers of the last messages of each partition."""
    with consumer_of(cluster) as consumer, reads_topic(cluster, topic):
        partitions = [
            KafkaTopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        starts = consumer.beginning_offsets(partitions) if partitions else {}
        for at, end in sorted(consumer.end_offsets(partitions).items() if partitions else ()):
            for record in records_of(consumer, at, end, max(starts[at], end - _NEWEST)):
                yield list(record.headers)


def _messages(
    cluster: KafkaEndpoint, topics: Sequence[str]
) -> Iterator[tuple[list[tuple[str, bytes]], str, bytes | None, bytes | None]]:
    """Every message up to the present ends, partition after partition.

    Reads uncommitted messages too: Tidemark writes without a transaction. Another program's open one must hide none.
    """
    with consumer_of(cluster) as consumer:
        for topic in topics:
            with reads_topic(cluster, topic):
                yield from _of_topic(consumer, cluster, topic)


def _of_topic(
    consumer: Any, cluster: KafkaEndpoint, topic: str
) -> Iterator[tuple[list[tuple[str, bytes]], str, bytes | None, bytes | None]]:
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise WrongUse(f"Kafka at {cluster} has no topic {topic}")
    partitions = [KafkaTopicPartition(topic, number) for number in sorted(numbers)]
    for at, end in sorted(consumer.end_offsets(partitions).items()):
        for record in records_of(consumer, at, end):
            yield list(record.headers), topic, record.key, record.value
