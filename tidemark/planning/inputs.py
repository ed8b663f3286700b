"""What the planner is given: who asks and under which policies, and what Kafka and the ledger know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemark.kafka.topics import PartitionLog, TopicLog
from tidemark.ledger.records import (
    Guarantee,
)
from tidemark.ranges import TopicPartition


@dataclass(frozen=True)
class Policies:
    """What to do when Kafka no longer has what the ledger knows: stop (`fail`), or what a stream file says in its place."""

    # Go on at the `earliest` or `latest` offset that is there.
    on_out_of_range: str = "fail"
    # `accept` a recreated topic, or a log that was cut and written anew, as a new incarnation.
    on_recreated: str = "fail"
    on_truncated: str = "fail"
    # `leave` a deleted topic: read the others.
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
    # Bytes, as far as `bytes_per_offset` tells; partitions that it does not name count as UNKNOWN_BYTES an offset.
    max_bytes: int | None = None
    bytes_per_offset: Mapping[TopicPartition, float] | None = None
    # A partition that is further behind than this is read from so far behind its end; None for however far.
    max_behind: int | None = None

    def policy(self, topic: str) -> Policies:
        return self.by_topic.get(topic, self.policies)


@dataclass(frozen=True)
class Known:
    """What Kafka says of the topics now, and which incarnation the ledger knows each topic id as.

    `chosen`: only these partitions of each topic are read; None for all. `left`: topics that are gone and not waited for.
    `starts`: where partitions of an accepted incarnation begin. `epoch_ends`: of partitions with a newer leader, where the
    log ends that was read under the older one.
    """

    logs: Mapping[str, TopicLog]
    incarnations: Mapping[str, int]
    chosen: Mapping[str, tuple[int, ...]] | None = None
    left: frozenset[str] = frozenset()
    starts: Mapping[TopicPartition, int] = field(default_factory=dict)
    epoch_ends: Mapping[TopicPartition, int] = field(default_factory=dict)

    def partitions(self) -> dict[TopicPartition, PartitionLog]:
        """The partitions of the topics that the ledger knows by their ids."""
        return {
            TopicPartition(topic, partition, self.incarnations[topic]): log
            for topic, found in self.logs.items()
            if topic in self.incarnations
            for partition, log in found.partitions.items()
        }

    def to_read(self) -> dict[TopicPartition, PartitionLog]:
        """Those of them that the stream reads, in their order."""
        chosen = self.chosen
        return {
            at: log
            for at, log in sorted(self.partitions().items())
            if chosen is None or at.partition in chosen[at.topic]
        }
