"""Replays into some sinks alone: what counts in each sink, which lanes may be opened, and what requests are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import json, structs

from tests.support.protocol_world import AT, RUN, NoWork, World, hold, plan
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.cli import lanes_of_runs, stream_lookup
from tidemark.cli.commands import replay
from tidemark.commit import protocol
from tidemark.errors import Conflict, LaneClosed, ProcessingFailed, VerificationFailed, WrongUse
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.ledger import Committed, authority_of, record_key
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import LaneKind, Pending, Record, Window, positions
from tidemark.ledger.recovery.verifying import verify as verify_ledger
from tidemark.ledger.register import close_lane, open_lane
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.tallies import Acknowledged, Count, PartitionTally, verify
from tidemark.runs.requests import answers
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest, checked
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import lanes
from tidemark.sinks.reading import read_at
from tidemark.streams.loading import load
from tidemark.views.coverage.window_index import WindowIndex

NAMES = ("a", "b", "c")
# Start, length, and the sinks that a window writes alone.
Drawn = tuple[int, int, tuple[str, ...] | None]
WINDOWS = st.lists(
    st.tuples(
        st.integers(0, 12),
        st.integers(1, 8),
        st.none() | st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(tuple),
    ),
    max_size=8,
)


def committed(drawn: list[Drawn]) -> list[Committed]:
    found = []
    for generation, (start, length, sinks) in enumerate(drawn, 1):
        window = Window(seq=1, ranges=(), topic_ids={}, isolation="read_committed", pinned_at=1, run="run", sinks=sinks)
        record = SimpleNamespace(window=window, attempt=SimpleNamespace(generation=generation))
        found.append(Committed(cast("Any", record), RangeSet([OffsetRange(AT, start, start + length)])))
    return found


@given(WINDOWS)
@example([(0, 5, None), (2, 5, ("a",)), (0, 3, ("b", "a"))])
def test_what_counts_in_a_sink_is_the_newest_window_that_writes_it(drawn: list[Drawn]) -> None:
    """Against an oracle that asks each offset of each window by itself."""
    windows = committed(drawn)
    for sink in (*NAMES, None):
        found = authority_of(windows, sink)
        for offset in range(22):
            writing = [
                generation
                for generation, (start, length, alone) in enumerate(drawn, 1)
                if start <= offset < start + length and (alone is None or (sink is not None and sink in alone))
            ]
            assert found.of(AT, offset) == max(writing, default=None), (sink, offset)


def replayed(world: World, name: str, start: int, until: int, sinks: tuple[str, ...] | None) -> Record:
    """Replay offsets in a lane of their own, and close it."""
    ref = world.ledger.store_selection(RangeSet([OffsetRange(AT, start, until)]))

    def planned(head: Any) -> Window:
        (one,) = plan(head).ranges
        ranges = (structs.replace(one, start=start, until=until),)
        return structs.replace(plan(head), ranges=ranges, selection=ref, sinks=sinks)

    lane = f"replay-{name}"
    open_lane(
        world.ledger,
        lane,
        LaneKind.REPLAY,
        run="r",
        start=positions({AT: start}),
        selection=ref,
        reason="x",
        sinks=sinks,
    )
    pending = protocol.pin(world.ledger, world.sweeps, lane, planned)
    assert pending is not None
    record = protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, pending.window.seq, RUN)
    close_lane(world.ledger, lane)
    return record


@pytest.fixture
def world() -> World:
    made = World()
    made.one_window()
    return made


@pytest.mark.covers("N14")
def test_views_and_look_ups_agree_in_each_sink(world: World) -> None:
    (first,) = world.ledger.view().windows
    alone = replayed(world, "alone", 2, 6, ("a",))
    everywhere = replayed(world, "everywhere", 4, 8, None)
    later = replayed(world, "later", 5, 7, ("b",))
    generations = [one.attempt.generation for one in (first.record, alone, everywhere, later)]
    assert generations == sorted(set(generations))
    one, two, three, four = generations
    wanted = {
        None: [one] * 4 + [three] * 4 + [one] * 2,
        "a": [one] * 2 + [two] * 2 + [three] * 4 + [one] * 2,
        "b": [one] * 4 + [three] + [four] * 2 + [three] + [one] * 2,
        "new": [one] * 4 + [three] * 4 + [one] * 2,
    }
    for sink, counts in wanted.items():
        view = world.ledger.view(sink)
        assert view == world.ledger.view().of(sink) == world.ledger.view("b").of(sink)
        assert [view.authority.of(AT, offset) for offset in range(10)] == counts, sink
        assert not world.ledger.changed_since(view)
        for offset in range(10):
            found = look_up(world.ledger, Coordinate(AT, offset)).counting(sink)
            assert found is not None
            assert found.attempt.generation == counts[offset]
    asked = read_at(
        world.ledger,
        Coordinate(AT, 5),
        dict.fromkeys(("a", "b", "dead letters"), lambda record: record.attempt.generation),
    )[1]
    assert asked == {"a": three, "b": four, "dead letters": three}
    # The picture of a stream shows the windows that have read offsets into all sinks.
    index = WindowIndex()
    index.refresh(world.ledger)
    assert [(part.start, part.until, part.generation) for part in index.segments(AT)] == [
        (0, 4, one),
        (4, 8, three),
        (8, 10, one),
    ]
    assert set(index.names) == set(generations)
    assert verify_ledger(world.ledger) == []


def test_a_lane_keeps_its_sinks(world: World) -> None:
    ledger = world.ledger
    ref = ledger.store_selection(RangeSet([OffsetRange(AT, 2, 6)]))
    how: dict[str, Any] = {"run": "r", "start": positions({AT: 2}), "selection": ref, "reason": "x"}
    open_lane(ledger, "replay-x", LaneKind.REPLAY, **how, sinks=("a",))
    with pytest.raises(Conflict, match="open already, and writes a alone"):
        open_lane(ledger, "replay-x", LaneKind.REPLAY, **how)
    register = ledger.register()
    assert register is not None
    assert register[1].lanes["replay-x"].sinks == ("a",)
    close_lane(ledger, "replay-x")
    record = replayed(world, "done", 2, 6, ("a",))
    assert record.window.sinks == ("a",)
    open_lane(ledger, "replay-done", LaneKind.REPLAY, **how, sinks=("a",))
    with pytest.raises(LaneClosed):
        open_lane(ledger, "replay-done", LaneKind.REPLAY, **how, sinks=("b",))
    # What is read first is read into all sinks.
    below = ledger.store_selection(RangeSet([OffsetRange(AT, 0, 1)]))
    for kind, sinks in ((LaneKind.BACKFILL, ("a",)), (LaneKind.REPLAY, ())):
        with pytest.raises(WrongUse, match="only a replay writes some sinks alone"):
            open_lane(ledger, "other", kind, **{**how, "selection": below}, sinks=sinks)


def test_records_without_the_field_are_read_as_before(world: World) -> None:
    stored = world.store.read(record_key("ingest", 1))
    assert stored is not None
    plain = json.decode(stored)
    del plain["window"]["sinks"]
    older = decode(json.encode(plain), Record, "a record")
    assert older.window.counts_for("a")
    assert older.window.counts_for(None)
    assert encode(older) == stored


def test_three_points_agree_without_dead_letters_too() -> None:
    """A window that writes some sinks alone counts what is invalid, and stores no dead letter of it."""
    both, one = Count(2, f"{3:016x}"), Count(1, f"{1:016x}")
    other = Count(1, f"{2:016x}")
    tally = structs.replace(
        PartitionTally(topic="logs", incarnation=1, partition=0), read=both, stored=one, invalid=other, rows=one
    )
    held = {"a": {AT: Acknowledged(one, one, "0" * 16)}}
    verify([tally], held, None)
    with pytest.raises(VerificationFailed, match="acknowledged by the dead letters: 0"):
        verify([tally], held, {})
    with pytest.raises(VerificationFailed, match="acknowledged by sink a: 0"):
        verify([tally], {"a": {}}, None)
    with pytest.raises(VerificationFailed, match="given an outcome: 1"):
        verify([structs.replace(tally, invalid=Count(0, "0" * 16))], held, None)


# requests

FIRST = "  - type: hbase\n    table: orders\n"
LATER = "  - {type: hbase, name: later, table: orders_later}\n"


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """The ingest has read [20, 40)."""
    text = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20}}")
    stream = StreamInMemory(tmp_path, text=text.replace(FIRST, FIRST + LATER))
    stream.ends((0, 40))
    stream.ingest("run 1")
    return stream


def asked_for(kind: Any = ReplayRequest, **values: Any) -> Any:
    return checked(kind, {"reason": "a new sink", "ranges": "orders/0@15-45", "dry_run": False, **values}, {})


def test_a_request_names_sinks_of_the_stream(made: StreamInMemory) -> None:
    found = plan_request(made.opened, asked_for(sinks=["later"]))
    assert found.ranges == offsets((0, 20, 40))
    with pytest.raises(WrongUse, match=r"sinks: the stream file of orders has no sink latter; it has: hbase, later\."):
        plan_request(made.opened, asked_for(sinks=["later", "latter"]))
    for empty in (None, [], ""):
        assert asked_for(sinks=empty).sinks == []
    with pytest.raises(WrongUse, match=r"sinks: expected a list"):
        asked_for(sinks="later")


def test_a_backfill_into_some_sinks_reads_only_what_windows_have_read(made: StreamInMemory) -> None:
    with pytest.raises(WrongUse, match="sinks needs mode reprocess"):
        asked_for(BackfillRequest, sinks=["later"])
    found = plan_request(made.opened, asked_for(BackfillRequest, sinks=["later"], mode="reprocess"))
    assert (found.ranges, found.again) == (RangeSet(), offsets((0, 20, 40)))
    assert found.left_out == {answers.NOT_READ: offsets((0, 15, 20)), answers.NOT_YET: offsets((0, 40, 45))}
    with pytest.raises(WrongUse, match="dead_letters and sinks"):
        checked(ReplayRequest, {"reason": "a new sink", "dead_letters": "*", "sinks": ["later"]}, {})


@pytest.mark.covers("N14")
def test_the_command_opens_a_lane_into_these_sinks_and_says_so(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    monkeypatch.setattr(
        lanes_of_runs, "process", lambda opened, command, lane, run, pending, **_: pinned.append(pending)
    )
    pinned: list[Pending] = []
    command: dict[str, Any] = {"ranges": ["orders/0@20-40"], "reason": "a new sink", "sinks": ["later"]}
    replay.replay("orders", yes=True, **command, dry_run=True, as_json=True)
    said = capsys.readouterr()
    assert json.decode(said.out)["sinks"] == ["later"]
    assert "into later alone: other sinks and the dead letters stay as they are" in said.err
    replay.replay("orders", yes=True, **command, run_name="a run")
    (pending,) = pinned
    assert pending.window.sinks == ("later",)
    # A sink that is taken out of the file: the run says so, and what was pinned stays claimed.
    path = made.opened.file.path
    path.write_text(made.text.replace("name: later", "name: other"))
    without = replace(made.opened, file=load(path))
    # Here with a window that is pinned already.
    with pytest.raises(
        WrongUse, match=r"writes later alone, and the stream file .* has no sink later.*tidemark cancel"
    ):
        lanes.plan_lane(without, lanes.lane_name(LaneKind.REPLAY, "a run"), "a run")


def test_what_is_left_out_has_its_table_before_the_job_begins(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever goes on after a failure sees the answers to what was read, and no longer these."""

    def killed(*_: Any, **__: Any) -> None:
        raise ProcessingFailed("the job was killed")

    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    monkeypatch.setattr(lanes_of_runs, "process", killed)
    with pytest.raises(ProcessingFailed):
        replay.replay("orders", yes=True, ranges=["orders/0@38-45"], reason="a new sink")
    said = capsys.readouterr()
    assert "orders/0 40 45 5 not in the topic yet: at or above its end" in " ".join(said.err.split())
    assert said.out == ""


def test_what_a_window_into_some_sinks_leaves_out_is_an_answer_of_its_own() -> None:
    tally = structs.replace(
        PartitionTally(topic="orders", incarnation=1, partition=0),
        read=Count(3, "0" * 16),
        stored=Count(2, "0" * 16),
        invalid=Count(1, "0" * 16),
    )
    covers = offsets((0, 0, 3))
    (at,) = covers.partitions
    tally = structs.replace(tally, topic=at.topic)
    found = answers.totals(answers.after(covers, [tally], {}, some_sinks=True))
    assert found == {answers.STORED: 2, answers.NO_ROW: 1}
