"""Every way to pin a window, over a ledger in memory and a Kafka that is told what it has."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.claiming import claim_lane
from tests.support.covering import REPOSITORY
from tests.support.memory import MemoryStore
from tests.support.protocol_world import NoWork, Sweeps, hold
from tidemark.clients.kafka.log import KafkaLog
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.commit import protocol
from tidemark.errors import Conflict, LogTruncated, TidemarkError, TopicRecreated, WrongUse
from tidemark.ledger.incarnations import newest
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import LaneKind, Pending, Record, TopicIncarnation
from tidemark.ledger.stores import doubt
from tidemark.ledger.stores.contract import Key, WriteInDoubt
from tidemark.offsets.coordinates import parse_coordinates
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.selecting import between_offsets
from tidemark.runs.skipping import skip
from tidemark.runs.windows import ingest, lanes
from tidemark.streams.loading import load

FILE = """
stream: s
source: {topics: [logs], start: earliest, on_recreated: accept, on_truncated: accept}
scheme: {type: key_value}
guarantee: GUARANTEE
sinks:
  - {type: delta_latest, folder: t, key: key}
dead_letters: {type: hbase, table: d}
"""


def text(guarantee: str) -> str:
    """A table by key is made of what a window has written before its commit."""
    found = FILE.replace("GUARANTEE", guarantee)
    return (
        found.replace("{type: delta_latest, folder: t, key: key}", "{type: hbase, table: t}")
        if guarantee != "at_least_once"
        else found
    )


class Log:
    """One topic: its id, and where each partition begins and ends."""

    def __init__(self) -> None:
        self.topic_id = "A"
        self.logs = [(0, 1000), (0, 1000)]

    def names(self) -> set[str]:
        return {"logs"}

    def topics(self, names: Iterable[str], isolation: str) -> Mapping[str, TopicLog]:
        return {"logs": TopicLog(self.topic_id, {n: PartitionLog(*log, 0) for n, log in enumerate(self.logs)})}

    def epoch_ends(self, asked: object) -> dict[tuple[str, int], int]:
        return {}

    def high_watermarks(self, logs: object) -> dict[tuple[str, int], int]:
        return {("logs", n): end for n, (_, end) in enumerate(self.logs)}


class Stream:
    def __init__(self, folder: Path, guarantee: str = "at_least_once") -> None:
        path = folder / "s.yaml"
        path.write_text(text(guarantee))
        self.now = 10_000_000
        self.log = Log()
        self.store = MemoryStore()
        self.opened = OpenStream(
            file=load(path),
            ledger=Ledger(self.store, "s", clock=lambda: self.now),
            log=cast(KafkaLog, self.log),
            sweeper=Sweeps(),
            connections=cast(Any, None),
        )

    def work_off(self, pending: Pending | None, run: str, lane: str = "ingest") -> list[Record]:
        done = []
        while pending is not None:
            opened, seq = self.opened, pending.window.seq
            by = lanes.this_run(opened, run)
            done.append(protocol.process(opened.ledger, opened.sweeper, NoWork(), hold, lane, seq, by))
            pending = ingest.next_window(opened, lane, run, done[-1].window.goal)
        return done

    def ingest(self, run: str) -> list[Record]:
        self.now += 3_600_000
        return self.work_off(ingest.plan_ingest(self.opened, run), run)

    @property
    def known(self) -> TopicIncarnation:
        found = self.opened.ledger.register()
        assert found is not None
        return newest(found[1].topics, "logs")

    def epoch(self, partition: int, offset: int) -> int:
        found = self.opened.ledger.register()
        assert found is not None
        return Epochs(found[1].topics).of(TopicPartition("logs", partition), offset)

    def positions(self) -> list[tuple[int, int, int]]:
        found = self.opened.ledger.head("ingest")
        assert found is not None
        return [(one.incarnation, one.partition, one.offset) for one in found.head.positions]


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubt, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)


@pytest.fixture
def stream(tmp_path: Path) -> Stream:
    return Stream(tmp_path)


# partitions that are added


def _plan_ingest(stream: Stream) -> None:
    assert ingest.plan_ingest(stream.opened, "run 2") is not None


def _replay(stream: Stream) -> None:
    chosen = RangeSet([OffsetRange(TopicPartition("logs", 0), 0, 5)])
    lane = claim_lane(stream.opened, LaneKind.REPLAY, "r", chosen, "test")
    assert lanes.plan_lane(stream.opened, lane, "r") is not None


def _skip(stream: Stream) -> None:
    skip(stream.opened, {("logs", 2): 1}, "test", "skip 1", write=True)


def _nothing_new(stream: Stream) -> None:
    stream.log.logs[2] = (0, 0)
    ingest.plan_ingest(stream.opened, "run 2")


@pytest.mark.parametrize("guarantee", ["at_least_once", "at_most_once"])
@pytest.mark.parametrize("how", [_plan_ingest, _replay, _skip, _nothing_new])
def test_every_pin_notes_partitions_that_were_added(
    tmp_path: Path, how: Callable[[Stream], None], guarantee: str
) -> None:
    stream = Stream(tmp_path, guarantee)
    stream.ingest("run 1")
    before = stream.epoch(0, 900)
    stream.log.logs.append((0, 5))
    how(stream)
    assert (stream.known.partitions, len(stream.known.raised)) == (3, 1)
    # What moved to the added partition is newer than all that was there before, and newer than what is read later.
    assert stream.epoch(2, 3) > before
    assert stream.epoch(0, 1000) > before


def test_there_is_one_way_to_pin() -> None:
    """So that no path can forget what has to be noted."""
    found = subprocess.run(
        [
            "grep",
            "-rln",
            r"protocol\.pin(\|import pin\b",
            "tidemark",
            "--include=*.py",
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout.split() == ["tidemark/runs/windows/pinning.py"]


# topics that are recreated or cut, more than once


@pytest.mark.covers("E8")
def test_a_topic_is_recreated_again_before_anything_of_it_is_read(stream: Stream) -> None:
    stream.ingest("run 1")
    for number, topic_id in enumerate("BCD", 2):
        stream.log.topic_id, stream.log.logs = topic_id, [(0, 0), (0, 0)]
        assert stream.ingest(f"run {number}") == []
        assert (stream.known.topic_id, stream.known.incarnation) == (topic_id, number)
        # Looked at once more, nothing is accepted twice.
        assert stream.ingest(f"again {number}") == []
        assert stream.known.incarnation == number
    stream.log.logs = [(0, 3), (0, 0)]
    (record,) = stream.ingest("run 9")
    assert {(one.incarnation, one.partition, one.until) for one in record.window.ranges} == {(4, 0, 3), (4, 1, 0)}


def test_a_log_is_cut_again_before_anything_of_it_is_read(stream: Stream) -> None:
    stream.ingest("run 1")
    for number, end in enumerate((400, 300, 200), 2):
        stream.log.logs[0] = (0, end)
        assert stream.ingest(f"run {number}") == []
        assert stream.known.incarnation == number
        assert dict(stream.known.starts) == {0: end, 1: 1000}
    stream.log.logs[0] = (0, 205)
    (record,) = stream.ingest("run 9")
    ranges = {(one.incarnation, one.partition, one.start, one.until) for one in record.window.ranges}
    assert ranges == {(4, 0, 200, 205), (4, 1, 1000, 1000)}
    assert (4, 0, 205) in stream.positions()


@pytest.mark.covers("E20")
def test_a_topic_is_recreated_before_the_ingest_begins(stream: Stream) -> None:
    """The ledger has learned of it, and the run that began the stream died then."""
    kafka_now.known_now(stream.opened, ("logs",), learn=True)
    stream.log.topic_id = "B"
    (record,) = stream.ingest("run 1")
    assert [(one.incarnation, one.start, one.until) for one in record.window.ranges] == [(2, 0, 1000), (2, 0, 1000)]


@pytest.mark.covers("E21")
def test_a_cut_is_accepted_by_the_positions_that_the_ingest_has_then(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow run has read the head before another one went on. By that head it would read again what was read meanwhile."""
    stream.ingest("run 1")
    stream.log.logs = [(0, 1000), (0, 500)]
    stream.ingest("run 2")
    assert (stream.known.incarnation, dict(stream.known.starts)) == (2, {0: 1000, 1: 500})
    whole, asked = stream.log.topics, iter([True])

    def topics(names: Iterable[str], isolation: str) -> Mapping[str, TopicLog]:
        if next(asked, False):
            stream.log.logs = [(0, 1500), (0, 700)]
            stream.ingest("another run")
            stream.log.logs = [(0, 1500), (0, 400)]
        return whole(names, isolation)

    monkeypatch.setattr(stream.log, "topics", topics)
    with pytest.raises(Conflict, match="has gone on while this run looked at Kafka"):
        ingest.plan_ingest(stream.opened, "slow")
    assert stream.known.incarnation == 2
    stream.ingest("slow")
    assert (stream.known.incarnation, dict(stream.known.starts)) == (3, {0: 1500, 1: 400})
    covered = [
        one for window in stream.opened.ledger.committed() for one in window.covers if one.partition.partition == 0
    ]
    assert [(one.start, one.until) for one in covered] == [(0, 1000), (1000, 1500)]


def test_without_positions_a_cut_is_accepted_too(tmp_path: Path) -> None:
    stream = Stream(tmp_path, "none")
    stream.ingest("run 1")
    stream.log.logs = [(0, 900), (0, 1000)]
    assert stream.ingest("run 2") == []
    stream.log.logs = [(0, 910), (0, 1000)]
    (record,) = stream.ingest("run 3")
    # What lies below the cut is what it was, in the incarnation that it was read as.
    assert [(one.incarnation, one.start, one.until) for one in record.window.ranges] == [(2, 900, 910), (2, 1000, 1000)]


def test_without_positions_and_a_policy_a_cut_stops_the_stream(tmp_path: Path) -> None:
    stream = Stream(tmp_path, "none")
    stream.ingest("run 1")
    stream.opened.file.path.write_text(text("none").replace(", on_truncated: accept", ""))
    stream.opened = replace(stream.opened, file=load(stream.opened.file.path))
    stream.log.logs = [(0, 900), (0, 1000)]
    with pytest.raises(LogTruncated, match="logs/0 ends at 900, below 1000"):
        stream.ingest("run 2")


@pytest.mark.parametrize("change", ["recreated", "cut"])
def test_without_a_policy_both_stop(tmp_path: Path, change: str) -> None:
    stream = Stream(tmp_path)
    path = tmp_path / "s.yaml"
    stream.ingest("run 1")
    path.write_text(path.read_text().replace("accept", "fail"))
    stream.opened = OpenStream(
        file=load(path),
        ledger=stream.opened.ledger,
        log=stream.opened.log,
        sweeper=stream.opened.sweeper,
        connections=stream.opened.connections,
    )
    if change == "recreated":
        stream.log.topic_id = "B"
    else:
        stream.log.logs[0] = (0, 400)
    expected: type[TidemarkError] = TopicRecreated if change == "recreated" else LogTruncated
    with pytest.raises(expected):
        stream.ingest("run 2")
    assert stream.known.incarnation == 1


# a skip whose answers get lost


@pytest.mark.parametrize("write", [("head", 1), ("head", 2), ("head", 3)], ids=["pin", "take", "commit"])
@pytest.mark.parametrize("others", ["commit", "commit and go on"])
def test_a_skip_whose_answer_is_lost_knows_what_others_have_committed(
    stream: Stream, write: tuple[str, int], others: str
) -> None:
    """The write is applied, its answer lost; before it is repeated, another run commits the window as it was pinned."""
    stream.ingest("run 1")
    stream.log.logs = [(0, 1500), (0, 1000)]
    seen: list[Key] = []
    real = stream.store.swap

    def swap(key: Key, expected: bytes | None, value: bytes) -> bool:
        if key[0] == write[0]:
            seen.append(key)
        if key[0] == write[0] and len(seen) == write[1]:
            stream.store.swap = real  # type: ignore[method-assign]
            assert real(key, expected, value)
            meanwhile()
            raise WriteInDoubt("the answer was lost")
        return real(key, expected, value)

    def meanwhile() -> None:
        by = protocol.Run("run 2", "v", "d")
        ledger = stream.opened.ledger
        found = ledger.head("ingest")
        assert found is not None
        if found.head.pending is not None:
            taken = protocol.take(ledger, "ingest", 2, by, take_over=True)
            protocol.commit(ledger, taken, NoWork().verify())
        if others == "commit and go on":
            stream.log.logs[1] = (0, 1007)
            stream.ingest("run 2")

    stream.store.swap = swap  # type: ignore[method-assign]
    window = skip(stream.opened, "latest", "a load test", "skip 1", write=True)
    assert [(gap.start, gap.until) for gap in window.gaps] == [(1000, 1500)]
    assert stream.positions()[0] == (1, 0, 1500)


# bounds of a backfill


@pytest.mark.parametrize(
    ("lower", "upper", "said"),
    [
        ("logs/0@5", "logs/1@9", "logs/0 only in --from, logs/1 only in --until"),
        ("logs/0@5\nlogs/1@5", "logs/1@9", "logs/0 only in --from"),
        ("logs/1@5", "logs/0@9\nlogs/1@9", "logs/0 only in --until"),
    ],
)
def test_bounds_of_different_partitions_are_refused(stream: Stream, lower: str, upper: str, said: str) -> None:
    stream.ingest("run 1")
    with pytest.raises(WrongUse, match=f"different partitions: {said}. Name each partition"):
        between_offsets(stream.opened, parse_coordinates(lower), parse_coordinates(upper))


def test_bounds_of_the_same_partitions(stream: Stream) -> None:
    stream.ingest("run 1")
    stream.log.logs = [(3, 2000), (0, 2000)]

    def between(lower: str, upper: str) -> list[str]:
        return [str(one) for one in between_offsets(stream.opened, parse_coordinates(lower), parse_coordinates(upper))]

    assert between("logs/0@5", "logs/0@9") == ["logs/0@5-9"]
    # One side alone: from there to the ingest's position, or from the log's start up to there.
    assert between("logs/0@5", "") == ["logs/0@5-1000"]
    assert between("", "logs/0@5") == ["logs/0@3-5"]
