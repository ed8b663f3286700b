"""Transactions that are open: what is said of them while they hold a stream back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tidemark.runs.windows import ingest
from tidemark.spark.jobs.audit import audit

Begin = Callable[..., KafkaProducer]


@pytest.fixture
def live(make: Make) -> LiveStream:
    return make(CDN)


@pytest.fixture
def begin(live: LiveStream) -> Iterator[Begin]:
    """Sends messages to a partition in a transaction, and leaves it open."""
    with ExitStack() as stack:

        def begun(name: str, partition: int, count: int) -> KafkaProducer:
            producer = KafkaProducer(
                bootstrap_servers=live.kafka.servers,
                transactional_id=f"{live.name}-{name}",
                # By default Kafka aborts it after a minute, which a slow machine takes to look at it.
                transaction_timeout_ms=600_000,
            )
            stack.enter_context(closing(producer))
            producer.init_transactions()
            producer.begin_transaction()
            for _, value in live.example.generate(count, 10_000):
                producer.send(live.topics[0], value, partition=partition)
            producer.flush()
            return producer

        yield begun


def named(live: LiveStream) -> list[dict[str, Any]]:
    """What `plan` names, which `status` has to name too."""
    held: list[dict[str, Any]] = asked("plan", str(live.file))["open_transactions"]
    also = asked("status", str(live.file))["open_transactions"]
    assert [one["offset"] for one in also] == [one["offset"] for one in held]
    return held


@pytest.mark.covers("E4")
@pytest.mark.usefixtures("spark")
def test_an_open_transaction_is_named_with_what_it_holds_back(live: LiveStream, begin: Begin) -> None:
    live.produce(40)
    live.ingest()
    assert named(live) == []
    before = int(time.time() * 1000)
    producer = begin("one", 1, 5)
    (one,) = named(live)
    at = {
        "topic": live.topics[0],
        "partition": 1,
        "offset": "10",
        "behind": "5",
        "transactional_id": f"{live.name}-one",
    }
    assert {key: one[key] for key in at} == at
    assert before <= one["started"] <= int(time.time() * 1000)
    _, said = tidemark("plan", str(live.file))
    assert f"{live.topics[0]}/1: an open transaction holds the end back at offset 10, 5 offsets follow it" in said
    assert (
        f"transactional id {live.name}-one, producer {one['producer_id']}, epoch {one['producer_epoch']}, open for"
        in said
    )
    assert "nothing is new" in said
    # A run finds nothing new, and can say why.
    assert live.ingest() == []
    (held,) = ingest.open_transactions(live.opened)
    assert (held.start, held.behind, held.transactional_id) == (10, 5, f"{live.name}-one")
    # An audit says how far it looked.
    report = audit(live.opened, "an audit")
    assert report.clean, report.sentence()
    assert {one.partition: one.position for one in report.coverage}[f"{live.topics[0]}/1"] == 10
    # What is held back is read once the transaction has ended; nothing is named any more, whatever the end trails by.
    producer.commit_transaction()
    assert named(live) == []
    live.kafka.wait_for_stable_end(live.topics[0], 1, 16)
    (record,) = live.ingest()
    assert sum(tally.read.number for tally in record.tallies) == 5
    live.assert_exactly_what_was_read()


@pytest.mark.full
def test_two_transactions_at_once_are_both_named(live: LiveStream, begin: Begin) -> None:
    live.produce(4)
    first = begin("first", 0, 3)
    begin("second", 0, 2)
    begin("third", 2, 1)
    found = [(one["partition"], one["offset"], one["behind"], one["transactional_id"]) for one in named(live)]
    assert found == [
        (0, "1", "5", f"{live.name}-first"),
        (0, "4", "2", f"{live.name}-second"),
        (2, "1", "1", f"{live.name}-third"),
    ]
    assert len({one["producer_id"] for one in named(live)}) == 3
    first.abort_transaction()
    assert [one["transactional_id"] for one in named(live)] == [f"{live.name}-second", f"{live.name}-third"]


def test_under_read_uncommitted_nothing_is_held_back(live: LiveStream, begin: Begin) -> None:
    live.rewrite(source={"topics": list(live.topics), "isolation": "read_uncommitted"})
    begin("one", 0, 5)
    assert named(live) == []
    assert asked("plan", str(live.file))["offsets"] == 5
