"""Tables of a lake with the newest row of each key, against a small model: whatever runs, replays, dies and wakes up late."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from shutil import rmtree
from typing import Any

import pyarrow as pa
import pytest

from tests.support.browsed import browsed, places_of
from tests.support.claiming import claim_lane
from tests.support.latest_tables import (
    BUCKETS,
    Change,
    Code,
    DeltaLatestInMemory,
    HBaseLatestInMemory,
    IcebergLatestInMemory,
    Killed,
    LatestInMemory,
    Message,
)
from tests.support.streams_in_memory import TEXT, offsets
from tidemark.commit.protocol import Step
from tidemark.errors import OwnedByAnother, ProcessingFailed, Unreachable, WrongUse
from tidemark.ledger.book import Book
from tidemark.ledger.ordering import PRODUCERS_LOOK_MS, Epochs
from tidemark.ledger.records import INGEST, LaneKind, TopicIncarnation
from tidemark.ledger.recovery.backup import back_up, retire
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.windows import lanes
from tidemark.runs.windows.ingest import plan_ingest
from tidemark.sinks.latest.rows import newest
from tidemark.sinks.latest.sink import PlainLatestRows
from tidemark.sinks.latest.table import _newest as newest_by_the_ledger
from tidemark.sinks.mounts import check_mounted
from tidemark.sinks.parquet import folders
from tidemark.sinks.parquet.parts import steady

SEEDS = 8
LAKES = {"delta_latest": DeltaLatestInMemory, "iceberg_latest": IcebergLatestInMemory}
KINDS: dict[str, Callable[..., LatestInMemory]] = {**LAKES, "hbase_latest": HBaseLatestInMemory}
# What reads the ledger after the table's version was loaded, or its publication was counted.
STEADY = {
    "hbase_latest": "tidemark.sinks.hbase.latest.publishing.steady",
    **dict.fromkeys(LAKES, "tidemark.sinks.latest.table.steady"),
}
pytestmark = pytest.mark.usefixtures("hbase_in_memory")


def random_code(seed: int) -> Code:
    """Few keys, so that they overwrite each other; some messages give no row, and some rows have no key."""

    def code(partition: int, offset: int) -> list[Change]:
        of = random.Random(f"{seed}/{partition}/{offset}")
        if of.random() < 0.15:
            return []
        keys: list[int | None] = [*range(8), None]
        return [
            Change(of.choice(keys), f"code {seed}: {partition}@{offset}", of.random() < 0.2)
            for _ in range(of.choice((1, 1, 1, 2)))
        ]

    return code


class Story:
    """Random steps of one stream, each followed by a look at the table."""

    def __init__(self, world: LatestInMemory, seed: int, patch: pytest.MonkeyPatch) -> None:
        self.world, self.of, self.patch = world, random.Random(seed), patch
        self.end, self.runs = [3, 3], 0
        self.erased = RangeSet()
        # A lane that died after its commit, which is not published.
        self.waiting: list[str] = []
        # A backup of the ledger, and what the model knew then.
        self.backup: tuple[Path, dict[Message, Any], RangeSet] | None = None

    def run(self) -> str:
        self.runs += 1
        return f"run {self.runs}"

    def ingest(self) -> None:
        self._produce()
        self._killed(lambda until: self.world.ingest(self.run(), until=until), INGEST)

    def replay(self) -> None:
        wanted = self._some()
        if not wanted:
            return
        self.world.code = random_code(self.of.randrange(4))
        run = self.run()
        lane = lanes.lane_name(LaneKind.REPLAY, run)
        self._killed(lambda until: self.world.replay(wanted, run, until=until), lane)

    def erase(self) -> None:
        wanted = self._some()
        if wanted and self.of.random() < 0.5:
            self._settled()
            self.world.erase(wanted, self.run())
            self.erased |= wanted

    def compact(self) -> None:
        if self.runs:
            self.world.compact(self.run())
            # The files that the backup's ledger names are gone.
            self.backup = None

    def add_partition(self) -> None:
        """Keys move: from now on the newer message may have the lower offset."""
        if len(self.end) < 4:
            self.end.append(0)

    def wait(self) -> None:
        """Until all producers know the partitions."""
        self.world.now += 2 * PRODUCERS_LOOK_MS

    def back_up(self) -> None:
        self._settled()
        path = self.world.folder / f"{self.run()}.backup"
        back_up(self.world.opened.book, path)
        self.backup = path, dict(self.world.committed), self.erased

    def restore(self) -> None:
        """The ledger's server is lost. What came after the backup is read again, perhaps by other code."""
        if self.backup is not None:
            path, self.world.committed, self.erased = self.backup[0], dict(self.backup[1]), self.backup[2]
            self.waiting = []
            self.world.restore(path)
            assert self.world.counting() == self.world.wanted()
            self.world.code = random_code(self.of.randrange(4))
            # Others see what the ledger knows no more until its first publication.
            self.end = [one + 1 for one in self.end]
            self._produce()
            self.world.ingest(self.run())

    def move(self) -> None:
        self._settled()
        before, path = self.world.opened.book, self.world.folder / f"{self.run()}.moved"
        retire(before, "moved")
        back_up(before, path)
        self.world.restore(path)
        self.backup = None
        # A process wakes up that knows the older place of the ledger alone.
        record = self.of.choice([one.record for one in before.committed() if one.record.places])
        with pytest.raises(WrongUse, match="this ledger of orders was retired"):
            self.world.plain.publish(before, self.world.opened.connections, record.places[0].place, record)

    def together(self) -> None:
        """Two lanes have pinned their windows, and publish them at the same time."""
        wanted = self._some()
        if not wanted:
            return
        self._settled()
        self._produce()
        self.world.code = random_code(self.of.randrange(4))
        lane = claim_lane(self.world.opened, LaneKind.REPLAY, run := self.run(), wanted, "a test")
        pending = [lanes.plan_lane(self.world.opened, lane, run), plan_ingest(self.world.opened, self.run())]
        first, *others = self.of.sample([lane, INGEST] if all(pending) else [lane], 1 + all(pending))
        real, when = steady, self.of.choice(("before", "after"))

        def sleeping(*given: Any) -> Any:
            self.patch.setattr(STEADY[self.world.kind], real)
            found = None if when == "before" else real(*given)
            for other in others:
                self.world.process(other, self.run())
            return real(*given) if when == "before" else found

        self.patch.setattr(STEADY[self.world.kind], sleeping)
        self.world.process(first, self.run())
        self.patch.setattr(STEADY[self.world.kind], real)
        for other in others:
            # Only if nothing was published, for a window without places.
            if (pending_ := self.world.opened.book.head(other)) is not None and pending_.head.pending is not None:
                self.world.process(other, self.run())
        lanes.finish(self.world.opened, lane)
        # The last windows of both.
        self.world.ingest(self.run())

    def late(self) -> None:
        """Processes wake up that had published windows long ago, or are told to."""
        for window in self.world.opened.book.committed():
            for one in window.record.places:
                if self.of.random() < 0.3:
                    self.world.plain.publish(
                        self.world.opened.book, self.world.opened.connections, one.place, window.record
                    )

    def paused(self) -> None:
        """A process falls asleep while it publishes a window, before or after it has read the ledger, and others go on."""
        self._settled()
        real, when = steady, self.of.choice(("before", "after"))

        def sleeping(*given: Any) -> Any:
            self.patch.setattr(STEADY[self.world.kind], real)
            if when == "before":
                self.of.choice((self.ingest, self.replay, self.erase))()
            found = real(*given)
            if when == "after":
                self.of.choice((self.ingest, self.replay, self.erase))()
            return found

        windows = [one.record for one in self.world.opened.book.committed() if one.record.places]
        record = self.of.choice(windows)
        self.patch.setattr(STEADY[self.world.kind], sleeping)
        self.world.plain.publish(self.world.opened.book, self.world.opened.connections, record.places[0].place, record)
        self.patch.setattr(STEADY[self.world.kind], real)

    def lose_a_file(self) -> None:
        """Of a bucket of the newest version. The next publication that looks there makes the bucket again."""
        self._settled()
        if not isinstance(self.world.plain, PlainLatestRows):
            return
        place = self.world.plain.table_place(self.world.sink, self.world.base)
        wanted, version = self._some(), self.world.plain.table(self.world.opened.connections, place).opened()
        if not wanted or version is None or not version.sizes:
            return
        bucket = self.of.choice(sorted(version.sizes))
        Path(self.of.choice(sorted(version.paths(bucket))).removeprefix("file://")).unlink()
        self.world.replay(wanted, self.run())

    def step(self) -> None:
        often = (self.ingest, self.replay, self.together, self.paused)
        rare = (self.erase, self.compact, self.late, self.back_up, self.restore, self.move, self.lose_a_file)
        self.of.choice((*often, *often, *rare, self.add_partition, self.wait))()
        self.check()

    def check(self) -> None:
        assert self.world.counting() == self.world.wanted()
        if not self.waiting:
            assert self.world.shown() == self.world.wanted()

    def _produce(self) -> None:
        self.end = [one + self.of.randrange(0, 6) for one in self.end]
        self.world.ends(*((0, one) for one in self.end))

    def _some(self) -> RangeSet:
        """Offsets that were read and not erased."""
        read = self.world.positions() if self.runs and self.world.opened.book.head(INGEST) else {}
        chosen = [
            (partition, start, start + self.of.randrange(1, 5))
            for partition, until in read.items()
            for start in [self.of.randrange(max(until, 1))]
            if until
        ]
        below = offsets(*((partition, 0, until) for partition, until in read.items() if until))
        return (offsets(*chosen) & below) - self.erased

    def _killed(self, work: Callable[[Step | None], object], lane: str) -> None:
        """Do some work, whose process may die, and mostly another one then finishes it."""
        before = (None, None, Step.SINK_STORED, Step.VERIFIED, Step.COMMITTED)
        publishing = (*self.world.publishing, ("mark_settled", Book))
        until = self.of.choice((*before, *publishing))
        self._settled()
        try:
            with self.patch.context() as patched:
                if isinstance(until, tuple):
                    name, owner = until
                    patched.setattr(owner, name, _dying(getattr(owner, name)))
                work(until if isinstance(until, Step) else None)
        except (Killed, Dead):
            self.waiting.append(lane)
            if self.of.random() < 0.7:
                self.check_waiting()
                self._settled()

    def check_waiting(self) -> None:
        assert self.world.counting() == self.world.wanted()

    def _settled(self) -> None:
        for lane in self.waiting:
            if lane == INGEST:
                self.world.ingest(self.run())
            else:
                self.world.finish(lane, self.run())
        self.waiting = []


class Dead(BaseException):
    """Raised where a process is killed, and no code of its own catches it."""


def _dying(does: Callable[..., Any]) -> Callable[..., Any]:
    def dies(*given: Any, **named: Any) -> Any:
        does(*given, **named)
        raise Dead

    return dies


SHORT, LONG = pytest.mark.covers("L1", "L2"), pytest.mark.full


@pytest.mark.slow
@pytest.mark.parametrize("seed", [pytest.param(one, marks=SHORT if one < SEEDS // 2 else LONG) for one in range(SEEDS)])
@pytest.mark.parametrize("kind", KINDS)
def test_each_key_has_its_newest_row(kind: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = KINDS[kind](tmp_path, wide=seed % 2 == 1)
    world.code = random_code(0)
    story = Story(world, seed, monkeypatch)
    story.ingest()
    for _ in range(12):
        story.step()


@pytest.mark.covers("L5")
@pytest.mark.parametrize("comes", ["a window", "a replay", "an erasure"])
@pytest.mark.parametrize("kind", LAKES)
def test_a_bucket_whose_file_is_lost_is_made_again(kind: str, comes: str, tmp_path: Path) -> None:
    world = KINDS[kind](tmp_path, code=lambda _, offset: [Change(offset % 7, f"m{offset}")])
    for number in (1, 2):
        world.ends((0, 7 * number))
        world.ingest(f"run {number}")
    assert isinstance(world.plain, PlainLatestRows)
    version = world.plain.table(world.opened.connections, world.plain.table_place(world.sink, world.base)).opened()
    assert version is not None
    lost = [version.paths(bucket)[0] for bucket in version.sizes]
    for one in lost:
        Path(one.removeprefix("file://")).unlink()
    with pytest.raises(Unreachable, match="is gone, and the newest version of its table names it"):
        world.counting()
    match comes:
        case "a window":
            world.ends((0, 21))
            world.ingest("run 3")
        case "a replay":
            world.replay(offsets((0, 0, 1)), "run 3")
        case _:
            world.erase(offsets((0, 9, 10)))
    assert world.shown() == world.counting() == world.wanted()


def one_key(partition: int, offset: int) -> list[Change]:
    return [Change(1, f"{partition}@{offset}")]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> LatestInMemory:
    made = KINDS[request.param](tmp_path)
    made.code = one_key
    made.ends((0, 5), (0, 0))
    return made


# For what only tables with versions have.
in_lakes = pytest.mark.parametrize("world", LAKES, indirect=True)


@pytest.mark.slow
@pytest.mark.covers("L1", "L3")
def test_others_see_a_window_after_its_commit_and_two_who_publish_it_are_one(
    world: LatestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (Step.SINK_STORED, Step.COMMITTED):
        with pytest.raises(Killed):
            world.ingest("run 1", until=step)
        assert world.seen() == []
    assert world.counting() == world.wanted() == {1: ((4, 0, 0), "0@4", False)}
    (window,) = world.opened.book.committed()
    real = steady

    def sleeping(*given: Any) -> Any:
        monkeypatch.setattr(STEADY[world.kind], real)
        found = real(*given)
        # Another process settles the window before this one commits to the table, which has no file of the bucket yet.
        world.ends((0, 6), (0, 0))
        world.ingest("run 2")
        return found

    monkeypatch.setattr(STEADY[world.kind], sleeping)
    place = window.record.places[0].place
    world.plain.publish(world.opened.book, world.opened.connections, place, window.record)
    assert world.shown() == world.wanted() == {1: ((5, 0, 0), "0@5", False)}


@in_lakes
@pytest.mark.covers("L1")
def test_a_window_that_changes_nothing_makes_no_version(world: LatestInMemory) -> None:
    world.ingest()
    before = world.versions()
    (window,) = world.opened.book.committed()
    world.plain.publish(world.opened.book, world.opened.connections, window.record.places[0].place, window.record)
    # Older messages of the key, read again, do not change it.
    world.replay(offsets((0, 1, 3)), "replay 1")
    assert world.versions() == before
    assert world.shown() == world.wanted()
    # Nor does a window whose messages give no row.
    world.code = lambda partition, offset: []
    world.ends((0, 9), (0, 0))
    world.ingest()
    assert world.versions() == before
    world.replay(offsets((0, 4, 5)), "replay 2")
    assert world.versions() == before + 1
    assert world.shown() == world.wanted() == {1: ((3, 0, 0), "0@3", False)}


@pytest.mark.slow
@pytest.mark.covers("L1")
def test_plain_readers_find_rows_by_each_column(world: LatestInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that have no statistics of a column may be taken for such that have only nulls there."""
    # Without it, polars warns of a faster package.
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    world.code = lambda partition, offset: [Change(offset, f"{partition}@{offset}", offset % 3 == 0)]
    for end in (20, 40):
        world.ends((0, end), (0, 5))
        world.ingest()
    rows = world.seen()
    assert len(rows) == 40
    for column in rows[0]:
        for value in {rows[0][column], rows[-1][column]} - {None}:
            assert world.found(column, value) == {sum(row[column] == value for row in rows)}, (column, value)


@pytest.mark.covers("L4")
def test_a_window_is_published_without_those_before_it(world: LatestInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    world.code = lambda partition, offset: [Change(offset % 4, f"{partition}@{offset}")]
    world.ingest()
    for number in range(6, 9):
        world.ends((0, number), (0, 0))
        world.ingest()
    # A replay that takes nothing out, whose generation is newer than that of the window.
    before = {one.record.lane: one.record for one in world.opened.book.committed()}[INGEST]
    world.replay(offsets((0, 0, 4)), "replay 1")
    world.ends((0, 9), (0, 0))
    with pytest.raises(Killed):
        world.ingest(until=Step.COMMITTED)
    records = {(one.record.lane, one.record.seq): one.record for one in world.opened.book.committed()}
    last = records[INGEST, before.seq + 1]

    opened: list[str] = []
    real = folders.opened

    def noted(name: str) -> Any:
        opened.append(name)
        return real(name)

    with monkeypatch.context() as patched:
        patched.setattr(folders, "opened", noted)
        # That of the ledger.
        patched.setattr(Book, "records_with_bytes", lambda _: pytest.fail("the history was read"))
        for record in (last, records[lanes.lane_name(LaneKind.REPLAY, "replay 1"), 1], before):
            place = record.places[0].place
            opened.clear()
            world.plain.publish(world.opened.book, world.opened.connections, place, record)
            history = {name for name in opened if name.startswith(f"{place['base']}/lane")}
            # Of a table without versions, each publication takes in what is not settled: the last window.
            read = {place["folder"], last.places[0].place["folder"]} if "hbase" in world.kind else {place["folder"]}
            assert {name for name in history if not any(map(name.startswith, read))} == set()
            assert history
    assert world.shown() == world.wanted()
    # One bucket of three was written, or none is in files.
    assert sum("bucket" in name for name in opened) <= 2 * BUCKETS


@pytest.mark.slow
@pytest.mark.covers("N91", "N108")
@pytest.mark.parametrize("kind", KINDS)
def test_columns_change_as_the_format_lets_them(kind: str, tmp_path: Path) -> None:
    world = KINDS[kind](tmp_path)
    world.rewrite("    id: integer\n", "    id: int\n    number: int\n")
    world.code = lambda partition, offset: [Change(offset % 3, f"{partition}@{offset}")]
    world.ends((0, 5), (0, 0))
    world.ingest()

    def numbers() -> dict[int, Any]:
        assert world.shown() == world.counting() == world.wanted()
        return {row["id"]: row["number"] for row in world.seen()}

    assert numbers() == {0: 3, 1: 4, 2: 2}
    # Wider: the key too. Of the rows that come back, the history has the narrower type.
    world.rewrite("    id: int\n", "    id: integer\n")
    world.rewrite("    number: int\n", "    number: integer\n")
    world.ends((0, 7), (0, 0))
    if kind == "delta_latest":
        for refuses in (world.prepare, lambda: world.plain.check_fields(world.opened, world.sink)):
            with pytest.raises(WrongUse, match=r"has the column id as int, .* as integer, and Delta cannot widen it"):
                refuses()
        world.rewrite("    id: integer\n", "    id: int\n")
        world.rewrite("    number: integer\n", "    number: int\n")
    world.ingest()
    assert numbers() == {0: 6, 1: 4, 2: 5}
    world.code = lambda partition, offset: []
    world.replay(offsets((0, 5, 7)), "replay 1")
    assert numbers() == {0: 3, 1: 4, 2: 2}
    # One is added, then one is left out.
    world.code = lambda partition, offset: [Change(offset % 3, f"{partition}@{offset}")]
    world.rewrite("    value: string\n", "    value: string\n    day: date\n")
    world.ends((0, 8), (0, 0))
    world.ingest()
    assert {(row["id"], row["day"]) for row in world.seen()} == {(0, None), (1, None), (2, None)}
    kept = "    number: int\n" if kind == "delta_latest" else "    number: integer\n"
    world.rewrite(kept, "")
    world.ends((0, 9), (0, 0))
    world.ingest()
    assert numbers() == {0: 3, 1: 7, 2: None}
    # A bucket that is written again keeps what older rows have in it.
    world.vacuum(hours=0)
    world.code = lambda partition, offset: []
    world.replay(offsets((0, 8, 9)), "replay 2")
    assert numbers() == {0: 3, 1: 7, 2: 2}
    # Another name.
    world.rewrite("    value: string\n", "    text: string\n")
    world.rewrite("stream: orders\n", "stream: orders\nwas: {text: value}\n")
    if kind == "hbase_latest":
        # Rows that come back have it, too.
        world.ingest()
        world.replay(offsets((0, 7, 9)), "replay 3")
        rows = world.plain.rows(world.opened, world.sink, 10)
        assert {row["fields"]["id"]: row["fields"]["text"] for row in rows} == {"0": "0@3", "1": "0@4", "2": "0@2"}
        return
    for check in (world.prepare, lambda: world.plain.check_fields(world.opened, world.sink)):
        with pytest.raises(
            WrongUse, match=r"has the column value, and the stream file says that it is now text: .*replay"
        ):
            check()


@pytest.mark.slow
@pytest.mark.covers("L1")
def test_rows_that_a_restored_ledger_has_forgotten_go(world: LatestInMemory, tmp_path: Path) -> None:
    world.code = lambda partition, offset: [Change(offset, f"{partition}@{offset}")]
    world.ends((0, 3), (0, 0))
    world.ingest()
    back_up(world.opened.book, tmp_path / "backup")
    before = dict(world.committed)
    # Twice from one backup: each time another code gives the messages after it keys in other buckets.
    for key in (3, 0, 1, 2):
        world.code = lambda partition, offset, key=key: [Change(key, f"{key} of {partition}@{offset}")]
        world.ends((0, 6), (0, 0))
        world.ingest(f"run of {key}")
        assert world.shown() == world.counting() == world.wanted()
        world.restore(tmp_path / "backup")
        world.committed = dict(before)
        # Others see what is forgotten until the first publication; Tidemark's readers do not.
        assert (
            world.counting()
            == world.wanted()
            == {number: ((number, 0, 0), f"0@{number}", False) for number in range(3)}
        )


@pytest.mark.slow
@pytest.mark.covers("L1")
@pytest.mark.parametrize("gave", ["another key", "no row"])
def test_rows_that_a_forgotten_replay_took_out_come_back(
    world: LatestInMemory, gave: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the table says that they were there. Rows of the history are compared a few at a time."""
    monkeypatch.setattr("tidemark.sinks.latest.history._AT_ONCE", 1)
    by_offset = world.code = lambda partition, offset: [Change(offset % 4, f"{partition}@{offset}")]
    for end in (3, 6):
        world.ends((0, end), (0, 0))
        world.ingest()
    back_up(world.opened.book, tmp_path / "backup")
    before = dict(world.committed)
    world.code = lambda partition, offset: [Change(9, "other code")] if gave == "another key" else []
    world.replay(offsets((0, 2, 4)), "replay 1")
    assert world.shown() == world.counting() == world.wanted()
    world.restore(tmp_path / "backup")
    world.committed, world.code = before, by_offset
    assert world.counting() == world.wanted()
    assert world.counting()[2] == ((2, 0, 0), "0@2", False)
    world.ends((0, 7), (0, 0))
    world.ingest()
    assert world.shown() == world.counting() == world.wanted()


@pytest.mark.slow
@pytest.mark.covers("L1", "L2")
def test_a_ledger_from_before_a_compaction_goes_on(world: LatestInMemory, tmp_path: Path) -> None:
    """Its history names folders that are gone. The table has what was the newest in them."""
    world.code = lambda partition, offset: [Change(offset, f"{partition}@{offset}")]
    for end in (3, 6):
        world.ends((0, end), (0, 0))
        world.ingest()
    back_up(world.opened.book, tmp_path / "backup")
    before = dict(world.committed)
    world.ends((0, 8), (0, 0))
    world.ingest("forgotten")
    world.compact("compaction")
    world.restore(tmp_path / "backup")
    world.committed, world.code = before, lambda partition, offset: [Change(9, f"{partition}@{offset}")]
    # The first takes out rows that the ledger has forgotten, and the second some that it replaces.
    world.ingest("anew")
    assert world.shown() == world.counting() == world.wanted()
    world.replay(offsets((0, 1, 2)), "replay 1")
    assert world.shown() == world.counting() == world.wanted()


@pytest.mark.covers("L1")
def test_a_topic_that_is_made_anew_has_the_newer_messages(tmp_path: Path) -> None:
    for kind, made in KINDS.items():
        (tmp_path / kind).mkdir()
        world = made(
            tmp_path / kind, text=TEXT.replace("  start: earliest\n", "  start: earliest\n  on_recreated: accept\n")
        )
        world.code = one_key
        world.ends((0, 5), (0, 0))
        world.ingest()
        world.kafka.ids["orders"] = "another id"
        world.ends((0, 2), (0, 0))
        world.ingest()
        assert world.shown() == world.counting() == world.wanted() == {1: ((1, 0, 0), "0@1", False)}
        # The first window, once more.
        (first, _) = (one.record for one in world.opened.book.committed())
        world.plain.publish(world.opened.book, world.opened.connections, first.places[0].place, first)
        assert world.shown() == world.counting() == world.wanted()


@pytest.mark.covers("L2", "L3")
def test_what_was_erased_is_gone_with_a_compaction(world: LatestInMemory) -> None:
    world.ingest()
    gone = offsets((0, 3, 5))
    world.erase(gone)
    assert world.shown() == world.counting() == world.wanted() == {1: ((2, 0, 0), "0@2", False)}
    remains = world.plain.remains(world.opened, world.sink.name, gone)
    compact = f"tidemark compact orders --sink {world.sink.name}"
    held = f"no reader of Tidemark shows it; files of ingest/1 hold it until: {compact}"
    if world.older:
        assert remains.startswith(f"{held}; no reader of ")
        assert world.older in remains
    assert remains.endswith(compact)
    planned = world.planned()
    assert [one.windows for one in planned] == [["ingest/1"], *([[world.expiring]] if world.expiring else [])]
    world.compact("run 9")
    world.vacuum()
    assert world.plain.remains(world.opened, world.sink.name, gone) == ""
    assert world.planned() == []
    assert world.shown() == world.counting() == world.wanted()


@in_lakes
@pytest.mark.covers("L1", "L2")
@pytest.mark.parametrize("known", [False, True])
def test_a_reader_begins_again_where_a_compaction_has_removed_what_was_erased(
    known: bool, world: LatestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with what was erased go at once. A reader may have begun with the version that names them, before or after
    the ledger's commit of the erasure."""
    world.ingest()
    gone, lane = offsets((0, 4, 5)), lanes.lane_name(LaneKind.ERASE, "erasure")
    if known:
        with monkeypatch.context() as killed:
            killed.setattr("tidemark.sinks.latest.table.take_out", None)
            with pytest.raises(ProcessingFailed):
                world.erase(gone)
    began = False

    def beside(*given: Any) -> Any:
        nonlocal began
        if began:
            return newest_by_the_ledger(*given)
        began = True
        # What is on its way into the table by then is read here, and everything else afterwards.
        read = None if known else newest_by_the_ledger(*given)
        lanes.finish(world.opened, lane) if known else world.erase(gone)
        world.vacuum()
        return read or newest_by_the_ledger(*given)

    with monkeypatch.context() as patched:
        patched.setattr("tidemark.sinks.latest.table._newest", beside)
        rows = [row["coordinate"] for row in world.plain.rows(world.opened, world.sink, 9)]
    assert (rows, began) == (["orders/0@3"], True)


@pytest.mark.covers("L2")
def test_readers_do_not_show_what_another_stream_has_erased(world: LatestInMemory) -> None:
    world.ingest()
    opened = replace(world.opened, book=world.opened.book.hiding(offsets((0, 4, 5))))
    (shown,) = world.plain.rows(opened, world.sink, 10)
    assert (shown["coordinate"], shown["fields"]["value"]) == ("orders/0@3", "0@3")
    assert world.shown() == world.wanted() == {1: ((4, 0, 0), "0@4", False)}


@in_lakes
@pytest.mark.covers("L3")
def test_older_versions_go_after_their_hours(world: LatestInMemory) -> None:
    world.ingest()
    world.ends((0, 6), (0, 0))
    world.ingest()
    assert world.table_files() == 2
    world.vacuum()
    assert world.table_files() == 2
    world.vacuum(hours=0)
    assert world.table_files() == 1
    assert world.shown() == world.counting() == world.wanted()
    # The history is none of the table's files, and a vacuum leaves it.
    world.replay(offsets((0, 5, 6)), "replay 1")
    assert world.shown() == world.wanted()


@pytest.mark.covers("L1")
def test_a_table_keeps_its_key_and_its_buckets(world: LatestInMemory) -> None:
    world.ingest()
    with pytest.raises(WrongUse, match=r'was made with the key \["id"\], the stream file says \["value"\]'):
        world.prepare(key=["value"])
    with pytest.raises(WrongUse, match="was made with the number of buckets 3, the stream file says 4"):
        world.prepare(buckets=4)
    with pytest.raises(OwnedByAnother, match="belongs to stream orders"):
        world.prepare(stream="another")


@pytest.mark.covers("L1")
def test_a_table_that_is_gone_is_not_begun_anew(world: LatestInMemory) -> None:
    world.ingest()
    rmtree(world.base.removeprefix("file://"))
    (window,) = world.opened.book.committed()
    with pytest.raises(Unreachable):
        world.plain.publish(world.opened.book, world.opened.connections, window.record.places[0].place, window.record)
    with pytest.raises(Unreachable, match="windows have their results in it; its disk may not be mounted"):
        check_mounted(world.opened.book, world.opened.connections, [world.sink])


@pytest.mark.covers("L1")
@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [1.5, float("nan"), None]),
        (pa.float32(), [0.0, -float("nan"), None]),
        (pa.string(), ["a", "", None]),
        (pa.decimal128(9, 2), [Decimal("1.10"), Decimal("1.11"), None]),
        (pa.date32(), [date(2026, 11, 27), date(1969, 1, 1), None]),
        (pa.binary(), [b"a", b"", None]),
        (pa.bool_(), [True, False, None]),
    ],
)
def test_null_is_a_key_like_any_other(kind: pa.DataType, values: list[Any]) -> None:
    rows = pa.table(
        {
            "_topic": ["orders"] * 6,
            "_incarnation": [1] * 6,
            "_partition": [0] * 6,
            "_offset": range(6),
            "_index": [0] * 6,
            "key": pa.array([*values, *(-one if isinstance(one, float) and one == 0 else one for one in values)], kind),
        }
    )
    epochs = Epochs({"orders": (TopicIncarnation(topic_id="id", incarnation=1, since=1, partitions=1),)})
    assert list(newest(rows, ["key"], epochs)) == [3, 4, 5]


@pytest.mark.slow
@pytest.mark.covers("U28")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [2, 50])
def test_looking_through_finds_the_newest_rows_of_keys_once_and_no_others(
    kind: str, count: int, tmp_path: Path
) -> None:
    """By the offsets that they come from: of a key that was overwritten, one row alone."""
    world = KINDS[kind](tmp_path)
    world.code = random_code(1)
    for until in (10, 25):
        world.ends((0, until), (0, until // 2))
        world.ingest()
    world.code = random_code(2)
    lane = world.replay(offsets((0, 3, 20)), "replay 1").lane
    opened, name = world.opened, world.sink.name
    shown = {(row["coordinate"], row["index"]): row for row in world.plain.rows(opened, world.sink, 1_000)}
    found = browsed(opened, name, count=count)
    assert [(one.at, one.index) for one in found] == sorted((one.at, one.index) for one in found)
    deleted = {(str(one.at), one.index): one.deleted for one in found}
    assert deleted == {place: row["deleted"] for place, row in shown.items()}
    assert {*deleted.values()} == {True, False}
    values = {place for place, row in shown.items() if "code 1" in row["fields"].get("value", "")}
    assert 0 < len(values) < len(shown)
    assert {*places_of(browsed(opened, name, "value contains 'code 1'", count=count))} == values
    # The window of the replay is the newest one, and its rows come first.
    back = places_of(browsed(opened, name, count=count, backwards=True))
    replayed = places_of(browsed(opened, name, window=lane))
    assert (len(back), {*back}) == (len(shown), {*shown})
    assert 0 < len(replayed) < len(shown)
    assert {*back[: len(replayed)]} == {*replayed}
    # What is committed counts before others see it.
    world.ends((0, 40), (0, 20))
    with pytest.raises(Killed):
        world.ingest("run 2", until=Step.COMMITTED)
    shown = {(row["coordinate"], row["index"]): row for row in world.plain.rows(opened, world.sink, 1_000)}
    assert {*shown} != {*back}
    assert {*places_of(browsed(opened, name))} == {*shown}
