"""Which open transactions hold an end back, as values."""

from __future__ import annotations

from dataclasses import replace

from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.clients.kafka.transactions import (
    CoordinatedTransaction,
    OpenProducer,
    OpenTransaction,
    held_back,
    open_transactions,
)

P0, P1 = ("logs", 0), ("logs", 1)
NOW = 100_000_000
FIRST = OpenProducer(producer_id=7, epoch=2, start=19, last_timestamp=NOW - 60_000)
KNOWN = CoordinatedTransaction("pay-1", epoch=2, ending=False, started=NOW - 3_600_000, partitions={P0})


def found(*producers: OpenProducer, **changes: object) -> list[tuple[int, int, str | None, int | None]]:
    known = {7: replace(KNOWN, **changes)}  # type: ignore[arg-type]
    named = open_transactions({P0: 25}, {P0: producers}, known)
    return [(one.start, one.behind, one.transactional_id, one.started) for one in named]


def test_only_partitions_whose_end_is_below_the_high_watermark_are_held_back() -> None:
    logs = {"logs": TopicLog("id", {0: PartitionLog(0, 19, 0), 1: PartitionLog(3, 8, 0)})}
    assert held_back(logs, {P0: 25, P1: 8}) == {P0: 25}
    assert held_back(logs, {P0: 19, P1: 8}) == {}


def test_a_transaction_is_named_with_where_it_holds_the_end_back_and_how_much_lies_behind() -> None:
    assert found(FIRST) == [(19, 6, "pay-1", NOW - 3_600_000)]
    second = OpenProducer(producer_id=8, epoch=0, start=22, last_timestamp=None)
    assert [one[:3] for one in found(second, FIRST)] == [(19, 6, "pay-1"), (22, 3, None)]


def test_nothing_is_named_for_an_end_that_only_trails() -> None:
    assert found() == []
    # Its markers are being written; under a newer transaction version the epoch has risen by then.
    assert found(FIRST, ending=True) == []
    assert found(FIRST, ending=True, epoch=3) == []
    # It began after the high watermark was asked for.
    assert found(replace(FIRST, start=25)) == []


def test_a_transaction_that_its_coordinator_has_forgotten_keeps_its_name_and_loses_its_start() -> None:
    """The producer has gone on to a newer epoch, or to other partitions: this one hangs."""
    assert found(FIRST, epoch=3) == [(19, 6, "pay-1", None)]
    assert found(FIRST, partitions={P1}) == [(19, 6, "pay-1", None)]
    # Also when the newer one is about to end.
    assert found(FIRST, partitions={P1}, ending=True) == [(19, 6, "pay-1", None)]


def test_the_sentence_says_where_its_age_is_from() -> None:
    one = OpenTransaction("logs", 0, 19, 6, 7, 2, "pay-1", NOW - 3_600_000, NOW - 60_000)
    assert one.sentence(NOW) == (
        "logs/0: an open transaction holds the end back at offset 19, 6 offsets follow it: transactional id pay-1, "
        "producer 7, epoch 2, open for 1 h, counted from its start"
    )
    assert replace(one, started=None).sentence(NOW).endswith("age 1 min, counted from its producer's last message")
    assert "transactional id unknown" in replace(one, transactional_id=None).sentence(NOW)
