"""What the topics of a sink in Kafka may have deleted by themselves, and what an audit then says of a block."""

from __future__ import annotations

import pytest
from msgspec import structs

from tests.support.compactions import AT, authority_of, committed
from tidemark.audit.deleted_messages import BlockContents, WindowBlock, compare_identity
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.ledger.ledger import Committed, LedgerSnapshot
from tidemark.offsets.blocks import BlockTally
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import Count
from tidemark.sinks.kafka.expiry import ALL, deleted_until, may_have_expired, within


def log(*ranges: tuple[int, int]) -> dict[str, TopicLog]:
    return {"out": TopicLog("id", {number: PartitionLog(*one, None) for number, one in enumerate(ranges)})}


def taken(seq: int, offsets: range, at: int) -> Committed:
    window = committed("/lake", seq, offsets)
    return Committed(
        structs.replace(window.record, attempt=structs.replace(window.record.attempt, taken_at=at)), window.covers
    )


def test_up_to_when_a_topic_has_deleted_messages() -> None:
    assert deleted_until(log((0, 9), (0, 0)), {}) is None
    assert deleted_until(log((3, 9), (0, 9)), {("out", 0): 70}) == 70
    assert deleted_until(log((3, 9), (4, 9)), {("out", 0): 70, ("out", 1): 90}) == 90
    # All of it is deleted, or its first message has no time.
    assert deleted_until(log((3, 9), (9, 9)), {("out", 0): 70}) == ALL


def test_rows_of_attempts_that_began_later_cannot_have_expired() -> None:
    windows = [
        taken(1, range(10), 50),
        taken(2, range(10, 20), 70),
        taken(3, range(20, 30), 71),
        taken(4, range(5), 80),
    ]
    view = LedgerSnapshot(windows, authority_of(windows), {}, 0)
    assert may_have_expired(view, 70) == RangeSet([OffsetRange(AT, 5, 20)])
    assert not may_have_expired(view, None)
    assert may_have_expired(view, ALL) == RangeSet([OffsetRange(AT, 0, 30)])


def test_topics_of_a_receipt() -> None:
    assert within("a,b", ("b", "a", "c"))
    assert not within("a,b", ("a",))


@pytest.mark.parametrize(
    ("number", "ack", "may_lack", "compared", "wrong"),
    [
        (3, 7, False, True, False),
        (2, 7, False, True, True),
        # A topic deletes messages, and writes none.
        (2, 5, True, False, False),
        (4, 7, True, True, True),
        (3, 5, True, True, True),
    ],
)
def test_a_block_of_messages_is_compared_by_number_and_identity(
    number: int, ack: int, may_lack: bool, compared: bool, wrong: bool
) -> None:
    window = taken(1, range(3), 5)
    tally = BlockTally(0, stored=Count.of(3, 7), rows=Count.of(3, 7), content="ab" * 8)
    block = WindowBlock(AT, window.covers, RangeSet(), window, tally)
    verdict = compare_identity(block, BlockContents(rows=Count.of(number, ack)), may_lack=may_lack)
    assert (verdict.compared, verdict.wrong is not None) == (compared, wrong)
