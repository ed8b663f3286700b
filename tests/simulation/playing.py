"""Playing a program of steps in a new world, and shortening one that fails."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tests.simulation import elsewhere, pairs, programs
from tests.simulation.actors import COMMITS, DIES, SLEEPS, Actor, Stop, current
from tests.simulation.clocks import MACHINES, STEP_MS
from tests.simulation.compaction import compact
from tests.simulation.edits import Edits
from tests.simulation.invariants import breaks_a_lease, check_order_is_found, takes_while_paused, unreadable
from tests.simulation.kafka import KEYS, SECOND, TOPIC
from tests.simulation.lake import LAKE
from tests.simulation.ledger import writes
from tests.simulation.leftovers import check_compacted
from tests.simulation.looking import Looks
from tests.simulation.oracle import Oracle, Wrong, check, each, said
from tests.simulation.others import COMPACTED, LAKES, LATEST, OTHERS, PUBLISHED, TOTALS, WRITTEN
from tests.simulation.pages import Pages
from tests.simulation.programs import EXITS, Request, commands
from tests.simulation.refusals import Case, Refusals
from tests.simulation.remembering import forget, remembered
from tests.simulation.steps import Program, Step
from tests.simulation.work import HBASE, Place
from tests.simulation.world import Setting, World, simulated
from tests.support.memory import MemoryStore
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.commit import protocol
from tidemark.errors import (
    ClockBehind,
    HeldByAnother,
    LedgerContradiction,
    NotAuthorized,
    TidemarkError,
    TopicGone,
    TopicRecreated,
    WrongUse,
)
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.recovery.backup import back_up
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet

# What looks at everything, or changes how everything is read.
_OF_ALL = ("rows", "totals", "newest", "back up", "isolation", "major", "recreate", "erase key")


@dataclass(frozen=True)
class Failure:
    kind: str
    text: str


class Play:
    """One world, in which steps are done one after the other."""

    def __init__(self, program: Program, met: pairs.Pairs | None = None) -> None:
        self.program = program
        self.pairs = met
        self.events: list[tuple[str, set[pairs.Unit]]] = []
        self.world = World(program.setting)
        self.oracle = Oracle(self.world)
        self.met = self.oracle.met
        # What each step has come to, for people.
        self.story: list[str] = []
        self.plans: list[Request] = []
        self.refusal: TidemarkError | None = None
        self.backups: list[Path] = []
        # The last backup of a ledger that moves, as long as it is not restored; the ledgers that have moved, with
        # what was committed there by then.
        self.final: Path | None = None
        self.older: list[tuple[MemoryStore, dict[Key, int]]] = []
        self.edits = Edits(self.world)
        self.oracle.is_damaged = lambda: self.edits.is_damaged
        self.pages, self.looks = Pages(self.oracle), Looks(self.oracle)
        self.refusals = Refusals(self.oracle)
        self.world.answered = self.refusals.answered
        # From then on, what was read since the backup is read once more.
        self.restored = False
        # By topic: its id and its partitions, when an ingest began that has ended well.
        self.read_whole: dict[str, tuple[str, int]] = {}
        self._note_proposals()

    def _note_proposals(self) -> None:
        """Which request a value of the register comes from."""
        asked = self.world.ledger.swap

        def proposed(key: Any, expected: bytes | None, value: bytes) -> bool:
            actor = current()
            if actor is not None and self.refusals.undisturbed(actor):
                paused = takes_while_paused(self.oracle, key, expected, value)
                check(not paused, f"{actor.name} works on a window of a lane that is paused")
                holder = breaks_a_lease(self.oracle, actor, key, expected, value)
                check(
                    not holder, f"{actor.name} has taken the window of {holder}, which is at work, or has given it up"
                )
                gone = unreadable(self.oracle, key, expected, value)
                check(not gone, f"{actor.name} has pinned what nobody can read: {said(gone)}")
            if key[0] == "register":
                self.oracle.proposed.setdefault(value, getattr(current(), "request", None))
            return asked(key, expected, value)

        self.world.ledger.swap = proposed  # type: ignore[method-assign]

    def whole(self) -> None:
        for number, step in enumerate(self.program.steps):
            self.do(number, step)
        self.rest()

    # steps

    def do(self, number: int, step: Step) -> None:
        self.met[step.name] += 1
        self.refusal = None
        self.story.append(f"{step.name} {step.run}")
        if self.pairs is None:
            self._tell(self._do(step))
            return
        held, known = pairs.of_kafka(self.world.kafka), len(self.oracle.seen)
        actor = self._do(step)
        self._tag(step, actor, held, known)

    def _tell(self, actor: Actor | None) -> None:
        if actor is None:
            return
        request = actor.request
        named = f" of {said(request.named)}" if request is not None and request.named else ""
        into = f" into {', '.join(request.sinks)}" if request is not None and request.sinks else ""
        how = f"{_how(actor)} before {actor.stopped_at}" if actor.stopped_at else _how(actor)
        refused = f": {type(self.refusal).__name__}: {self.refusal}" if self.refusal is not None else ""
        self.story[-1] += f"{named}{into}{how}{refused}"

    def _tag(self, step: Step, actor: Actor | None, held: Mapping[pairs.Unit, object], known: int) -> None:
        """What a step has touched: what has changed in Kafka, what was read anew, and what its request names."""
        now, request = pairs.of_kafka(self.world.kafka), getattr(actor, "request", None)
        units = {unit for unit in held.keys() | now.keys() if held.get(unit) != now.get(unit)}
        if step.name in _OF_ALL:
            units |= now.keys()
        if actor is not None:
            units |= {("run", step.run, 0), ("machine", step.run % MACHINES, 0)}
            head = self.oracle.ledger.head(INGEST) if step.name in ("ingest", "take over") else None
            if head is not None:
                recent = [head.head.pending.window] if head.head.pending is not None else []
                if head.head.last is not None and len(self.oracle.seen) != known:
                    recent.append(head.head.last.window)
                units |= {unit for window in recent for unit in pairs.blocks(self.oracle.ledger.covers(window))}
        elif step.name == "clock":
            units.add(("machine", step.a % MACHINES, 0))
        if request is not None:
            units |= pairs.blocks(RangeSet(OffsetRange(at, offset, offset + 1) for at, offset in request.named))
        self.events.append((f"{step.name}{_how(actor)}", units))

    def _do(self, step: Step) -> Actor | None:
        actor: Actor | None = None
        if step.name in ("pause", "move"):
            self.refusals.happened.add(step.name)
        happens = self._of_kafka(step) or self._of_machines(step)
        if happens is not None:
            happens()
            self.refusals.happened.add(step.name)
        elif step.name == "wake":
            self.world.scheduler.wake(step.a)
        elif (act := self._of_people(step)) is not None:
            is_new = self.oracle.ledger.head(INGEST) is None
            topics = {name: (topic.topic_id, len(topic.logs)) for name, topic in self.world.kafka.held.items()}
            looks = step.name == "ingest" and not self._has_committed(f"run {step.run}")
            actor = self._run(act[0], step, act[1])
            if looks and actor.has_ended and actor.problem is None:
                self.read_whole = topics
            if is_new and not actor.stopped and self.oracle.ledger.head(INGEST) is not None:
                self.oracle.began()
        self.world.pass_by(STEP_MS)
        if self.final is not None:
            self._moved()
        self.oracle.look()
        return actor

    def _run(self, act: Callable[[], object], step: Step, request: Request | None) -> Actor:
        def whole() -> None:
            mine = current()
            assert mine is not None
            mine.request, mine.run_name = request, request.run if request is not None else f"run {step.run}"
            mine.began = self.world.ledger.network.state
            if self._refusable(act, step.name) and request is not None:
                self.oracle.ended_well(request, writes())

        return self.world.run(whole, step.stop, step.run, f"{step.name} {step.run}")

    def _refusable(self, act: Callable[[], object], name: str) -> bool:
        """Do it; False where the product refuses it."""
        try:
            act()
        except TidemarkError as problem:
            self.refusal = problem
            damaged = isinstance(problem, LedgerContradiction) and not (self.restored or self.edits.is_damaged)
            check(not damaged, f"{name} says that something is damaged, and nothing is: {problem}")
            request = getattr(current(), "request", None)
            if isinstance(problem, NotAuthorized) and request is not None:
                self.oracle.learn()
                self.oracle.refused_once(request)
            self.met[f"{name}: {type(problem).__name__}"] += 1
            mine = current()
            assert mine is not None
            mine.problem = problem
            if self.restored:
                # What the oracle expects is of the ledger that was lost.
                return False
            self.oracle.learn()
            self.refusals.judge(Case(problem, name, mine, request))
            return False
        except EXITS:
            return False
        return True

    def _of_kafka(self, step: Step) -> Callable[[], object] | None:
        kafka, a, b = self.world.kafka, step.a, step.b
        found: dict[str, Callable[[], object]] = {
            "produce": lambda: kafka.produce(1 + a % 9, a + b, bad=b >= 4, which=step.run),
            "produce bad": lambda: kafka.produce(1 + a % 9, a + b, bad=True, which=step.run),
            "produce late": lambda: kafka.produce(1 + a % 9, a + b, which=step.run, late=5_000 * (1 + b)),
            "begin": lambda: kafka.begin(1 + a % 5, a + b, step.run),
            "commit": lambda: kafka.end(a, commit=True),
            "abort": lambda: kafka.end(a, commit=False),
            "compact": lambda: kafka.compact(a % 4),
            "retain": lambda: kafka.retain(1 + a % 3),
            "cut": lambda: kafka.cut(a, 1 + b, a % 9, step.run),
            "lead": lambda: kafka.lead(a, step.run),
            "old ends": lambda: kafka.lead_with_old_ends(a, 1 + a % 7, 1 + b % 3, step.run),
            "recreate": lambda: kafka.recreate(1 + a % 3, b, step.run),
            "delete topic": lambda: kafka.delete(1 + step.run),
            "create topic": lambda: kafka.create(SECOND if b else TOPIC, 1 + a % 3, b),
            "add partition": self._add_partition,
            "major": self.world.hbase.compact,
        }
        return found.get(step.name)

    def _add_partition(self) -> None:
        """Once the ledger knows those that are there: of an order that changed before nobody could know."""
        register = self.oracle.ledger.register()
        for name, topic in self.world.kafka.held.items():
            known = register[1].topics.get(name) if register else None
            here = topic.topic_id, len(topic.logs)
            if here == self.read_whole.get(name) or (known and (known[-1].topic_id, known[-1].partitions) == here):
                self.world.kafka.add_partition(name)
                return

    def _has_committed(self, run: str) -> bool:
        """Whether a run has committed windows: under its name, nobody looks at Kafka beyond what its first try has seen."""
        there = self.oracle.ledger.head(INGEST) is not None
        return there and any(one.record.attempt.run == run for one in self.oracle.ledger.committed())

    def _upgrade(self) -> None:
        """From now on this version of the program is at work, and no older one."""
        self.world.older = False

    def _of_machines(self, step: Step) -> Callable[[], object] | None:
        if step.name == "edit":
            return lambda: self.edits.edit(self.oracle.ledger, step.a)
        if step.name == "upgrade":
            return self._upgrade
        if step.name == "time":
            return lambda: self.world.pass_by(40_000 * (1 + step.b))
        if step.name == "clock":
            ahead = (-600_000, -40_000, 40_000, 300_000, 600_000, 86_400_000)[step.b]
            return lambda: self.world.clocks.jump(step.a, ahead)
        if step.name in ("away", "back"):
            return lambda: self._goes(step) if step.name == "away" else self._all_are_back()
        if step.name == "damage":
            return lambda: self.oracle.damage(step.a, step.b)
        if step.name == "mend":
            return self._mend
        if step.name == "isolation":
            other = {"read_committed": "read_uncommitted", "read_uncommitted": "read_committed"}

            def change() -> None:
                self.world.isolation = other[self.world.isolation]
                self.world.other_isolation = True
                self.world.opened = self.world.open()

            return change
        return None

    def _mend(self) -> None:
        """Somebody changes the scheme, or takes the change back."""
        world = self.world
        world.mended = not world.mended
        world.was_mended = True
        world.opened = world.open()

    def _goes(self, step: Step) -> None:
        """A server goes away; programs go on to ask it."""
        world = self.world
        which = (HBASE, LAKE, "kafka", "ledger", "target")[step.a % 5]
        # Nobody can tell an empty mount point from a disk that nobody has written to yet.
        if which == LAKE and (self.oracle.ledger.head(INGEST) is None or not self.oracle.ledger.committed()):
            return
        world.away.add(which)
        world.ever_away = True
        world.kafka.away = world.kafka.away or which == "kafka"
        world.ledger.away = world.ledger.away or which == "ledger"
        world.target.away = world.target.away or which == "target"

    def _all_are_back(self) -> None:
        self.world.away.clear()
        self.world.kafka.away = self.world.ledger.away = self.world.target.away = False

    def _of_people(self, step: Step) -> tuple[Callable[[], object], Request | None] | None:
        name = f"run {step.run}"
        if step.name in ("ingest", "take over"):
            return (lambda: programs.ingest(name, take_over=step.name == "take over")), None
        if step.name == "plan":
            request = self._asked(replace(step, name="replay"), f"planned {step.run}")
            if request is None:
                return None
            request.dry = True
            return (lambda: self._plan(request)), request
        if step.name == "by plan":
            return self._by_plan(step)
        if step.name in (
            "replay",
            "replay apart",
            "replay since",
            "redrive",
            "audit",
            "backfill",
            "erase",
            "erase key",
        ):
            request = self._asked(step, name)
            return (request.begin, request) if request is not None else None
        if step.name == "again":
            lanes = self.oracle.open_lanes()
            request = self.oracle.lanes.get(lanes[step.a % len(lanes)]) if lanes else None
            # The lane of a repair goes on by its name alone, and that is no dry run.
            if request is not None and step.b == 5 and not request.repair:
                request = replace(request, dry=True, said=[], left_out=set())
            return (request.begin, request) if request is not None else None
        return self._of_operators(step) or self._reader(step)

    def _of_operators(self, step: Step) -> tuple[Callable[[], object], Request | None] | None:
        if step.name in ("cancel", "pause", "resume"):
            lanes = self.oracle.open_lanes()
            act = getattr(programs, step.name)
            return ((lambda: act(lanes[step.a % len(lanes)])), None) if lanes else None
        if step.name == "abandon":
            lanes = [INGEST, *self.oracle.open_lanes(), "replay-of-nobody"]
            lane = lanes[step.a % len(lanes)]
            return (lambda: programs.abandon(lane, take_over=step.b % 2 == 0)), None
        if step.name == "abandon ingest":
            return (lambda: programs.abandon(INGEST, take_over=step.b % 2 == 0)), None
        if step.name == "skip":
            return self._skip(step)
        acts = {"back up": self._back_up, "move": self._move}
        return (acts[step.name], None) if step.name in acts else None

    def _back_up(self) -> None:
        path = elsewhere.new_file()
        back_up(_ledger(), path)
        if not self.edits.is_damaged:
            # One of a ledger that somebody has edited has the edit, too.
            self.backups.append(path)

    def _move(self) -> None:
        """A final backup of the ledger, which is restored in another place once it is written."""
        path, moves = elsewhere.new_file(), len(self.older)
        programs.back_up_for_good(path)
        # Nobody restores a ledger where it was restored meanwhile.
        self.final = path if len(self.older) == moves and self.final is None else self.final

    def _moved(self) -> None:
        """The stream file names the new place from now on; whoever is at work has read it before."""
        assert self.final is not None
        if self.edits.is_damaged:
            return
        self.older.append(elsewhere.move(self.world, self.final))
        self.final = None
        self.oracle.moves(forgets=False)
        self._note_proposals()
        self.met["ledgers moved"] += 1

    def _skip(self, step: Step) -> tuple[Callable[[], object], Request | None] | None:
        """To the end, or some offsets on in one partition."""
        positions = {at: end for at, end in self.oracle.positions().items() if self.oracle.is_newest(at)}
        if not positions:
            return None
        if step.a % 3 == 0:
            names = [(topic, number) for topic, number, _ in self.world.kafka.parts()]
            self.oracle.asks_to_skip(dict.fromkeys(names, MAX_OFFSET))
            return (lambda: programs.skip(["latest"])), None
        at = sorted(positions)[step.a % len(positions)]
        target = positions[at] + 1 + step.b
        self.oracle.asks_to_skip({(at.topic, at.partition): target})
        return (lambda: programs.skip([f"{at.topic}/{at.partition}@{target}"])), None

    def _plan(self, request: Request) -> None:
        mine = current()
        assert mine is not None
        request.begin()
        if request.said:
            request.planned = self.oracle.counting()
            self.refusals.planned(request, mine)
            self.plans.append(request)

    def _by_plan(self, step: Step) -> tuple[Callable[[], object], Request | None] | None:
        """A plan that somebody has seen is started, under its digest."""
        if not self.plans:
            return None
        plan = self.plans[step.a % len(self.plans)]
        more = {**plan.options, "plan": plan.said[-1]["plan"]}
        request = replace(
            plan, run=f"run {step.run}", dry=False, options=more, said=[], left_out={*plan.left_out}, chosen=set()
        )
        self.oracle.asks(request)
        return request.begin, request

    def _reader(self, step: Step) -> tuple[Callable[[], object], Request | None] | None:
        oracle, since = self.oracle, len(self.oracle.states) - 1
        if step.name == "page":
            asked = self.pages.ask(step.b, step.a)
            return None if asked is None else (asked, None)
        if step.name == "look":
            looked = self.looks.ask(step.b, step.a)
            return None if looked is None else (looked, None)
        if step.name == "rows" and "hbase" in oracle.expected:
            return (lambda: oracle.saw_rows(oracle.rows("hbase", _ledger()), since)), None
        totals = [one for one in TOTALS if one in oracle.expected]
        if step.name == "totals" and totals:
            of = totals[step.b % len(totals)]
            return (lambda: oracle.saw_sums(oracle.sums(_ledger(), of), since, of)), None
        if step.name == "newest" and LATEST in oracle.expected:
            return (lambda: oracle.saw_latest(oracle.latest(_ledger()), since)), None
        there = [one for one in OTHERS if one in oracle.expected]
        compacted = [one for one in COMPACTED if one in oracle.expected]
        lakes = [one for one in LAKES if one in oracle.expected]
        if step.name == "results" and lakes:
            return (lambda: oracle.saw_latest(oracle.latest(_ledger(), lakes[0]), since, lakes[0])), None
        if step.name == "results" and there:
            sink = there[step.a % len(there)]
            return (lambda: oracle.saw_rows(oracle.rows(sink, _ledger()), since, sink)), None
        if step.name == "compact files" and compacted:
            how: dict[str, Any] = {
                "windows": (None, 2, 3)[step.b % 3],
                "again": step.a % 3 == 0,
                "write": step.a % 5 > 0,
            }
            sink = compacted[(step.a + step.b) % len(compacted)]
            return (lambda: compact(f"run {step.run}", sink, **how)), None
        return None

    def _asked(self, step: Step, name: str) -> Request | None:
        if self.oracle.ledger.head(INGEST) is None:
            return None
        covered = self.oracle.ledger.authority().covered()
        a, b = step.a, step.b
        if step.name == "erase key":
            # It names what the command finds.
            return self._noted(Request(LaneKind.ERASE, name, frozenset(), key=str(a % KEYS)))
        if step.name == "replay since":
            since = self.world.clocks.now - STEP_MS * (a + 1)
            must = self.oracle.read_since(since)
            return self._noted(Request(LaneKind.REPLAY, name, frozenset(), since=since, must_find=must))
        if step.name == "audit":
            repair = ("execute", "execute", "none", "plan")[b % 4]
            return self._noted(Request(LaneKind.REPLAY, f"repair {step.run}.{a}", frozenset(), repair=repair))
        if step.name == "redrive":
            state = len(self.oracle.states) - 1
            return self._noted(Request(LaneKind.REPLAY, name, frozenset(), letters=("*", "bad")[b % 2], state=state))
        if step.name == "erase":
            request = Request(LaneKind.ERASE, name, self._some(a, b, covered), dry=a % 11 == 1)
        elif step.name == "replay apart":
            request = Request(LaneKind.REPLAY, name, self._apart(a, b, covered))
        elif step.name == "replay":
            sinks = (None, None, ("sums",), ("hbase",), None, (LATEST,))[(a + b) % 6]
            there = [one for one in WRITTEN if one in self.oracle.expected]
            sinks = (there[b % len(there)],) if there and a % 4 == 3 else sinks
            sinks = sinks if sinks is None or sinks[0] in self.oracle.expected else None
            more = {"lanes": 1 + (a % 4 == 0) * (1 + b % 2)}
            request = Request(LaneKind.REPLAY, name, self._some(a, b, covered), sinks, dry=a % 11 == 1, options=more)
        else:
            head = self.oracle.ledger.head(INGEST)
            assert head is not None
            below = RangeSet(OffsetRange(at, 0, offset) for at, offset in head.head.offsets().items() if offset)
            mode = ("only_missing", "reprocess")[a % 2]
            more = {"lanes": 1 + (a % 4 == 0), "mode": mode}
            request = Request(LaneKind.BACKFILL, name, self._some(a, b + 3, below), dry=a % 11 == 1, options=more)
        return self._noted(request) if request.named else None

    def _noted(self, request: Request) -> Request:
        self.oracle.asks(request)
        return request

    @staticmethod
    def _some(a: int, b: int, within: RangeSet) -> frozenset[Place]:
        """Single offsets, a range, or two."""
        places = sorted(each(within))
        if not places:
            return frozenset()
        if a % 3 == 0:
            return frozenset(places[a * n % len(places)] for n in range(1, 2 + b))
        first = places[a % len(places) :][: 1 + b]
        return frozenset(first if a % 3 == 1 else first + places[a // 2 % len(places) :][: 1 + b])

    @staticmethod
    def _apart(a: int, b: int, within: RangeSet) -> frozenset[Place]:
        """Of one partition few offsets, then many, then few, each far from the others."""
        if not within.partitions:
            return frozenset()
        at = within.partitions[a % len(within.partitions)]
        places = sorted(each(within.only([at])))
        first = a % 4
        return frozenset(
            (*places[first : first + 1], *places[first + 4 : first + 8 + b], *places[first + 12 + b :][:2])
        )

    # rest

    def rest(self) -> None:
        """Whoever sleeps wakes; all is repeated, or else given up. Then everything has to be in order."""
        while self.world.scheduler.asleep:
            self.world.scheduler.wake(0)
            self.world.pass_by(STEP_MS)
        self.world.clocks.ahead = [0] * len(self.world.clocks.ahead)
        self.edits.put_back()
        self._upgrade()
        self._all_are_back()
        self.world.kafka.old_ends.clear()
        # Late writes arrive, and leases end.
        for _ in range(8):
            self.world.ledger.network.tick()
        self._end_moving()
        self.world.pass_by(2 * protocol.LEASE_MS)
        self.oracle.look()
        done = self._last("last ingest", lambda: programs.ingest("last"), None)
        if not done and isinstance(self.refusal, HeldByAnother):
            # A sign of life may lie as far in the future as the lease.
            self.world.pass_by(2 * protocol.LEASE_MS)
            done = self._last("last ingest", lambda: programs.ingest("last"), None)
        if done:
            self.oracle.has_read_all()
        else:
            stuck = isinstance(self.refusal, HeldByAnother | ClockBehind)
            check(not stuck, f"nobody is at work and all clocks are right, and the ingest waits: {self.refusal}")
            advised = isinstance(self.refusal, TopicGone) and self.world.setting.on_deleted == "leave"
            check(not advised, f"the stream file says so already: {self.refusal}")
        if done:
            half = self.oracle.half_closed()
            check(not half, f"closed, and still in the register after a run has looked at all lanes: {half}")
        for lane in self.oracle.open_lanes():
            request = self.oracle.lanes[lane]
            self._refusable_here("resume", lambda lane=lane: programs.resume(lane))
            if not self._last("last again", request.begin, request):
                check(request.kind != LaneKind.ERASE, f"{lane} reads nothing, and cannot go on")
                self._last("last cancel", lambda lane=lane: programs.cancel(lane), None)
        self._last("last ingest", lambda: programs.ingest("very last"), None)
        if self.oracle.all_damaged():
            self._repair()
        self.oracle.at_rest()
        self._compact_all()
        self._go_on_elsewhere()

    def _compact_all(self) -> None:
        """A compaction of each sink that has any, which nothing may refuse now."""
        compacted = [one for one in COMPACTED if one in self.oracle.expected]
        if self.world.setting.after == "restored" and not self.met["compact files"]:
            # A ledger of before does not know where the rows are then, and passes over what it finds no more.
            compacted = [one for one in compacted if one not in PUBLISHED]
        if not compacted or self.oracle.ledger.head(INGEST) is None:
            return
        for sink in compacted:
            done = self._last("last compaction", lambda sink=sink: compact(f"last of {sink}", sink), None)
            check(done, f"nobody is at work, and a compaction of {sink} is refused: {self.refusal}")
        check_compacted(self.world, self.oracle.erased)

    def _end_moving(self) -> None:
        """Somebody who has begun to move the ledger goes on; and nobody has committed anything in those that have moved."""
        register = self.oracle.ledger.register()
        if register is not None and register[1].retired and self.final is None:
            self.world.pass_by(2 * protocol.LEASE_MS)
            moved = self._last("last move", self._move, None)
            check(moved, f"nobody is at work, and a ledger cannot move: {self.refusal}")
        if self.final is not None:
            self._moved()
            self.oracle.look()
        for store, windows in self.older:
            check(elsewhere.committed_in(store) == windows, "somebody has committed in a ledger that has moved")

    def _repair(self) -> None:
        """Nobody is at work: what Kafka has and a replay may read is repaired."""
        request = self._noted(Request(LaneKind.REPLAY, "last repair", frozenset(), repair="execute"))
        self._last("last audit", request.begin, request)
        left = {at for at in self.oracle.all_damaged() - request.left_out if self._is_there(at)}
        sure = not (self.world.was_mended or self.world.other_isolation) and self.oracle.ledger.head(INGEST) is not None
        check(not left or not sure, f"a repair has left {sorted(left)} as it was")

    def _go_on_elsewhere(self) -> None:
        head = self.oracle.ledger.head(INGEST)
        if head is None or (self.world.setting.after == "restored" and not self.backups):
            return
        if self.world.setting.after == "rebuilt":
            everything = {(at, offset) for at, end in head.head.offsets().items() for offset in range(end)}
            lost = self.oracle.ledger.register()
            assert lost is not None
            try:
                elsewhere.move_to_a_rebuilt_one(self.world)
            except WrongUse as refused:
                check(self._order_is_lost(), f"a ledger that lost its register cannot be rebuilt: {refused}")
                return
            check_order_is_found(self.oracle, lost[1])
            self.oracle.moves()
            self._last("ingest elsewhere", lambda: programs.ingest("elsewhere"), None)
            request = Request(LaneKind.BACKFILL, "elsewhere", frozenset(everything))
            self.oracle.asks(request)
            if everything:
                self._last("backfill elsewhere", request.begin, request)
            self.oracle.at_rest()
        elif self.world.setting.after == "restored":
            self.restored = True
            # Of several, the oldest and the newest.
            for path in dict.fromkeys((self.backups[0], self.backups[-1])):
                self._go_on_with(path)

    def _go_on_with(self, path: Path) -> None:
        elsewhere.move_to_a_restored_one(self.world, path)
        self.oracle.moves()
        wrong = verify(self.world.opened.ledger)
        check(not wrong, f"a restored ledger is not whole: {wrong}")
        run = f"restored {path.stem}"
        # Whoever goes on first may die on its way, as anywhere.
        stops = [one.stop for one in self.program.steps if one.name == "ingest" and one.stop is not None]
        stop = next((one for one in stops if one.how in (DIES, SLEEPS, *COMMITS)), None)
        if stop is not None:
            stop = replace(stop, how=DIES) if stop.how == SLEEPS else stop
            self._last("ingest restored first", lambda: programs.ingest(run), None, stop)
        if not self._last("ingest restored", lambda: programs.ingest(run), None):
            stuck = isinstance(self.refusal, TopicRecreated | LedgerContradiction)
            check(not stuck, f"after a restoration no run can go on: {self.refusal}")
        else:
            self.met["restored streams"] += 1
        self.oracle.sees_what_was_written(run)
        if not self.met["compact files"]:
            self.oracle.sees_the_newest(run)
        wrong = verify(self.world.opened.ledger)
        check(not wrong, f"a restored ledger has gone on, and is not whole: {wrong}")

    def _is_there(self, place: Place) -> bool:
        log = self.world.kafka.log(place[0].topic, place[0].partition)
        slot = log.slots.get(place[1]) if log is not None else None
        register = self.oracle.ledger.register()
        # Once a log was cut, what lies below belongs to an earlier incarnation, and is not read again.
        newest = register is not None and max(one.incarnation for one in register[1].topics[place[0].topic])
        if slot is None or slot.number != self.oracle.identity.get(place) or place[0].incarnation != newest:
            return False
        # A transaction that has not ended holds it back, and one that was aborted hides it.
        assert log is not None
        shown = place[1] < log.stable and slot.transaction not in log.aborted
        return self.world.isolation == READ_UNCOMMITTED or shown

    def _refusable_here(self, name: str, act: Callable[[], object]) -> None:
        self._last(name, act, None)

    def _order_is_lost(self) -> bool:
        """Whether only the register knew by which order the table of newest values has its versions."""
        register = self.oracle.ledger.register()
        assert register is not None
        return not LAKES.keys().isdisjoint(self.oracle.sinks) and any(
            any(one.raised for one in known) or len({one.topic_id for one in known}) > 1 or len(known) > 2
            for known in register[1].topics.values()
        )

    def _last(self, name: str, act: Callable[[], object], request: Request | None, stop: Stop | None = None) -> bool:
        done = False

        def whole() -> None:
            nonlocal done
            mine = current()
            assert mine is not None
            mine.request, mine.run_name = request, request.run if request is not None else name
            mine.began = self.world.ledger.network.state
            done = self._refusable(act, name)

        self.refusal = None
        self.story.append(name)
        self._tell(self.world.run(whole, stop, 0, name))
        check(not self.world.scheduler.asleep, f"{name} does not end")
        if not self.restored:
            self.oracle.look()
        return done


def _how(actor: Actor | None) -> str:
    """What has become of an actor, if it has not just ended."""
    if actor is None or not (actor.asleep or actor.died or actor.stopped):
        return ""
    return ": sleeps" if actor.asleep else ": dies" if actor.died else ": in doubt"


def _ledger() -> Any:
    actor = current()
    assert actor is not None
    return actor.opened.ledger


@contextmanager
def stage() -> Iterator[None]:
    """Everything that stands in for servers and terminals, for any number of plays."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with simulated(), commands(), remembered():
            yield
    finally:
        logging.disable(before)


def failure_of(
    program: Program, met: Counter[str] | None = None, together: pairs.Pairs | None = None
) -> Failure | None:
    """Play a program on a stage; how it fails, if it does. Any exception but a refusal is a failure."""
    play: Play | None = None
    forget()
    try:
        play = Play(program, together)
        play.whole()
    except Wrong as problem:
        return Failure(_kind("wrong", str(problem)), str(problem))
    except Exception as problem:
        name = type(problem).__name__
        return Failure(_kind(name, str(problem)), f"{name}: {problem}")
    finally:
        if met is not None and play is not None:
            met += play.met
        if together is not None and play is not None:
            together.add(play.events)
    return None


def _kind(name: str, text: str) -> str:
    """What two failures of one kind share: the words before any number."""
    import re

    return f"{name}: {re.split(r'[0-9{]', re.sub(r'(replay|erase|backfill)-[0-9a-f]{12}', 'LANE', text))[0][:60]}"


def shortened(program: Program, failure: Failure) -> tuple[Program, Failure]:
    """A program that fails in the same way: with fewer steps, then fewer stops, then smaller numbers."""

    def fails(other: Program) -> Failure | None:
        found = failure_of(other)
        return found if found is not None and found.kind == failure.kind else None

    for size in (8, 4, 2, 1, 1):
        at = len(program.steps)
        while at >= 0:
            fewer = replace(program, steps=program.steps[:at] + program.steps[at + size :])
            if fewer.steps != program.steps and (found := fails(fewer)):
                program, failure = fewer, found
            at -= size
    changed = True
    while changed:
        changed = False
        for other in _simpler(program):
            if found := fails(other):
                # What is simpler still is made of this one.
                program, failure, changed = other, found, True
                break
    return program, failure


def _simpler(program: Program) -> Iterator[Program]:
    """Programs with one thing less: a setting, or a number or a stop of a step."""
    plain = Setting()
    for one in fields(Setting):
        if getattr(program.setting, one.name) != getattr(plain, one.name):
            yield replace(program, setting=replace(program.setting, **{one.name: getattr(plain, one.name)}))
    for at, step in enumerate(program.steps):
        for simpler in _simpler_steps(step):
            yield replace(program, steps=(*program.steps[:at], simpler, *program.steps[at + 1 :]))


def _simpler_steps(step: Step) -> Iterator[Step]:
    if step.stop is not None:
        yield replace(step, stop=None)
    for name in ("a", "b", "run"):
        number = getattr(step, name)
        # The smallest first, then half of it and one less, which is enough for each to end.
        for smaller in dict.fromkeys((0, number // 2, number - 1)):
            if 0 <= smaller < number:
                yield replace(step, **{name: smaller})
    if step.stop is not None and isinstance(step.stop.at, int) and step.stop.at > 0:
        yield replace(step, stop=replace(step.stop, at=step.stop.at // 2))
        yield replace(step, stop=replace(step.stop, at=step.stop.at - 1))


def story_of(program: Program) -> list[str]:
    """What happens in a program, a line for each step: what its numbers mean, where its stop was, and what came of it."""
    forget()
    play = Play(program)
    with suppress(Exception):
        play.whole()
    return play.story


__all__ = ["INGEST", "Failure", "Play", "failure_of", "shortened", "stage", "story_of"]
