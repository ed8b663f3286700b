"""Copies of dead letters in a topic: what they hold, which are made, and that a window waits until they are there."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.erasures import ANN, REASON, receipt
from tests.support.letter_files import write_file
from tests.support.protocol_world import hold
from tests.support.stream_text import MINIMAL
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.clients.connections import Connection
from tidemark.clients.kafka import log, sending
from tidemark.clients.kafka.sending import OutgoingMessage
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, Listener, Run
from tidemark.errors import InvalidStreamFile, TopicUnknown, Unreachable
from tidemark.ledger.erasures import places_written
from tidemark.ledger.records import INGEST, Attempt, Receipt, Window
from tidemark.ledger.register import note_places
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import NOTHING, Count, PartitionTally
from tidemark.runs import erasing
from tidemark.runs.windows import ingest
from tidemark.sinks.dead_letters.copies import message_of
from tidemark.sinks.parquet import files
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.streams.loading import load

pytestmark = pytest.mark.covers("O16")

AT = TopicPartition("orders", 0)
COPIED = TEXT.replace(
    "  type: hbase\n  table: orders_dead\n", "  type: parquet\n  folder: dead\n  copy_to_topic: orders.dead\n"
).replace("type: hbase\n    table: orders", "type: parquet\n    folder: rows")


def letter(**fields: bytes) -> StoredRow:
    return StoredRow(Place(TopicPartition("orders", 2, 3), 17, 0), Mark(99, 7, "replay-ab", 4), fields)


def test_a_copy_says_where_its_message_was_read_and_why_it_is_dead() -> None:
    """As Kafka Connect does. The message's own headers come first, in their order."""
    own = [{"key": "a", "value": b64encode(b"\xff").decode()}, {"key": "a", "value": None}]
    row = letter(
        reason=b"raised shop.Away", error=b"shop.Away", detail=b"no \xc3\xa9", key=b"k", value=b"\x00\xfe",
        headers=json.dumps(own).encode(), outcome=b"failed", timestamp=b"2026-11-21T07:00:00.000Z", redrives=b"0",
    )  # fmt: skip
    assert message_of("orders.dead", "orders", row, 1_000) == OutgoingMessage(
        "the copy of the dead letter orders#3/2@17",
        "orders.dead",
        b"k",
        b"\x00\xfe",
        (
            ("a", b"\xff"),
            ("a", None),
            ("__connect.errors.topic", b"orders"),
            ("__connect.errors.partition", b"2"),
            ("__connect.errors.offset", b"17"),
            ("__connect.errors.connector.name", b"orders"),
            ("__connect.errors.exception.message", b"raised shop.Away"),
            ("__connect.errors.exception.class.name", b"shop.Away"),
            ("tidemark.errors.incarnation", b"3"),
            ("tidemark.errors.window", b"replay-ab/4"),
            ("tidemark.errors.generation", b"99"),
            ("tidemark.errors.outcome", b"failed"),
            ("tidemark.errors.detail", b"no \xc3\xa9"),
            ("tidemark.errors.timestamp", b"2026-11-21T07:00:00.000Z"),
        ),
    )
    bare = message_of("orders.dead", "orders", letter(reason=b"not UTF-8", outcome=b"invalid"), 1_000)
    assert (bare.key, bare.value) == (None, None)
    assert "tidemark.errors.detail" not in dict(bare.headers)


def test_what_the_topic_would_not_take_is_left_out_and_named() -> None:
    """Else the stream would wait for ever for a broker that never takes it."""
    row = letter(reason=b"too long", key=b"k" * 300, value=b"v" * 5_000, detail=b"d" * 5_000, outcome=b"invalid")
    found = message_of("orders.dead", "orders", row, 2_000)
    assert (found.key, found.value) == (None, None)
    assert found.size <= 2_000
    headers = dict(found.headers)
    assert headers["tidemark.errors.left_out"] == (
        b"the value of 5000 bytes, the key of 300 bytes: the topic takes 2000 bytes"
    )
    assert headers["__connect.errors.exception.message"] == b"too long"
    assert headers["__connect.errors.offset"] == b"17"


class Topic:
    """Stands in for a cluster with one topic, which may be away."""

    def __init__(self) -> None:
        self.there = True
        self.away_after: int | None = None
        self.messages: list[OutgoingMessage] = []

    def __call__(self, *_: Any, **__: Any) -> Topic:
        return self

    def missing(self, names: Iterable[str]) -> list[str]:
        return [] if self.there else [*names]

    def compacted(self, _: Iterable[str]) -> set[str]:
        return set()

    def message_limits(self, _: Iterable[str]) -> dict[str, int]:
        return {}

    def send(self, messages: Iterable[OutgoingMessage]) -> None:
        for one in messages:
            if self.away_after is not None and len(self.messages) >= self.away_after:
                raise Unreachable("Kafka does not answer")
            self.messages.append(one)

    def close(self) -> None:
        pass

    def offsets(self) -> list[int]:
        return [int(dict(one.headers)["__connect.errors.offset"] or b"") for one in self.messages]


class Letters:
    """A stream with copies of dead letters, whose windows store real files of them."""

    def __init__(self, folder: Path) -> None:
        self.stream = StreamInMemory(folder, text=COPIED)
        opened = self.stream.opened

        def connections(name: str) -> Connection:
            if name == "kafka_default":
                return Connection(name, extra={"bootstrap.servers": "127.0.0.1:9092"})
            return opened.connections(name)

        sweeper = SinkSweeper(connections, opened.stream.dead_letters)
        self.stream.opened = replace(opened, sweeper=sweeper, connections=connections)
        self.base = self.opened.stream.dead_letters.place(self.opened.connections)["base"]
        self.dead: tuple[int, ...] = (2, 3, 5)
        files.own(self.base, "orders", "ledger 1", "dead_letters")

    @property
    def opened(self) -> Any:
        return self.stream.opened

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        self._window, self._covers = window, covers

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        self.generation = attempt.generation
        self._offsets = [one for one in self.dead if (AT, one) in self._covers]
        settings = self.opened.stream.dead_letters
        note_places(self.opened.ledger, [settings.receipt(self.opened.connections), settings.copies()])
        lane, seq = self.lane, self._window.seq
        write_file(self.base, attempt.generation, *self._offsets, at=AT, lane=lane, seq=seq, reason="no", key=b"k")

    def verify(self) -> Receipt:
        invalid = Count(len(self._offsets), "0" * 16)
        tally = PartitionTally(
            topic="orders", incarnation=1, partition=0, read=invalid, stored=NOTHING, rows=NOTHING, invalid=invalid
        )
        dead = self.opened.stream.dead_letters.receipt(self.opened.connections)
        return structs.replace(receipt(), tallies=(tally,), dead_letters=dead)

    def work(self, lane: str = INGEST) -> None:
        ledger, self.lane = self.opened.ledger, lane
        seq = ledger.head(lane).head.seq + 1
        protocol.process(ledger, self.opened.sweeper, self, hold, lane, seq, Run("run", "v", "d"))

    def ingest(self, until: int) -> None:
        self.stream.ends((0, until))
        assert ingest.plan_ingest(self.opened, "run") is not None
        self.work()

    def settle(self) -> None:
        protocol.settle(self.opened.ledger, self.opened.sweeper, INGEST)


@pytest.fixture
def topic(monkeypatch: pytest.MonkeyPatch) -> Topic:
    made = Topic()
    monkeypatch.setattr(sending, "Sender", made)
    monkeypatch.setattr(log, "KafkaLog", made)
    return made


@pytest.fixture
def letters(tmp_path: Path, topic: Topic) -> Letters:
    return Letters(tmp_path)


def test_a_window_waits_until_its_copies_are_there(letters: Letters, topic: Topic) -> None:
    """A topic that is away loses no copy: nothing is read before the copies are made, and nothing ends without a word."""
    topic.away_after = 2
    with pytest.raises(
        Unreachable,
        match=r"dead_letter_copies.*Kafka does not answer. Window ingest/1 is committed, and copies of its dead letters go "
        r"there. Until that is done, no run of orders goes on.*take copy_to_topic out of the stream file",
    ):
        letters.ingest(10)
    assert topic.offsets() == [2, 3]
    for _ in range(2):
        with pytest.raises(Unreachable):
            letters.ingest(20)
    topic.away_after = None
    letters.ingest(20)
    # At least once: those that were there already came once more.
    assert topic.offsets() == [2, 3, 2, 3, 5]
    assert {dict(one.headers)["tidemark.errors.window"] for one in topic.messages} == {b"ingest/1"}
    letters.settle()
    assert len(topic.messages) == 5
    # The window without a dead letter asks no cluster.
    topic.there = False
    letters.ingest(30)


def test_a_topic_that_is_gone_is_told_before_a_message_is_sent(letters: Letters, topic: Topic) -> None:
    topic.there = False
    with pytest.raises(
        TopicUnknown, match=r"copy_to_topic is orders.dead, and Kafka at .* has no such topic: create it"
    ):
        letters.ingest(10)
    assert topic.messages == []


def test_the_stream_file_alone_says_whether_there_are_copies(letters: Letters, topic: Topic) -> None:
    """So a stream goes on without a topic that is gone for good."""
    topic.there = False
    with pytest.raises(TopicUnknown):
        letters.ingest(10)
    without = SinkSweeper(letters.opened.connections)
    protocol.settle(letters.opened.ledger, without, INGEST)
    letters.ingest(20)
    assert topic.messages == []


def test_a_message_that_was_erased_is_not_copied(letters: Letters, topic: Topic) -> None:
    """Also where a program that died before the erasure goes on with its copies after it."""
    letters.ingest(10)
    record = letters.opened.ledger.head(INGEST).head.last
    topic.messages.clear()
    erased = offsets((0, 3, 4))
    lane = erasing.open_erasure(letters.opened, "e", erasing.choose(letters.opened, erased), REASON, ANN)
    erasing.erase(letters.opened, lane, "e")
    letters.opened.sweeper.hand_on(letters.opened.ledger, record)
    assert topic.offsets() == [2, 5]
    # The topic still has what it had, and an erasure says so.
    found = {one.name: one.remains for one in erasing.remaining(letters.opened, erased)}
    assert "stay in the topic" in found["dead_letter_copies"]
    assert "dead_letter_copies" in [one.place.name for one in places_written(letters.opened.ledger)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("copy_to_topic: orders", "orders is a topic that this stream reads"),
        ("copy_to_topic: dead\nguarantee: at_most_once", "under at_most_once a window is settled before"),
        ("copy_to_topic: out", "meets topic 'out' of the copies of the dead letters"),
        ("copy_to_topic: a b", "copy_to_topic"),
    ],
)
def test_a_topic_that_cannot_have_copies_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "orders.yaml"
    sink = "  - type: kafka\n    topic: out\n"
    path.write_text(MINIMAL.replace("sinks:\n", f"sinks:\n{sink}").replace("orders_dead\n", f"orders_dead\n  {text}\n"))
    with pytest.raises(InvalidStreamFile) as caught:
        load(path)
    assert problem in str(caught.value)


def test_copies_need_their_connection(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(COPIED)
    assert "kafka_default" in load(path).stream.connections()
    path.write_text(COPIED.replace("copy_to_topic: orders.dead\n", "copy_to_topic: orders.dead\n  copy_kafka: other\n"))
    assert "other" in load(path).stream.connections()
    # A topic of that name on another cluster is another one.
    path.write_text(COPIED.replace("copy_to_topic: orders.dead\n", "copy_to_topic: orders\n  copy_kafka: other\n"))
    assert load(path).stream.dead_letters.copy_to_topic == "orders"
