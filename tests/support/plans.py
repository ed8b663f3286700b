"""Builders for the tests of the planner."""

from __future__ import annotations

from dataclasses import replace

from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.ledger.records import Head, LaneKind, LaneState, Window, positions
from tidemark.offsets.ranges import TopicPartition
from tidemark.planning.checking import changes
from tidemark.planning.inputs import KafkaState, Policies, Request

TOPIC = "logs"
REQUEST = Request(topics=(TOPIC,), isolation="read_committed", run="r", now=1)


def at(partition: int) -> TopicPartition:
    return TopicPartition(TOPIC, partition)


def head(**offsets: int) -> Head:
    """A head of the ingest lane; `p0=5` is the position 5 of partition 0."""
    known = {at(int(name[1:])): offset for name, offset in offsets.items()}
    return Head(
        stream="s",
        lane="ingest",
        kind=LaneKind.INGEST,
        state=LaneState.OPEN,
        token="t",
        seq=0,
        positions=positions(known),
    )


def kafka(*logs: tuple[int, int], topic_id: str = "id", known_as: int | None = 1) -> KafkaState:
    """A topic with a (start, end) for each partition; `known_as` None: the ledger knows another id."""
    found = TopicLog(topic_id, {number: PartitionLog(start, end, 0) for number, (start, end) in enumerate(logs)})
    return KafkaState({TOPIC: found}, {} if known_as is None else {TOPIC: known_as})


def read(window: Window | None) -> dict[int, tuple[int, int]]:
    return {one.partition: (one.start, one.until) for one in window.ranges} if window else {}


def gaps(window: Window | None) -> list[tuple[str, int, int, int]]:
    assert window is not None
    return [(gap.kind.value, gap.partition, gap.start, gap.until) for gap in window.gaps]


def request(**policies: str) -> Request:
    return replace(REQUEST, policies=Policies(**policies))


def found(head: Head, known: KafkaState, request: Request) -> list[tuple[str, str, int, tuple[tuple[int, int], ...]]]:
    return [(one.change.value, one.topic, one.after, one.starts) for one in changes(head, known, request)]
