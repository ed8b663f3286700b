"""Actors that do to one stream whatever they may do, in any order, in the middle of each other's work, and die in it.

A sequence is a list of steps. Each is an operation of one actor, often with a mishap inside it: see `transport.py`. After
each step the checker looks at every change (`promises.py`). At the end all actors are dead, and a new one has to bring every
lane to rest: a crash anywhere is met by running again.
"""

# What an operation was refused with is checked where it is caught: the sequence goes on after it.
# ruff: noqa: PT017

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.model.kafka import TOPIC, Message, SmallKafka
from tests.model.promises import INGEST, Promises
from tests.model.sink import (
    BASE,
    SINK,
    TABLE,
    Coordinate,
    Results,
    Row,
    Sweeper,
    compact,
    coordinates,
    folder_of,
    rows_in_folders,
    rows_that_count,
)
from tests.model.transport import FALSE_THOUGH_APPLIED, LATE, LOST_APPLIED, Died, Mishap, Network, Transport
from tests.support.claiming import claim_lane
from tests.support.memory import MemoryStore, TransactionalStore
from tidemark.clients.connections import Connection
from tidemark.commit import protocol
from tidemark.commit.fence import HeadFence
from tidemark.commit.protocol import Fence, HeldWindow, Listener, Run
from tidemark.errors import (
    AlreadyCommitted,
    Conflict,
    Fenced,
    LaneClosed,
    OutcomeUnknown,
    SourceChanged,
    StaleLedger,
    Unreachable,
    WrongUse,
)
from tidemark.ledger.erasures import erased
from tidemark.ledger.incarnations import newest
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.lookup import look_up
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import (
    Attempt,
    Guarantee,
    Heartbeat,
    LaneKind,
    Pending,
    Receipt,
    Record,
    SinkReceipt,
    Window,
)
from tidemark.ledger.recovery.backup import back_up, restore
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import close_lane
from tidemark.ledger.stores.contract import LedgerStore
from tidemark.offsets.coordinates import Coordinate as Place
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning import planner
from tidemark.runs import erasing, skipping
from tidemark.runs.live.kafka_now import known_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import selecting
from tidemark.runs.windows import ingest, lanes
from tidemark.runs.windows.changes_since_pin import changes_since_pin
from tidemark.streams.loading import StreamFile
from tidemark.streams.model import Stream

# What an actor may be told. Then nothing has happened that the checker would not see; anything else is a failure.
REFUSALS = (Conflict, WrongUse, OutcomeUnknown, Unreachable, SourceChanged)

# What an operation gives that had nothing to do.
NOTHING = object()

ACTORS = 3
SLOTS = 4
HOURS = 3_600_000


@dataclass(frozen=True)
class Setting:
    """What a stream file says, and which lane is brought to rest first at the end."""

    guarantee: str = "at_least_once"
    # The ingest begins above the log starts, unless they are named.
    start: str = ""
    accepts: bool = False
    out_of_range: str = "earliest"
    max_behind: int | None = None
    ingest_first: bool = True


@dataclass(frozen=True)
class Step:
    """An operation of an actor on the lane of a slot. `other` works in its middle, where the mishap says so."""

    name: str
    actor: int = 0
    slot: int = 0
    variant: int = 0
    mishap: Mishap | None = None
    other: Step | None = None

    def __repr__(self) -> str:
        names = ("actor", "slot", "variant", "mishap", "other")
        said = [repr(self.name), *(f"{name}={value!r}" for name in names if (value := getattr(self, name)))]
        return f"Step({', '.join(said)})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """On one line, where hypothesis shows a failing sequence."""
        printer.text(repr(self))


@cache
def _file(setting: Setting, max_records: int | None) -> StreamFile:
    accepts = "accept" if setting.accepts else "fail"
    stream = Stream.model_validate(
        {
            "stream": "s",
            "source": {
                "topics": [TOPIC],
                "start": setting.start if setting.start else {"offsets": {f"{TOPIC}/0": 2, f"{TOPIC}/1": 1}},
                "on_recreated": accepts,
                "on_truncated": accepts,
                "on_out_of_range": setting.out_of_range if setting.accepts else "fail",
            },
            "scheme": {"type": "key_value"},
            "sinks": [{"type": "hbase", "table": "t"}, {"type": "parquet", "name": SINK, "folder": "f"}],
            "dead_letters": {"type": "hbase", "table": "d"},
            "guarantee": setting.guarantee,
            "limits": {"max_records": max_records, "max_behind": setting.max_behind},
        }
    )
    return StreamFile(Path("s.yaml"), f"digest {max_records}", stream)


@dataclass
class Request:
    """A backfill or a replay that somebody has asked for, under its run's name."""

    kind: LaneKind
    run: str
    selection: RangeSet
    sinks: tuple[str, ...] | None = None

    @property
    def lane(self) -> str:
        return lanes.lane_name(self.kind, self.run)

    def open(self, opened: OpenStream) -> None:
        if self.kind == LaneKind.ERASE:
            erasing.open_erasure(opened, self.run, erasing.choose(opened, self.selection), "a test")
            return
        claim_lane(opened, self.kind, self.run, self.selection, "a test", sinks=self.sinks)


@dataclass
class Work:
    """One attempt at a window: what it has read, and the rows that it writes, also long after it has lost its fence."""

    world: World
    actor: Actor
    taken: HeldWindow
    messages: dict[Coordinate, Message] = field(default_factory=dict)
    # Under at_most_once nothing is written before the commit is known.
    may_write: bool = True

    @property
    def lane(self) -> str:
        return self.taken.stored.head.lane

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        fence.check()
        self.messages = self.world.kafka.read(covers)
        self.world.promises.keys |= {message.number: message.key for message in self.messages.values()}
        if self.in_one_pass(attempt):
            self.write_folder(attempt)

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
        found = sorted(self.messages)
        self.write(found[::2], self.actor.transport.send)
        fence.check()
        self.write(found[1::2], self.actor.transport.send)
        if not self.in_one_pass(attempt):
            self.write_folder(attempt)

    def in_one_pass(self, attempt: Attempt) -> bool:
        """Whether the files are written while the messages are read, before all else."""
        return attempt.generation % 2 == 0

    def write_folder(self, attempt: Attempt) -> None:
        folder = {(one, attempt.generation): message.number for one, message in self.messages.items()}
        name = (self.lane, self.taken.pending.window.seq, attempt.generation)
        if self.writes(SINK):
            self.actor.transport.send(lambda: self.world.results.write_folder(name, folder))

    def writes(self, sink: str) -> bool:
        return self.taken.pending.window.counts_for(sink)

    def verify(self) -> Receipt:
        window = self.taken.pending.window
        # What is erased is not read, so no topic of it was pinned.
        changes = changes_since_pin(self.world.kafka, window) if not self.actor.ledger.erases(window) else []
        if changes:
            raise SourceChanged("; ".join(changes))
        name = (self.lane, self.taken.pending.window.seq, self.taken.attempt.generation)
        dead = SinkReceipt(name="dead_letters", type="hbase", place={})
        place = {"base": BASE, "folder": folder_of(name)}
        files = SinkReceipt(name=SINK, type="parquet", place=place)
        sinks = (files,) if self.writes(SINK) else ()
        return Receipt(tallies=(), sinks=sinks, dead_letters=dead, started_at=1, finished_at=2)

    def write(self, places: list[Coordinate], send: Callable[[Callable[[], object]], None]) -> None:
        """Write the rows of some messages."""
        found = self.actor.ledger.register()
        assert found is not None
        epochs = Epochs(found[1].topics)
        attempt, world = self.taken.attempt, self.world

        def apply() -> None:
            for one in places:
                epoch = epochs.of(TopicPartition(one[0], one[2], one[1]), one[3])
                world.promises.writes(one, epoch)
            rows = {one: Row(self.messages[one].number, world.network.calls) for one in places}
            world.results.write(rows, attempt.generation)

        if places and self.writes(TABLE):
            send(apply)


class Actor:
    """One run's process. Dead, it has forgotten what it held; its run's name and its late writes stay."""

    def __init__(self, world: World, number: int) -> None:
        self.name = f"run {number}"
        self.transport = Transport(world.store, world.network)
        self.ahead_ms = 0
        self.ledger = Ledger(self.transport, "s", clock=lambda: world.now + self.ahead_ms)
        self.opened = OpenStream(
            file=_file(world.setting, (3, 5, None, None)[number]),
            ledger=self.ledger,
            log=world.kafka,
            sweeper=Sweeper(world.results, self.transport.send),
            connections=lambda name: Connection(name, extra={"path": "/nowhere"}),
        )
        self.held: dict[str, Work] = {}

    @property
    def run(self) -> Run:
        return Run(self.name, "v1", self.opened.file.digest)


class World:
    """One stream with its Kafka, its results, its actors and its checker."""

    def __init__(self, store: LedgerStore, setting: Setting, counts: Counter[str]) -> None:
        self.store = store
        self.setting = setting
        self.counts = counts
        self.now = 1_700_000_000_000
        self.network = Network()
        self.kafka = SmallKafka()
        self.kafka.produce(6)
        self.results = Results()
        self.promises = Promises(self.network, self.results)
        self.promises.commits_records = store.commits_records
        self.promises.notes_cuts = setting.guarantee != Guarantee.NONE
        self.actors = [Actor(self, number) for number in range(ACTORS)]
        self.requests: list[Request] = []
        self.slots: list[Request | None] = [None] * SLOTS
        self.works: list[Work] = []

    # sequences

    def play(self, steps: list[Step]) -> None:
        for step in steps:
            self.do(step)
        self.come_to_rest()
        for window in self.promises.windows.values():
            self.counts[f"windows of a {window.record['kind']}, {window.record['window']['guarantee']}"] += 1
        self.counts["rows swept"] += self.promises.swept

    def do(self, step: Step) -> None:
        actor = self.actors[step.actor]
        other = step.other

        def others() -> None:
            if other is not None and other.actor != step.actor:
                self.counts["in the middle"] += 1
                self._do(other)

        actor.transport.begin(step.mishap, others)
        self._do(step)
        if actor.transport.happened and step.mishap is not None:
            self.counts[step.mishap.kind] += 1
        actor.transport.begin()
        self.promises.look()

    def _do(self, step: Step) -> None:
        actor = self.actors[step.actor]
        self.now += 1
        try:
            found = OPERATIONS[step.name](self, actor, step)
        except REFUSALS as problem:
            if isinstance(problem, SourceChanged):
                assert self.kafka.disturbed, f"{type(problem).__name__}, and nothing has changed: {problem}"
            self.counts[f"{step.name}: {type(problem).__name__}"] += 1
        except Died:
            actor.held.clear()
            self.counts[f"{step.name}: Died"] += 1
        else:
            self.counts[f"{step.name}: {'nothing to do' if found is NOTHING else 'done'}"] += 1
        self.promises.look()

    def lane_of(self, slot: int) -> str:
        """The lane that was last asked for in a slot; the ingest's in the first one, and while nothing was asked for."""
        request = self.slots[slot]
        return request.lane if request else INGEST

    # operations

    def plan(self, actor: Actor, step: Step) -> object:
        return self._plan(actor, step, self.lane_of(step.slot)) or NOTHING

    def _plan(self, actor: Actor, step: Step, lane: str) -> Pending | None:
        if lane != INGEST:
            return lanes.plan_lane(actor.opened, lane, actor.name)
        if step.variant and not self._is_new():
            self.kafka.produce(2)
        return ingest.plan_ingest(actor.opened, actor.name)

    def _is_new(self) -> bool:
        head = self.promises.heads.get(INGEST, {"positions": []})
        read = {one[2]: one[3] for one in head["positions"]}
        return any(read.get(number, 0) < log.end for number, log in enumerate(self.kafka.topic.partitions))

    def take(self, actor: Actor, step: Step) -> object:
        return self._take(actor, step) or NOTHING

    def _take(self, actor: Actor, step: Step) -> Work | None:
        """Take what is pending, or is planned now; without waiting for a lease only by some variants."""
        lane = self.lane_of(step.slot)
        pending = self._plan(actor, step, lane)
        if pending is None:
            return None
        return self._holds(
            actor, protocol.take(actor.ledger, lane, pending.window.seq, actor.run, take_over=step.variant > 0)
        )

    def _holds(self, actor: Actor, taken: HeldWindow) -> Work:
        work = actor.held[taken.stored.head.lane] = Work(self, actor, taken)
        work.may_write = taken.pending.window.guarantee != Guarantee.AT_MAX_ONCE
        self.works.append(work)
        beat = Heartbeat(generation=taken.attempt.generation, run=actor.name, at=actor.ledger.clock(), step="taken")
        actor.ledger.beat(taken.stored.head.lane, beat)
        return work

    def _held(self, actor: Actor, step: Step) -> Work | None:
        """The window that the actor holds; one that it takes over now, where it holds none."""
        return actor.held.get(self.lane_of(step.slot)) or self._take(actor, replace(step, variant=step.variant or 1))

    def write(self, actor: Actor, step: Step) -> object:
        """Steps 3 and 4 of an attempt, up to half of its rows."""
        work = self._held(actor, step)
        if work is None or not work.may_write:
            return NOTHING
        window = work.taken.pending.window
        covers = actor.ledger.covers(window) - actor.ledger.erases(window)
        work.read(window, covers, work.taken.attempt, self._fence(work.taken, actor))
        work.write(sorted(work.messages)[::2], actor.transport.send)
        return work

    def commit(self, actor: Actor, step: Step) -> object:
        """Steps 3 to 6 of an attempt."""
        work = self._held(actor, step)
        if work is None:
            return NOTHING
        del actor.held[work.lane]
        if work.may_write:
            self._commit(work, self._work(work))
        else:
            record = self._commit(work, None)
            work.may_write = True
            actor.ledger.store_receipt(record, self._work(work))
        return work

    def _work(self, work: Work) -> Receipt:
        window, fence = work.taken.pending.window, self._fence(work.taken, work.actor)
        covers = work.actor.ledger.covers(window) - work.actor.ledger.erases(window)
        work.read(window, covers, work.taken.attempt, fence)
        work.store(work.taken.attempt, fence, protocol.nobody)
        return work.verify()

    def _commit(self, work: Work, receipt: Receipt | None) -> Record:
        seq, token = work.taken.pending.window.seq, work.taken.attempt.token
        try:
            record = protocol.commit(work.actor.ledger, work.taken, receipt)
        except Conflict:
            self.promises.told(work.lane, seq, token, committed=False)
            raise
        self.promises.told(work.lane, seq, token, committed=True)
        return record

    def _fence(self, taken: HeldWindow, actor: Actor) -> HeadFence:
        window = taken.pending.window
        committed = window if window.guarantee == Guarantee.AT_MAX_ONCE else None
        return HeadFence(actor.ledger, taken.stored.head.lane, taken.attempt.generation, committed=committed)

    def settle(self, actor: Actor, step: Step) -> object:
        lane = self._there(actor, step)
        return protocol.settle(actor.ledger, actor.opened.sweeper, lane) if lane else NOTHING

    def abandon(self, actor: Actor, step: Step) -> object:
        """Give up what is pending; what the actor takes now and writes, by some variants."""
        lane = self._there(actor, step)
        if lane is not None and step.variant and (work := self._held(actor, step)) is not None and work.may_write:
            self._work(work)
        return (lane and protocol.abandon(actor.ledger, lane, "a test", take_over=step.variant > 0)) or NOTHING

    def two_abandons(self, actor: Actor, step: Step) -> object:
        """A large window is written and given up, then a smaller one over a part of its offsets."""
        for one in (self.actors[2], self.actors[0]):
            work = self._take(one, Step("take", variant=1))
            if work is None:
                return NOTHING
            if work.may_write:
                self._work(work)
            protocol.abandon(one.ledger, INGEST, "a test", take_over=True)
        return actor

    def replay(self, actor: Actor, step: Step) -> object:
        """A replay from its opening to its end."""
        self.open(actor, replace(step, slot=2 + step.slot % 2))
        return self.job(actor, replace(step, slot=2 + step.slot % 2, variant=1))

    def _there(self, actor: Actor, step: Step) -> str | None:
        """The lane of a slot, where its head is."""
        lane = self.lane_of(step.slot)
        return lane if actor.ledger.head(lane) is not None else None

    def job(self, actor: Actor, step: Step) -> object:
        """Plan, and work off what was planned, up to the end that the run saw, as the job does it."""
        lane = self.lane_of(step.slot)
        pending = self._plan(actor, step, lane)
        if pending is None:
            return NOTHING
        self.work_off(actor, lane, pending, take_over=step.variant > 0)
        return pending

    def work_off(self, actor: Actor, lane: str, pending: Pending | None, *, take_over: bool) -> None:
        """As `window_job.process_windows`."""
        while pending is not None:
            record = self._process(actor, lane, pending.window.seq, take_over=take_over)
            goal = record.window.goal if record.window.run == actor.name else ()
            pending = ingest.next_window(actor.opened, lane, actor.name, goal)
        lanes.finish(actor.opened, lane)

    def _process(self, actor: Actor, lane: str, seq: int, *, take_over: bool) -> Record:
        """Steps 2 to 7 in one go."""
        work: Work | None = None

        @contextmanager
        def hold(taken: HeldWindow) -> Iterator[Fence]:
            nonlocal work
            work = self._holds(actor, taken)
            work.may_write = True
            yield self._fence(taken, actor)

        class Later:
            """The work of the attempt that is known once the window is taken."""

            def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
                assert work is not None
                work.read(window, covers, attempt, fence)

            def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None:
                assert work is not None
                work.store(attempt, fence, on_step)

            def verify(self) -> Receipt:
                assert work is not None
                return work.verify()

        ledger, sweeper = actor.ledger, actor.opened.sweeper
        try:
            record = protocol.process(ledger, sweeper, Later(), hold, lane, seq, actor.run, take_over=take_over)
        except Conflict:
            if work is not None and work.taken.pending.window.guarantee != Guarantee.AT_MAX_ONCE:
                self.promises.told(lane, seq, work.taken.attempt.token, committed=False)
            raise
        finally:
            actor.held.pop(lane, None)
        self.promises.told(lane, seq, record.attempt.token, committed=True)
        return record

    def finish(self, actor: Actor, step: Step) -> object:
        lane = self._there(actor, step)
        if lane is None:
            return NOTHING
        lanes.finish(actor.opened, lane)
        return lane

    def open(self, actor: Actor, step: Step) -> object:
        """Ask for a backfill or replay; a slot whose request is not done is asked for again, under the same run."""
        return self._open(actor, step, LaneKind.BACKFILL if step.slot == 1 else LaneKind.REPLAY)

    def erase(self, actor: Actor, step: Step) -> object:
        """Ask for an erasure, and work it off, or begin it."""
        if self.setting.guarantee == Guarantee.NONE:
            return NOTHING
        request = self._open(actor, step, LaneKind.ERASE)
        if isinstance(request, Request) and step.variant > 0:
            pending = lanes.plan_lane(actor.opened, request.lane, actor.name)
            self.work_off(actor, request.lane, pending, take_over=step.variant > 1)
        return request

    def _open(self, actor: Actor, step: Step, kind: LaneKind) -> object:
        slot = step.slot or SLOTS - 1
        request = self.slots[slot]
        if request is None or self.promises.heads.get(request.lane, {}).get("state") == "closed":
            request = self.slots[slot] = self._asked_for(actor, step, kind)
        if request is None:
            return NOTHING
        request.open(actor.opened)
        return request

    def _asked_for(self, actor: Actor, step: Step, kind: LaneKind) -> Request | None:
        """A new request by the step's variant: all, the first half, or every other offset of what can be asked for."""
        if actor.ledger.head(INGEST) is None:
            return None
        if kind == LaneKind.ERASE:
            # Of what was read or not, and of what Kafka has or not: some of each partition.
            read = actor.ledger.authority().covered()
            wanted = (
                (read | selecting.before_the_first_window(actor.opened)).first(2 + step.actor)
                if step.actor
                else _highest(read, 2)
            )
            wanted = wanted - erased(actor.ledger.committed())
        elif kind == LaneKind.BACKFILL:
            wanted = selecting.before_the_first_window(actor.opened)
            if step.variant == 2:
                # With what was read already, which is refused.
                wanted |= actor.ledger.authority().covered()
        else:
            wanted = planner.offsets_within(
                known_now(actor.opened, (TOPIC,), learn=False), actor.ledger.authority().covered()
            )
        if step.variant == 1:
            wanted = wanted.first(2)
        elif step.variant == 2:
            wanted = RangeSet(
                OffsetRange(one.partition, at, at + 1) for one in wanted for at in range(one.start, one.until, 2)
            )
        if not wanted:
            return None
        number = len(self.requests)
        alone = (None, (SINK,), None, (TABLE,))[number % 4] if kind == LaneKind.REPLAY else None
        request = Request(kind, f"request {number}", wanted, alone)
        self.requests.append(request)
        return request

    def late(self, actor: Actor, step: Step) -> object:
        """A process that was believed dead writes: some of the rows that it has read, now."""
        works = [work for work in self.works if work.messages and work.may_write]
        if not works:
            return NOTHING
        work = works[-1 - step.variant % len(works)]
        work.write(sorted(work.messages)[step.slot % 2 :], actor.transport.send)
        return work

    def compact(self, actor: Actor, step: Step) -> object:
        if actor.ledger.register() is None:
            return NOTHING
        made = compact(actor.ledger, self.results, actor.name, actor.transport.send, again=step.variant > 0)
        return made or NOTHING

    def look(self, actor: Actor, step: Step) -> None:
        """Readers. Whatever others do meanwhile, they are given what counted while they read, each message once."""
        for read in (rows_that_count, rows_in_folders):
            proven = read is rows_in_folders
            before = self.promises.rows(SINK if proven else TABLE, proven=proven)
            found = read(actor.ledger, self.results)
            self.promises.look()
            after = self.promises.rows(SINK if proven else TABLE, proven=proven)
            said = f"{read.__name__} gives"
            for coordinate, message in found.items():
                counts = message in (before.get(coordinate), after.get(coordinate))
                assert counts, f"{said} message {message} at {coordinate}, which does not count"
            for coordinate in before.keys() & after.keys():
                assert coordinate in found, f"{said} nothing at {coordinate}, which is committed"

    def two_windows(self, actor: Actor, step: Step) -> object:
        """Two windows from pin to settle, by an actor that waits for no lease."""
        lane = self.lane_of(step.slot)
        for _ in range(2):
            pending = self._plan(actor, replace(step, variant=1), lane)
            if pending is None:
                return NOTHING
            self._process(actor, lane, pending.window.seq, take_over=True)
        return lane

    def overslept(self, actor: Actor, step: Step) -> object:
        """An attempt sleeps before its commit while others commit two windows; then it commits, and is told Fenced."""
        work = self._held(actor, step)
        if work is None:
            return NOTHING
        receipt = self._work(work) if work.may_write else None
        other = self.actors[(step.actor + 1) % ACTORS]
        if step.variant == 1:
            protocol.abandon(other.ledger, work.lane, "a test", take_over=True)
        self.two_windows(other, step)
        self.promises.look()
        del actor.held[work.lane]
        if (work.lane, work.taken.pending.window.seq) not in self.promises.windows:
            return NOTHING
        try:
            self._commit(work, receipt)
        except Fenced:
            return work
        raise AssertionError("an attempt committed that had overslept others' commits")

    def unlucky(self, actor: Actor, step: Step) -> object:
        """The answer to a commit is in doubt, and others commit two windows before it is asked for again."""
        work = self._held(actor, step)
        if work is None:
            return NOTHING
        receipt = self._work(work) if work.may_write else None
        kind = (LOST_APPLIED, FALSE_THOUGH_APPLIED, LATE)[step.variant]
        sooner = Step("two windows", (step.actor + 1) % ACTORS, step.slot)
        actor.transport.begin(Mishap(kind, between=True), lambda: self._do(sooner))
        del actor.held[work.lane]
        self._commit(work, receipt)
        return work

    def grow(self, actor: Actor, step: Step) -> None:
        self.kafka.produce(1 + 2 * step.variant)

    def time_passes(self, actor: Actor, step: Step) -> None:
        self.now += (5_000, 31_000, 11 * 60_000)[step.variant % 3]

    def clock_moves(self, actor: Actor, step: Step) -> None:
        actor.ahead_ms += (60_000, -5_000, HOURS)[step.variant % 3] * (-1 if step.slot % 2 else 1)

    # what happens to Kafka

    def add_partition(self, actor: Actor, step: Step) -> object:
        """What order keys have in partitions that nobody has looked at is unknown, so the ledger has noted the others."""
        found = actor.ledger.register()
        last = newest(found[1].topics, TOPIC) if found and TOPIC in found[1].topics else None
        there = len(self.kafka.topic.partitions)
        if there > 3 or last is None or (last.topic_id, last.partitions) != (self.kafka.topic.topic_id, there):
            return NOTHING
        self.kafka.add_partition()
        self.kafka.produce(3)
        return last

    def recreate(self, actor: Actor, step: Step) -> object:
        self.kafka.recreate(2 + step.variant % 2)
        self.kafka.produce(step.slot * 2)
        return self.kafka

    def cut(self, actor: Actor, step: Step) -> object:
        self.kafka.cut(step.slot, 1 + step.variant)
        self.kafka.produce(4 if step.actor else 0)
        return self.kafka

    def delete(self, actor: Actor, step: Step) -> None:
        self.kafka.delete(step.slot, 1 + 2 * step.variant)

    # other doors to the ingest

    def skip(self, actor: Actor, step: Step) -> None:
        to: Any = "latest"
        if step.variant == 1:
            to = {(TOPIC, 0): self.kafka.topic.partitions[0].end}
        skipping.skip(actor.opened, to, "a test", f"skip {self.network.calls}", write=True)

    def back_up(self, actor: Actor, step: Step) -> None:
        """A backup, restored in a ledger of another kind too: it is one state that this ledger was in."""
        before = {lane: head["seq"] for lane, head in self.promises.heads.items()}
        with TemporaryDirectory() as folder:
            path = Path(folder, "backup")
            back_up(actor.ledger, path)
            for kind in (MemoryStore, TransactionalStore):
                restored = Ledger(kind(), "s", clock=lambda: self.now)
                lanes_there = restore(restored, path).lanes
                assert verify(restored) == []
                self.promises.look()
                now = {lane: head["seq"] for lane, head in self.promises.heads.items()}
                for lane, seq in lanes_there.items():
                    assert before.get(lane, 0) <= seq <= now[lane], f"{lane} was never at {seq} meanwhile"
                assert before.keys() <= lanes_there.keys(), "a lane is not in the backup"
                found = {(one.record.lane, one.record.seq) for one in restored.committed()}
                windows = {name for name in self.promises.windows if name[1] <= lanes_there.get(name[0], 0)}
                assert found == windows, "other windows count after the restoration"

    # the end

    def come_to_rest(self) -> None:
        """All actors are dead. Another one has to bring every lane to rest, with nothing that people repair by hand."""
        self.now += 2 * HOURS
        rescuer = Actor(self, ACTORS)
        lanes = [request for request in self.requests if request is not None]
        if self.setting.ingest_first:
            self._ingest_rests(rescuer)
        for request in lanes:
            self._rests(rescuer, request)
        if not self.setting.ingest_first:
            self._ingest_rests(rescuer)
        self._nothing_is_claimed(rescuer)
        self._readers_agree(rescuer)

    def _rests(self, rescuer: Actor, request: Request) -> None:
        """What a person does who runs the same request again, and gives it up where Kafka has lost its offsets."""
        lane = request.lane
        try:
            register = rescuer.ledger.register()
            if register is None or lane not in register[1].lanes:
                request.open(rescuer.opened)
            self._work_off_again(rescuer, lane, lambda: lanes.plan_lane(rescuer.opened, lane, rescuer.name))
        except (LaneClosed, WrongUse):
            pass
        except Conflict as problem:
            assert lane not in self.promises.claims, f"{lane} cannot be brought to rest: {problem}"
        except SourceChanged as problem:
            assert self.kafka.disturbed, f"{lane}: {problem}"
            protocol.abandon(rescuer.ledger, lane, "its offsets are gone", take_over=True)
            protocol.settle(rescuer.ledger, rescuer.opened.sweeper, lane)
            close_lane(rescuer.ledger, lane)
        self.promises.look()
        head = self.promises.heads.get(lane)
        assert head is None or head["state"] == "closed", f"{lane} was run again and is not closed"
        assert lane not in self.promises.claims, f"{lane} is closed, and keeps its claim"

    def _work_off_again(self, rescuer: Actor, lane: str, plan: Callable[[], Pending | None]) -> None:
        """Once more where a write of the dead has arrived meanwhile, which has taken or committed the window."""
        late: Conflict | None = None
        for _ in range(3):
            try:
                self.work_off(rescuer, lane, plan(), take_over=True)
                return
            except (AlreadyCommitted, StaleLedger, Fenced) as problem:
                late = problem
        raise AssertionError(f"{lane} does not come to rest, however often it is run again: {late}")

    def _ingest_rests(self, rescuer: Actor) -> None:
        """The ingest goes on to the ends, and commits a window."""
        self.kafka.produce_everywhere()
        while True:
            before = self.promises.heads.get(INGEST, {}).get("seq", 0)
            try:
                self._work_off_again(rescuer, INGEST, lambda: ingest.plan_ingest(rescuer.opened, rescuer.name))
                break
            except SourceChanged as problem:
                assert self.kafka.disturbed, f"the ingest is stopped, and nothing has changed: {problem}"
                if not self.setting.accepts:
                    return
                # The documented way: a window whose messages are gone is given up, and planned anew.
                self.promises.look()
                head = self.promises.heads.get(INGEST)
                assert head is not None, f"the ingest is stuck: {problem}"
                if head["seq"] == before:
                    given_up = protocol.abandon(rescuer.ledger, INGEST, "gone", take_over=True)
                    assert given_up is not None, f"the ingest is stuck: {problem}"
        self.promises.look()
        head = self.promises.heads[INGEST]
        ends = {number: log.end for number, log in enumerate(self.kafka.topic.partitions)}
        reached = {one["partition"]: one["until"] for one in head["last"]["window"]["ranges"]}
        assert reached == ends, f"the ingest has come to {reached}, and the logs end at {ends}"

    def _nothing_is_claimed(self, rescuer: Actor) -> None:
        """Everything that was read can be replayed, and everything before it can be read by a backfill."""
        if self.setting.guarantee == "none" or INGEST not in self.promises.heads:
            return
        held = planner.offsets_within(
            known_now(rescuer.opened, (TOPIC,), learn=False), rescuer.ledger.authority().covered()
        )
        held -= erased(rescuer.ledger.committed())
        before = selecting.before_the_first_window(rescuer.opened)
        for kind, wanted in ((LaneKind.REPLAY, held), (LaneKind.BACKFILL, before)):
            if wanted:
                request = Request(kind, f"the last {kind}", wanted)
                request.open(rescuer.opened)
                self._rests(rescuer, request)

    def _readers_agree(self, rescuer: Actor) -> None:
        """The product's own readers and checks say what the checker knows."""
        self.look(rescuer, Step("look"))
        compact(rescuer.ledger, self.results, rescuer.name, rescuer.transport.send, again=True)
        self.look(rescuer, Step("look"))
        assert verify(rescuer.ledger) == []
        authority = rescuer.ledger.authority()
        for sink, counts in self.promises.counting.items():
            of_sink = rescuer.ledger.authority(sink)
            for coordinate, generation in counts.items():
                topic, incarnation, partition, offset = coordinate
                at = TopicPartition(topic, partition, incarnation)
                assert of_sink.of(at, offset) == generation, f"another generation counts at {coordinate} in {sink}"
        for coordinate in list(self.promises.authority)[:: max(1, len(self.promises.authority) // 4)]:
            topic, incarnation, partition, offset = coordinate
            found = look_up(rescuer.ledger, Place(TopicPartition(topic, partition, incarnation), offset))
            for sink, counts in self.promises.counting.items():
                record = found.counting(sink)
                right = record is not None and record.attempt.generation == counts[coordinate]
                assert right, f"{coordinate} is found elsewhere in {sink}"
        assert set(coordinates(authority.covered())) == self.promises.authority.keys()
        for key, written in self.network.values.items():
            assert self.store.read(key) == written[-1][1], f"the store holds another value of {key} than was written"


OPERATIONS: dict[str, Callable[[World, Actor, Step], object]] = {
    "grow": World.grow,
    "job": World.job,
    "plan": World.plan,
    "take": World.take,
    "write": World.write,
    "commit": World.commit,
    "settle": World.settle,
    "abandon": World.abandon,
    "open": World.open,
    "erase": World.erase,
    "finish": World.finish,
    "late": World.late,
    "compact": World.compact,
    "look": World.look,
    "two windows": World.two_windows,
    "overslept": World.overslept,
    "unlucky": World.unlucky,
    "two abandons": World.two_abandons,
    "replay": World.replay,
    "time passes": World.time_passes,
    "clock moves": World.clock_moves,
    "add partition": World.add_partition,
    "recreate": World.recreate,
    "cut": World.cut,
    "delete": World.delete,
    "skip": World.skip,
    "back up": World.back_up,
}


def _highest(ranges: RangeSet, number: int) -> RangeSet:
    """The highest offsets of each partition."""
    parts = [ranges.only([at]) for at in ranges.partitions]
    return RangeSet(one for part in parts for one in part - part.first(max(0, part.count() - number)))
