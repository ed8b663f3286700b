"""Kafka is asked by names: what was asked of logs that were looked at before must not be of others that came meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.site import REPOSITORY
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, at, offsets
from tidemark.clients.kafka.slots import OffsetContents, Slot
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import Conflict, TopicRecreated
from tidemark.ledger.records import INGEST
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.times import read_time
from tidemark.runs import skipping
from tidemark.runs.live import message_lookup
from tidemark.runs.requests import selecting
from tidemark.views.browsing.places import SearchScope, in_kafka
from tidemark.views.event_time.completeness import HOUR_MS, TimeSpan
from tidemark.views.event_time.progress import progress
from tidemark.views.messages import trace

SINCE = "1970-01-01T00:00:25Z"
FROM_A_TIME = TEXT.replace("start: earliest", "start: {time: '1970-01-01T00:00:05Z', if_none: end}")
HERE = offsets((0, 5, 15))
HOUR = TimeSpan(0, HOUR_MS)


@dataclass
class Changing(LookedAt):
    """Kafka, to whose topic something happens right after the question that `asked` names."""

    asked: str = ""
    happens: Callable[[Changing], None] = lambda kafka: None
    epoch: int = 0
    # Where the log of the first epoch ends, when there is a newer one.
    cut: int = 0

    def _and_then(self, name: str, found: Any) -> Any:
        if name == self.asked:
            self.asked = ""
            self.happens(self)
        return found

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        there = {
            name: TopicLog(
                found.topic_id,
                {
                    number: PartitionLog(log.start, log.end, self.epoch, log.high)
                    for number, log in found.partitions.items()
                },
            )
            for name, found in super().topics(names, isolation).items()
        }
        return self._and_then("topics", there)  # type: ignore[no-any-return]

    def first_at_or_after(
        self, logs: Mapping[str, TopicLog], timestamp_ms: int, isolation: str
    ) -> dict[tuple[str, int], int | None]:
        return self._and_then("time", super().first_at_or_after(logs, timestamp_ms, isolation))

    def slot(self, topic: str, partition: int, offset: int) -> OffsetContents | None:
        return self._and_then("slot", OffsetContents(Slot.COMPACTED, 0, 40))

    def epoch_ends(self, asked: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
        return {place: self.cut for place, epoch in asked.items() if epoch < self.epoch}


def recreated(kafka: Changing) -> None:
    kafka.ids["orders"] = "another"


def deleted(kafka: Changing) -> None:
    del kafka.logs["orders"]


def cut(kafka: Changing) -> None:
    kafka.epoch, kafka.cut = 1, 30


def another_leader(kafka: Changing) -> None:
    """Nothing was cut: the log of the older leader ends where it ended, or above."""
    kafka.epoch, kafka.cut = 1, 40


def expired(kafka: Changing) -> None:
    kafka.logs["orders"] = [(10, 45)]


CHANGES = {
    recreated: r"topic orders was deleted and created again while",
    deleted: r"topic orders was deleted while",
    cut: r"the log of orders/0 was cut at 30 while",
}
ASKS: dict[str, tuple[str, Callable[[StreamInMemory], object]]] = {
    "a replay since a time": ("time", lambda made: selecting.within_times(made.opened, SINCE, "", "end")),
    "a skip to a time": ("time", lambda made: skipping.skip(made.opened, read_time(SINCE), "why", "s", write=False)),
    "a message at a time": ("time", lambda made: trace._at_time(made.opened, "orders", 0, SINCE)),
    "why an offset has no message": ("slot", lambda made: message_lookup.slot_at(made.opened, Coordinate(at(0), 5))),
    "whether an hour is complete": ("time", lambda made: progress(made.opened).answers(HOUR)),
    "which hours are complete": ("time", lambda made: progress(made.opened).look_at([0, 5_000])),
}


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    made = StreamInMemory(tmp_path, Changing())
    made.ends((0, 20))
    made.ingest()
    made.ends((0, 40))
    return made


@pytest.mark.parametrize("happens", CHANGES)
@pytest.mark.parametrize("name", ASKS)
def test_what_happens_between_two_questions_is_noticed(
    made: StreamInMemory, name: str, happens: Callable[[Changing], None]
) -> None:
    assert isinstance(made.kafka, Changing)
    made.kafka.asked, ask = ASKS[name]
    made.kafka.happens = happens
    with pytest.raises(Conflict, match=CHANGES[happens]):
        ask(made)
    # Nothing was changed, and whoever asks again is told of what is there now.
    assert len(made.opened.ledger.committed()) == 1


@pytest.mark.parametrize("happens", [another_leader, expired])
@pytest.mark.parametrize("name", ASKS)
def test_another_leader_and_retention_make_no_other_log(
    made: StreamInMemory, name: str, happens: Callable[[Changing], None]
) -> None:
    assert isinstance(made.kafka, Changing)
    made.kafka.asked, ask = ASKS[name]
    made.kafka.happens = happens
    ask(made)
    assert made.kafka.asked == ""


def test_an_ingest_that_begins_at_a_time_begins_in_the_log_that_it_has_looked_at(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, Changing(asked="time", happens=recreated), text=FROM_A_TIME)
    made.ends((0, 40))
    with pytest.raises(Conflict, match="deleted and created again while"):
        made.ingest()
    assert made.opened.ledger.head(INGEST) is None
    with pytest.raises(TopicRecreated):
        made.ingest()


def test_why_there_is_no_message_is_not_asked_of_another_incarnation(made: StreamInMemory) -> None:
    assert isinstance(made.kafka, Changing)
    assert message_lookup.slot_at(made.opened, Coordinate(at(0), 5)) is not None
    recreated(made.kafka)
    assert message_lookup.slot_at(made.opened, Coordinate(at(0), 5)) is None


LOOKS: dict[str, Callable[[StreamInMemory], object]] = {
    "slot": lambda made: message_lookup.slot_at(made.opened, Coordinate(at(0), 15)),
    "message": lambda made: _raised(message_lookup.look(made.opened, Coordinate(at(0), 15)).slot),
    "browse": lambda made: in_kafka(made.opened, SearchScope()),
}


def _raised(slot: OffsetContents | str | None) -> None:
    if isinstance(slot, str):
        raise Conflict(slot)


@pytest.mark.parametrize("name", LOOKS)
def test_no_message_is_of_the_incarnation_before_a_cut_that_is_met_meanwhile(name: str, tmp_path: Path) -> None:
    """What the ledger says of the topic, and how far the ingest is, are two reads of it."""
    made = StreamInMemory(
        tmp_path, Changing(), text=TEXT.replace("start: earliest", "start: earliest\n  on_truncated: accept")
    )
    assert isinstance(made.kafka, Changing)
    made.ends((0, 20))
    made.ingest()
    made.kafka.epoch, made.kafka.cut = 1, 10
    made.ends((0, 40))
    made.kafka.asked, made.kafka.happens = "topics", lambda _: made.ingest("run 2")
    with pytest.raises(Conflict, match="the log of orders/0 was cut at 10, and no ingest has met that yet"):
        LOOKS[name](made)
    assert made.opened.ledger.topics()["orders"][-1].incarnation == 2
    assert message_lookup.slot_at(made.opened, Coordinate(at(0), 15)) is None


def test_times_are_asked_for_where_the_logs_are_looked_at_again() -> None:
    """Whoever calls Kafka's client itself could forget it. The topics of a sink have no incarnations."""
    found = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "tidemark").rglob("*.py")
        if "log.first_at_or_after(" in path.read_text()
    }
    assert found == {
        "tidemark/runs/live/same_logs.py",
        # They ask for many times, and look at the logs once after them.
        "tidemark/views/coverage/times.py",
        "tidemark/views/event_time/progress.py",
        "tidemark/sinks/kafka/message_lookup.py",
    }
