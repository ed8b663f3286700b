"""Kafka's view of topics now: ids, log starts, ends, leader epochs. Read-only; decides nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import (
    GroupAuthorizationFailedError,
    KafkaError,
    NoError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from kafka.protocol.consumer.fetch import FetchRequest
from kafka.protocol.consumer.offsets import IsolationLevel, OffsetForLeaderEpochRequest
from kafka.record import MemoryRecords
from kafka.structs import OffsetAndMetadata

from tidemark.clients.kafka import counting, producers, topic_settings, transactions
from tidemark.clients.kafka.admission import kafka_errors, lacking
from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.consuming import consumer_of, reads_topic, records_of
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.retention import RetentionSettings
from tidemark.clients.kafka.slots import OffsetContents, Slot, at_offset
from tidemark.clients.kafka.stepping import Steps, stepping
from tidemark.clients.kafka.topics import READ_COMMITTED, READ_UNCOMMITTED, PartitionLog, TopicLog, asked_time
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.errors import Conflict, Unreachable
from tidemark.offsets import time_limit
from tidemark.offsets.ranges import OffsetRange, RangeSet

T = TypeVar("T")

# A broker that is up answers metadata in milliseconds; a leader election takes a few seconds.
TIMEOUT_MS = 20_000

# Timestamps are only for a forecast, which works without them too.
TIMESTAMPS_MS = 5_000

# How often topics are looked at that change under each look.
_LOOKS = 3
# The bytes of a log that are fetched to look at one offset. The broker sends at least one whole batch, however large it is.
_SLOT_BYTES = 64 * 1024
# The newest version of a fetch that names topics by their names.
_FETCH_VERSION = 12


class KafkaLog:
    """Questions to a Kafka cluster. All raise Unreachable when it does not answer within `timeout_ms`.

    With `keep`, one client asks all questions, one after the other. An unanswered question or `close` ends that client.
    Without `keep`, each question has a client of its own.
    """

    def __init__(self, endpoint: KafkaEndpoint, timeout_ms: int = TIMEOUT_MS, *, keep: bool = False) -> None:
        self.endpoint = endpoint
        self._timeout_ms = timeout_ms
        self._keep = keep
        self._kept: KafkaAdminClient | None = None
        # One thread at a time: closing the client would end the questions of other threads.
        self._making = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """The state that travels to Spark's workers: no client, and no lock."""
        return {**self.__dict__, "_kept": None, "_making": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _making=threading.RLock())

    def close(self) -> None:
        """Close the kept client, if there is one. The next question makes another."""
        with self._making:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def names(self) -> set[str]:
        """The names of all topics that this connection may see."""
        with self._admin() as admin:
            return set(admin.list_topics())

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        """Per (topic, partition) with a leader epoch, the present end of that epoch's log (KIP-320).

        An end below what was read under that epoch means that the log was cut there and written again. Partitions for
        which the broker gives no end are left out.
        """
        if not asked:
            return {}
        with self._admin() as admin:
            leaders: dict[int, dict[str, list[Any]]] = {}
            for topic in self._may(admin, {topic for topic, _ in asked}, "Read"):
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
                # kafka-python asks this only inside its consumer, for the consumer's own positions.
                answer = admin._manager.run(_sent, admin._manager, request, leader)
                for topic in answer.topics:
                    for entry in topic.partitions:
                        error = for_code(entry.error_code)
                        if error is not NoError:
                            raise Unreachable(
                                f"Kafka did not say where an epoch of {topic.topic}/{entry.partition} ends: {error.__name__}"
                            )
                        if entry.end_offset >= 0:
                            ends[topic.topic, entry.partition] = entry.end_offset
            return ends

    def missing(self, names: Iterable[str]) -> list[str]:
        """The topics of these names that do not exist. Raises NotAuthorized for a topic that we may not write to."""
        wanted = sorted(set(names))
        with self._admin() as admin:
            writable = {topic["name"] for topic in self._may(admin, wanted, "Write")}
        return [name for name in wanted if name not in writable]

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        """The topics of these names that exist. Ends are taken after starts, so that end >= start.

        Ids and leader epochs are checked before and after the offsets: otherwise the offsets might be those of a topic
        that was recreated, or of a log that another leader has cut. Raises NotAuthorized for a topic that we may not
        read. Raises Unreachable when that goes on, or a partition has no leader: a plan without that partition would be
        incomplete.
        """
        with self._admin() as admin:
            described = self._may(admin, names, "Read")
            for _ in range(_LOOKS):
                logs = _logs(admin, described, isolation)
                again = self._may(admin, names, "Read")
                if _who(again) == _who(described):
                    return logs
                described = again
        changed = ", ".join(sorted(one["name"] for one in described)) or "topics"
        raise Unreachable(f"{changed}: deleted, recreated or led by others each time they were looked at; try again")

    def leaders(self, names: Iterable[str]) -> dict[tuple[str, int], tuple[str, int]]:
        """The host and port of each partition's leader, by (topic, partition).

        Partitions without a leader are left out. Raises Unreachable and NotAuthorized.
        """
        with self._admin() as admin:
            described = self._may(admin, names, "Read")
            brokers = {
                broker["broker_id"]: (broker["host"], broker["port"]) for broker in admin.describe_cluster()["brokers"]
            }
        return {
            (topic["name"], partition["partition_index"]): brokers[partition["leader_id"]]
            for topic in described
            for partition in topic["partitions"]
            if partition["leader_id"] in brokers
        }

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[tuple[str, int], int | None]:
        """Per (topic, partition), the first offset whose timestamp is at or after a time; None where there is no such message.

        The time may lie before 1970. Uses the isolation level of the ends in `logs`: messages that an open transaction
        holds back are not found.
        """
        wanted = [KafkaTopicPartition(topic, partition) for topic, log in logs.items() for partition in log.partitions]
        with self._admin() as admin:
            offsets = admin.list_partition_offsets(
                dict.fromkeys(wanted, asked_time(timestamp_ms)), isolation_level=_LEVELS[isolation]
            )
        return {
            (at.topic, at.partition): None if offset.offset < 0 else offset.offset for at, offset in offsets.items()
        }

    def high_watermarks(self, logs: Mapping[str, TopicLog]) -> dict[tuple[str, int], int]:
        """Per (topic, partition), where the log ends now, whatever the isolation level and open transactions."""
        partitions = [
            KafkaTopicPartition(topic, partition) for topic, log in logs.items() for partition in log.partitions
        ]
        with self._admin() as admin:
            ends = _offsets(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
        return {(at.topic, at.partition): offset for at, offset in ends.items()}

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
            ids = {producer.producer_id for producers in first.values() for producer in producers}
            known = self._coordinated(lambda: producers.coordinated(admin, ids))
            # Asked again: a transaction that has ended meanwhile is not open, and its coordinator no longer knows it.
            again = self._coordinated(lambda: producers.open_producers(admin, held)) if ids else {}
        still = {
            place: [producer for producer in producers if producer.producer_id in ids]
            for place, producers in again.items()
        }
        return transactions.open_transactions(held, still, known)

    def slot(self, topic: str, partition: int, offset: int) -> OffsetContents | None:
        """The message at one offset now, or why there is none. None when there is no such topic or partition.

        Takes one or two requests, each of one batch at least. Raises Unreachable, NotAuthorized.
        """
        with self._admin() as admin:
            leaders = {
                partition["partition_index"]: partition["leader_id"]
                for description in self._may(admin, [topic], "Read")
                for partition in description["partitions"]
            }
            if partition not in leaders:
                return None
            leader = leaders[partition]
            place = KafkaTopicPartition(topic, partition)
            start = _offsets(admin, [place], OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)[place]
            answer = self._fetched(admin, place, offset, leader, IsolationLevel.READ_COMMITTED)
            if answer is None or offset < start:
                high = _offsets(admin, [place], OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)[place]
                return OffsetContents(Slot.EXPIRED if offset < start else Slot.BEYOND, start, high)
            stable, high = answer.last_stable_offset, answer.high_watermark
            if offset >= high:
                return OffsetContents(Slot.BEYOND, start, high)
            aborted = [
                (transaction.producer_id, transaction.first_offset) for transaction in answer.aborted_transactions or ()
            ]
            if offset >= stable:
                again = self._fetched(admin, place, offset, leader, IsolationLevel.READ_UNCOMMITTED)
                if again is None:
                    raise Unreachable(f"{topic}/{partition} was cut while offset {offset} was read; ask again")
                answer = again
        batches = MemoryRecords(answer.records or b"")
        record, message = at_offset(iter(batches.next_batch, None), offset, aborted, stable)
        return OffsetContents(record, start, high, message)

    def _fetched(
        self, admin: KafkaAdminClient, place: KafkaTopicPartition, offset: int, leader: int, level: IsolationLevel
    ) -> Any:
        """A leader's answer to a fetch from an offset on; None when the offset is out of range."""
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=_SLOT_BYTES,
            isolation_level=level,
            topics=[
                FetchRequest.FetchTopic(
                    topic=place.topic,
                    partitions=[
                        FetchRequest.FetchTopic.FetchPartition(
                            partition=place.partition, fetch_offset=offset, partition_max_bytes=_SLOT_BYTES
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            max_version=_FETCH_VERSION,
        )
        # kafka-python asks this only inside its consumer, which passes over what is no message.
        answer = admin._manager.run(_sent, admin._manager, request, leader)
        (part,) = [partition for topic in answer.responses for partition in topic.partitions]
        error = for_code(part.error_code)
        if error is OffsetOutOfRangeError:
            return None
        if error is TopicAuthorizationFailedError:
            raise lacking(self.endpoint, "Read", f"topic {place.topic}")
        if error is not NoError:
            raise Unreachable(
                f"Kafka did not give offset {offset} of {place.topic}/{place.partition}: {error.__name__}"
            )
        return part

    def messages(self, ranges: RangeSet) -> Iterator[tuple[OffsetRange, Iterator[tuple[int, bytes | None]]]]:
        """The offset and the key of every message in some ranges, range by range.

        Includes aborted transactions. Kafka must hold the ranges. Raises Unreachable, and NotAuthorized for
        a topic that we may not read.
        """
        with consumer_of(self.endpoint, READ_UNCOMMITTED) as consumer:
            for range_ in ranges:
                with reads_topic(self.endpoint, range_.partition.topic):
                    at = KafkaTopicPartition(range_.partition.topic, range_.partition.partition)
                    records = records_of(consumer, at, range_.until, range_.start)
                    yield range_, ((record.offset, record.key) for record in records)

    def stepping(self, isolation: str) -> AbstractContextManager[Steps]:
        """Reads partitions step by step, for whoever may stop after any of them."""
        return stepping(self.endpoint, isolation, self._timeout_ms)

    def retention(self, topics: Iterable[str]) -> dict[str, RetentionSettings]:
        """How long and how much topics keep. Topics whose settings we may not see are left out."""
        with self._admin() as admin:
            return topic_settings.settings(admin, topics)

    def compacted(self, topics: Iterable[str]) -> set[str]:
        """The topics that are compacted, as far as we may see their settings."""
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
        """Per (topic, partition), the timestamp (ms) of the first message of [offset, end). Late answers are left out."""
        with kafka_errors(self.endpoint):
            return topic_settings.timestamps(self.endpoint, ends, min(self._timeout_ms, TIMESTAMPS_MS))

    def count_between(
        self,
        ranges: Mapping[tuple[str, int], Sequence[tuple[int, int]]],
        since: int,
        until: int,
        isolation: str,
        passed: Callable[[int], None],
    ) -> int:
        """How many messages at these offsets have a timestamp in [since, until) ms. Reads all messages there.

        Calls `passed` with the number of offsets that it has passed since the last call.
        """
        with kafka_errors(self.endpoint):
            return counting.count_between(self.endpoint, ranges, (since, until), isolation, self._timeout_ms, passed)

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """The offsets that a consumer group has committed: {(topic, partition): next offset}. Empty for an unknown group."""
        with self._admin() as admin, self._group_errors(group, "Describe"):
            offsets = self._coordinated(lambda: admin.list_group_offsets(group)).get(group, {})
        return {(at.topic, at.partition): held.offset for at, held in offsets.items() if held.offset >= 0}

    def commit_group(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Commit {topic: {partition: next offset}} for a consumer group without members.

        Raises Conflict when the group has members, and NotAuthorized.
        """
        wanted = {
            KafkaTopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
            for topic, partitions in offsets.items()
            for partition, offset in partitions.items()
        }
        with self._admin() as admin, self._group_errors(group, "Read"):
            answers = self._coordinated(lambda: admin.alter_group_offsets(group, wanted))
        refused = {at: error for at, error in answers.items() if error is not NoError}
        for at, error in refused.items():
            if issubclass(error, GroupAuthorizationFailedError):
                raise lacking(self.endpoint, "Read", f"group {group}")
            if issubclass(error, TopicAuthorizationFailedError):
                raise lacking(self.endpoint, "Read", f"topic {at.topic}")
            raise Conflict(
                f"Kafka did not take the offset of {at.topic}/{at.partition} for group {group}: {error.__name__}"
            )

    @contextmanager
    def _group_errors(self, group: str, right: str) -> Iterator[None]:
        try:
            yield
        except GroupAuthorizationFailedError as problem:
            raise lacking(self.endpoint, right, f"group {group}") from problem

    def _coordinated(self, call: Callable[[], T]) -> T:
        """Make a call to a group's coordinator. A new cluster, or one that has lost a broker, has to find it first."""
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
        time_limit.look()
        with kafka_errors(self.endpoint), self._making if self._keep else nullcontext():
            admin = self._client()
            answered = False
            try:
                yield admin
                answered = True
            finally:
                if not self._keep:
                    admin.close()
                elif not answered:
                    self.close()

    def _client(self) -> KafkaAdminClient:
        if not self._keep:
            return self._new_client()
        with self._making:
            if self._kept is None:
                self._kept = self._new_client()
            return self._kept

    def _new_client(self) -> KafkaAdminClient:
        # The time limit of kafka-python's first connection, and of each request after it.
        return KafkaAdminClient(
            **python_settings(self.endpoint),
            request_timeout_ms=self._timeout_ms,
            bootstrap_timeout_ms=self._timeout_ms,
        )

    def _may(self, admin: KafkaAdminClient, names: Iterable[str], right: str) -> list[dict[str, Any]]:
        """The topics of these names that exist, described. Raises NotAuthorized where we do not have a right on one."""
        problems = []
        for topic in admin.describe_topics(sorted(set(names))):
            allowed = topic["authorized_operations"]
            if topic["error_code"] == TopicAuthorizationFailedError.errno:
                # Kafka hides whether the topic exists from users that may not describe it.
                raise lacking(self.endpoint, right, f"topic {topic['name']}")
            if topic["topic_id"] is None:
                continue
            if allowed and right.upper() not in allowed:
                raise lacking(self.endpoint, right, f"topic {topic['name']}")
            problems.append(topic)
        return problems


async def _sent(manager: Any, request: Any, node: int) -> Any:
    return await manager.send(request, node_id=node)


def _logs(admin: KafkaAdminClient, described: Sequence[dict[str, Any]], isolation: str) -> dict[str, TopicLog]:
    """Topics that were described, with where their logs start and end now."""
    partitions = {
        KafkaTopicPartition(topic["name"], partition["partition_index"]): partition
        for topic in described
        for partition in topic["partitions"]
    }
    for at, partition in partitions.items():
        if partition["leader_id"] < 0:
            raise Unreachable(f"{at.topic}/{at.partition} has no leader at the moment; try again when it has one")
    starts = _offsets(admin, partitions, OffsetSpec.EARLIEST, IsolationLevel.READ_UNCOMMITTED)
    ends = _offsets(admin, partitions, OffsetSpec.LATEST, _LEVELS[isolation])
    # After the ends, so that none of them lies above.
    high = (
        _offsets(admin, partitions, OffsetSpec.LATEST, IsolationLevel.READ_UNCOMMITTED)
        if isolation == READ_COMMITTED
        else ends
    )
    return {
        topic["name"]: TopicLog(
            str(topic["topic_id"]),
            {
                at.partition: PartitionLog(starts[at], ends[at], _epoch(partition["leader_epoch"]), high[at])
                for at, partition in partitions.items()
                if at.topic == topic["name"]
            },
        )
        for topic in described
    }


def _who(described: Sequence[dict[str, Any]]) -> set[tuple[Any, ...]]:
    """Which topics were described, and by whom their partitions are led. One that was added since is another question."""
    return {
        (topic["name"], topic["topic_id"], partition["partition_index"], partition["leader_epoch"])
        for topic in described
        for partition in topic["partitions"]
    }


_EpochPartition = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_LEVELS = {READ_COMMITTED: IsolationLevel.READ_COMMITTED, READ_UNCOMMITTED: IsolationLevel.READ_UNCOMMITTED}


def _offsets(
    admin: KafkaAdminClient, partitions: Iterable[KafkaTopicPartition], spec: Any, level: IsolationLevel
) -> dict[KafkaTopicPartition, int]:
    wanted = dict.fromkeys(partitions, spec)
    if not wanted:
        return {}
    return {at: offset.offset for at, offset in admin.list_partition_offsets(wanted, isolation_level=level).items()}


def _epoch(number: int) -> int | None:
    return None if number < 0 else number
