"""How large messages are, from tallies and from logs, as values."""

from __future__ import annotations

from tidemark.clients.kafka.topics import PartitionLog
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.planning.message_sizes import from_logs, from_tallies

P0, P1 = TopicPartition("logs", 0), TopicPartition("logs", 1)


def tally(partition: int, messages: int, size: int) -> PartitionTally:
    count = Count(messages)
    return PartitionTally(topic="logs", incarnation=1, partition=partition, read=count, stored=count, bytes=size)


def test_the_messages_of_several_windows_count_alike() -> None:
    assert from_tallies([tally(0, 1, 900), tally(1, 4, 6), tally(0, 9, 100)]) == {P0: 100.0, P1: 1.5}


def test_of_a_partition_of_which_nothing_was_read_nothing_is_said() -> None:
    assert from_tallies([tally(0, 0, 0), tally(1, 2, 0)]) == {P1: 0.0}


def test_a_log_says_how_large_its_offsets_are_unless_it_is_empty() -> None:
    logs = {
        P0: PartitionLog(100, 300, None),
        P1: PartitionLog(7, 7, None),
        TopicPartition("logs", 2): PartitionLog(0, 5, 0),
    }
    assert from_logs({("logs", 0): 5_000, ("logs", 1): 80, ("logs", 3): 9}, logs) == {P0: 25.0}
