"""Random stories of a stream whose table follows from a history: runs, replays, kills, erasures, restores, late publishers."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.latest_tables import Change, Code, Killed, LatestInMemory, Message
from tests.support.streams_in_memory import offsets
from tidemark.commit.protocol import Step
from tidemark.errors import ClaimOverlap, WrongUse
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.ordering import PRODUCERS_LOOK_MS
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.recovery.backup import back_up, retire
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.windows import lanes
from tidemark.runs.windows.ingest import plan_ingest
from tidemark.sinks.latest.sink import LakeTableAdmin


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
        back_up(self.world.opened.ledger, path)
        self.backup = path, dict(self.world.committed), self.erased

    def restore(self) -> None:
        """The ledger's server is lost. What came after the backup is read again, perhaps by other code."""
        if self.backup is not None:
            path, self.world.committed, self.erased = self.backup[0], dict(self.backup[1]), self.backup[2]
            self.waiting = []
            self.world.restore(path)
            self.world.check(published=False)
            self.world.code = random_code(self.of.randrange(4))
            # Others see what the ledger knows no more until its first publication.
            self.end = [one + 1 for one in self.end]
            self._produce()
            self.world.ingest(self.run())

    def move(self) -> None:
        self._settled()
        before, path = self.world.opened.ledger, self.world.folder / f"{self.run()}.moved"
        retire(before, "moved")
        back_up(before, path)
        self.world.restore(path)
        self.backup = None
        # A process wakes up that knows the older place of the ledger alone.
        record = self.of.choice([one.record for one in before.committed() if one.record.places])
        with pytest.raises(WrongUse, match="this ledger of orders was retired"):
            self.world.admin.publish(before, self.world.opened.connections, record.places[0].place, record)

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
        owner, name = self.of.choice(self.world.looking)
        real, when = getattr(owner, name), self.of.choice(("before", "after"))

        def sleeping(*given: Any, **named: Any) -> Any:
            self.patch.setattr(owner, name, real)
            found = None if when == "before" else real(*given, **named)
            for other in others:
                self.world.process(other, self.run())
            return real(*given, **named) if when == "before" else found

        self.patch.setattr(owner, name, sleeping)
        self.world.process(first, self.run())
        self.patch.setattr(owner, name, real)
        for other in others:
            # Only if nothing was published, for a window without places.
            if (pending_ := self.world.opened.ledger.head(other)) is not None and pending_.head.pending is not None:
                self.world.process(other, self.run())
        lanes.finish(self.world.opened, lane)
        # The last windows of both.
        self.world.ingest(self.run())

    def late(self) -> None:
        """Processes wake up that had published windows long ago, or are told to."""
        for window in self.world.opened.ledger.committed():
            for one in window.record.places:
                if self.of.random() < 0.3:
                    self.world.admin.publish(
                        self.world.opened.ledger, self.world.opened.connections, one.place, window.record
                    )

    def interrupted(self) -> None:
        """Processes fall asleep while they publish what they have committed; the others meanwhile go on, and may die."""
        self._settled()
        works = [self._ingested, self._replayed, self._replayed]
        self.of.shuffle(works)
        self._asleep(works)
        self._settled()

    def _asleep(self, works: list[Callable[[], None]]) -> None:
        """Do the first of some works, and the others while it sleeps."""
        first, *others = works
        owner, name = self.of.choice(self.world.looking)
        real, when = getattr(owner, name), self.of.choice(("before", "after"))

        def meanwhile() -> None:
            self.patch.setattr(owner, name, real)
            if others and self.of.random() < 0.8:
                self._asleep(others)

        def sleeping(*given: Any, **named: Any) -> Any:
            if when == "before":
                meanwhile()
            found = real(*given, **named)
            if when == "after":
                meanwhile()
            return found

        self.patch.setattr(owner, name, sleeping)
        first()
        self.patch.setattr(owner, name, real)

    def _ingested(self) -> None:
        self._produce()
        until = self.of.choice((None, None, Step.COMMITTED))
        try:
            self.world.ingest(self.run(), until=until)
        except Killed:
            self.waiting.append(INGEST)

    def _replayed(self) -> None:
        wanted = self._some()
        lane = lanes.lane_name(LaneKind.REPLAY, run := self.run())
        until = self.of.choice((None, None, Step.COMMITTED))
        if not wanted:
            return
        self.world.code = random_code(self.of.randrange(4))
        # Of two replays of the same offsets, the second is refused while the first is at work.
        with suppress(ClaimOverlap):
            try:
                self.world.replay(wanted, run, until=until)
            except Killed:
                self.waiting.append(lane)

    def paused(self) -> None:
        """A process falls asleep while it publishes a window, before or after it has read the ledger, and others go on."""
        self._settled()
        owner, name = self.of.choice(self.world.looking)
        real, when = getattr(owner, name), self.of.choice(("before", "after"))

        def sleeping(*given: Any, **named: Any) -> Any:
            self.patch.setattr(owner, name, real)
            if when == "before":
                self.of.choice((self.ingest, self.replay, self.erase))()
            found = real(*given, **named)
            if when == "after":
                self.of.choice((self.ingest, self.replay, self.erase))()
            return found

        windows = [one.record for one in self.world.opened.ledger.committed() if one.record.places]
        record = self.of.choice(windows)
        self.patch.setattr(owner, name, sleeping)
        self.world.admin.publish(
            self.world.opened.ledger, self.world.opened.connections, record.places[0].place, record
        )
        self.patch.setattr(owner, name, real)

    def lose_a_file(self) -> None:
        """Of a bucket of the newest version. The next publication that looks there makes the bucket again."""
        self._settled()
        if not isinstance(self.world.admin, LakeTableAdmin):
            return
        place = self.world.admin.table_place(self.world.sink, self.world.base)
        wanted, version = self._some(), self.world.admin.table(self.world.opened.connections, place).opened()
        if not wanted or version is None or not version.sizes:
            return
        bucket = self.of.choice(sorted(version.sizes))
        Path(self.of.choice(sorted(version.paths(bucket))).removeprefix("file://")).unlink()
        self.world.replay(wanted, self.run())

    def step(self) -> None:
        often = (self.ingest, self.replay, self.together, self.paused, self.interrupted)
        rare = (self.erase, self.compact, self.late, self.back_up, self.restore, self.move, self.lose_a_file)
        self.of.choice((*often, *often, *rare, self.add_partition, self.wait))()
        self.check()

    def check(self) -> None:
        self.world.check(published=not self.waiting)

    def _produce(self) -> None:
        self.end = [one + self.of.randrange(0, 6) for one in self.end]
        self.world.ends(*((0, one) for one in self.end))

    def _some(self) -> RangeSet:
        """Offsets that were read and not erased."""
        read = self.world.positions() if self.runs and self.world.opened.ledger.head(INGEST) else {}
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
        publishing = (*self.world.publishing, ("mark_settled", Ledger))
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
        self.world.check(published=False)

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
