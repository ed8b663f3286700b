"""The oracle: it knows what was produced and what each request named, and says what readers must find.

It keeps what is expected of each sink, by coordinate. That changes only with a commit: a first read stores all that the
window covers, a replay what its request named, and an erasure takes away what its request named. Nothing else changes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.model.promises import Promises
from tests.model.sink import Coordinate, Results, Row
from tests.simulation import older, others
from tests.simulation.actors import current
from tests.simulation.clocks import BEGIN
from tests.simulation.invariants import check_claims, check_verify_sees_damage
from tests.simulation.kafka import Log, Message
from tests.simulation.leftovers import (
    check_no_tries_left,
    check_seen_by_others,
    check_seen_meanwhile,
    dead_folders,
    erased_in,
    is_named,
)
from tests.simulation.others import DELTA, ICEBERG, LAKES, LATEST, OTHERS, TOTALS
from tests.simulation.programs import Request
from tests.simulation.remembering import Steady
from tests.simulation.work import LETTERS, ROWS, SUMS, Place
from tidemark.audit.report import AuditReport
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.errors import LedgerContradiction, NotAuthorized
from tidemark.ledger.incarnations import newest
from tidemark.ledger.ledger import Committed, Ledger
from tidemark.ledger.ordering import Epochs
from tidemark.ledger.records import INGEST, GapKind, Guarantee, LaneKind, LaneState
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs import erasing
from tidemark.sinks.hbase.rows import MARK_FAMILY, PartitionKeys, parse_key
from tidemark.sinks.hbase.table import result_table
from tidemark.sinks.kinds import kind_of
from tidemark.sinks.parquet import files
from tidemark.sinks.reading import hbase_rows

if TYPE_CHECKING:
    from tests.simulation.world import World

HBASE = "hbase_default"
# None: the dead letters.
Sink = str | None
Expected = Mapping[Place, Message]


class Wrong(AssertionError):
    """The product has broken a promise."""


def check(holds: object, what: str) -> None:
    if not holds:
        raise Wrong(what)


def each(ranges: Iterable[OffsetRange]) -> set[Place]:
    return {(one.partition, offset) for one in ranges for offset in range(one.start, one.until)}


def said(places: Iterable[Place]) -> str:
    return ", ".join(f"{at}@{offset}" for at, offset in sorted(places))


def newest_of(expected: Expected) -> dict[tuple[str, int], int]:
    """The number of the newest message of each topic and key."""
    found: dict[tuple[str, int], int] = {}
    for (at, _), one in expected.items():
        found[at.topic, one.key] = max(one.number, found.get((at.topic, one.key), 0))
    return found


def newest_at(expected: Expected) -> set[Place]:
    """The newest message of each topic and key."""
    found: dict[tuple[str, int], Place] = {}
    for place, one in sorted(expected.items(), key=lambda item: item[1].number):
        found[place[0].topic, one.key] = place
    return {*found.values()}


def _coordinate(place: Place) -> Coordinate:
    at, offset = place
    return at.topic, at.incarnation, at.partition, offset


@dataclass(frozen=True)
class State:
    """What counted at one moment, in each sink."""

    of: Mapping[Sink, Expected]

    def sums(self, sink: str) -> dict[int, tuple[int, int]]:
        found: dict[int, tuple[int, int]] = {}
        for one in self.of[sink].values():
            number, total = found.get(one.key, (0, 0))
            found[one.key] = number + 1, total + one.number
        return found


class Changes(Promises):
    """The promises of `tests/model`, of a Kafka in which offsets may have no message."""

    def __init__(self, oracle: Oracle, results: Results) -> None:
        super().__init__(oracle.world.ledger.network, results)
        self._oracle = oracle

    def notes(self, coordinate: Coordinate, epoch: int) -> None:
        """An attempt is about to write a row."""
        known = self.known[coordinate]
        assert known.epoch in (None, epoch), f"the message at {coordinate} has changed its order epoch"
        known.epoch = epoch

    def _decoded(self, value: bytes) -> Any:
        """Two versions of the program write one value in two forms."""
        return older.as_newer(super()._decoded(value)) if self._oracle.world.setting.older else super()._decoded(value)

    def may_stay(self, name: tuple[str, int], generation: int) -> bool:
        swept = self._oracle.world.swept_at.get(name)
        return swept is not None and generation > swept

    def _is_there(self, coordinate: Coordinate, generation: int, why: str) -> None:
        place = TopicPartition(coordinate[0], coordinate[2], coordinate[1]), coordinate[3]
        read = self._oracle.world.read_by.get(generation, {}).get(place)
        if place in self._oracle.ever_damaged:
            return
        if read is not None and not read.bad:
            super()._is_there(coordinate, generation, why)

    def _compacted(self, at: int, key: tuple[str, ...], value: bytes) -> None:
        """The folders are real here: the oracle reads them after each step."""


class Oracle:
    """Follows one world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.ledger: Ledger = self._look_at_ledger()
        names = [one.name for one in world.opened.stream.sinks]
        self.sinks: list[Sink] = [*names, None]
        self.expected: dict[Sink, dict[Place, Message]] = {sink: {} for sink in self.sinks}
        # Committed before they were read, and without a receipt yet: rows of them may be there, by generation.
        self.unsure: dict[Sink, dict[Place, int]] = {sink: {} for sink in self.sinks}
        self._without_receipt: dict[int, tuple[str, int]] = {}
        self.erased: dict[Place, int] = {}
        # The folders of attempts that were dead when something was erased.
        self._dead: set[str] = set()
        self.requests: dict[tuple[LaneKind, str], list[Request]] = {}
        # Each lane's request, and how many changes the ledger had seen when it was entered.
        self.lanes: dict[str, Request] = {}
        self._entered: dict[str, int] = {}
        self.proposed: dict[bytes, Request | None] = {}
        self._applied = 0
        self.seen: set[int] = set()
        # Commits come before rows, so a reader beside one may miss anything.
        self.commits_first = world.setting.guarantee == Guarantee.AT_MAX_ONCE
        # How often each sink's place had changed when it looked last, and which windows counted.
        self._looked: dict[Sink, tuple[int, list[tuple[int, bool]]]] = {}
        self._learned = -1
        # Whether the promises know the whole history of the ledger, and whether the ledger has forgotten some of it.
        self.follows, self.forgets = True, False
        # Which offsets people have asked to be skipped, up to which offset the last of them, and what was skipped.
        self._may_skip: dict[tuple[str, int], list[range]] = {}
        self.skip_to: dict[tuple[str, int], int] = {}
        self.skipped: set[Place] = set()
        self.identity: dict[Place, int] = {}
        self.places: dict[int, Place] = {}
        self.keys: dict[Place, int] = {}
        self.states: list[State] = [State({sink: {} for sink in self.sinks})]
        self.met: Counter[str] = Counter()
        self.results = Results()
        self.promises = Changes(self, self.results)
        self.promises.commits_records = world.store.commits_records
        self.promises.notes_cuts = world.setting.guarantee != Guarantee.NONE
        # Whether somebody has edited the ledger by hand.
        self.is_damaged: Callable[[], bool] = lambda: False
        # The rows that somebody has damaged, and that no window has written again; and all that ever were.
        self.damaged: dict[Sink, set[Place]] = {sink: set() for sink in self.sinks}
        self.ever_damaged: set[Place] = set()
        world.audits = self._audits
        world.found_since, world.found_letters = self._found_since, self._found_letters
        world.found_by_key, world.told, world.accepts = self._found_by_key, self._told, self._accepts
        world.writes_rows, world.row_stored, world.hbase.hears = self._writes_rows, self._row_stored, self._hidden

    def _look_at_ledger(self) -> Ledger:
        return Steady(self.world.store, self.world.opened.ledger.stream, lambda: self.world.ledger.network.state)

    # what it hears of

    def asks(self, request: Request) -> None:
        self.requests.setdefault((request.kind, request.run), []).append(request)

    def _writes_rows(self, messages: Mapping[Place, Message]) -> None:
        """An attempt is about to write rows: the promises know of them."""
        register = self.ledger.register()
        assert register is not None
        epochs = Epochs(register[1].topics)
        for (at, offset), one in messages.items():
            self.promises.keys[one.number] = one.key
            coordinate, epoch = _coordinate((at, offset)), epochs.of(at, offset)
            self.promises.notes(coordinate, epoch)

    def _row_stored(self, place: Place, generation: int) -> None:
        number = self.world.read_by[generation][place].number
        self.results.write({_coordinate(place): Row(number, self.world.ledger.network.calls)}, generation)

    def moves(self, *, forgets: bool = True) -> None:
        """The ledger goes on in another place. Its heads are written anew there, which is no change that promises know.

        `forgets`: it lacks something that was in the older one.
        """
        self.follows, self._applied = False, 0 if not forgets else self._applied
        self.forgets = self.forgets or forgets
        self.world.told = lambda lane, seq, token, committed: None
        self.world.writes_rows, self.world.row_stored = (
            (lambda messages: None),
            (lambda place, generation: None),
        )
        self.world.hbase.hears = lambda table, row, column, newest: None
        self.ledger = self._look_at_ledger()
        self._looked, self._learned = {}, -1

    def sees_what_was_written(self, run: str) -> None:
        """Whatever the places held before: what a run has committed is there."""
        if self.commits_first:
            return
        for sink in ("hbase", *OTHERS):
            if sink in self.expected:
                self._sees_in(sink, run)

    def _sees_in(self, sink: str, run: str) -> None:
        try:
            rows = self.rows(sink)
        except LedgerContradiction:
            # What was swept since the backup, or compacted, is gone, and the ledger does not know it.
            return
        authority = self.ledger.authority(sink)
        for one in self.ledger.committed():
            if one.record.attempt.run == run and rows:
                read = {place for place, message in self.world.read_by[one.generation].items() if not message.bad}
                # What was erased before stays hidden, also from a ledger that does not know of it.
                lost = {
                    at
                    for at in read - rows.keys() - self.erased.keys() - self.ever_damaged
                    if authority.of(*at) == one.generation
                }
                check(not lost, f"{run} has committed rows that no reader of {sink} sees: {said(lost)}")

    def sees_the_newest(self, run: str) -> None:
        """Once a run has published a window, the newest rows are those of the ledger, whatever the table held before."""
        windows = self.ledger.committed()
        if not any(one.record.attempt.run == run for one in windows):
            return
        for sink in LAKES.keys() & self.expected.keys():
            authority = self.ledger.authority(sink)
            counts = {
                (at, offset): message
                for one in windows
                for (at, offset), message in self.world.read_by.get(one.generation, {}).items()
                if authority.of(at, offset) == one.generation and not message.bad
            }
            # What was erased since the backup stays hidden, and what it had overwritten may come back or not.
            unsure = {(at.topic, self.keys[at, offset]) for at, offset in self.erased if (at, offset) in self.keys}
            # A ledger that was restored meanwhile has read a window again, and has swept the folder of its first attempt.
            unsure |= {
                (at.topic, message.key)
                for one in windows
                if any(place.name == sink and not files.exists(place.place["folder"]) for place in one.record.places)
                for (at, _), message in self.world.read_by.get(one.generation, {}).items()
            }
            found, want = self.latest(sink=sink), newest_of(counts)
            other = {key for key in found.keys() | want.keys() if found.get(key) != want.get(key)} - unsure
            check(not other, f"{run}: the newest values of {other} in {sink} are {found}, and should be {want}")
            there = others.generations_at(self.world.opened, self._settings(sink)).items()
            stale = {at for at, one in there if authority.of(*at) not in (None, one)} - self.erased.keys()
            check(not stale, f"{run}: {sink} has rows of {said(stale)} of attempts that count there no more")
            self.met["newest values after a restoration"] += 1

    def counting(self) -> dict[Sink, dict[Place, int]]:
        """Which generation counts at each message, in each sink."""
        found: dict[Sink, dict[Place, int]] = {}
        for sink in self.sinks:
            view = self.ledger.view(sink)
            here = found[sink] = {}
            for one in view.windows:
                for place in each(view.authority.held_by(one.generation, one.covers)):
                    here[place] = one.generation
        return found

    def _accepts(self, request: Request, selection: RangeSet) -> None:
        """A plan that is accepted replaces what it has shown, in each sink that it writes."""
        now, planned = self.counting(), request.planned or {}
        for sink in request.sinks or self.sinks:
            other = {at for at in each(selection) if now[sink].get(at) != planned[sink].get(at)}
            check(
                not other, f"a plan was accepted, and at {said(other)} other windows count in {sink} than it has shown"
            )
        self.met["plan accepted"] += 1

    def showed(self, request: Request) -> None:
        """A dry run has said of how many messages there are rows, in any of the sinks that it writes: so many there are."""
        for value in request.said:
            least, most = value.get("stored_at_least"), value.get("stored_at_most")
            if least is None or self.commits_first or request.begun:
                # Of a run that has begun, it is what was so when it began.
                continue
            self.met["plan shown"] += 1
            written = request.sinks or [one for one in self.sinks if one is not None]
            stored = len({place for sink in written for place in self.expected[sink]} & request.chosen)
            check(
                least <= stored <= most,
                f"a plan says that {least} to {most} stored messages are replaced, not {stored}",
            )

    def refused_once(self, request: Request) -> None:
        """Kafka has refused one question: what the run has claimed stays, and the run goes on at its next try.

        Another of its lanes may have been closed for a reason of its own, such as a log that was cut.
        """
        for lane, one in self.lanes.items():
            head = self.ledger.head(lane) if one is request else None
            why = head.head.closed_early or "" if head is not None else ""
            check(NotAuthorized.__name__ not in why, f"{lane} was closed since Kafka refused one question")

    def _told(self, lane: str, seq: int, token: str, committed: bool) -> None:
        self.promises.told(lane, seq, token, committed=committed)

    def _found_by_key(self, key: int, places: frozenset[Place]) -> None:
        others = {place for place in places if place in self.keys and self.keys[place] != key}
        check(not others, f"messages of other keys were found by their key: {said(others)}")
        actor = current()
        if actor is None or actor.slept or self.commits_first:
            return
        own = {place for place, known in self.keys.items() if known == key} - self.erased.keys()
        lost = {place for place in own - places if self._still_there([place])}
        check(not lost, f"messages that were read were not found by their key: {said(lost)}")

    def read_since(self, since: int) -> frozenset[Place]:
        """What windows have read of the messages from a time on that Kafka has now, in the newest incarnation."""
        return frozenset(
            (at, offset)
            for at in self.ledger.authority().covered().partitions
            if self.is_newest(at)
            for offset, one in self.world.kafka.held[at.topic].logs[at.partition].slots.items()
            if one is not None and one.time >= since and self.identity.get((at, offset)) == one.number
        )

    def is_newest(self, at: TopicPartition) -> bool:
        """Whether Kafka has this partition now, in the newest incarnation that the ledger knows."""
        register = self.ledger.register()
        known = register[1].topics.get(at.topic, ()) if register else ()
        topic = self.world.kafka.held.get(at.topic)
        if topic is None or not known or known[-1].topic_id != topic.topic_id:
            return False
        return at.incarnation == max(one.incarnation for one in known) and at.partition < len(topic.logs)

    def _found_since(self, request: Request) -> None:
        """What a request of a time names: every message from then on that was read, and none from before."""
        assert request.since is not None
        # Times may fall: from the first message on that is late enough, all are meant.
        first: dict[tuple[str, int], int] = {}
        for topic, partition, offset, time in self.world.kafka.written.values():
            if time >= request.since:
                first[topic, partition] = min(offset, first.get((topic, partition), offset))
        early = {
            (at, offset)
            for at, offset in request.named
            if offset < first.get((at.topic, at.partition), offset + 1) and self._still_there([(at, offset)])
        }
        check(not early, f"a replay since a time names messages from before: {said(early)}")
        lost = request.must_find - request.named - request.left_out - self.erased.keys()
        check(not lost or not self._still_there(lost), f"a replay since a time does not name {said(lost)}")
        self.met["found since a time"] += len(request.named)

    def _found_letters(self, request: Request) -> None:
        """What a redrive names: dead letters that counted at some moment since, and each that always did."""
        self.learn()
        if self.commits_first:
            return
        states = [{*state.of[None]} for state in self.states[request.state :]]
        never = request.named.difference(*states)
        check(not never, f"a redrive names what was no dead letter: {said(never)}")
        lost = states[0].intersection(*states) - request.named - request.left_out - self.erased.keys()
        check(not lost, f"a redrive of all dead letters does not name {said(lost)}")
        actor = current()
        if actor is not None and not actor.stopped:
            # As the reader of results gives them, whom nobody has disturbed.
            table = result_table(self.world.opened.connections, HBASE, LETTERS)
            most = self.world.opened.stream.dead_letters.max_redrives
            tired = {
                (row.place.partition, row.place.offset)
                for row in hbase_rows(self.ledger, table, None)
                if int(row.fields["redrives"]) >= most
            }
            check(not request.named & tired, f"redriven too often: {said(request.named & tired)}")
        self.met["found among dead letters"] += len(request.named)

    def damage(self, a: int, b: int) -> None:
        """Somebody removes a row or a dead letter that counts, or writes something else there."""
        sink: Sink = None if b == 0 or "hbase" not in self.expected else "hbase"
        places = sorted(self.expected[sink].keys() - self.damaged[sink])
        if not places:
            return
        place = places[a % len(places)]
        table, column = (LETTERS, "d:value") if sink is None else (ROWS, "d:number")
        row = PartitionKeys(place[0]).key(place[1], 0)
        generation = self.ledger.authority(sink).of(*place)
        assert generation is not None
        if b % 2:
            self.world.hbase.put(table, [(row, column.encode(), b"99999")], generation)
        else:
            self.world.hbase.lose(table, row, generation)
            if sink is not None:
                self.results.rows.pop(_coordinate(place), None)
        self.damaged[sink].add(place)
        self.ever_damaged.add(place)

    def all_damaged(self) -> set[Place]:
        return {place for found in self.damaged.values() for place in found}

    def _audits(self) -> Callable[[AuditReport, RangeSet | None], None]:
        """An audit begins. What is given judges its report: it alarms for damage alone, and for all that can be told."""
        before = self.all_damaged()

        def judge(report: AuditReport, within: RangeSet | None) -> None:
            self.learn()
            actor = current()
            if self.commits_first or self.world.was_mended or self.world.other_isolation or actor is None:
                return
            found = each(self.ledger.selection(report.findings)) if report.findings else set()
            self.met["found by an audit"] += len(found)
            damaged = self.all_damaged()
            false = found - (self.ever_damaged if actor.stopped else damaged)
            check(not false, f"an audit alarms for what nobody has damaged: {said(false)}")
            asked = {place for place in before & damaged if within is None or place in within}
            lost = {place for place in asked - found - self.erased.keys() if self._still_there([place])}
            check(actor.stopped or not lost, f"an audit has not found {said(lost)}")

        return judge

    def _still_there(self, places: Iterable[Place]) -> bool:
        """Whether Kafka has all of these messages now, where they were, for readers at this isolation level."""
        now = self.read_since(0)
        held = self.world.kafka.held
        return all(place in now and place[1] < held[place[0].topic].logs[place[0].partition].stable for place in places)

    def _hidden(self, table: str, row: bytes, column: bytes, newest: int) -> None:
        """The marks of a row are hidden up to a time: so the row is gone."""
        if table == ROWS and column == MARK_FAMILY.encode():
            place = parse_key(row)
            self.results.sweep(RangeSet([OffsetRange(place.partition, place.offset, place.offset + 1)]), newest + 1)

    # what was committed

    def learn(self) -> None:
        """What each newly committed window was allowed to change."""
        if self._learned == self.world.ledger.network.state:
            return
        self._learned = self.world.ledger.network.state
        self._learn_lanes()
        if self.follows:
            self.promises.look()
        windows = self.ledger.committed() if self.ledger.head(INGEST) is not None else []
        new = sorted((one for one in windows if one.generation not in self.seen), key=lambda one: one.generation)
        for one in new:
            self.seen.add(one.generation)
            self._learn(one)
        if self._resolve(windows) or new:
            self.states.append(State({sink: dict(found) for sink, found in self.expected.items()}))

    def _learn_lanes(self) -> None:
        """Which request each lane is of: that of the actor whose write has opened it."""
        applied = self.world.ledger.network.applied
        for at, (_, key, value) in enumerate(applied[self._applied :], self._applied):
            if key[0] == "register":
                if self.follows:
                    check_claims(self, value)
                for lane in json.loads(value)["lanes"]:
                    if lane != INGEST and lane not in self.lanes:
                        request = self.proposed.get(value)
                        check(request, f"{lane} was opened by nobody who asked for it")
                        self.lanes[lane], self._entered[lane] = request, at
                        request.opened = True
        self._applied = len(applied)

    def _learn(self, one: Committed) -> None:
        record, covers, gone = one.record, each(one.covers), each(one.erased)
        lane, first = record.lane, not record.kind.reads_again and record.window.guarantee != Guarantee.NONE
        self.met[f"windows of a {record.kind}"] += 1
        self._learn_gaps(one)
        named = covers if record.kind in (LaneKind.INGEST, LaneKind.BACKFILL) else self.lanes[lane].named
        if first:
            again = {*self.identity} & covers & {place for found in self.expected.values() for place in found}
            check(not again, f"{lane}/{record.seq} reads first what was read before: {said(again)}")
        check(covers <= named, f"{lane}/{record.seq} covers what nobody named: {said(covers - named)}")
        check(not covers & self.erased.keys(), f"{lane}/{record.seq} brings back {said(covers & self.erased.keys())}")
        for place in gone:
            self.erased[place] = self.world.ledger.network.calls
        if gone:
            self._dead |= dead_folders(self.world, self.ledger, one.generation)
        later = record.window.guarantee == Guarantee.AT_MAX_ONCE
        if later:
            self._without_receipt[one.generation] = (lane, record.seq)
        for sink in self.sinks:
            if gone:
                self._take_away(sink, gone)
            if record.kind != LaneKind.ERASE and record.window.counts_for(sink):
                if later:
                    self._take_away(sink, covers)
                    self.unsure[sink] |= dict.fromkeys(covers, one.generation)
                else:
                    # Nobody was sure what is there; from now on it is what this window has read.
                    was_unsure = covers & self.unsure[sink].keys()
                    self._take_away(sink, was_unsure)
                    self._count(sink, covers, one.generation)
            self.damaged[sink] -= covers if record.window.counts_for(sink) else set()
        if not later:
            self._identify(one.generation)

    def asks_to_skip(self, to: Mapping[tuple[str, int], int]) -> None:
        """Somebody asks to skip what lies between the positions and these offsets. A cut that is met then is passed by."""
        self.skip_to = dict(to)
        for name, target in to.items():
            self._may_skip.setdefault(name, []).append(range(self._next(name), target))

    def _next(self, name: tuple[str, int]) -> int:
        """The position in a partition, or where its log was cut below that; 0 of a log that nobody has read."""
        log = self.world.kafka.log(*name)
        ends = [end for at, end in self.positions().items() if (at.topic, at.partition) == name and self.is_newest(at)]
        return min([*ends, *(first for epoch, first in log.epochs if epoch)], default=0) if log and ends else 0

    def _learn_gaps(self, one: Committed) -> None:
        """What a window has jumped over: only what Kafka has lost, or what somebody has asked to be skipped."""
        gaps, name = one.record.window.gaps, f"{one.record.lane}/{one.record.seq}"
        lost = {gap.as_range().partition for gap in gaps if gap.kind == GapKind.LOST}
        for gap in gaps:
            at, places = gap.as_range().partition, each([gap.as_range()])
            if gap.kind == GapKind.LOST:
                log = self.world.kafka.log(at.topic, at.partition) if self.is_newest(at) else None
                there = {place for place in places if log is not None and place[1] >= log.start}
                check(not there, f"{name} passes over {said(there)} as lost, and Kafka has them")
                continue
            self.met["offsets skipped"] += len(places)
            self.skipped |= places
            by_policy = self.world.setting.out_of_range == "latest" and at in lost
            may = {place for place in places if any(place[1] in one for one in self._may_skip.get(at[:2], ()))}
            check(by_policy or may == places, f"{name} skips what nobody has asked for: {said(places - may)}")

    def _take_away(self, sink: Sink, places: set[Place]) -> None:
        self.damaged[sink] -= places
        for found in (self.expected[sink], self.unsure[sink]):
            for place in places & found.keys():
                del found[place]

    def _count(self, sink: Sink, places: Iterable[Place], generation: int) -> None:
        """These places have what this attempt has read there, and nothing where it has found nothing."""
        read, expected = self.world.read_by.get(generation, {}), self.expected[sink]
        for place in places:
            self.damaged[sink].discard(place)
            expected.pop(place, None)
            one = read.get(place)
            if one is not None and one.bad == (sink is None):
                expected[place] = one

    def _identify(self, generation: int) -> None:
        for place, one in self.world.read_by.get(generation, {}).items():
            known = self.identity.setdefault(place, one.number)
            check(known == one.number, f"{said([place])} names two messages, {known} and {one.number}")
            self.keys[place] = one.key
            other = self.places.setdefault(one.number, place)
            check(other == place, f"message {one.number} is stored as {said([other])} and as {said([place])}")

    def _resolve(self, windows: Iterable[Committed]) -> bool:
        """Windows that were committed before they were read, and have their receipts now; whether there are any."""
        there = [one for one in windows if one.generation in self._without_receipt and one.record.receipt is not None]
        for one in there:
            del self._without_receipt[one.generation]
            self._identify(one.generation)
            for sink in self.sinks:
                mine = {place for place, found in self.unsure[sink].items() if found == one.generation}
                self._take_away(sink, mine)
                self._count(sink, mine, one.generation)
        return bool(there)

    # what readers find

    def rows(self, sink: Sink, ledger: Ledger | None = None) -> dict[Place, tuple[int, int]]:
        """Key and number of each row, as the product's reader gives them."""
        found: dict[Place, tuple[int, int]] = {}
        if sink in OTHERS:
            for at, offset, key, number in others.rows(self.world.opened, ledger or self.ledger, self._settings(sink)):
                check((at, offset) not in found, f"a reader of {sink} was given {said([(at, offset)])} twice")
                found[at, offset] = key, number
            return found
        table = result_table(self.world.opened.connections, HBASE, LETTERS if sink is None else ROWS)
        for row in hbase_rows(ledger or self.ledger, table, sink):
            place = row.place.partition, row.place.offset
            check(place not in found, f"a reader was given {said([place])} twice")
            names = ("key", "value") if sink is None else ("id", "number")
            key, number = (int(row.fields.get(name, b"-1")) for name in names)
            found[place] = key, number
        return found

    def _settings(self, sink: Sink) -> Any:
        return next(one for one in self.world.opened.stream.sinks if one.name == sink)

    def sums(self, ledger: Ledger | None = None, sink: str = SUMS) -> dict[int, tuple[int, int]]:
        opened, settings = replace(self.world.opened, ledger=ledger or self.ledger), self._settings(sink)
        rows = kind_of(settings.type).make_admin().rows(opened, settings, 1_000)
        return {int(row["key"]["id"]): (int(row["values"]["n"]), int(row["values"]["s"])) for row in rows}

    def latest(self, ledger: Ledger | None = None, sink: str = LATEST) -> dict[tuple[str, int], int]:
        return others.newest(self.world.opened, ledger or self.ledger, self._settings(sink))

    def look(self) -> None:
        """Everything that readers find now is what is expected now."""
        if self.ledger.head(INGEST) is None:
            return
        self.learn()
        # What readers find is made of the windows that count, and of what stands in their place.
        windows = [(one.generation, one.record.receipt is None) for one in self.ledger.committed()]
        for sink in ("hbase", None, *OTHERS):
            if sink in self.expected and self._is_new(sink, windows):
                self._check_rows(sink, self.rows(sink), self.expected[sink])
                if sink in (DELTA, ICEBERG) and self.follows:
                    check_seen_meanwhile(self.world, sink, {generation for generation, _ in windows})
        for sink in TOTALS:
            if sink in self.expected and not self.unsure[sink] and self._is_new(sink, windows):
                found, want = self.sums(sink=sink), self.states[-1].sums(sink)
                check(found == want, f"the totals in {sink} are {found}, and should be {want}")
        for sink in LAKES:
            if sink not in self.expected or self.unsure[sink] or not self._is_new(sink, windows):
                continue
            want_latest, found_latest = newest_of(self.expected[sink]), self.latest(sink=sink)
            check(found_latest == want_latest, f"the newest values are {found_latest}, and should be {want_latest}")

    def _is_new(self, sink: Sink, windows: list[tuple[int, bool]]) -> bool:
        """Whether the windows or the sink's place have changed since the oracle has looked there last."""
        tables = {"hbase": ROWS, None: LETTERS}
        changes = self.world.lake.changes + len(self.world.target.messages) + self.world.hbase.changed["by_key"]
        now = self.world.hbase.changed[tables[sink]] if sink in tables else changes, windows
        is_new = self._looked.get(sink) != now
        self._looked[sink] = now
        return is_new

    def _check_rows(self, sink: Sink, rows: Mapping[Place, tuple[int, int]], expected: Expected) -> None:
        what = "dead letters" if sink is None else f"{sink} rows" if sink in OTHERS else "rows"
        lost = expected.keys() - rows.keys() - self.damaged[sink]
        check(not lost, f"{what} of messages that nobody named are gone: {said(lost)}")
        extra = rows.keys() - expected.keys() - self.unsure[sink].keys()
        check(not extra, f"{what} that nobody expects: {said(extra)}")
        sound = expected.keys() - self.damaged[sink]
        other = {at for at in sound if rows[at] != (expected[at].key, expected[at].number)}
        check(not other, f"{what} of other messages: {said(other)}")

    def saw_rows(self, rows: Mapping[Place, tuple[int, int]], since: int, sink: Sink = "hbase") -> None:
        """A reader's answer, of a moment between that state and now."""
        self.learn()
        if self.commits_first:
            return
        states = [{at: (one.key, one.number) for at, one in state.of[sink].items()} for state in self.states[since:]]
        # A reader of rows is steady piece by piece: each row was right at some moment.
        places = ({place for state in states for place in state} | rows.keys()) - self.ever_damaged
        wrong = {at for at in places if rows.get(at) not in [state.get(at) for state in states]}
        check(not wrong, f"a reader of rows saw what never counted: {said(wrong)}")

    def saw_sums(self, found: Mapping[int, tuple[int, int]], since: int, sink: str = SUMS) -> None:
        self.learn()
        if self.commits_first:
            return
        states = [state.sums(sink) for state in self.states[since:]]
        # Each key is as of one moment.
        keys = {key for state in states for key in state} | found.keys()
        wrong = [key for key in keys if found.get(key) not in [state.get(key) for state in states]]
        check(not wrong, f"a reader of totals saw {found}, which never counted of keys {wrong}: {states}")

    def saw_latest(self, found: Mapping[tuple[str, int], int], since: int, sink: str = LATEST) -> None:
        self.learn()
        if self.commits_first:
            return
        states = [newest_of(state.of[sink]) for state in self.states[since:]]
        keys = {key for state in states for key in state} | found.keys()
        wrong = [key for key in keys if found.get(key) not in [state.get(key) for state in states]]
        check(not wrong, f"a reader of the newest values saw what never counted of keys {wrong}")

    # what requests have come to

    def ended_well(self, request: Request, writes: int) -> None:
        """A command has ended without an error: it did what it was asked for, or said that it did not."""
        self.learn()
        if request.dry:
            check(not writes, f"a dry run of {request.kind.value} {request.run} has written")
            actor = current()
            if actor is not None and not actor.stopped and request.kind != LaneKind.ERASE:
                self.showed(request)
            return
        self.met[f"{request.kind.value} done"] += 1
        others = [lane for lane in self._of_its_name(request) if self.lanes[lane].asks_for != request.asks_for]
        check(
            not others,
            f"{request.kind.value} {request.run} has ended well, and {others} of that name was asked for more or less",
        )
        if request.kind == LaneKind.ERASE:
            left = request.named - self.erased.keys()
            check(not left, f"erase {request.run} has ended well, and did not erase {said(left)}")
            for place, places in erased_in(self.world, request.named).items():
                check(place not in self._dead, f"an erasure has left {place} of a dead attempt with {said(places)}")
            return
        first = request.kind == LaneKind.BACKFILL
        windows = [one for one in self.ledger.committed() if first or one.record.attempt.run == request.run]
        covered = {place for one in windows for place in each(one.covers)}
        # Whoever asks a second time is told nothing anew.
        same = [one for one in self.requests.get((request.kind, request.run), ()) if one.named == request.named]
        left_out = {place for one in (request, *same) for place in one.left_out}
        left = request.named - covered - self.erased.keys() - left_out
        check(not left, f"{request.kind.value} {request.run} has ended well, and did not read {said(left)}")

    def _of_its_name(self, request: Request) -> list[str]:
        """The lanes of a request's name that its command had to see."""
        actor = current()
        assert actor is not None
        if request.repair and not request.opened:
            # An audit takes no name. What it replays has one of its own.
            return []
        # Whoever has nothing left to erase takes none: another may take it before that one has ended.
        nothing = bool(request.said) and request.said[-1].get("to_erase", {}).get("offsets") == 0
        return [
            lane
            for lane, other in self.lanes.items()
            if (other.kind, other.run) == (request.kind, request.run)
            and not (nothing and self._entered[lane] >= actor.began)
        ]

    def began(self) -> None:
        """The ingest has just begun, and nobody else was at work: where the stream file says."""
        setting, register = self.world.setting, self.ledger.register()
        if setting.since is None or register is None or self.world.kafka.gave_old_ends:
            return
        self.met["began at a time"] += 1
        for one in register[1].lanes[INGEST].start:
            # An ingest that has died may have begun in the log before. A new one is read from its first offset.
            if not self.is_newest(one.at):
                continue
            log = self.world.kafka.log(one.at.topic, one.at.partition)
            assert log is not None
            shown = {at: slot for at, slot in log.slots.items() if slot is not None and at < self._readable(log)}
            later = {(one.at, at) for at, slot in shown.items() if slot.time >= BEGIN + setting.since}
            passed = {place for place in later if place[1] < one.offset}
            check(not passed, f"the ingest begins at {one.at}@{one.offset}, and passes over {said(passed)}")
            first = min((offset for _, offset in later), default=self._readable(log))
            check(one.offset == first, f"the ingest begins at {one.at}@{one.offset}, and not at {first}")

    def positions(self) -> Mapping[TopicPartition, int]:
        head = self.ledger.head(INGEST)
        return head.head.offsets() if head is not None else {}

    def _readable(self, log: Log) -> int:
        return log.stable if self.world.isolation == READ_COMMITTED else log.end

    def has_read_all(self) -> None:
        """The ingest has ended well: each message that a reader may see was in a window, from where the ingest began."""
        register = self.ledger.register()
        if register is None or INGEST not in register[1].lanes or self._without_receipt or self.commits_first:
            return
        starts = {(one.at.topic, one.at.partition): one for one in register[1].lanes[INGEST].start}
        topics = register[1].topics
        gone = {at.topic for at in self.positions()} - self.world.kafka.held.keys()
        unnoted = [one for one in sorted(gone) if not newest(topics, one).left]
        check(not unnoted, f"the ingest has ended well, and nothing says that a topic is gone: {unnoted}")
        skipped = {(at.topic, at.partition, offset) for at, offset in self.skipped}
        for topic, number, log in self.world.kafka.parts():
            begins = starts.get((topic, number))
            ids = {one.incarnation: one.topic_id for one in topics.get(topic, ())}
            # Of another log than this one, it says nothing.
            here = begins is not None and ids.get(begins.at.incarnation) == self.world.kafka.held[topic].topic_id
            below = begins.offset if begins is not None and here else 0
            unread = {
                (TopicPartition(topic, number), at)
                for at, one in log.slots.items()
                if one is not None and below <= at < self._readable(log) and one.transaction not in log.aborted
                if one.number not in self.places and (topic, number, at) not in skipped
            }
            check(not unread, f"the ingest has ended well, and no window has read {said(unread)}")

    def open_lanes(self) -> list[str]:
        found = self.ledger.register()
        return sorted(one for one in found[1].lanes if one != INGEST) if found else []

    def half_closed(self) -> list[str]:
        """The lanes that keep their claims, although nobody can work on them."""
        heads = {lane: self.ledger.head(lane) for lane in self.open_lanes()}
        return [lane for lane, head in heads.items() if head is not None and head.head.state == LaneState.CLOSED]

    def _copies(self) -> None:
        """Each dead letter of a window that is settled was copied, and nothing else was."""
        windows = {one.generation: one for one in self.ledger.committed()}
        made = set(others.copied(self.world.copies))
        for at, offset, generation in made:
            read = self.world.read_by.get(generation, {}).get((at, offset))
            check(
                read is not None and read.bad and generation in windows,
                f"{said([(at, offset)])} was copied as a dead letter of generation {generation}, which has committed none",
            )
        if not self.world.setting.copies or not self.follows:
            return
        for generation, one in windows.items():
            if (
                one.record.receipt is not None
                and one.record.window.counts_for(None)
                and self.ledger.is_settled(one.record)
            ):
                bad = {place for place, read in self.world.read_by.get(generation, {}).items() if read.bad}
                lost = {place for place in bad if (*place, generation) not in made}
                check(not lost, f"{one.record.lane}/{one.record.seq} is settled, and no copy was made of {said(lost)}")
                self.met["dead letters copied"] += len(bad)

    def at_rest(self) -> None:
        """Nothing is open, the ledger is whole, and nothing is left of what was erased."""
        self.look()
        check(not self.open_lanes(), f"open for ever: {self.open_lanes()}")
        wrong = verify(self.ledger)
        check(not wrong, f"the ledger is not whole: {wrong}")
        check_verify_sees_damage(self, self.world.ledger.network.calls)
        self._nothing_erased_is_left()
        for sink in LAKES.keys() & self.expected.keys():
            held = others.newest_at(self.world.opened, self._settings(sink)) & self.erased.keys()
            check(not held, f"the newest version of {sink} has erased messages: {said(held)}")
            if not self.unsure[sink] and self.follows:
                seen, wanted = others.newest_at(self.world.opened, self._settings(sink)), newest_at(self.expected[sink])
                check(seen == wanted, f"others see in {sink} the messages {said(seen)}, and should see {said(wanted)}")
                self.met["tables of newest rows seen by others"] += 1
        for sink in TOTALS.keys() & self.expected.keys():
            if not self.unsure[sink] and self.follows:
                seen_totals, want = (
                    others.totals_seen(self.world.opened, self._settings(sink)),
                    self.states[-1].sums(sink),
                )
                check(seen_totals == want, f"others see in {sink} the totals {seen_totals}, and should see {want}")
                self.met["totals seen by others"] += 1
        for sink in (ICEBERG, DELTA):
            if sink in self.expected and not self.unsure[sink] and self.follows:
                check_seen_by_others(self.world, sink, self.expected[sink])
                self.met[f"tables of {sink.title()} seen by others"] += 1
        check_no_tries_left(self.world)
        self._copies()
        self._coverage()

    def _nothing_erased_is_left(self) -> None:
        """What is left is named, and whoever asks for the erasure once more clears it."""
        left, held = self._left()
        if not left and not held:
            return
        self.met["erased and left"] += 1
        erased = RangeSet(OffsetRange(at, offset, offset + 1) for at, offset in self.erased)
        late = any(one.late and one.died for one in self.world.actors)
        # Whoever is not killed in that moment clears it.
        kept = self._kept_by_who_has_ended()
        check(not kept, f"whoever wrote it has ended by itself, and has left what was erased: {kept}")
        found = erasing.remaining(self.world.opened, erased)
        remains = [one for one in found if late or "came late" not in one.remains]
        for place, places in held.items():
            check(is_named(place, remains), f"{place} still holds something of erased messages: {said(places)}")
        named = {one.place.get("table") for one in remains if one.remains}
        for table, places in left.items():
            check(table in named, f"{table} still holds something of erased messages: {said(places)}")
        erasing.clear_again(self.world.opened, erased)
        left, held = self._left()
        for place, places in {**left, **{one: held[one] for one in held.keys() & self._tables()}}.items():
            check(False, f"{place} still holds erased messages after they were erased again: {said(places)}")

    def _kept_by_who_has_ended(self) -> dict[str, set[Place]]:
        """What is left of erased messages in tables of HBase of attempts that nobody has killed, or kept an answer from.

        Those remove it themselves, if they wrote it after the erasure. The erasure removes what was there before.
        """
        kept: dict[str, set[Place]] = {}
        if self.world.moved or self.world.ever_away:
            return kept
        for table, cell, places in self._left_cells():
            by = self.world.made_by.get((table, *cell))
            if by is not None and by.has_ended:
                kept.setdefault(f"{table}, by {by.name}", set()).update(places)
        return kept

    def _tables(self) -> set[str]:
        return {f"file://{self.world.lake.tables()}/orders"} if "delta" in self.expected else set()

    def _left(self) -> tuple[dict[str, set[Place]], dict[str, set[Place]]]:
        """Which erased messages are in tables of HBase, and in folders and tables of files."""
        left: dict[str, set[Place]] = {}
        for table, _, places in self._left_cells():
            left.setdefault(table, set()).update(places)
        return left, erased_in(self.world, self.erased) if self.erased else {}

    def _left_cells(self) -> Iterator[tuple[str, tuple[bytes, bytes, int], frozenset[Place]]]:
        """The cells of HBase that are made of erased messages, too: table, cell, these messages."""
        for table in (ROWS, LETTERS) if self.erased else ():
            for cell in self.world.hbase.everything(table):
                if made := self.world.made_of.get((table, *cell), frozenset()) & self.erased.keys():
                    yield table, cell, made

    def _coverage(self) -> None:
        """The positions of the ingest are what it has covered."""
        head = self.ledger.head(INGEST)
        if head is None or self.world.setting.guarantee == Guarantee.NONE:
            return
        ends: dict[Any, int] = {}
        for one in self.ledger.committed():
            if one.record.lane == INGEST:
                for part in one.covers:
                    ends[part.partition] = max(part.until, ends.get(part.partition, 0))
        reached = head.head.offsets()
        wrong = {at: end for at, end in ends.items() if at in reached and reached[at] < end}
        check(not wrong, f"the ingest has covered more than its positions say: {wrong}")


__all__ = ["Oracle", "State", "Wrong", "check", "each", "newest_of", "said"]
