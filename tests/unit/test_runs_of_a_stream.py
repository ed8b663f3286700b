"""What a run does on a stream, over a Kafka and a ledger in memory: where it begins, how far it goes, what it remembers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark import __version__
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.errors import ClaimOverlap, Conflict, OffsetsOutOfRange, WrongUse
from tidemark.ledger.records import INGEST, LaneKind, Window, positions
from tidemark.ledger.register import open_lane
from tidemark.offsets.coordinates import NamedOffsets
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.requests import selecting
from tidemark.runs.windows import ingest, lanes
from tidemark.views import summary

FOUR_AT_A_TIME = TEXT + "limits:\n  max_records: 4\n"
NO_GUARANTEE = "guarantee: none\n"


def windows(made: StreamInMemory, run: str, *, again: bool = False) -> Iterator[tuple[int, int]]:
    """What a job of the run reads in partition 0, window after window, until there is nothing that it goes on with."""
    pending = ingest.plan_ingest(made.opened, run, again=again)
    while pending is not None:
        (one,) = pending.window.ranges
        record = made.process(INGEST, run)
        yield one.start, one.until
        pending = ingest.next_window(made.opened, INGEST, run, record.window.goal)


def pinned(made: StreamInMemory, run: str = "run 1", **settings: Any) -> Window:
    pending = ingest.plan_ingest(made.opened, run, **settings)
    assert pending is not None
    return pending.window


# How far a run goes


@pytest.mark.parametrize("more", ["", NO_GUARANTEE])
def test_a_run_goes_to_the_end_that_it_saw_when_it_began(tmp_path: Path, more: str) -> None:
    made = StreamInMemory(tmp_path, text=FOUR_AT_A_TIME + more)
    made.ends((0, 10))
    going = windows(made, "run 1")
    assert next(going) == (0, 4)
    made.ends((0, 20))
    assert list(going) == [(4, 8), (8, 10)]


def test_a_run_that_is_tried_again_goes_no_further_than_before(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=FOUR_AT_A_TIME)
    made.ends((0, 10))
    assert next(windows(made, "run 1")) == (0, 4)
    made.ends((0, 20))
    assert list(windows(made, "run 1", again=True)) == [(4, 8), (8, 10)]
    assert list(windows(made, "run 1", again=True)) == []
    # By its newest end, if it was started anew meanwhile.
    assert next(windows(made, "run 1")) == (10, 14)
    made.ends((0, 30))
    assert list(windows(made, "run 1", again=True)) == [(14, 18), (18, 20)]


def test_a_goal_in_a_partition_that_was_not_read_yet_is_not_reached(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 5))
    made.ingest("run 1")
    made.ends((0, 5), (0, 1))
    pending = ingest.next_window(made.opened, INGEST, "run 1", positions({at(0): 5, at(1): 1}))
    assert pending is not None
    assert [(one.partition, one.start, one.until) for one in pending.window.ranges if one.until] == [
        (0, 5, 5),
        (1, 0, 1),
    ]


def test_a_run_that_finished_another_runs_window_sets_out_anew(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=FOUR_AT_A_TIME)
    made.ends((0, 8))
    assert list(windows(made, "run 1")) == [(0, 4), (4, 8)]
    made.ends((0, 12))
    pinned(made, "run 2")
    assert next(windows(made, "run 1")) == (8, 12)
    made.ends((0, 14))
    assert list(windows(made, "run 1", again=True)) == [(12, 14)]


def test_what_a_run_has_committed_is_known_before_it_is_in_the_history(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 4))
    made.ingest("run 1")
    made.ends((0, 7))
    made.ingest("run 2")
    made.ends((0, 9))
    made.ingest("run 1")
    ledger = made.opened.ledger
    assert [one.seq for one in lanes.committed_before(made.opened, INGEST, "run 1")] == [1, 3]
    # As after a crash that follows the commit.
    del made.store.values["history", INGEST, f"{3:019d}"]
    assert [one.seq for one in ledger.newest_records(INGEST, 9)] == [2, 1]
    assert [one.seq for one in lanes.committed_before(made.opened, INGEST, "run 1")] == [1, 3]
    assert lanes.committed_before(made.opened, "replay-1", "run 1") == []


# Where it begins


def test_without_a_guarantee_nothing_is_kept_and_each_run_begins_at_the_start(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=TEXT + NO_GUARANTEE)
    made.ends((0, 5))
    pinned(made)
    head = made.opened.ledger.head(INGEST)
    assert head is not None
    assert head.head.positions == ()


def test_positions_that_a_stream_had_before_do_not_count_without_a_guarantee(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 5))
    made.ingest("run 1")
    now = StreamInMemory(tmp_path, made.kafka, TEXT + NO_GUARANTEE)
    now.store.values.update(made.store.values)
    now.ends((0, 7))
    assert [(one.start, one.until) for one in pinned(now, "run 2").ranges] == [(0, 7)]


def test_a_stream_begins_at_a_time(tmp_path: Path) -> None:
    time = "{time: '1970-01-01T00:00:05Z'}"
    made = StreamInMemory(tmp_path, text=TEXT.replace("start: earliest", f"start: {time}"))
    made.ends((0, 9))
    assert [(one.start, one.until) for one in pinned(made).ranges] == [(5, 9)]


def test_a_preview_says_whether_the_window_is_pinned_and_writes_nothing(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=TEXT.replace("start: earliest", "start: {offsets: {orders/0: 3}}"))
    made.ends((0, 9))
    before = dict(made.store.values)
    window, is_pinned = ingest.preview(made.opened)
    assert window is not None
    assert ([(one.start, one.until) for one in window.ranges], is_pinned) == ([(3, 9)], False)
    assert made.store.values == before
    assert ingest.preview(made.opened) == (window, False)
    made.ends((0, 12))
    there = pinned(made)
    assert ingest.preview(made.opened) == (there, True)
    made.process(INGEST)
    assert ingest.preview(made.opened) == (None, False)


# Positions of another program


def test_an_import_begins_a_stream(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((2, 9), (0, 5))
    others = {("orders", 0): 4, ("unknown", 0): 7}

    def imported(*, write: bool, **settings: Any) -> dict[int, int]:
        start = ingest.import_positions(made.opened, others, "latest", "import 1", write=write, **settings)
        return {one.at.partition: one.offset for one in start}

    assert imported(write=False) == {0: 4, 1: 5}
    assert imported(write=False, shift=-1) == {0: 3, 1: 5}
    assert made.store.values == {}
    assert imported(write=True) == {0: 4, 1: 5}
    assert made.positions() == {0: 4, 1: 5}
    found = made.opened.ledger.register()
    assert found is not None
    assert (found[1].lanes[INGEST].reason, found[1].lanes[INGEST].run) == ("import", "import 1")
    for write in (False, True):
        with pytest.raises(WrongUse, match="has positions already"):
            imported(write=write)


def test_an_import_without_an_offset_of_the_topics_is_refused(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    with pytest.raises(WrongUse, match="there is no offset of orders to import"):
        ingest.import_positions(made.opened, {("unknown", 0): 7}, "latest", "import 1", write=True)
    assert made.store.values == {}


def test_an_import_that_another_run_was_ahead_of_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))

    def second(*given: Any, **settings: Any) -> Any:
        monkeypatch.undo()
        other = StreamInMemory(tmp_path, made.kafka)
        other.opened.ledger.store = other.store = made.store
        ingest.plan_ingest(other.opened, "run 1")
        return open_lane(*given, **settings)

    monkeypatch.setattr(ingest, "open_lane", second)
    with pytest.raises(Conflict, match="nothing was imported"):
        ingest.import_positions(made.opened, {("orders", 0): 4}, "latest", "import 1", write=True)
    assert made.positions() == {0: 0}


# Backfills and replays


def test_a_backfill_takes_what_was_asked_for_in_parts(tmp_path: Path) -> None:
    made = StreamInMemory(
        tmp_path,
        text=TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20}}") + "limits: {max_records: 4}\n",
    )
    made.ends((0, 20))
    made.ingest()
    lane = claim_lane(made.opened, LaneKind.BACKFILL, "backfill 1", offsets((0, 2, 9)), "holes")
    read = []
    while (pending := lanes.plan_lane(made.opened, lane, "backfill 1")) is not None:
        read += [(one.start, one.until) for one in pending.window.ranges]
        made.process(lane, "backfill 1")
    assert read == [(2, 6), (6, 9)]


def _with_the_ledger_of(made: StreamInMemory, text: str) -> StreamInMemory:
    now = StreamInMemory(made.folder, made.kafka, text)
    now.store.values.update(made.store.values)
    return now


def test_a_lanes_name_follows_from_the_runs() -> None:
    name = lanes.lane_name(LaneKind.REPLAY, "a run")
    assert name == f"replay-{hashlib.sha256(b'a run').hexdigest()[:12]}"


def test_what_an_earlier_try_has_opened_is_found_open_and_closed(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    name = lanes.lane_name(LaneKind.REPLAY, "replay 1")
    for _ in range(2):
        assert not lanes.selected_before(made.opened, name)
        assert lanes.lanes_of(made.opened, LaneKind.REPLAY, "replay 1") == []
        made.ingest()
    chosen = offsets((0, 2, 4))
    lane = claim_lane(made.opened, LaneKind.REPLAY, "replay 1", chosen, "bug 17")
    assert (lane, lanes.selected_before(made.opened, lane)) == (name, chosen)
    lanes.plan_lane(made.opened, lane, "replay 1")
    made.process(lane, "replay 1")
    lanes.finish(made.opened, lane)
    assert lanes.is_done(made.opened, lane)
    assert lanes.selected_before(made.opened, lane) == chosen
    assert lanes.lanes_of(made.opened, LaneKind.REPLAY, "replay 1") == [lane]
    assert lanes.lanes_of(made.opened, LaneKind.BACKFILL, "replay 1") == []


@pytest.mark.covers("N26")
def test_the_same_request_by_another_run_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    made.ingest()
    chosen = offsets((0, 2, 4))
    first, second = (
        partial(claim_lane, made.opened, LaneKind.REPLAY, run, chosen, "bug 17") for run in ("first", "second")
    )
    lane = first()
    before = dict(made.store.values)
    with pytest.raises(ClaimOverlap, match=rf"orders/0@2-4: claimed by the open lane {lane} \(run first\); wait"):
        second()
    assert made.store.values == before
    # The same run again is no second one.
    assert first() == lane
    lanes.plan_lane(made.opened, lane, "first")
    made.process(lane, "first")
    lanes.finish(made.opened, lane)
    assert (first(), lanes.plan_lane(made.opened, lane, "first")) == (lane, None)
    assert second() != lane


def test_a_replay_that_cannot_be_planned_says_in_the_ledger_why_it_was_closed(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 9))
    made.ingest()
    lane = claim_lane(made.opened, LaneKind.REPLAY, "replay 1", offsets((0, 2, 4)), "bug 17")
    made.ends((3, 9))
    with pytest.raises(OffsetsOutOfRange, match="is free again"):
        lanes.plan_lane(made.opened, lane, "replay 1")
    head = made.opened.ledger.head(lane)
    assert head is not None
    assert str(head.head.closed_early).startswith("OffsetsOutOfRange: ")


def test_ranges_of_people_are_of_the_incarnation_that_they_belong_to(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=TEXT.replace("start: earliest", "start: earliest\n  on_recreated: accept"))
    made.kafka.ids["orders"] = "first"
    made.ends((0, 9))
    made.ingest("run 1")
    named = NamedOffsets(offsets((0, 1, 2)))
    assert selecting.in_known_incarnations(made.opened, named) == offsets((0, 1, 2))
    made.kafka.ids["orders"] = "second"
    made.ends((0, 5))
    made.ingest("run 2")
    (one,) = selecting.in_known_incarnations(made.opened, named)
    assert (one.partition, one.start, one.until) == (at(0, 2), 1, 2)
    assert selecting.in_known_incarnations(made.opened, NamedOffsets(exact=named.open)) == offsets((0, 1, 2))
    with pytest.raises(WrongUse, match="orders has no incarnation 3; known are 1, 2"):
        selecting.in_known_incarnations(made.opened, NamedOffsets(exact=RangeSet([OffsetRange(at(0, 3), 1, 2)])))
    with pytest.raises(WrongUse, match="other: the stream orders has never read this topic"):
        selecting.in_known_incarnations(
            made.opened, NamedOffsets(RangeSet([OffsetRange(TopicPartition("other", 0), 0, 1)]))
        )


# What else a run says


def test_an_attempt_names_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_CODE_VERSION", raising=False)
    assert lanes.code_version() == __version__
    monkeypatch.setenv("TIDEMARK_CODE_VERSION", "abc")
    assert lanes.code_version() == f"{__version__}+abc"


@pytest.mark.parametrize(("isolation", "held"), [("read_committed", 1), ("read_uncommitted", 0)])
def test_open_transactions_hold_back_who_reads_what_is_committed(tmp_path: Path, isolation: str, held: int) -> None:
    made = StreamInMemory(tmp_path, text=TEXT.replace("start: earliest", f"start: earliest\n  isolation: {isolation}"))
    one = OpenTransaction("orders", 0, 3, 6, 1, 0, "writer", None, None)
    made.kafka.open_transactions = lambda logs, high: (one,) if high == {("orders", 0): 9} else ()  # type: ignore[attr-defined]
    made.ends((0, 9))
    assert ingest.open_transactions(made.opened) == (one,) * held


@pytest.mark.parametrize("at_first", [1, 2, 5, 8, 1_000])
def test_all_windows_of_a_run_are_found_however_many_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_first: int
) -> None:
    monkeypatch.setattr(summary, "_AT_FIRST", at_first)
    stream = StreamInMemory(tmp_path)
    for number, run in enumerate(["old", "old", *["mine"] * 20], 1):
        stream.ends((0, number))
        stream.ingest(run)
    assert [record.seq for record in summary.committed_by(stream.opened, INGEST, "mine")] == [*range(3, 23)]
    assert summary.committed_by(stream.opened, INGEST, "another") == []
