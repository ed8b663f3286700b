"""What Kafka says of topics now: ids, log starts, ends, leader epochs. Read-only; nothing is decided here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import KafkaError, NoError, for_code
from kafka.protocol.consumer.offsets import IsolationLevel, OffsetForLeaderEpochRequest
from kafka.structs import OffsetAndMetadata

from tidemark.errors import Conflict, Unreachable
from tidemark.kafka import producers, topic_settings, transactions
from tidemark.kafka.retention import Settings
from tidemark.kafka.topics import READ_COMMITTED, READ_UNCOMMITTED, PartitionLog, TopicLog
from tidemark.kafka.transactions import OpenTransaction
from tidemark.ledger.records import Window

T = TypeVar("T")

# A broker that is up answers metadata in milliseconds; a leader election takes a few seconds.
TIMEOUT_MS = 20_000

# Timestamps are only for a forecast, which can do without.
TIMESTAMPS_MS = 5_000


class KafkaLog:
    """Questions to a Kafka cluster. All raise Unreachable when it does not answer within `timeout_ms`."""

    def __init__(self, bootstrap_servers: str, timeout_ms: int = TIMEOUT_MS) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._timeout_ms = timeout_ms

    def names(self) -> set[str]:
        """The names of all topics that this connection may see."""
        with self._admin() as admin:
            return set(admin.list_topics())

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Per (topic, partition) with a leader epoch, where the log of that epoch ends now (KIP-320).

        An end below what was read under that epoch means that the log was cut there and written anew. A partition of which
        the broker says nothing is left out.
        """
        if not asked:
            return {}
        with self._admin() as admin:
            leaders: dict[int, dict[str, list[Any]]] = {}
            for topic in admin.describe_topics(sorted({topic for topic, _ in asked})):
                for partition in topic["partitions"]:
                    place = (topic["name"], partition["partition_index"])
                    if place in asked:
                        wanted = _EpochPartition(
                            partition=place[1],
                            current_leader_epoch=partition["leader_epoch"],
                            leader_epoch=asked[place],
                        )
                        leaders.setdefault(partition["leader_id"], {}).setdefault(place[0], []).append(wanted)
            ends = {}
            for leader, topics in leaders.items():
                request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.items()))
                # kafka-python asks this only inside its consumer, for positions of its own.
                answer = admin._manager.run(_sent, admin._manager, request, leader)
                for topic in answer.topics:
                    for one in topic.partitions:
                        error = for_code(one.error_code)
                        if error is not NoError:
                            raise Unreachable(
                                f"Kafka did not say where an epoch of {topic.topic}/{one.partition} ends: {error.__name__}"
                            )
                        if one.end_offset >= 0:
                            ends[topic.topic, one.partition] = one.end_offset
            return ends

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        """The topics of these names that exist. Ends are taken after starts, so that end >= start.

        Raises Unreachable when a partition has no leader: a plan without it would not be the whole plan.
        """
        with self._admin() as admin:
            described = [topic for topic in admin.describe_topics(sorted(set(names))) if topic["topic_id"] is not None]
            partitions = {
                KafkaTopicPartition(topic["name"], partition["partition_index"]): partition
                for topic in described
                for partition in topic["partitions"]
            }
            for at, partition in partitions.items():
                if partition["leader_id"] < 0:
                    raise Unreachable(
                        f"{at.topic}/{at.partition} has no leader at the moment; try again when it has one"
                    )
            starts = _offsets(admin, partitions, OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)
            ends = _offsets(admin, partitions, OffsetSpec.LATEST, _LEVELS[isolation])
        return {
            topic["name"]: TopicLog(
                str(topic["topic_id"]),
                {
                    at.partition: PartitionLog(starts[at], ends[at], _epoch(partition["leader_epoch"]))
                    for at, partition in partitions.items()
                    if at.topic == topic["name"]
                },
            )
            for topic in described
        }

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[tuple[str, int], int | None]:
        """Per (topic, partition), the first offset whose timestamp is at or after a time; None where there is none.

        Asked for at the level at which the ends of `logs` were: what is held back by an open transaction is not found.
        """
        wanted = [KafkaTopicPartition(topic, partition) for topic, log in logs.items() for partition in log.partitions]
        with self._admin() as admin:
            found = admin.list_partition_offsets(
                dict.fromkeys(wanted, timestamp_ms), isolation_level=_LEVELS[isolation]
            )
        return {(at.topic, at.partition): None if offset.offset < 0 else offset.offset for at, offset in found.items()}

    def high_watermarks(self, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
        """Per (topic, partition), where the log ends now, whatever the isolation level and open transactions."""
        partitions = [
            KafkaTopicPartition(topic, partition) for topic, log in logs.items() for partition in log.partitions
        ]
        with self._admin() as admin:
            found = _offsets(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {(at.topic, at.partition): offset for at, offset in found.items()}

    def open_transactions(
        self, logs: Mapping[str, TopicLog], high: Mapping[tuple[str, int], int]
    ) -> tuple[OpenTransaction, ...]:
        """The transactions that hold back ends taken under read_committed.

        Asks only where such an end is below the high watermark.
        """
        held = transactions.held_back(logs, high)
        if not held:
            return ()
        with self._admin() as admin:
            first = self._coordinated(lambda: producers.open_producers(admin, held))
            ids = {one.producer_id for found in first.values() for one in found}
            known = self._coordinated(lambda: producers.coordinated(admin, ids))
            # Asked again, since what has ended meanwhile is not open: a coordinator would no longer know of it.
            again = self._coordinated(lambda: producers.open_producers(admin, held)) if ids else {}
        still = {place: [one for one in found if one.producer_id in ids] for place, found in again.items()}
        return transactions.open_transactions(held, still, known)

    def retention(self, topics: Iterable[str]) -> dict[str, Settings]:
        """What topics keep. A topic whose settings we may not see is left out."""
        with self._admin() as admin:
            return topic_settings.settings(admin, topics)

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """Those topics that are compacted, as far as we may see their settings."""
        with self._admin() as admin:
            return topic_settings.compacted(admin, topics)

    def message_limits(self, topics: Iterable[str]) -> dict[str, int]:
        """The largest batch of messages in bytes that topics take, as far as we may see their settings."""
        with self._admin() as admin:
            return topic_settings.message_limits(admin, topics)

    def sizes(self, topics: Iterable[str]) -> dict[tuple[str, int], int]:
        """Per (topic, partition), the bytes on disk of its largest replica. Empty when we may not see them."""
        with self._admin() as admin:
            return topic_settings.sizes(admin, topics)

    def timestamps(self, ends: Mapping[tuple[str, int], tuple[int, int]]) -> dict[tuple[str, int], int]:
        """Per (topic, partition), the timestamp (ms) of the first message of [offset, end); what takes too long is left out."""
        with self._errors():
            servers = self.bootstrap_servers.split(",")
            return topic_settings.timestamps(servers, ends, min(self._timeout_ms, TIMESTAMPS_MS))

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What a consumer group has committed: {(topic, partition): next offset}. Empty for a group that nobody knows."""
        with self._admin() as admin:
            found = self._coordinated(lambda: admin.list_group_offsets(group)).get(group, {})
        return {(at.topic, at.partition): held.offset for at, held in found.items() if held.offset >= 0}

    def commit_group(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Commit {topic: {partition: next offset}} for a consumer group that nobody is a member of.

        Raises Conflict when it has members.
        """
        wanted = {
            KafkaTopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }
        with self._admin() as admin:
            answers = self._coordinated(lambda: admin.alter_group_offsets(group, wanted))
        refused = {at: error for at, error in answers.items() if error is not NoError}
        for at, error in refused.items():
            raise Conflict(
                f"Kafka did not take the offset of {at.topic}/{at.partition} for group {group}: {error.__name__}"
            )

    def changes_since_pin(self, window: Window) -> list[str]:
        """What is no longer as it was when the window was pinned, in words; empty when all still fits (step 5)."""
        now = self.topics(window.topic_ids, window.isolation)
        ends = self.epoch_ends(newer_epochs(window, now))
        changes = []
        for topic, topic_id in sorted(window.topic_ids.items()):
            if topic not in now:
                changes.append(f"topic {topic} is gone")
            elif now[topic].topic_id != topic_id:
                changes.append(f"topic {topic} was recreated (id {now[topic].topic_id}, pinned {topic_id})")
        for one in window.ranges:
            log = now.get(one.topic)
            if log is None or log.topic_id != window.topic_ids[one.topic]:
                continue
            partition = log.partitions.get(one.partition)
            if partition is None:
                changes.append(f"{one.at} is gone")
            elif one.start < one.until and one.start < partition.start:
                changes.append(f"{one.at}: the log now begins at {partition.start}, the window at {one.start}")
            elif partition.end < one.until:
                changes.append(f"{one.at}: the log now ends at {partition.end}, the window at {one.until}")
            elif ends.get((one.topic, one.partition), one.until) < one.until:
                cut = ends[one.topic, one.partition]
                changes.append(f"{one.at}: the log was cut at {cut} and written anew, the window ends at {one.until}")
        return changes

    def _coordinated(self, call: Callable[[], T]) -> T:
        """Make a call to a group's coordinator, which a new cluster, or one that has lost a broker, has to find first."""
        deadline = time.monotonic() + self._timeout_ms / 1000
        while True:
            try:
                return call()
            except KafkaError as problem:
                if not problem.retriable or time.monotonic() > deadline:
                    raise
            time.sleep(0.5)

    @contextmanager
    def _admin(self) -> Iterator[KafkaAdminClient]:
        with self._errors():
            # kafka-python gives up on the first connection after this time, and on each request after it too.
            admin = KafkaAdminClient(
                bootstrap_servers=self.bootstrap_servers.split(","),
                request_timeout_ms=self._timeout_ms,
                bootstrap_timeout_ms=self._timeout_ms,
            )
            try:
                yield admin
            finally:
                admin.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as problem:
            raise Unreachable(f"Kafka at {self.bootstrap_servers} did not answer: {problem}") from problem


def newer_epochs(window: Window, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
    """The partitions of a window that have a newer leader epoch now, with the one that they had when it was pinned."""
    found = {}
    for one in window.ranges:
        log = logs.get(one.topic)
        now = log.partitions.get(one.partition) if log and log.topic_id == window.topic_ids.get(one.topic) else None
        if (
            now
            and now.leader_epoch is not None
            and one.leader_epoch is not None
            and now.leader_epoch > one.leader_epoch
        ):
            found[one.topic, one.partition] = one.leader_epoch
    return found


async def _sent(manager: Any, request: Any, node: int) -> Any:
    return await manager.send(request, node_id=node)


_EpochPartition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_LEVELS = {READ_COMMITTED: IsolationLevel.READ_COMMITTED, READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED}


def _offsets(
    admin: KafkaAdminClient, partitions: Iterable[KafkaTopicPartition], spec: Any, level: IsolationLevel
) -> dict[KafkaTopicPartition, int]:
    wanted = dict.fromkeys(partitions, spec)
    if not wanted:
        return {}
    return {at: found.offset for at, found in admin.list_partition_offsets(wanted, isolation_level=level).items()}


def _epoch(number: int) -> int | None:
    return None if number < 0 else number
