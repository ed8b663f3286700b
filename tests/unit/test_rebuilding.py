"""A ledger that lost values is made again from its history, and everything that the history knows still counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.bulk import STREAM, History, load
from tests.support.lookups import places
from tests.support.memory import MemoryStore
from tests.support.naive import Scan, named
from tests.support.protocol_world import AT, LANE, OTHER, RUN, NoWork, World, hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.cli import stream_lookup
from tidemark.cli.commands import backups
from tidemark.commit import protocol
from tidemark.commit.protocol import Planner
from tidemark.errors import LaneClosed, LedgerUnreadable, WrongUse
from tidemark.ledger import closed_lanes
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.forgetting import origin
from tidemark.ledger.incarnations import assign_incarnations
from tidemark.ledger.ledger import REGISTER, Ledger, head_key, record_key
from tidemark.ledger.lookup import look_up
from tidemark.ledger.ordering import PRODUCERS_LOOK_MS, Epochs
from tidemark.ledger.records import (
    Gap,
    GapKind,
    Guarantee,
    Head,
    LaneKind,
    LaneState,
    Receipt,
    SelectionRef,
    SinkReceipt,
    TopicChange,
    Window,
    WindowRange,
    positions,
)
from tidemark.ledger.recovery.backup import restore
from tidemark.ledger.recovery.rebuilding import CLOSED_BECAUSE, rebuild
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import open_lane
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live import kafka_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import selecting
from tidemark.runs.windows import ingest
from tidemark.sinks.kinds import by_order


def ledger_id() -> str:
    return "the mark of the results"


def rebuilt(ledger: Ledger, folder: Path) -> tuple[Ledger, list[str]]:
    """The same ledger in an empty place, and what was missing."""
    there = Ledger(MemoryStore(), ledger.stream, clock=ledger.clock)
    _, missing = rebuild(ledger, folder / "rebuilt", ledger_id, by_order)
    restore(there, folder / "rebuilt")
    return there, missing


@pytest.mark.slow
@pytest.mark.covers("N13")
@settings(max_examples=40, deadline=None)
@given(st.integers(30, 300), st.integers(2, 12), st.integers(0, 1_000), st.data())
def test_what_is_in_the_history_counts_whatever_else_is_lost(
    windows: int, lanes: int, seed: int, data: st.DataObject
) -> None:
    store = MemoryStore()
    load(store, History(max(windows, 10 * lanes), lanes, seed).values)
    whole = Ledger(store, STREAM)
    known = all_lanes(whole)
    can_be_lost = sorted(key for key in store.values if key[0] in ("register", "closed", "head"))
    lost = data.draw(st.sets(st.sampled_from(can_be_lost)))
    for key in lost:
        # Missing, or cut off in the middle.
        if data.draw(st.booleans()):
            del store.values[key]
        else:
            store.values[key] = store.values[key][:-20]
    kept = {one.record.attempt.token for one in whole.committed()} if not lost else None
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        # A few lanes on each page.
        patch.setattr(closed_lanes, "PAGE_BYTES", 2_000)
        ledger, missing = rebuilt(whole, Path(folder))
    assert bool(missing) == bool(lost)
    assert verify(ledger) == []
    in_history = {record.attempt.token for _, record in whole.records_with_bytes()}
    found = {one.record.attempt.token for one in ledger.committed()}
    assert found == kept if kept is not None else found >= in_history
    # A search finds the same windows as looking at each: entries, pages, heads and history agree.
    scan = Scan(ledger)
    for place, _ in zip(places(scan.records, random.Random(seed)), range(40), strict=False):
        assert named(look_up(ledger, place)) == scan.at(place)
    # No lane begins anew, and none goes on that may lack something.
    for lane, entry in all_lanes(ledger).items():
        if lane != LANE and (head_key(lane) in lost or REGISTER in lost):
            assert entry.state == LaneState.CLOSED
        if lane in known and entry.selection is not None:
            assert entry.selection == known[lane].selection
        if lane in known and not lost & {REGISTER, head_key(lane)}:
            assert entry.windows == known[lane].windows


def part(
    start: int,
    *,
    selection: SelectionRef | None = None,
    gaps: tuple[Gap, ...] = (),
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE,
    sinks: tuple[str, ...] | None = None,
) -> Planner:
    """A window of five offsets of the lane's selection."""

    def plan(head: Head) -> Window:
        one = WindowRange(
            topic="logs", incarnation=1, partition=0, start=start, until=start + 5, log_start=0, log_end=99
        )
        return Window(
            seq=head.seq + 1,
            ranges=(one,),
            gaps=gaps,
            selection=selection,
            topic_ids={"logs": "i"},
            isolation="read_committed",
            pinned_at=1,
            run="run 1",
            guarantee=guarantee,
            sinks=sinks,
        )

    return plan


def work(world: World, lane: str, plan: Planner, takes: int = 0) -> None:
    """Commit a window, after so many attempts that were killed."""
    pending = protocol.pin(world.ledger, world.sweeps, lane, plan)
    assert pending is not None
    for _ in range(takes):
        protocol.take(world.ledger, lane, pending.window.seq, RUN)
    protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, pending.window.seq, RUN)


def world_with_lanes() -> World:
    """Three windows of the ingest and a fourth one pinned; a replay that has not begun, and one with a window.

    The first window has jumped over five offsets, and has been taken three times.
    """
    world = World()
    world.open()
    lost = Gap(kind=GapKind.LOST, policy="p", topic="logs", incarnation=1, partition=0, start=0, until=5)
    work(world, LANE, part(5, gaps=(lost,)), takes=2)
    for _ in range(2):
        world.process(world.pin())
    for lane, start, until in (("replay-1", 5, 10), ("replay-2", 10, 20)):
        chosen = world.ledger.store_selection(RangeSet([OffsetRange(AT, start, until)]))
        open_lane(
            world.ledger,
            lane,
            LaneKind.REPLAY,
            run=lane,
            start=positions({AT: start}),
            selection=chosen,
            sinks=("a",) if lane == "replay-2" else None,
        )
    work(world, "replay-2", part(10, selection=chosen, sinks=("a",)))
    world.pin()
    return world


@pytest.mark.covers("N13")
def test_without_its_register_the_ingest_goes_on_where_it_was(tmp_path: Path) -> None:
    world = world_with_lanes()
    before = world.ledger.register()
    assert before is not None
    found = {offset: named(look_up(world.ledger, Coordinate(AT, offset))) for offset in range(31)}
    known = all_lanes(world.ledger)
    # The head of a lane is lost, too.
    del world.store.values[REGISTER], world.store.values[head_key("replay-2")]
    ledger, missing = rebuilt(world.ledger, tmp_path)
    assert missing[0] == "the register"
    after = ledger.register()
    assert after is not None
    assert origin(after[1].ledger) == ledger_id()
    assert after[1].generation >= before[1].generation
    assert {topic: [one.topic_id for one in known] for topic, known in after[1].topics.items()} == {"logs": ["i"]}
    assert {lane: entry.start for lane, entry in after[1].lanes.items()} == {LANE: positions({AT: 0})}
    assert {offset: named(look_up(ledger, Coordinate(AT, offset))) for offset in found} == found
    assert all_lanes(ledger)["replay-2"].selection == known["replay-2"].selection
    # It has written one sink alone, and counts there alone.
    assert all_lanes(ledger)["replay-2"].sinks == ("a",)
    assert ledger.authority("a") == world.ledger.authority("a") != ledger.authority()
    assert found[12] == ([("replay-2", 1), (LANE, 2)], [])
    there = World(MemoryStore())
    there.now, there.ledger = world.now, ledger
    assert there.head.offsets() == {AT: 30}
    # The window that was pinned is the next one.
    assert there.process(4, OTHER).seq == 4
    # What had claimed offsets claims them no more, and its name is not used again.
    chosen = ledger.store_selection(RangeSet([OffsetRange(AT, 5, 10)]))
    with pytest.raises(LaneClosed, match=CLOSED_BECAUSE):
        open_lane(ledger, "replay-1", LaneKind.REPLAY, run="x", start=positions({AT: 5}), selection=chosen)
    open_lane(ledger, "replay-3", LaneKind.REPLAY, run="x", start=positions({AT: 5}), selection=chosen)


def test_a_head_older_than_the_history_is_made_again(tmp_path: Path) -> None:
    """As after a table of the server was restored in part."""
    world = World()
    world.open()
    work(world, LANE, part(0, guarantee=Guarantee.NONE))
    older = world.store.values[head_key(LANE)]
    world.process(world.pin())
    world.store.values[head_key(LANE)] = older
    ledger, missing = rebuilt(world.ledger, tmp_path)
    assert missing == ["the newest head of ingest"]
    assert verify(ledger) == []
    # Windows without positions are found too.
    assert named(look_up(ledger, Coordinate(AT, 3)))[0] == [(LANE, 2), (LANE, 1)]


def test_a_lost_head_of_the_ingest_stands_after_the_last_settled_window(tmp_path: Path) -> None:
    world = World()
    world.open()
    for _ in range(3):
        world.process(world.pin())
    # As when the third one was not settled: it is in the head alone.
    del world.store.values[head_key(LANE)]
    world.store.values = {
        key: value for key, value in world.store.values.items() if key[:1] != ("history",) or int(key[2]) < 3
    }
    ledger, missing = rebuilt(world.ledger, tmp_path)
    assert missing == ["the head of ingest"]
    found = ledger.head(LANE)
    assert found is not None
    assert (found.head.seq, found.head.offsets(), found.head.pending) == (2, {AT: 20}, None)
    assert verify(ledger) == []


def test_what_cannot_be_known_is_refused(tmp_path: Path) -> None:
    world = World()
    with pytest.raises(WrongUse, match="there is nothing to rebuild from"):
        rebuild(world.ledger, tmp_path / "nothing", ledger_id, by_order)
    world.open()
    world.pin()
    del world.store.values[head_key(LANE)]
    with pytest.raises(WrongUse, match="nothing says how far it was"):
        rebuild(world.ledger, tmp_path / "no history", ledger_id, by_order)
    world = World()
    world.open()
    world.process(world.pin())
    world.store.values[record_key(LANE, 1)] = b"cut off"
    with pytest.raises(LedgerUnreadable, match="history/ingest"):
        rebuild(world.ledger, tmp_path / "unreadable", ledger_id, by_order)
    assert not list(tmp_path.iterdir())


OWNER = {"stream": "orders", "ledger": "the mark of the results"}


@pytest.mark.parametrize("register", [None, b"cut off"], ids=["lost", "unreadable"])
def test_the_command_takes_the_id_of_a_ledger_without_its_register_from_the_results(
    register: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = StreamInMemory(tmp_path)
    made.ends((0, 10))
    made.ingest()
    if register is None:
        del made.store.values[REGISTER]
    else:
        made.store.values[REGISTER] = register
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    monkeypatch.setattr(OpenStream, "dead_letter_table", lambda self: SimpleNamespace(owner=dict))
    with pytest.raises(WrongUse, match="does not say which ledger it belonged to"):
        backups.rebuild("orders", tmp_path / "rebuilt", yes=True)
    monkeypatch.setattr(OpenStream, "dead_letter_table", lambda self: SimpleNamespace(owner=lambda: OWNER))
    backups.rebuild("orders", tmp_path / "rebuilt", yes=True)
    assert "was missing: the register" in capsys.readouterr().err
    there = Ledger(MemoryStore(), "orders", clock=lambda: made.now)
    restore(there, tmp_path / "rebuilt")
    found = there.register()
    assert found is not None
    assert origin(found[1].ledger) == OWNER["ledger"]


def with_added_partitions(made: StreamInMemory) -> None:
    """Twice: the second time before all producers know of the first. The last run comes when they know of both."""
    made.ends((0, 1000), (0, 70))
    made.ingest("run 1")
    for number, logs in enumerate([[1010, 75, 4], [1020, 80, 30, 0], [1030, 90, 40, 2]]):
        made.now += PRODUCERS_LOOK_MS // 2
        made.ends(*((0, end) for end in logs))
        made.ingest(f"run {number + 2}")
    made.now += PRODUCERS_LOOK_MS
    made.ends((0, 1040), (0, 95), (0, 50), (0, 9))
    made.ingest("run 9")


@pytest.mark.covers("N13")
def test_where_partitions_were_added_is_found_in_the_history(tmp_path: Path) -> None:
    """So that a newer value, which has moved to an added partition, is no older one for a sink that is filled later."""
    made = StreamInMemory(tmp_path)
    with_added_partitions(made)
    before = made.opened.ledger.register()
    assert before is not None
    (known,) = before[1].topics["orders"]
    assert [one.later is None for one in known.raised] == [False, False]
    del made.store.values[REGISTER]
    there, _ = rebuilt(made.opened.ledger, tmp_path)
    after = there.register()
    assert after is not None
    (found,) = after[1].topics["orders"]
    assert (found.partitions, found.raised) == (known.partitions, known.raised)
    assert Epochs(after[1].topics).of(at(2), 4) > Epochs(after[1].topics).of(at(0), 999)


def test_an_order_that_had_begun_to_rise_where_a_log_was_cut_rises_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)
    made = StreamInMemory(tmp_path, text=TEXT.replace("source:\n", "source:\n  on_truncated: accept\n"))
    for number, logs in enumerate([[20], [25, 3], [8, 3], [9, 4]]):
        made.ends(*((0, end) for end in logs))
        made.ingest(f"run {number}")
    before = made.opened.ledger.register()
    assert before is not None
    assert [len(one.raised) for one in before[1].topics["orders"]] == [1, 1]
    del made.store.values[REGISTER]
    there, _ = rebuilt(made.opened.ledger, tmp_path)
    after = there.register()
    assert after is not None
    kept = [(one.partitions, one.raised) for one in before[1].topics["orders"]]
    assert [(one.partitions, one.raised) for one in after[1].topics["orders"]] == kept


def added(made: StreamInMemory) -> None:
    made.ends((0, 20))
    made.ingest("run 1")
    made.ends((0, 20), (0, 5))
    made.ingest("run 2")


def recreated(made: StreamInMemory) -> None:
    made.ends((0, 20))
    made.ingest("run 1")
    made.kafka.ids["orders"] = "another"
    made.ends((3, 30))
    made.ingest("run 2")


def same(made: StreamInMemory) -> None:
    made.ends((0, 20))
    made.ingest("run 1")
    made.ends((0, 25))
    made.ingest("run 2")


@pytest.mark.parametrize(("change", "refused"), [(added, "added to"), (recreated, "recreated"), (same, "")])
def test_newest_values_with_versions_of_a_lost_order_are_refused(
    change: Callable[[StreamInMemory], None], refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the stream file says today: the table may be named again."""

    def verify(self: NoWork) -> Receipt:
        newest = SinkReceipt(name="by_id", type="delta_latest", place={"base": "b", "table": "newest"})
        return structs.replace(empty(self), sinks=(newest,))

    empty = NoWork.verify
    monkeypatch.setattr(NoWork, "verify", verify)
    made = StreamInMemory(tmp_path, text=TEXT.replace("source:\n", "source:\n  on_recreated: accept\n"))
    change(made)
    # With the register, nothing is lost.
    rebuilt(made.opened.ledger, tmp_path)
    (tmp_path / "rebuilt").unlink()
    del made.store.values[REGISTER]
    if not refused:
        rebuilt(made.opened.ledger, tmp_path)
        return
    with pytest.raises(WrongUse, match=rf"{refused}.*orders.*by_id.*table=newest.*from a backup"):
        rebuilt(made.opened.ledger, tmp_path)
    assert not (tmp_path / "rebuilt").exists()


def test_a_cut_is_found_in_the_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the log was cut, offsets below belong to the earlier incarnation: no backfill reads them again."""
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)
    made = StreamInMemory(tmp_path, text=TEXT.replace("source:\n", "source:\n  on_truncated: accept\n"))
    made.ends((0, 20), (0, 4))
    made.ingest("run 1")
    for number, ends in enumerate([(0, 5), (0, 12), (0, 13)]):
        made.ends(ends, (0, 4 + number))
        made.ingest(f"run {number}")
    before = made.opened.ledger.register()
    assert before is not None
    assert selecting.before_the_first_window(made.opened) == RangeSet()
    held = kafka_now.held_now(made.opened, ("orders",))
    del made.store.values[REGISTER]
    there, _ = rebuilt(made.opened.ledger, tmp_path)
    after = there.register()
    assert after is not None
    kept = [(one.incarnation, one.topic_id, one.starts) for one in before[1].topics["orders"]]
    assert [(one.incarnation, one.topic_id, one.starts) for one in after[1].topics["orders"]] == kept
    assert kept[1] == (2, "id", ((0, 5), (1, 4)))
    begun = after[1].topics["orders"][1].begun
    assert begun is not None
    assert (begun.change, begun.policy) == (TopicChange.TRUNCATED, "found in the history")
    anew = replace(made.opened, ledger=there)
    assert kafka_now.held_now(anew, ("orders",)) == held
    assert selecting.before_the_first_window(anew) == RangeSet()
    assert assign_incarnations(after[1].topics, offsets((0, 3, 4), (0, 7, 8))) == RangeSet(
        [OffsetRange(at(0, 1), 3, 4), OffsetRange(at(0, 2), 7, 8)]
    )


def test_a_cut_whose_first_window_is_pending_is_found_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_now, "_STALE_PAUSE_SECONDS", 0.0)
    made = StreamInMemory(tmp_path, text=TEXT.replace("source:\n", "source:\n  on_truncated: accept\n"))
    made.ends((0, 20))
    made.ingest("run 1")
    made.ends((0, 5))
    made.ingest("run 2")
    made.ends((0, 12))
    ingest.plan_ingest(made.opened, "run 3")
    del made.store.values[REGISTER]
    there, _ = rebuilt(made.opened.ledger, tmp_path)
    found = there.register()
    assert found is not None
    assert [(one.incarnation, one.starts) for one in found[1].topics["orders"]] == [(1, ()), (2, ((0, 5),))]


def test_a_recreated_topic_is_no_cut(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=TEXT.replace("source:\n", "source:\n  on_recreated: accept\n"))
    made.ends((0, 20))
    made.ingest("run 1")
    made.kafka.ids["orders"] = "another"
    made.ends((3, 30))
    made.ingest("run 2")
    del made.store.values[REGISTER]
    there, _ = rebuilt(made.opened.ledger, tmp_path)
    found = there.register()
    assert found is not None
    (first, second) = found[1].topics["orders"]
    assert (first.begun, second.starts, second.topic_id) == (None, (), "another")
    assert second.begun is not None
    assert second.begun.change == TopicChange.RECREATED
