"""Transactions that are open: what is said of them while they hold a stream back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from kafka import KafkaProducer

from tests.support.command_line import asked, tidemark
from tests.support.oracle import CDN
from tests.support.playground import Make, Playground
from tidemark.runs.windows import ingest
from tidemark_spark.jobs.audit import audit

Begin = Callable[..., KafkaProducer]


@pytest.fixture
def play(make: Make) -> Playground:
    return make(CDN)


@pytest.fixture
def begin(play: Playground) -> Iterator[Begin]:
    """Sends messages to a partition in a transaction, and leaves it open."""
    with ExitStack() as stack:

        def begun(name: str, partition: int, count: int) -> KafkaProducer:
            producer = KafkaProducer(
                bootstrap_servers=play.kafka.servers,
                transactional_id=f"{play.name}-{name}",
                # By default Kafka aborts it after a minute, which a slow machine takes to look at it.
                transaction_timeout_ms=600_000,
            )
            stack.enter_context(closing(producer))
            producer.init_transactions()
            producer.begin_transaction()
            for _, value in play.example.generate(count, 10_000):
                producer.send(play.topics[0], value, partition=partition)
            producer.flush()
            return producer

        yield begun


def named(play: Playground) -> list[dict[str, Any]]:
    """What `plan` names, which `status` has to name too."""
    held: list[dict[str, Any]] = asked("plan", str(play.file))["open_transactions"]
    also = asked("status", str(play.file))["open_transactions"]
    assert [one["offset"] for one in also] == [one["offset"] for one in held]
    return held


@pytest.mark.covers("E4")
@pytest.mark.usefixtures("spark")
def test_an_open_transaction_is_named_with_what_it_holds_back(play: Playground, begin: Begin) -> None:
    play.produce(40)
    play.ingest()
    assert named(play) == []
    before = int(time.time() * 1000)
    producer = begin("one", 1, 5)
    (one,) = named(play)
    at = {
        "topic": play.topics[0],
        "partition": 1,
        "offset": "10",
        "behind": "5",
        "transactional_id": f"{play.name}-one",
    }
    assert {key: one[key] for key in at} == at
    assert before <= one["started"] <= int(time.time() * 1000)
    _, said = tidemark("plan", str(play.file))
    assert f"{play.topics[0]}/1: an open transaction holds the end back at offset 10, 5 offsets follow it" in said
    assert (
        f"transactional id {play.name}-one, producer {one['producer_id']}, epoch {one['producer_epoch']}, open for"
        in said
    )
    assert "nothing is new" in said
    # A run finds nothing new, and can say why.
    assert play.ingest() == []
    (held,) = ingest.open_transactions(play.opened)
    assert (held.start, held.behind, held.transactional_id) == (10, 5, f"{play.name}-one")
    # An audit says how far it looked.
    report = audit(play.opened, "an audit")
    assert report.clean, report.sentence()
    assert {one.partition: one.position for one in report.coverage}[f"{play.topics[0]}/1"] == 10
    # What is held back is read once the transaction has ended; nothing is named any more, whatever the end trails by.
    producer.commit_transaction()
    assert named(play) == []
    play.kafka.wait_for_stable_end(play.topics[0], 1, 16)
    (record,) = play.ingest()
    assert sum(tally.read.number for tally in record.tallies) == 5
    play.assert_exactly_what_was_read()


@pytest.mark.full
def test_two_transactions_at_once_are_both_named(play: Playground, begin: Begin) -> None:
    play.produce(4)
    first = begin("first", 0, 3)
    begin("second", 0, 2)
    begin("third", 2, 1)
    found = [(one["partition"], one["offset"], one["behind"], one["transactional_id"]) for one in named(play)]
    assert found == [
        (0, "1", "5", f"{play.name}-first"),
        (0, "4", "2", f"{play.name}-second"),
        (2, "1", "1", f"{play.name}-third"),
    ]
    assert len({one["producer_id"] for one in named(play)}) == 3
    first.abort_transaction()
    assert [one["transactional_id"] for one in named(play)] == [f"{play.name}-second", f"{play.name}-third"]


def test_under_read_uncommitted_nothing_is_held_back(play: Playground, begin: Begin) -> None:
    play.rewrite(source={"topics": list(play.topics), "isolation": "read_uncommitted"})
    begin("one", 0, 5)
    assert named(play) == []
    assert asked("plan", str(play.file))["offsets"] == 5
