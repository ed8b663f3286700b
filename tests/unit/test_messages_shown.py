"""Which messages a stream shows: those of its own topics, in incarnations that the ledger knows, and none that was erased."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.covering import REPOSITORY
from tests.support.known_streams import KnownLog, KnownStream, tables
from tests.support.streams_in_memory import StreamInMemory, at, offsets
from tidemark.cli.commands import results as results_command
from tidemark.clients.kafka.slots import OffsetContents
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.incarnations import Topics
from tidemark.ledger.records import TopicIncarnation
from tidemark.ledger.register import change_topics
from tidemark.offsets.authority import Authority
from tidemark.offsets.coordinates import parse_coordinates
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.requests.dead_letters import DeadLetterFilter, redrive
from tidemark.runs.requests.selecting import between_offsets
from tidemark.sinks.reading import hbase_rows
from tidemark.streams.loading import load
from tidemark.views.dead_letters import dead_letters
from tidemark.views.messages import message, trace
from tidemark.views.messages.fates import Fate
from tidemark.views.messages.rereading import again

__all__ = ["tables"]


@dataclass
class AskedLog(KnownLog):
    """Notes the topics that Kafka was asked about."""

    asked: set[str] = field(default_factory=set)

    def topics(self, names: Iterable[str], isolation: str) -> dict[str, TopicLog]:
        self.asked |= set(names)
        return super().topics(names, isolation)

    def slot(self, topic: str, partition: int, offset: int) -> OffsetContents | None:
        self.asked.add(topic)
        return super().slot(topic, partition, offset)


def a_stream(folder: Path, number: int = 6, what: Fate = Fate.STORED) -> KnownStream:
    """Its ingest has read everything; beside its topic, Kafka has one of others."""
    world = KnownStream(folder, [what] * number)
    world.log = AskedLog(contents=world.log.contents, logs={"orders": [(0, 0)], "salaries": [(0, 3)]})
    world.kafka = world.log
    world.opened = replace(world.opened, log=world.log)  # type: ignore[arg-type]
    world.ends((0, number))
    world.ingest()
    world.ingest("run 2")
    world.log.asked.clear()
    return world


def asked(world: KnownStream) -> set[str]:
    assert isinstance(world.log, AskedLog)
    return world.log.asked


def beside(world: KnownStream, folder: Path, **more: Any) -> StreamInMemory:
    """Another stream of the same ledger and topic, whose ingest has read everything too."""
    other = StreamInMemory(folder, kafka=world.log, name="copies", **more)
    other.ingest()
    world.store.beside = {"orders": world.store, "copies": other.store}
    return other


def shown(world: KnownStream, said: str) -> message.MessageShown:
    return message.page_of(trace.located(world.opened, trace.coordinate(world.opened, said)), payload=True)


@pytest.mark.covers("Q26")
def test_a_topic_of_others_is_not_looked_at(tmp_path: Path) -> None:
    """Neither its messages nor how many there are, nor whether there is such a topic."""
    world = a_stream(tmp_path)
    there, nowhere = (shown(world, f"{topic}/0@1") for topic in ("salaries", "nowhere"))
    assert there.fate == Fate.NOT_OF_THE_STREAM
    assert there.message is None
    assert str(there).replace("salaries", "nowhere") == str(nowhere)
    said = []
    for topic in ("salaries", "nowhere"):
        with pytest.raises(WrongUse) as problem:
            trace.coordinate(world.opened, f"{topic}/0@1970-01-01T00:00:01Z")
        said.append(str(problem.value).replace(topic, "T"))
        with pytest.raises(WrongUse) as problem:
            between_offsets(world.opened, parse_coordinates(f"{topic}/0@1"), [])
        said.append(str(problem.value).replace(topic, "T"))
    assert said[:2] == said[2:]
    assert not asked(world) & {"salaries", "nowhere"}


def test_a_pattern_is_not_tried_on_what_people_name(tmp_path: Path) -> None:
    """The name has to be one of Kafka's: this pattern would be at work for longer than anybody lives."""
    world = a_stream(tmp_path)
    path = tmp_path / "orders.yaml"
    path.write_text(path.read_text().replace("topics: [orders]", 'pattern: "orders|(a+)+b"'))
    world.opened = replace(world.opened, file=load(path))
    assert shown(world, f"{'a' * 200}/0@1").fate == Fate.NOT_OF_THE_STREAM
    assert shown(world, "orders/0@1").message.value.text == "1"
    world.log.logs["aab"] = [(0, 2)]
    assert shown(world, "aab/0@1").message.value.text == "1"


def test_a_topic_that_only_windows_have_read_is_shown(tmp_path: Path) -> None:
    world = a_stream(tmp_path)
    path = tmp_path / "orders.yaml"
    path.write_text(path.read_text().replace("topics: [orders]", "topics: [others]"))
    world.opened = replace(world.opened, file=load(path))
    assert shown(world, "orders/0@1").message.value.text == "1"


@pytest.mark.covers("Q26")
@pytest.mark.parametrize("said", ["orders#2/0@1", "orders#7/0@1", "salaries#2/0@1"])
def test_an_incarnation_that_the_ledger_does_not_know_is_refused(tmp_path: Path, said: str) -> None:
    world = a_stream(tmp_path)
    with pytest.raises(WrongUse, match=r"the ledger knows no incarnation \d of .* it knows 1\."):
        trace.coordinate(world.opened, said)
    assert not asked(world)


def cut_at(world: StreamInMemory, start: int) -> None:
    known = (
        TopicIncarnation(topic_id="id", incarnation=1, since=1),
        TopicIncarnation(topic_id="id", incarnation=2, since=2, starts=((0, start),)),
    )

    def change(topics: Topics) -> Topics:
        return {**topics, "orders": known}

    change_topics(world.opened.ledger, change)


@pytest.mark.covers("Q27")
def test_what_was_erased_is_shown_under_no_incarnation(tmp_path: Path) -> None:
    """Also when a log was taken for cut, and was not: topic id, partition and offset are the same message."""
    world = a_stream(tmp_path)
    world.erase(offsets((0, 1, 2), (0, 4, 5)))
    cut_at(world, 3)
    for said in ("orders/0@1", "orders#1/0@1", "orders#2/0@1", "orders/0@4", "orders#1/0@4", "orders#2/0@4"):
        found = shown(world, said)
        assert found.message is None, said
    assert shown(world, "orders/0@4").coordinate == "orders#2/0@4"
    assert "erased by erase-" in shown(world, "orders/0@4").sentence
    assert shown(world, "orders/0@2").message.value.text == "2"
    assert shown(world, "orders/0@5").message.value.text == "5"
    # What Kafka has there is of the other incarnation.
    assert shown(world, "orders#1/0@5").message is None
    assert shown(world, "orders#2/0@2").message is None


@pytest.mark.covers("Q27")
@pytest.mark.parametrize("what", [Fate.STORED, Fate.DEAD_LETTER])
def test_what_another_stream_of_the_ledger_has_erased_is_shown_by_none(
    tmp_path: Path, what: Fate, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = a_stream(tmp_path, what=what)
    other = beside(world, tmp_path)
    other.erase(offsets((0, 2, 4)))
    assert [bool(shown(world, f"orders/0@{offset}").message) for offset in range(6)] == [1, 1, 0, 0, 1, 1]
    found = shown(world, "orders/0@3")
    assert (found.fate, found.rows, found.under_keys) == (Fate.ERASED, [], [])
    assert found.sentence.startswith("not shown: erased by erase-")
    assert found.sentence.endswith("of the stream copies, reason 'request 4711', asked by ann")
    assert again(trace.located(world.opened, trace.coordinate(world.opened, "orders/0@3"))).kind is None
    # Without Kafka too.
    world.log.away = True
    assert shown(world, "orders/0@3").rows == []
    world.log.away = False
    # The rows that count, for readers; and whoever plans or audits still knows what this stream has read.
    table = world.results if what == Fate.STORED else world.dead
    sink = "hbase" if what == Fate.STORED else None
    for ledger in (for_readers(world.opened.ledger), world.opened.ledger):
        rows = hbase_rows(ledger, table, sink)  # type: ignore[arg-type]
        assert [row.place.offset for row in rows] == [0, 1, 4, 5]
    assert world.opened.ledger.authority().covered() == offsets((0, 0, 6))
    if what == Fate.DEAD_LETTER:
        monkeypatch.setattr("tests.support.known_streams._WORLDS", _OneWorld(world))
        assert dead_letters(world.opened, DeadLetterFilter()).counted == 4
        rows = results_command.read_rows(world.opened, world.opened.stream.dead_letters, 9)
        assert [row["coordinate"] for row in rows] == [f"orders/0@{offset}" for offset in (0, 1, 4, 5)]
        # An error that names the reasons may quote a message.
        with pytest.raises(WrongUse, match=r"reasons are: 'bad 0' \(2\), 'bad 1' \(2\)$"):
            redrive(world.opened, DeadLetterFilter(reason="another"))


class _OneWorld(dict[int, KnownStream]):
    def __init__(self, world: KnownStream) -> None:
        self.world = world

    def __getitem__(self, _: int) -> KnownStream:
        return self.world


def test_an_erasure_of_another_topic_under_the_same_name_hides_nothing(tmp_path: Path) -> None:
    """And the numbers of incarnations are each stream's own."""
    world = a_stream(tmp_path)
    other = beside(world, tmp_path)
    other.erase(offsets((0, 2, 3)))
    change_topics(
        other.opened.ledger,
        lambda topics: {"orders": tuple(replace_id(one, "another id") for one in topics["orders"])},
    )
    assert shown(world, "orders/0@2").message.value.text == "2"
    known = (
        TopicIncarnation(topic_id="another id", incarnation=1, since=1),
        TopicIncarnation(topic_id="id", incarnation=2, since=2),
    )
    change_topics(world.opened.ledger, lambda topics: {**topics, "orders": known})
    change_topics(
        other.opened.ledger,
        lambda topics: {"orders": tuple(replace_id(one, "id") for one in topics["orders"])},
    )
    assert shown(world, "orders/0@2").coordinate == "orders#2/0@2"
    assert shown(world, "orders/0@2").message is None
    assert for_readers(world.opened.ledger).hidden == RangeSet(
        one.__class__(at(0, 2), 2, 3) for one in offsets((0, 2, 3))
    )


def test_a_damaged_ledger_of_another_stream_stops_no_reader(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    world = a_stream(tmp_path)
    other = beside(world, tmp_path)
    other.erase(offsets((0, 2, 3)))
    (selection,) = [key for key in other.store.values if key[0] == "selection"]
    del other.store.values[selection]
    assert shown(world, "orders/0@2").message.value.text == "2"
    assert "what the stream copies has erased is not known" in caplog.text
    other.store.values["register",] = b"r"
    assert for_readers(world.opened.ledger).hidden == RangeSet()


def replace_id(one: TopicIncarnation, topic_id: str) -> TopicIncarnation:
    return TopicIncarnation(topic_id=topic_id, incarnation=one.incarnation, since=one.since)


def test_only_one_place_looks_at_a_message_in_kafka() -> None:
    """Whoever shows one asks there: it knows what may be shown."""
    found = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "tidemark").rglob("*.py")
        if ".slot(" in path.read_text()
    }
    assert found == {"tidemark/runs/live/message_lookup.py"}


def test_nothing_counts_where_it_is_hidden() -> None:
    authority = Authority([(1, offsets((0, 0, 10), (1, 0, 4))), (2, offsets((0, 3, 6)))])
    left = authority.without(offsets((0, 2, 4), (0, 9, 12), (2, 0, 4)))
    assert [left.of(at(0), offset) for offset in range(11)] == [1, 1, None, None, 2, 2, 1, 1, 1, None, None]
    assert left.covered() == offsets((0, 0, 2), (0, 4, 9), (1, 0, 4))
    assert authority.covered() == offsets((0, 0, 10), (1, 0, 4))
    assert authority.without(RangeSet()) is authority
