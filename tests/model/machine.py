"""Actors that do to one ledger whatever they may do, in any order and in the middle of each other's work.

The checker looks at what is stored, and at what each actor was told. It knows the promises and not how they are kept.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.model.transport import FAULTS, Network, Transport
from tidemark import protocol
from tidemark.errors import Conflict, OutcomeUnknown, WrongUse
from tidemark.ledger.book import Book
from tidemark.ledger.codec import digest
from tidemark.ledger.records import Head, LaneKind, Receipt, Record, SinkReceipt, Window, WindowRange, positions
from tidemark.ledger.register import close_lane, open_lane
from tidemark.ledger.store import LedgerStore
from tidemark.protocol import Run
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition

AT = TopicPartition("logs", 0)
INGEST, OTHER = "ingest", "replay-1"
LANES = st.sampled_from([INGEST, INGEST, OTHER])
ACTORS = st.integers(0, 2)
OPERATIONS = ["pin", "take", "take over", "commit", "settle", "abandon", "open", "close"]

# What an actor may be told, and then nothing has happened that the checker would not see: anything else is a failure.
REFUSALS = (Conflict, OutcomeUnknown, WrongUse)


class Sweeps:
    """Remembers which generation was swept for which window."""

    def __init__(self) -> None:
        self.done: list[tuple[str, int, int]] = []

    def sweep(self, record: Record, covers: RangeSet) -> None:
        self.done.append((record.lane, record.seq, record.attempt.generation))


@dataclass
class Actor:
    name: str
    transport: Transport
    book: Book
    taken: dict[str, protocol.Taken] = field(default_factory=dict)
    ahead_ms: int = 0


@dataclass(frozen=True)
class Told:
    """What an attempt was told of its commit: that it was committed, or that it was not."""

    lane: str
    seq: int
    token: str
    committed: bool


def sequences(number: int) -> settings:
    """How many sequences are tried, of up to thirty steps each."""
    return settings(
        max_examples=number,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


def machine(make_store: Callable[[], LedgerStore], tested: ModuleType = protocol) -> type[RuleBasedStateMachine]:
    """The machine over stores of one kind; `tested` is the protocol, or a copy of it with a planted bug."""

    class Ledger(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self.store = make_store()
            self.now = 1_700_000_000_000
            self.sweeps = Sweeps()
            network = Network()
            self.actors = [self._actor(f"run {number}", Transport(self.store, network)) for number in range(3)]
            self.told: list[Told] = []
            self.generations: dict[tuple[str, int], int] = {}
            self.heads: dict[str, list[bytes]] = {}
            self.records: dict[tuple[str, int], bytes] = {}
            self.pinned: dict[tuple[str, int, int], str] = {}

        def _actor(self, name: str, transport: Transport) -> Actor:
            actor = Actor(name, transport, Book(transport, "s"))
            actor.book.clock = lambda: self.now + actor.ahead_ms
            return actor

        # what actors do

        def _try(self, work: Callable[[], Any]) -> Any:
            self.now += 1
            try:
                return work()
            except REFUSALS:
                return None

        @initialize()
        def begin(self) -> None:
            book = self.actors[0].book
            open_lane(book, INGEST, LaneKind.INGEST, run="run 0", start=positions({AT: 0}))

        def _pin(self, actor: Actor, lane: str) -> None:
            self._try(lambda: tested.pin(actor.book, self.sweeps, lane, _plan))

        def _take(self, actor: Actor, lane: str, over: bool) -> None:
            head = self._try(lambda: actor.book.head(lane))
            if head is None or head.head.pending is None:
                return
            seq, run = head.head.pending.window.seq, Run(actor.name, "v1", "digest")
            taken = self._try(lambda: tested.take(actor.book, lane, seq, run, take_over=over))
            if taken is not None:
                actor.taken[lane] = taken
                generation = taken.attempt.generation
                newest = self.generations.get((lane, seq), 0)
                assert generation != newest, "two attempts were given the same generation"
                self.generations[lane, seq] = max(newest, generation)

        def _commit(self, actor: Actor, lane: str) -> None:
            taken = actor.taken.get(lane)
            if taken is None:
                return
            seq, token = taken.pending.window.seq, taken.attempt.token
            newest = self.generations[lane, seq]
            try:
                tested.commit(actor.book, taken, _receipt())
            except OutcomeUnknown:
                return
            except REFUSALS:
                self.told.append(Told(lane, seq, token, committed=False))
                return
            finally:
                actor.taken.pop(lane, None)
            self.told.append(Told(lane, seq, token, committed=True))
            assert taken.attempt.generation >= newest, "an attempt committed although a newer one had been let in"

        def _settle(self, actor: Actor, lane: str) -> None:
            found = self._try(lambda: tested.settle(actor.book, self.sweeps, lane) if actor.book.head(lane) else None)
            if found is not None and found.head.last is not None:
                assert self.store.read(("history", lane, f"{found.head.seq:019d}")), "settled, and not in the history"

        def _abandon(self, actor: Actor, lane: str) -> None:
            self._try(lambda: tested.abandon(actor.book, lane, "a test") if actor.book.head(lane) else None)

        def _open(self, actor: Actor, until: int) -> None:
            chosen = RangeSet([OffsetRange(AT, 0, until)])
            ref = self._try(lambda: actor.book.store_selection(chosen))
            start = positions({AT: 0})
            self._try(
                lambda: open_lane(
                    actor.book, OTHER, LaneKind.REPLAY, run=actor.name, start=start, selection=ref, reason="a test"
                )
            )

        def _close(self, actor: Actor) -> None:
            self._try(lambda: close_lane(actor.book, OTHER))

        def _operation(self, name: str, actor: Actor, lane: str) -> None:
            {
                "pin": lambda: self._pin(actor, lane),
                "take": lambda: self._take(actor, lane, over=False),
                "take over": lambda: self._take(actor, lane, over=True),
                "commit": lambda: self._commit(actor, lane),
                "settle": lambda: self._settle(actor, lane),
                "abandon": lambda: self._abandon(actor, lane),
                "open": lambda: self._open(actor, 10),
                "close": lambda: self._close(actor),
            }[name]()

        @rule(name=st.sampled_from(["pin", "take", "commit", "commit", "settle"]), actor=ACTORS, lane=LANES)
        def step(self, name: str, actor: int, lane: str) -> None:
            self._operation(name, self.actors[actor], lane)

        @rule(name=st.sampled_from(["take over", "abandon", "open", "close"]), actor=ACTORS, lane=LANES)
        def rarer_step(self, name: str, actor: int, lane: str) -> None:
            self._operation(name, self.actors[actor], lane)

        @rule(actor=ACTORS, lane=LANES)
        def whole_window(self, actor: int, lane: str) -> None:
            for name in ("pin", "take over", "commit"):
                self._operation(name, self.actors[actor], lane)

        @rule(actor=ACTORS, other=ACTORS, lane=LANES, fault=st.sampled_from(FAULTS), name=st.sampled_from(OPERATIONS))
        def unlucky_commit(self, actor: int, other: int, lane: str, fault: str, name: str) -> None:
            """Random faults mostly hit other writes than the one that matters most."""
            self._operation("pin", self.actors[actor], lane)
            self._operation("take over", self.actors[actor], lane)
            self._operation(name, self.actors[other], lane)
            self.actors[actor].transport.faults.append(fault)
            self._operation("commit", self.actors[actor], lane)

        # what happens to them

        @rule(actor=ACTORS, fault=st.sampled_from(FAULTS))
        def misfortune(self, actor: int, fault: str) -> None:
            self.actors[actor].transport.faults.append(fault)

        @rule(
            actor=ACTORS,
            other=ACTORS,
            name=st.sampled_from(OPERATIONS),
            lane=LANES,
        )
        def in_the_middle(self, actor: int, other: int, name: str, lane: str) -> None:
            """Another actor's operation, right before this one's next write."""
            if actor != other and not self.actors[actor].transport.meanwhile:
                self.actors[actor].transport.meanwhile.append(lambda: self._operation(name, self.actors[other], lane))

        @rule(actor=ACTORS, by=st.sampled_from([-3_600_000, -5_000, 5_000, 60_000]))
        def clock_moves(self, actor: int, by: int) -> None:
            self.actors[actor].ahead_ms += by

        @rule(ms=st.integers(1, 40_000))
        def time_passes(self, ms: int) -> None:
            self.now += ms

        # what was promised

        @invariant()
        def what_is_stored_is_as_promised(self) -> None:
            lanes: dict[str, dict[str, Any]] = {}
            for lane in (INGEST, OTHER):
                stored = self.store.read(("head", lane))
                if stored is None:
                    assert lane not in self.heads, f"the head of {lane} is gone"
                    continue
                seen = self.heads.setdefault(lane, [])
                if not seen or seen[-1] != stored:
                    assert stored not in seen, f"a value of the head of {lane} has come back"
                    seen.append(stored)
                lanes[lane] = json.loads(stored)
            for lane, head in lanes.items():
                self._check_lane(lane, head, self._history(lane))
            for told in self.told:
                self._check_told(told, lanes)

        def _history(self, lane: str) -> dict[int, bytes]:
            found = {int(key[-1]): value for key, value in self.store.scan(("history", lane))}
            for seq, stored in found.items():
                assert self.records.setdefault((lane, seq), stored) == stored, f"record {lane}/{seq} has changed"
            for place, stored in self.records.items():
                assert place[0] != lane or found.get(place[1]) == stored, f"record {place} is gone"
            return found

        def _check_lane(self, lane: str, head: dict[str, Any], history: dict[int, bytes]) -> None:
            last, seq, pending = head["last"], head["seq"], head["pending"]
            if pending is not None:
                # Until somebody abandons it, a pinned window stays as it is.
                times = head["abandoned"]["count"] if head["abandoned"] else 0
                token = self.pinned.setdefault((lane, pending["window"]["seq"], times), pending["token"])
                assert pending["token"] == token, f"{lane} has pinned another window in the place of a pending one"
            # Committed windows are the history, and the last one of the head, which may not be there yet.
            windows = {number: json.loads(stored) for number, stored in history.items()}
            if last is not None:
                assert windows.setdefault(seq, last) == last, f"head and history of {lane} differ on window {seq}"
            assert sorted(windows) == list(range(1, seq + 1)), f"{lane} has windows {sorted(windows)}, head says {seq}"
            previous, position, time, generation = None, 0, 0, 0
            for number in range(1, seq + 1):
                window = windows[number]
                (one,) = window["window"]["ranges"]
                assert one["from"] == position, (
                    f"{lane}/{number} begins at {one['from']}, the one before ended at {position}"
                )
                assert window["previous"] == previous, f"{lane}/{number} does not name the record before it"
                assert window["attempt"]["generation"] > generation, f"{lane}/{number} has not a higher generation"
                assert window["committed_at"] > time, f"{lane}/{number} was committed before the one before it"
                position, time = one["until"], window["committed_at"]
                generation = window["attempt"]["generation"]
                previous = digest(history[number]) if number in history else None
            assert [one[3] for one in head["positions"]] == [position], f"{lane} has another position than its windows"

        def _check_told(self, told: Told, lanes: dict[str, dict[str, Any]]) -> None:
            last = lanes[told.lane]["last"]
            stored = self.store.read(("history", told.lane, f"{told.seq:019d}"))
            record = last if last is not None and last["window"]["seq"] == told.seq else stored and json.loads(stored)
            mine = bool(record) and record["attempt"]["token"] == told.token
            said = "committed" if told.committed else "not committed"
            assert mine == told.committed, f"{told.lane}/{told.seq}: an attempt was told that it was {said}"

        @invariant()
        def only_what_is_committed_is_swept_for(self) -> None:
            for lane, seq, generation in self.sweeps.done:
                assert self.generations.get((lane, seq), 0) >= generation

        @precondition(lambda self: len(self.told) > 0)
        @invariant()
        def claims_do_not_overlap(self) -> None:
            stored = self.store.read(("register",))
            head = self.store.read(("head", INGEST))
            assert stored is not None
            assert head is not None
            entry = json.loads(stored)["lanes"].get(OTHER)
            if entry is not None and entry["state"] != "closed":
                # A replay claims [0, 10): the ingest has passed it, and never falls back into it.
                assert json.loads(head)["positions"][0][3] >= 10

    return Ledger


def _plan(head: Head) -> Window | None:
    """The next ten offsets; of the other lane, the ten that were selected and no more."""
    start = head.offsets()[AT]
    if head.lane == OTHER and start >= 10:
        return None
    at = WindowRange(
        topic="logs", incarnation=1, partition=0, start=start, until=start + 10, log_start=0, log_end=10**6
    )
    return Window(
        seq=head.seq + 1, ranges=(at,), topic_ids={"logs": "i"}, isolation="read_committed", pinned_at=1, run="run"
    )


def _receipt() -> Receipt:
    dead = SinkReceipt(name="dead_letters", type="hbase", place={})
    return Receipt(tallies=(), sinks=(), dead_letters=dead, started_at=1, finished_at=2)
