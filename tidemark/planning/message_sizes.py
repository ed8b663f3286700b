"""How large messages are, per partition, so that a window can be limited in bytes. Estimates: what comes may be larger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.kafka.topics import PartitionLog
from tidemark.ranges import TopicPartition
from tidemark.tallies import PartitionTally

# Where nothing is known of a partition: what Kafka takes as one message unless it is told otherwise (`max.message.bytes`).
# The first window is small then, and its tally says more.
UNKNOWN_BYTES = 1024 * 1024


def from_tallies(tallies: Iterable[PartitionTally]) -> dict[TopicPartition, float]:
    """Bytes (keys and values) a message, of the partitions of which anything was read."""
    read: dict[TopicPartition, tuple[int, int]] = {}
    for tally in tallies:
        number, size = read.get(tally.at, (0, 0))
        read[tally.at] = (number + tally.read.number, size + tally.bytes)
    return {at: size / number for at, (number, size) in read.items() if number}


def from_logs(
    sizes: Mapping[tuple[str, int], int], logs: Mapping[TopicPartition, PartitionLog]
) -> dict[TopicPartition, float]:
    """Bytes on disk an offset, of the partitions whose log has a size and is not empty."""
    return {
        at: size / (log.end - log.start)
        for at, log in logs.items()
        if log.start < log.end and (size := sizes.get((at.topic, at.partition)))
    }
