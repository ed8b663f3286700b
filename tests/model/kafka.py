"""A small Kafka in memory: logs that grow, lose their beginning, are cut, and topics that are recreated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import OffsetsOutOfRange
from tidemark.offsets.ranges import RangeSet

TOPIC = "logs"


@dataclass(frozen=True)
class Message:
    """`number` rises with every message that any producer writes; a key is one of a topic."""

    number: int
    key: int


@dataclass
class Log:
    """One partition. `epochs` are (leader epoch, its first offset) pairs, ascending."""

    start: int = 0
    messages: list[Message] = field(default_factory=list)
    epochs: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    leader_epoch: int = 0

    @property
    def end(self) -> int:
        return len(self.messages)


@dataclass
class Topic:
    topic_id: str
    partitions: list[Log]
    # Where the producers write each key. A key moves only to a partition that was added.
    homes: dict[int, int]


class SmallKafka(KafkaLog):
    """The answers of a cluster with one topic; what is not overridden is the product's own."""

    def __init__(self, partitions: int = 2, keys: int = 3) -> None:
        self._produced = 0
        self._keys = keys
        self._created = 0
        # Whether anything but growth has happened: then a plan may be refused.
        self.disturbed = False
        self.topic = self._new_topic(partitions)

    def _new_topic(self, partitions: int) -> Topic:
        self._created += 1
        homes = {key: key % partitions for key in range(self._keys)}
        return Topic(f"id {self._created}", [Log() for _ in range(partitions)], homes)

    # what happens to it

    def produce(self, number: int) -> None:
        """The next messages, each to the partition of its key; the keys take turns."""
        for _ in range(number):
            self._produced += 1
            key = self._produced % self._keys
            self.topic.partitions[self.topic.homes[key]].messages.append(Message(self._produced, key))

    def produce_everywhere(self) -> None:
        """One message in each partition, of a key of its own."""
        for number, log in enumerate(self.topic.partitions):
            self._produced += 1
            log.messages.append(Message(self._produced, -1 - number))

    def add_partition(self) -> None:
        """One key moves to it at once: from now on its messages are there."""
        self.topic.partitions.append(Log())
        moving = self._produced % self._keys
        self.topic.homes[moving] = len(self.topic.partitions) - 1

    def recreate(self, partitions: int) -> None:
        self.disturbed = True
        self.topic = self._new_topic(partitions)

    def cut(self, partition: int, by: int) -> None:
        """An unclean election: the last messages are lost, and another leader writes on."""
        self.disturbed = True
        log = self._log(partition)
        end = max(log.start, log.end - by)
        del log.messages[end:]
        log.epochs = [(epoch, first) for epoch, first in log.epochs if first <= end]
        log.leader_epoch += 1
        log.epochs.append((log.leader_epoch, end))

    def delete(self, partition: int, number: int) -> None:
        """Retention: the first messages of a log are gone."""
        log = self._log(partition)
        self.disturbed = True
        log.start = min(log.start + number, log.end)

    def _log(self, partition: int) -> Log:
        return self.topic.partitions[partition % len(self.topic.partitions)]

    # what it says

    def names(self) -> set[str]:
        return {TOPIC}

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        logs = {
            number: PartitionLog(log.start, log.end, log.leader_epoch)
            for number, log in enumerate(self.topic.partitions)
        }
        return {name: TopicLog(self.topic.topic_id, logs) for name in names if name == TOPIC}

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        ends = {}
        for (topic, partition), epoch in asked.items():
            log = self._log(partition)
            ends[topic, partition] = next((first for newer, first in log.epochs if newer > epoch), log.end)
        return ends

    def high_watermarks(self, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
        return {(TOPIC, number): log.end for number, log in enumerate(self.topic.partitions)}

    def read(self, covers: RangeSet) -> dict[tuple[str, int, int, int], Message]:
        """The messages at some offsets, by coordinate. Raises OffsetsOutOfRange, as Spark's source does."""
        found = {}
        for one in covers:
            number = one.partition.partition
            log = self._log(number)
            if number >= len(self.topic.partitions) or one.start < log.start or one.until > log.end:
                raise OffsetsOutOfRange(f"{one} is not in the log [{log.start}, {log.end})")
            for offset in range(one.start, one.until):
                found[one.partition.topic, one.partition.incarnation, number, offset] = log.messages[offset]
        return found
