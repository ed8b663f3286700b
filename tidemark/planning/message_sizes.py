"""How large messages are, per partition, so that a window can be limited in bytes. Estimates: messages may be larger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.clients.kafka.topics import PartitionLog
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import PartitionTally

# For a partition without any known size: Kafka's default for the largest message (`max.message.bytes`).
# So the first window is small, and its tally gives a better size.
UNKNOWN_BYTES = 1024 * 1024


def from_tallies(tallies: Iterable[PartitionTally]) -> dict[TopicPartition, float]:
    """Bytes (keys and values) per message, for the partitions from which anything was read."""
    read: dict[TopicPartition, tuple[int, int]] = {}
    for tally in tallies:
        number, size = read.get(tally.at, (0, 0))
        read[tally.at] = (number + tally.read.number, size + tally.bytes)
    return {at: size / number for at, (number, size) in read.items() if number}


def from_logs(
    sizes: Mapping[tuple[str, int], int], logs: Mapping[TopicPartition, PartitionLog]
) -> dict[TopicPartition, float]:
    """Bytes on disk per offset, for the partitions whose log has a size and is not empty."""
    return {
        at: size / (log.end - log.start)
        for at, log in logs.items()
        if log.start < log.end and (size := sizes.get((at.topic, at.partition)))
    }
