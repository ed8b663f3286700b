"""Reasons for Kafka to keep messages: settings, sizes of logs, timestamps. Read-only."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from tidemark.clients.kafka.clients import python_settings
from tidemark.clients.kafka.endpoint import KafkaEndpoint
from tidemark.clients.kafka.retention import RetentionSettings

Place = tuple[str, int]

_TIME, _SIZE, _POLICY = "retention.ms", "retention.bytes", "cleanup.policy"
_MESSAGE = "max.message.bytes"

# Only one message per partition is needed. The broker sends whole batches anyway; with this limit, few of them.
_FETCH_BYTES = 4096

# How long to wait for a single answer.
_STEP_MS = 500


def settings(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[str, RetentionSettings]:
    """How long and how much topics keep. Topics whose settings we may not see are left out."""
    return {topic: _settings(settings) for topic, settings in _described(admin, topics).items()}


def compacted(admin: KafkaAdminClient, topics: Iterable[str]) -> set[str]:
    """The topics that are compacted. Topics whose settings we may not see are left out."""
    return {topic for topic, settings in _described(admin, topics).items() if "compact" in settings[_POLICY]["value"]}


def message_limits(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[str, int]:
    """The largest batch in bytes that topics take. Topics whose settings we may not see are left out."""
    return {topic: int(settings[_MESSAGE]["value"]) for topic, settings in _described(admin, topics).items()}


def _described(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[str, Mapping[str, Mapping[str, Any]]]:
    wanted = [
        ConfigResource(ConfigResourceType.TOPIC, topic, dict.fromkeys((_TIME, _SIZE, _POLICY, _MESSAGE)))
        for topic in topics
    ]
    if not wanted:
        return {}
    described = admin.describe_configs(wanted, config_filter="all")["topic"]
    return {topic: settings for topic, settings in described.items() if _POLICY in settings}


def _settings(settings: Mapping[str, Mapping[str, Any]]) -> RetentionSettings:
    # Only `delete` deletes by age or size; compaction alone keeps the newest value of each key for ever.
    if "delete" not in settings[_POLICY]["value"]:
        return RetentionSettings(None, None)
    return RetentionSettings(
        *(None if (value := int(settings[name]["value"])) < 0 else value for name in (_TIME, _SIZE))
    )


def sizes(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[Place, int]:
    """The bytes of each partition on disk, of its largest replica. Empty when we may not see them."""
    bytes_: dict[Place, int] = {}
    for broker in admin.describe_log_dirs(sorted(set(topics))):
        for folder in broker["log_dirs"]:
            for topic in folder["topics"]:
                for partition in topic["partitions"]:
                    place = (topic["name"], partition["partition_index"])
                    bytes_[place] = max(bytes_.get(place, 0), partition["partition_size"])
    return bytes_


def timestamps(endpoint: KafkaEndpoint, ends: Mapping[Place, tuple[int, int]], timeout_ms: int) -> dict[Place, int]:
    """The timestamp (ms) of the first message at or after an offset, per partition. `ends` are (offset, end of the log).

    Leaves out partitions without such a message, with a message without a timestamp, and those not read in time.
    Uncommitted messages count, since Kafka deletes them too.
    """
    if not ends:
        return {}
    sizes: dict[Place, int] = {}
    consumer = KafkaConsumer(
        **python_settings(endpoint),
        group_id=None,
        enable_auto_commit=False,
        isolation_level="read_uncommitted",
        # If the log start has passed an offset meanwhile, the first remaining message counts.
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=_FETCH_BYTES,
        bootstrap_timeout_ms=timeout_ms,
    )
    try:
        waiting = {KafkaTopicPartition(*place): until for place, (_, until) in ends.items()}
        consumer.assign(list(waiting))
        for at in waiting:
            consumer.seek(at, ends[at.topic, at.partition][0])
        deadline = time.monotonic() + timeout_ms / 1000
        while waiting and time.monotonic() < deadline:
            polled = consumer.poll(timeout_ms=_STEP_MS)
            for at, records in polled.items():
                if at in waiting and records[0].timestamp >= 0:
                    sizes[at.topic, at.partition] = records[0].timestamp
            # Markers and compacted offsets give no message, but the consumer's position passes them.
            done = [at for at, until in waiting.items() if at in polled or _passed(consumer, at, until)]
            for at in done:
                del waiting[at]
            consumer.pause(*done)
    finally:
        consumer.close()
    return sizes


def _passed(consumer: KafkaConsumer, at: KafkaTopicPartition, until: int) -> bool:
    position = consumer.position(at, timeout_ms=_STEP_MS)
    return position is not None and position >= until
