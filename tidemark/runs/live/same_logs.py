"""Whether Kafka still has the topics and the logs that somebody has looked at.

Kafka is asked by names. Between two questions a topic may be recreated, or a log cut and written again: then the second answer
is about other messages, at offsets that look valid. So whatever is asked of logs that were looked at before asks here, or
calls `check_same` when it has its answer.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import Conflict
from tidemark.runs.live.open_stream import OpenStream


def first_at(
    opened: OpenStream, logs: Mapping[str, TopicLog], milliseconds: int
) -> Mapping[tuple[str, int], int | None]:
    """Per (topic, partition), the first offset at or after a time, in the very logs that were looked at; see `check_same`."""
    offsets = opened.log.first_at_or_after(logs, milliseconds, opened.stream.source.isolation)
    check_same(opened, logs)
    return offsets


def check_same(opened: OpenStream, logs: Mapping[str, TopicLog]) -> None:
    """Raises Conflict for a topic that was deleted or recreated since, and for a log that was cut below where it ended.

    A log that has another leader and was not cut is the same; so is one whose beginning was deleted. Raises Unreachable.
    """
    if not logs:
        return
    now = opened.log.topics(logs, opened.stream.source.isolation)
    newer: dict[tuple[str, int], int] = {}
    for topic, before in logs.items():
        if topic not in now or now[topic].topic_id != before.topic_id:
            happened = "was deleted" if topic not in now else "was deleted and created again"
            raise _changed(f"topic {topic} {happened}")
        for partition, log in before.partitions.items():
            log_now = now[topic].partitions.get(partition)
            if log_now is None or log_now.leader_epoch is None or log.leader_epoch is None:
                continue
            if log_now.leader_epoch > log.leader_epoch:
                newer[topic, partition] = log.leader_epoch
    for (topic, partition), end in opened.log.epoch_ends(newer).items():
        if end < logs[topic].partitions[partition].written:
            raise _changed(f"the log of {topic}/{partition} was cut at {end}")


def _changed(happened: str) -> Conflict:
    return Conflict(f"{happened} while it was looked at: the answer would be about other messages. Ask again")
