"""The planner's inputs: who asks, under which policies, and what Kafka and the ledger know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.ledger.records import (
    Guarantee,
)
from tidemark.offsets.ranges import TopicPartition


@dataclass(frozen=True)
class Policies:
    """A policy for offsets that the ledger knows and Kafka no longer has: stop (`fail`), or another of the stream file's."""

    # Go on at the `earliest` or `latest` offset that is there.
    on_out_of_range: str = "fail"
    # `accept` a recreated topic, or a log that was cut and written again, as a new incarnation.
    on_recreated: str = "fail"
    on_truncated: str = "fail"
    # `leave` a deleted topic, and read the others.
    on_deleted: str = "fail"


@dataclass(frozen=True)
class Request:
    """Who asks for a window, and under which conditions. `now` is milliseconds since 1970."""

    topics: tuple[str, ...]
    isolation: str
    run: str
    now: int
    reason: str | None = None
    max_records: int | None = None
    policies: Policies = Policies()
    by_topic: Mapping[str, Policies] = field(default_factory=dict)
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    # Bytes, estimated by `bytes_per_offset`; a partition that it does not name counts UNKNOWN_BYTES per offset.
    max_bytes: int | None = None
    bytes_per_offset: Mapping[TopicPartition, float] | None = None
    # The most offsets that a partition may lag: with more, its reading begins this far below its end. None means no limit.
    max_behind: int | None = None
    # The sinks that the window writes. None if all of them, and the dead letters.
    sinks: tuple[str, ...] | None = None

    def policy(self, topic: str) -> Policies:
        return self.by_topic.get(topic, self.policies)


@dataclass(frozen=True)
class KafkaState:
    """Kafka's state of the topics now, and the incarnation of each topic id in the ledger.

    `chosen`: only these partitions of each topic are read; None for all. `left`: deleted topics that the stream leaves.
    `newest`: each topic's newest incarnation, whatever its id. `starts`: where partitions of an accepted incarnation
    begin. `epoch_ends`: for partitions with a newer leader, where the log of the older leader ends.
    """

    logs: Mapping[str, TopicLog]
    incarnations: Mapping[str, int]
    chosen: Mapping[str, tuple[int, ...]] | None = None
    left: frozenset[str] = frozenset()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    newest: Mapping[str, int] = field(default_factory=dict)

    def partitions(self) -> dict[TopicPartition, PartitionLog]:
        """The partitions of the topics that the ledger knows by their ids."""
        return {
            TopicPartition(topic, partition, self.incarnations[topic]): log
            for topic, topic_log in self.logs.items()
            if topic in self.incarnations
            for partition, log in topic_log.partitions.items()
        }

    def begins(self, at: TopicPartition, log: PartitionLog) -> int:
        """A partition's first offset. Below the cut of an accepted incarnation, messages belong to the earlier incarnation."""
        return min(max(log.start, self.starts.get(at, 0)), log.end)

    def to_read(self) -> dict[TopicPartition, PartitionLog]:
        """The known partitions that the stream reads, in order."""
        chosen = self.chosen
        return {
            at: log
            for at, log in sorted(self.partitions().items())
            if chosen is None or at.partition in chosen.get(at.topic, ())
        }
