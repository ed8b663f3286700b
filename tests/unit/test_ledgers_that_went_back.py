"""A ledger that has forgotten something: restored from a backup, or put back by its database. And the one it has replaced."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.support.claiming import claim_lane
from tests.support.delta_in_memory import DeltaInMemory
from tests.support.iceberg_in_memory import IcebergInMemory
from tests.support.latest_tables import Change, DeltaLatestInMemory, IcebergLatestInMemory, LatestInMemory
from tests.support.letters_in_sqlite import LettersInSQLite
from tests.support.memory import MemoryStore, TransactionalStore
from tests.support.protocol_world import AT, NoWork, World, hold, plan
from tests.support.streams_in_memory import StreamInMemory, offsets
from tidemark.audit.repair import name_after_repair
from tidemark.clients.sql import Database
from tidemark.commit import protocol
from tidemark.errors import ClockAhead, ClockBehind, LedgerContradiction, OwnedByAnother
from tidemark.ledger.forgetting import replaces
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import LaneKind, Record, Register, positions
from tidemark.ledger.recovery.backup import back_up, restore, retire
from tidemark.ledger.register import accept_generation, close_lane, note_places, open_lane
from tidemark.ledger.stores.kind import RequestTimeouts
from tidemark.ledger.stores.sql import SQLLedgerStore
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.windows import lanes
from tidemark.sinks.dead_letters.sql.letters import LettersInSQL
from tidemark.sinks.delta import table as delta_table
from tidemark.sinks.owners import check_owner
from tidemark.sinks.parquet import files, folders
from tidemark.sinks.taking_over import check_sink, take_over
from tidemark.sinks.versions import versions_of
from tidemark.streams.loading import load

DAY = 86_400_000
LATEST = (DeltaLatestInMemory, IcebergLatestInMemory)


def register_of(ledger: Ledger) -> Register:
    stored = ledger.register()
    assert stored is not None
    return stored[1]


def restored(world: World, path: Path, after: int = 60_000) -> World:
    there = World(TransactionalStore())
    there.now = world.now + after
    restore(there.ledger, path)
    return there


# numbers that a lost attempt can have used


def replay(world: World, run: str) -> Record:
    lane = f"replay-{run}"
    chosen = world.ledger.store_selection(RangeSet([OffsetRange(AT, 0, 10)]))
    open_lane(world.ledger, lane, LaneKind.REPLAY, run=run, start=positions({AT: 0}), selection=chosen)
    protocol.pin(world.ledger, world.sweeps, lane, lambda head: structs.replace(plan(head), selection=chosen, run=run))
    done = protocol.process(world.ledger, world.sweeps, NoWork(), hold, lane, 1, protocol.Run(run, "v1", "d"))
    close_lane(world.ledger, lane)
    return done


@pytest.mark.covers("N13")
@pytest.mark.parametrize("final", [True, False])
def test_a_backup_that_is_restored_once_more_is_one_that_has_forgotten(final: bool, tmp_path: Path) -> None:
    """A ledger moves; weeks later its new place is lost, and the final backup is all that there is."""
    world = World(TransactionalStore())
    world.one_window()
    if final:
        retire(world.ledger, "moved")
    back_up(world.ledger, tmp_path / "backup")
    one = restored(world, tmp_path / "backup")
    lost = [replay(one, f"lost {number}") for number in range(3)]
    two = restored(world, tmp_path / "backup", after=120_000)
    anew = [replay(two, f"anew {number}") for number in range(3)]
    assert not {record.attempt.generation for record in lost} & {record.attempt.generation for record in anew}
    names = [register_of(found.ledger) for found in (world, one, two)]
    assert len({register.restored for register in names}) == 3
    assert len({register.ledger for register in names}) == 3
    assert len({versions_of(found.ledger) for found in (world, one, two)}) == 3
    # Each takes the place of those before it, and of no other.
    assert [replaces(a.ledger, b.ledger) for a in names for b in names] == [
        *(False, False, False),
        *(True, False, False),
        *(True, True, False),
    ]


@pytest.mark.covers("N13")
def test_a_backup_that_is_restored_by_a_clock_that_is_behind(tmp_path: Path) -> None:
    """Within the difference that clocks may have. The restoration before it had a clock that was right."""
    world = World(TransactionalStore())
    world.now = 1_700_000_000_000
    world.one_window()
    back_up(world.ledger, tmp_path / "backup")
    one = restored(world, tmp_path / "backup")
    lost = [replay(one, f"lost {number}") for number in range(3)]
    two = World(TransactionalStore())
    two.now = one.now - 30_000
    two.store.server_time = lambda: one.now + 1_000
    restore(two.ledger, tmp_path / "backup")
    anew = replay(two, "anew")
    assert anew.attempt.generation > max(record.attempt.generation for record in lost)
    assert replaces(register_of(two.ledger).ledger, register_of(one.ledger).ledger)


@pytest.mark.covers("N13")
def test_generations_that_were_counted_up_from_a_wrong_clock_are_not_drawn_again(tmp_path: Path) -> None:
    world = World(TransactionalStore())
    world.now = 1_700_000_000_000
    world.open()
    world.process(world.pin())
    world.now += DAY
    world.process(world.pin())
    # The clock is right again.
    world.now -= DAY - 60_000
    world.store.server_time = lambda: world.now
    with pytest.raises(ClockBehind):
        world.process(world.pin())
    accept_generation(world.ledger, "a wrong clock")
    pending = world.head.pending
    assert pending is not None
    world.process(pending.window.seq)
    back_up(world.ledger, tmp_path / "backup")
    world.now += 60_000
    lost = [world.process(world.pin()).attempt.generation for _ in range(3)]
    there = restored(world, tmp_path / "backup", after=DAY // 2)
    there.store.server_time = lambda: there.now
    assert there.process(there.pin()).attempt.generation > max(lost)
    there.now += 1_000
    assert there.process(there.pin()).attempt.generation > max(lost)


@pytest.mark.covers("N13")
def test_a_restoration_by_a_wrong_clock_writes_nothing(tmp_path: Path) -> None:
    """Each draw compares this clock with the server's; a restoration would stop all runs for a day."""
    world = World(TransactionalStore())
    world.now = 1_700_000_000_000
    world.one_window()
    back_up(world.ledger, tmp_path / "backup")
    there = World(TransactionalStore())
    right = world.now + 3_600_000
    there.store.server_time = lambda: right
    there.now = right + DAY
    with pytest.raises(ClockAhead, match="this machine's clock is 86400 s ahead of that of the ledger's server"):
        restore(there.ledger, tmp_path / "backup")
    assert there.store.values == {}
    there.now = right
    restore(there.ledger, tmp_path / "backup")
    assert there.process(there.pin()).seq == 2
    # Another machine, whose clock is not ahead of anybody's, draws as well.
    there.now = right - 1_000
    assert there.process(there.pin()).seq == 3


# the offsets that other tools are shown


def in_sqlite(path: Path, table: str = "tidemark_ledger") -> SQLLedgerStore:
    return SQLLedgerStore(Database("sqlite", str(path)), table, "s", "tidemark_offsets", RequestTimeouts(5, 5))


def shown(path: Path) -> list[tuple[int, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT partition, next_offset FROM tidemark_offsets").fetchall()


@pytest.mark.covers("N13")
@pytest.mark.parametrize("place", ["another table", "another database"])
def test_a_restored_ledger_in_sql_shows_its_own_offsets(place: str, tmp_path: Path) -> None:
    """Not those that were lost, nor none."""
    here = tmp_path / "ledger.db"
    world = World(in_sqlite(here))  # type: ignore[arg-type]
    world.one_window()
    back_up(world.ledger, tmp_path / "backup")
    world.process(world.pin())
    assert shown(here) == [(0, 20)]
    there = here if place == "another table" else tmp_path / "other.db"
    moved = World(in_sqlite(there, "restored"))  # type: ignore[arg-type]
    moved.now = world.now + 60_000
    restore(moved.ledger, tmp_path / "backup")
    assert shown(there) == [(0, 10)]
    moved.process(moved.pin())
    assert shown(there) == [(0, 20)]


def test_a_restored_ledger_in_hbase_shows_its_own_offsets(tmp_path: Path) -> None:
    world = World()
    world.one_window()
    back_up(world.ledger, tmp_path / "backup")
    there = World()
    there.now = world.now + 60_000
    restore(there.ledger, tmp_path / "backup")
    assert there.store.published == [(there.now, {"logs": {0: 10}})]


# the ledger that was replaced


def stream(make: type[LatestInMemory], path: Path) -> LatestInMemory:
    world = make(path)
    world.code = lambda partition, offset: [Change(offset % 4, f"{partition}@{offset}")]
    world.ends((0, 3), (0, 0))
    world.ingest("run 3")
    return world


@pytest.mark.covers("N13")
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("make", LATEST)
def test_a_ledger_that_was_replaced_writes_and_removes_nothing(
    make: type[LatestInMemory], begun: bool, tmp_path: Path
) -> None:
    """Its server comes back, or a worker still has the old connection. `begun`: the new one has committed windows by then."""
    world = stream(make, tmp_path)
    back_up(world.opened.ledger, tmp_path / "backup")
    old, committed = world.opened, dict(world.committed)
    world.restore(tmp_path / "backup")
    if begun:
        for end in (6, 7):
            world.ends((0, end), (0, 0))
            world.ingest(f"run {end}")
        committed = dict(world.committed)
    new, world.opened = world.opened, old
    world.ends((0, 9), (0, 0))
    for act in (lambda: world.ingest("stale"), lambda: world.compact("stale"), lambda: check_sink(old, world.sink)):
        with pytest.raises(OwnedByAnother, match="belongs to another ledger of stream orders, which took the place of"):
            act()
    world.opened, world.committed = new, committed
    world.ingest("run 9")
    assert world.counting() == world.shown() == world.wanted()


@pytest.mark.covers("N13")
@pytest.mark.parametrize("step", [protocol.Step.READ, protocol.Step.COMMITTED])
@pytest.mark.parametrize("make", LATEST)
def test_an_attempt_that_is_at_work_when_its_ledger_is_replaced_publishes_nothing(
    make: type[LatestInMemory], step: protocol.Step, tmp_path: Path
) -> None:
    world = stream(make, tmp_path)
    back_up(world.opened.ledger, tmp_path / "backup")
    old, committed = world.opened, dict(world.committed)
    real = protocol.process

    def process(*arguments: Any, **more: Any) -> Record:
        heard = more["on_step"]

        def replaced(now: protocol.Step) -> None:
            if now == step:
                world.restore(tmp_path / "backup")
            heard(now)

        return real(*arguments, **{**more, "on_step": replaced})

    world.ends((0, 6), (0, 0))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(protocol, "process", process)
        with pytest.raises(OwnedByAnother, match="took the place of this one"):
            world.ingest("stale")
    assert world.opened is not old
    world.committed = committed
    assert world.counting() == world.shown() == world.wanted()
    world.ingest("run 6")
    assert world.counting() == world.shown() == world.wanted()


def in_a_folder(path: Path) -> tuple[Callable[[str], object], Callable[[], Any]]:
    base = f"file://{path}/files"
    return lambda ledger: files.own(base, "orders", ledger, "sink"), lambda: files.owner(base)


def in_delta(path: Path) -> tuple[Callable[[str], object], Callable[[], Any]]:
    base = f"file://{path}/delta"
    columns = delta_table.columns({"id": "string"})
    return lambda ledger: delta_table.prepare(base, columns, "orders", ledger), lambda: delta_table.owner(base)


def in_sql(path: Path) -> tuple[Callable[[str], object], Callable[[], Any]]:
    letters = LettersInSQL(Database("sqlite", str(path / "letters.db")), "letters", "orders")
    return lambda ledger: letters.prepare("orders", ledger), letters.owner


@pytest.mark.covers("N13")
@pytest.mark.parametrize("made", [in_a_folder, in_delta, in_sql])
def test_a_mark_goes_over_to_the_ledger_that_was_restored_last(
    made: Callable[[Path], tuple[Callable[[str], object], Callable[[], Any]]], tmp_path: Path
) -> None:
    own, owner = made(tmp_path)
    first, second, third = "abc", "abc/000000001700000-aa", "abc/000000001800000-00"
    own(first)
    own(second)
    assert owner()["ledger"] == second
    for replaced in (first, "abc/000000001600000-ff"):
        with pytest.raises(OwnedByAnother, match="took the place of this one"):
            own(replaced)
    own(third)
    own(third)
    assert owner()["ledger"] == third
    with pytest.raises(LedgerContradiction, match="has written with ledger"):
        own("another")
    assert (owner()["stream"], owner()["ledger"]) == ("orders", third)


def test_the_mark_of_a_folder_stays_the_one_that_a_job_knows_it_by(tmp_path: Path) -> None:
    own, _ = in_a_folder(tmp_path)
    own("abc")
    before = folders.mark_of(f"file://{tmp_path}/files")
    own("abc/000000001700000-aa")
    assert folders.mark_of(f"file://{tmp_path}/files") == before


def test_a_restored_ledger_takes_over_what_it_can(tmp_path: Path) -> None:
    """The others are named, and taken over by the first window that writes there."""
    world = stream(DeltaLatestInMemory, tmp_path)
    back_up(world.opened.ledger, tmp_path / "backup")
    ledger = Ledger(MemoryStore(), world.name, clock=lambda: world.now)
    restore(ledger, tmp_path / "backup")

    def away(*_: object) -> None:
        raise OSError("no route to host")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(files, "owner", away)
        (left,) = take_over(ledger, world.opened.connections)
    assert left.startswith("the sink delta_latest (delta_latest, ")
    assert left.endswith(": no route to host")
    assert take_over(ledger, world.opened.connections) == []
    identity = register_of(ledger).ledger
    assert files.owner(world.sink.history(world.opened.connections).folder)["ledger"] == identity
    assert check_owner("here", {"stream": "orders", "ledger": identity}, "orders", identity) is False


# a database that went back


def rolled_back(world: StreamInMemory, values: dict[Any, bytes]) -> None:
    """What a standby without the last commits holds, or a dump."""
    store = MemoryStore()
    store.values = values
    world.opened = replace(world.opened, ledger=Ledger(store, world.name, clock=lambda: world.now))


@pytest.mark.covers("I2")
@pytest.mark.parametrize("lost", [1, 2])
def test_an_iceberg_table_under_a_database_that_went_back_has_each_row_once(lost: int, tmp_path: Path) -> None:
    world = IcebergInMemory(tmp_path)
    world.ends((0, 3), (0, 0))
    world.ingest("run 3")
    values = dict(world.opened.ledger.store.values)  # type: ignore[attr-defined]
    for number in range(lost):
        world.now += 5_000
        world.ends((0, 6 + number), (0, 0))
        world.ingest(f"lost {number}")
    world.now += 5_000
    before = register_of(world.opened.ledger).ledger
    rolled_back(world, values)
    for end in (8, 9):
        world.ends((0, end), (0, 0))
        world.ingest(f"run {end}")
        assert world.seen() == world.counting() == [(0, offset) for offset in range(end)]
    after = register_of(world.opened.ledger)
    assert replaces(after.ledger, before)
    assert after.clock is not None
    assert "has shown generation" in after.clock.reason
    # It is noted once.
    world.ends((0, 10), (0, 0))
    world.ingest("run 10")
    assert register_of(world.opened.ledger).restored == after.restored


@pytest.mark.covers("L3")
@pytest.mark.parametrize("make", LATEST)
def test_newest_rows_of_a_replay_that_a_database_has_forgotten_go(make: type[LatestInMemory], tmp_path: Path) -> None:
    world = stream(make, tmp_path)
    world.ends((0, 6), (0, 0))
    world.ingest("run 6")
    values, before, code = dict(world.store.values), dict(world.committed), world.code
    world.code = lambda partition, offset: [Change(9, "other code")]
    world.replay(offsets((0, 2, 4)), "forgotten")
    assert world.shown() == world.counting() == world.wanted()
    rolled_back(world, values)
    world.committed, world.code = before, code
    world.ends((0, 7), (0, 0))
    world.ingest("run 7")
    assert world.shown() == world.counting() == world.wanted()


@pytest.mark.parametrize("make", LATEST)
def test_a_ledger_that_knows_all_that_was_shown_is_left_as_it_is(make: type[LatestInMemory], tmp_path: Path) -> None:
    """Also after replays, erasures and compactions, whose lanes are closed."""
    world = stream(make, tmp_path)
    before = register_of(world.opened.ledger).ledger
    world.replay(offsets((0, 1, 2)), "replay")
    world.ends((0, 6), (0, 0))
    world.ingest("run 6")
    world.erase(offsets((0, 4, 5)))
    world.compact("compaction")
    world.vacuum()
    world.ends((0, 8), (0, 0))
    world.ingest("run 8")
    assert register_of(world.opened.ledger).ledger == before


WORLDS = (IcebergInMemory, DeltaInMemory, LettersInSQLite, *LATEST)


def begin(world: Any, kind: str) -> None:
    """A run of one kind, by what it does first for a table."""
    some = offsets((0, 1, 2))
    match kind:
        case "ingest":
            world.ends((0, 9), (0, 0))
            world.ingest("new")
        case "compaction":
            world.compact("compaction")
        case "erasure":
            world.erase(some)
        case "backfill":
            lane = claim_lane(world.opened, LaneKind.BACKFILL, "new", offsets((0, 0, 1)), "a test")
            assert lanes.plan_lane(world.opened, lane, "new") is not None
            world.process(lane, "new")
        case _:
            # A redrive and an audit's repair are replays, of dead letters and of findings.
            world.replay(some, "new" if kind == "replay" else name_after_repair("new"))


@pytest.mark.covers("I2", "N13")
@pytest.mark.parametrize("lost", ["ingest", "replay"])
@pytest.mark.parametrize(
    ("make", "kind"),
    [
        *((make, kind) for make in WORLDS for kind in ("ingest", "backfill", "replay", "repair", "erasure")),
        # The files of the others are compacted by a program of the table's format, or not at all.
        *((make, "compaction") for make in LATEST),
    ],
)
def test_whatever_runs_first_notices_that_the_database_went_back(
    make: Any, kind: str, lost: str, tmp_path: Path
) -> None:
    text = make.text.replace("start: earliest", "start: {offsets: {orders/0: 1, orders/1: 0}}")
    world = make(tmp_path, text=text)
    for end in (3, 6):
        world.ends((0, end), (0, 0))
        world.ingest(f"run {end}")
    before, values = register_of(world.opened.ledger), dict(world.store.values)
    if lost == "ingest":
        world.ends((0, 8), (0, 0))
        world.ingest("lost")
    else:
        world.replay(offsets((0, 2, 4)), "lost")
    rolled_back(world, values)
    world.now += 60_000
    begin(world, kind)
    after = register_of(world.opened.ledger)
    assert after.clock is not None
    assert "has shown generation" in after.clock.reason
    assert replaces(after.ledger, before.ledger)


@pytest.mark.covers("I2", "N13")
@pytest.mark.parametrize("knows", ["the ledger", "the stream file alone"])
@pytest.mark.parametrize("make", [IcebergInMemory, DeltaInMemory])
def test_a_place_that_only_a_closed_lane_has_written_tells_too(make: Any, knows: str, tmp_path: Path) -> None:
    """A table that the ingest's last window does not name: of a sink that is new, or was left out for a while."""
    text = make.text.replace("start: earliest", "start: {offsets: {orders/0: 3, orders/1: 0}}")
    other = text.replace("folder: orders", "folder: others").replace("lake.orders", "lake.others")
    world = make(tmp_path, text=text)
    world.ends((0, 6), (0, 0))
    world.ingest("run 6")

    def backfill(run: str, start: int, until: int) -> None:
        rewrite(world, other)
        lane = claim_lane(world.opened, LaneKind.BACKFILL, run, offsets((0, start, until)), "a test")
        assert lanes.plan_lane(world.opened, lane, run) is not None
        note_places(world.opened.ledger, [world.receipt(lane, 1, 1)])
        world.process(lane, run)
        lanes.finish(world.opened, lane)

    if knows == "the ledger":
        backfill("known", 0, 1)
        rewrite(world, text)
        world.ends((0, 7), (0, 0))
        world.ingest("run 7")
    before, values = register_of(world.opened.ledger), dict(world.store.values)
    backfill("lost", 1, 3)
    rolled_back(world, values)
    world.now += 60_000
    backfill("new", 1, 3)
    assert world.seen() == [(0, offset) for offset in range(0 if knows == "the ledger" else 1, 3)]
    assert replaces(register_of(world.opened.ledger).ledger, before.ledger)


@pytest.mark.covers("I2", "N13")
@pytest.mark.parametrize("make", [IcebergInMemory, DeltaInMemory])
def test_a_table_of_which_the_ledger_knows_nothing_has_each_row_once(make: Any, tmp_path: Path) -> None:
    """A sink was added, a window was written there, and the database went back to before both."""
    world = make(tmp_path)
    world.ends((0, 3), (0, 0))
    world.ingest("run 3")
    values = dict(world.store.values)
    rewrite(world, world.text.replace("folder: orders", "folder: others").replace("lake.orders", "lake.others"))
    for end in (6, 7):
        world.ends((0, end), (0, 0))
        world.ingest(f"lost {end}")
    rolled_back(world, values)
    world.now += 60_000
    for end in (8, 9):
        world.ends((0, end), (0, 0))
        world.ingest(f"run {end}")
        assert world.seen() == [(0, offset) for offset in range(3, end)]


def rewrite(world: Any, text: str) -> None:
    """Change the stream file, and nothing in the ledger."""
    path = world.folder / "orders.yaml"
    path.write_text(text)
    world.opened = replace(world.opened, file=load(path))
