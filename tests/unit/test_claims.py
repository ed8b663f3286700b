"""Who may open a lane over which offsets, and what the register says of a lane from its opening to its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec import structs

from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, LANE, RUN, NoWork, World, hold, plan
from tests.support.protocol_world import _no_pause as _no_pause
from tidemark.commit import protocol
from tidemark.errors import ClaimOverlap, Conflict, LedgerContradiction, TooLarge, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.ledger import REGISTER, StoredHead
from tidemark.ledger.records import LaneEntry, LaneKind, LaneState, Register, SelectionRef, positions
from tidemark.ledger.register import NewLane, change, close_lane, draw_generation, open_lane, open_together
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

OTHER = TopicPartition("logs", 3)


@pytest.fixture(params=[MemoryStore, TransactionalStore])
def world(request: pytest.FixtureRequest) -> World:
    """The ingest began at 5 and has committed [5, 15) and [15, 25)."""
    made = World(request.param())
    open_lane(made.ledger, LANE, LaneKind.INGEST, run="run 1", start=positions({AT: 5}))
    made.process(made.pin())
    made.process(made.pin())
    return made


def stored(world: World, *ranges: tuple[int, int]) -> SelectionRef:
    return world.ledger.store_selection(RangeSet(OffsetRange(AT, start, until) for start, until in ranges))


def open_over(
    world: World, *ranges: tuple[int, int], lane: str = "replay-1", kind: LaneKind = LaneKind.REPLAY
) -> StoredHead:
    start = positions({AT: ranges[0][0]})
    return open_lane(
        world.ledger, lane, kind, run="run 7", start=start, selection=stored(world, *ranges), reason="a test"
    )


def entry(world: World, lane: str = "replay-1") -> LaneEntry:
    return all_lanes(world.ledger)[lane]


def work_off(world: World, lane: str = "replay-1") -> None:
    assert protocol.pin(world.ledger, world.sweeps, lane, plan) is not None
    protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, 1, RUN)


@pytest.mark.covers("E48")
@pytest.mark.parametrize(
    ("kind", "ranges", "error", "said"),
    [
        (LaneKind.REPLAY, (3, 7), WrongUse, r"logs/0@3-5: in no committed window, so there is nothing to replay"),
        (LaneKind.REPLAY, (0, 5), WrongUse, r"logs/0@0-5: in no committed window"),
        (LaneKind.BACKFILL, (3, 7), WrongUse, r"logs/0@5-7: committed already; a replay reads it again"),
        (LaneKind.BACKFILL, (4, 6), WrongUse, r"logs/0@5-6: committed already"),
        (LaneKind.REPLAY, (20, 26), ClaimOverlap, r"logs/0@25-26: at or above the ingest position"),
        (LaneKind.BACKFILL, (25, 30), ClaimOverlap, r"logs/0@25-30: at or above the ingest position"),
    ],
)
def test_a_lane_takes_only_what_is_of_its_kind(
    world: World, kind: LaneKind, ranges: tuple[int, int], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        open_over(world, ranges, kind=kind)
    found = world.ledger.register()
    assert found is not None
    assert set(found[1].lanes) == {LANE}


def test_lanes_that_are_opened_together_read_the_history_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many reads of a long history as lanes take long, and two of them could see different windows."""
    scans = []
    scan = world.ledger.store.scan

    def counted(prefix: Key) -> Iterator[tuple[Key, bytes]]:
        scans.append(prefix)
        return scan(prefix)

    monkeypatch.setattr(world.ledger.store, "scan", counted)
    lanes = [
        NewLane(
            lane=f"replay-{number}",
            kind=LaneKind.REPLAY,
            run="run 7",
            start=positions({AT: number}),
            selection=stored(world, (number, number + 2)),
            reason="a test",
        )
        for number in range(5, 21, 2)
    ]
    assert len(open_together(world.ledger, *lanes)) == 8
    assert [one for one in scans if one[0] == "history"] == [("history",)]


@pytest.mark.covers("E48")
def test_offsets_are_claimed_from_the_opening_to_the_end(world: World) -> None:
    open_over(world, (6, 8), (10, 12))
    open_over(world, (8, 10), lane="replay-2")
    with pytest.raises(ClaimOverlap, match=r"logs/0@11-12: claimed by the open lane replay-1 \(run run 7\)"):
        open_over(world, (11, 14), lane="replay-3")
    open_over(world, (0, 5), lane="backfill-1", kind=LaneKind.BACKFILL)
    with pytest.raises(ClaimOverlap, match="claimed by the open lane backfill-1"):
        open_over(world, (4, 5), lane="backfill-2", kind=LaneKind.BACKFILL)
    close_lane(world.ledger, "replay-1", because="a test")
    open_over(world, (11, 14), lane="replay-3")


def test_many_ranges_are_named_in_short(world: World) -> None:
    with pytest.raises(WrongUse) as caught:
        open_over(world, *((5 + 2 * number, 6 + 2 * number) for number in range(7)), kind=LaneKind.BACKFILL)
    assert "logs/0@13-14 and 2 more ranges" in str(caught.value)


def test_a_backfill_or_replay_needs_a_selection_and_an_ingest(world: World) -> None:
    with pytest.raises(WrongUse, match="a replay needs a selection of offsets"):
        open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=positions({AT: 5}))
    empty = World()
    for key, value in world.store.values.items():
        if key[0] == "selection":
            empty.store.values[key] = value
    with pytest.raises(WrongUse, match="s has no ingest lane yet"):
        open_over(empty, (6, 8))


@pytest.mark.parametrize("kind", [LaneKind.REPLAY, LaneKind.BACKFILL])
def test_an_open_lane_is_not_opened_for_other_offsets(world: World, kind: LaneKind) -> None:
    first = open_over(world, (6, 8))
    assert open_over(world, (6, 8)) == first
    other = (6, 8) if kind == LaneKind.BACKFILL else (6, 9)
    with pytest.raises(Conflict, match="s/replay-1 is open already, for other offsets or as another kind of lane"):
        open_over(world, other, kind=kind)


def test_what_the_register_says_of_a_lane(world: World) -> None:
    """The head that is made from it says the same."""
    world.now += 7
    head = open_over(world, (6, 8), (10, 12)).head
    found = entry(world)
    assert (found.kind, found.state, found.run, found.reason) == (LaneKind.REPLAY, LaneState.OPEN, "run 7", "a test")
    assert (found.opened_at, found.start, found.until) == (world.now, positions({AT: 6}), (12,))
    assert found.selection == stored(world, (6, 8), (10, 12))
    assert (head.stream, head.lane, head.kind, head.state) == ("s", "replay-1", LaneKind.REPLAY, LaneState.OPEN)
    assert (head.token, head.seq, head.positions) == (found.token, 0, found.start)
    assert (found.closed_at, found.windows) == (None, None)


@pytest.mark.parametrize("start", [{AT: 7}, {OTHER: 6}, {AT: 6, OTHER: 0}, {}])
def test_ends_are_noted_only_where_the_selection_begins_at_the_start(
    world: World, start: dict[TopicPartition, int]
) -> None:
    """Otherwise they would say too little to whoever looks for an offset."""
    ref = stored(world, (6, 8))
    open_lane(world.ledger, "replay-1", LaneKind.REPLAY, run="r", start=positions(start), selection=ref, reason="t")
    assert entry(world).until == ()


def test_a_closed_lane_says_when_and_how_many_windows_it_has(world: World) -> None:
    open_over(world, (6, 8))
    work_off(world)
    last = world.ledger.newest_records("replay-1", 1)[0]
    world.now = last.committed_at - 500
    close_lane(world.ledger, "replay-1")
    found = entry(world)
    # After the last commit, whatever the clock says.
    assert (found.state, found.closed_at, found.windows) == (LaneState.CLOSED, last.committed_at + 1, 1)
    open_over(world, (6, 8), lane="replay-2")
    world.now += 90_000
    close_lane(world.ledger, "replay-2", because="a test")
    assert (entry(world, "replay-2").closed_at, entry(world, "replay-2").windows) == (world.now, 0)


def test_a_lane_is_closed_only_when_its_last_window_is_settled(world: World) -> None:
    open_over(world, (6, 8))
    assert protocol.pin(world.ledger, world.sweeps, "replay-1", plan) is not None
    with pytest.raises(Conflict, match="s/replay-1 has window 1 pending"):
        close_lane(world.ledger, "replay-1")
    taken = protocol.take(world.ledger, "replay-1", 1, RUN)
    protocol.commit(world.ledger, taken, NoWork().verify())
    with pytest.raises(Conflict, match="window 1 of s/replay-1 is committed and not settled yet"):
        close_lane(world.ledger, "replay-1")
    assert entry(world).state == LaneState.OPEN
    protocol.settle(world.ledger, world.sweeps, "replay-1")
    close_lane(world.ledger, "replay-1")
    assert entry(world).state == LaneState.CLOSED


def test_there_is_no_lane_to_close(world: World) -> None:
    with pytest.raises(WrongUse, match="s has no lane replay-9"):
        close_lane(world.ledger, "replay-9")


@pytest.mark.covers("E44")
def test_a_stream_that_has_a_history_and_nothing_else_is_not_begun_anew(world: World) -> None:
    """Register and heads are lost: what is left says that the stream was there."""
    for key in [key for key in world.store.values if key[0] in ("register", "head")]:
        del world.store.values[key]
    before = dict(world.store.values)
    with pytest.raises(LedgerContradiction, match=r"s has history/ingest/.* and no register: it was lost") as caught:
        world.open()
    assert caught.value.exit_code == 7
    assert world.store.values == before


@pytest.mark.covers("E44")
def test_a_lane_that_the_register_has_forgotten_is_not_opened_over_its_head(world: World) -> None:
    open_over(world, (6, 8))
    change(world.ledger, lambda register: structs.replace(register, lanes={LANE: register.lanes[LANE]}))
    with pytest.raises(LedgerContradiction, match="s/replay-1 has a head, and the register does not know the lane"):
        open_over(world, (6, 8))


@pytest.mark.covers("E44")
def test_an_ingest_that_the_register_has_forgotten_lets_nobody_replay(world: World) -> None:
    change(world.ledger, lambda register: structs.replace(register, lanes={}))
    with pytest.raises(WrongUse, match="s has no ingest lane yet"):
        open_over(world, (6, 8))


def test_a_refused_change_is_tried_again_when_the_register_has_changed_meanwhile(world: World) -> None:
    """What the edit has read may be newer than the register that it was given."""
    seen: list[int] = []

    def edit(register: Register) -> Register:
        seen.append(register.generation)
        if len(seen) == 1:
            draw_generation(world.ledger)
            raise LedgerContradiction("what I have read is newer")
        return structs.replace(register, retired=None, token="another")

    changed = change(world.ledger, edit)
    assert seen[1] > seen[0]
    assert changed.generation == seen[1]

    def refuse(register: Register) -> Register:
        raise LedgerContradiction("the two contradict each other")

    with pytest.raises(LedgerContradiction, match="the two contradict each other"):
        change(world.ledger, refuse)


def test_a_change_of_nothing_writes_nothing(world: World) -> None:
    before = world.store.values[REGISTER]
    change(world.ledger, lambda register: register)
    assert world.store.values[REGISTER] == before
    # Of anything else, no value of the register ever comes again.
    values = {before}
    for _ in range(3):
        change(world.ledger, lambda register: structs.replace(register, restored="5"))
        values.add(world.store.values[REGISTER])
    assert len(values) == 4


def test_a_register_that_the_store_cannot_hold_is_refused_and_left(world: World) -> None:
    before = world.store.values[REGISTER]
    world.store.max_value_bytes = len(before) + 100
    with pytest.raises(TooLarge, match="the register of s"):
        open_over(world, (6, 8))
    assert world.store.values[REGISTER] == before


def test_the_first_register_is_made_once(world: World) -> None:
    """Two runs begin a stream at the same moment: both go on with the one that was first."""
    new, raced = World(), World()
    raced.store = new.store
    raced.ledger.store = new.store
    others: list[Register] = []

    def overtake(key: object) -> None:
        if not others:
            new.store.before_swap = lambda key: None
            draw_generation(raced.ledger)
            found = raced.ledger.register()
            assert found is not None
            others.append(found[1])

    new.store.before_swap = overtake
    generation, _ = draw_generation(new.ledger)
    found = new.ledger.register()
    assert found is not None
    assert (found[1].ledger, found[1].generation) == (others[0].ledger, generation)
    assert generation == others[0].generation + 1
