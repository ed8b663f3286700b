"""The arithmetic that a commit depends on."""

from __future__ import annotations

import pytest

from tidemark.errors import VerificationFailed
from tidemark.ranges import TopicPartition
from tidemark.tallies import Acknowledged, Count, PartitionTally, verify

AT = TopicPartition("logs", 0)


def tally(**counts: Count) -> PartitionTally:
    return PartitionTally(topic="logs", incarnation=1, partition=0, **counts)


STORED, DEAD, SKIPPED = Count.of(3, 0b1011), Count.of(1, 0b0100), Count.of(2, 0b110000)
GOOD = tally(read=STORED + DEAD + SKIPPED, stored=STORED, skipped=SKIPPED, invalid=DEAD, rows=Count.of(3, 77))
HELD = {AT: Acknowledged(STORED, Count.of(3, 77))}
SET_ASIDE = {AT: Acknowledged(DEAD, DEAD)}


@pytest.mark.covers("G1")
def test_what_was_read_was_stored_skipped_or_set_aside() -> None:
    verify([GOOD], {"table": HELD, "files": HELD}, SET_ASIDE)


@pytest.mark.covers("G1", "E46")
@pytest.mark.parametrize(
    ("held", "set_aside", "said"),
    [
        ({}, SET_ASIDE, "messages to store: 3, acknowledged by sink files: 0"),
        ({AT: Acknowledged(Count.of(2, 0b1001), Count.of(3, 77))}, SET_ASIDE, "3, acknowledged by sink files: 2"),
        ({AT: Acknowledged(Count.of(3, 0b1111), Count.of(3, 77))}, SET_ASIDE, "not the same ones"),
        ({AT: Acknowledged(STORED, Count.of(4, 77))}, SET_ASIDE, "rows to store: 3, acknowledged by sink files: 4"),
        (HELD, {}, "invalid or failed: 1, acknowledged by the dead letters: 0"),
    ],
)
def test_a_commit_is_refused_when_a_sink_holds_something_else(
    held: dict[TopicPartition, Acknowledged], set_aside: dict[TopicPartition, Acknowledged], said: str
) -> None:
    with pytest.raises(VerificationFailed, match=said):
        verify([GOOD], {"table": HELD, "files": held}, set_aside)


@pytest.mark.covers("G1")
def test_a_message_without_an_outcome_is_seen() -> None:
    lost = tally(read=STORED + DEAD, stored=STORED, rows=Count.of(3, 77))
    with pytest.raises(VerificationFailed, match="read: 4, given an outcome: 3"):
        verify([lost], {"table": HELD}, {})


@pytest.mark.covers("A22")
def test_an_acknowledgement_for_a_partition_that_was_not_read_is_refused() -> None:
    elsewhere = {TopicPartition("logs", 9): Acknowledged(STORED, STORED)}
    with pytest.raises(VerificationFailed, match="logs/9, of which nothing was read"):
        verify([GOOD], {"table": {**HELD, **elsewhere}}, SET_ASIDE)


def test_equal_messages_counted_in_any_order_give_the_same_ack() -> None:
    one, two = Count.of(1, 5), Count.of(1, 9)
    assert one + two == two + one == Count.of(2, 5 ^ 9)
