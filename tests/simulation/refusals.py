"""When the product may refuse: for each kind of error, and each answer to an offset, a rule by what the oracle knows.

Without these rules, a product that refuses everything would keep every other promise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set

from tests.model.transport import DIES_SENDING, LATE
from tests.simulation.actors import AND_OTHERS, ANSWERS, COMMITS, REFUSED, ROWS_APPLIED, ROWS_LOST, Actor
from tests.simulation.clocks import BEGIN
from tests.simulation.invariants import has_lease
from tests.simulation.kafka import Log
from tests.simulation.oracle import Oracle, check, each, said
from tests.simulation.programs import Request
from tests.simulation.work import Place
from tidemark import errors
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.errors import TidemarkError
from tidemark.ledger.codec import decode
from tidemark.ledger.ledger import REGISTER
from tidemark.ledger.records import INGEST, LaneKind, LaneState, Record, Register, Window
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs.requests import answers

_A_MOMENT_MS = 2_000
_LOST_ANSWERS = (ROWS_LOST, ROWS_APPLIED, *COMMITS, *ANSWERS)


class Case:
    """A refusal: who met it, and what that program was asked for."""

    def __init__(self, problem: TidemarkError, name: str, actor: Actor, request: Request | None) -> None:
        self.problem, self.name, self.actor, self.request = problem, name, actor, request

    @property
    def text(self) -> str:
        return str(self.problem)

    @property
    def wanted(self) -> frozenset[Place]:
        """The offsets that the request names, and those that it would have read."""
        request = self.request
        return frozenset() if request is None else request.named | request.chosen


class Refusals:
    """Judges each refusal when it is met. `happened`: what has changed Kafka, the clocks and the stream file so far."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.world = oracle, oracle.world
        self.happened: set[str] = set()
        # Each plan that nobody has disturbed, and what it depended on when it was made, by its digest.
        self._planned: dict[str, tuple[Request, object]] = {}

    # what it hears of

    def planned(self, request: Request, actor: Actor) -> None:
        if request.said and self.undisturbed(actor):
            self._planned[request.said[-1]["plan"]] = request, self._depends_on(request)

    def answered(self, actor: Actor, left_out: Mapping[str, RangeSet]) -> None:
        """A plan leaves out some of the offsets that were asked for. Of a program that was disturbed, any moment may count."""
        if not self.undisturbed(actor) or self.world.was_mended:
            return
        for answer, part in left_out.items():
            rule = next((rule for said, rule in _ANSWERS.items() if answer.startswith(said)), None)
            check(rule, f"{answer!r} is an answer that no rule knows")
            wrong = [place for place in each(part) if rule is not None and not rule(self, place)]
            check(not wrong, f"the answer to {said(wrong)} is {answer!r}, and that is not so")

    # what it says

    def judge(self, case: Case) -> None:
        """Raises Wrong for an error that has no reason."""
        rule = next((_RULES[kind] for kind in type(case.problem).__mro__ if kind in _RULES), _never)
        kind = type(case.problem).__name__
        check(rule(self, case), f"{case.name} is refused without a reason: {kind}: {case.text}")
        check(self._is_outcome(case), f"{case.name} says of the ledger what is not so: {kind}: {case.text}")

    def _is_outcome(self, case: Case) -> bool:
        """Whether the ledger has what an error says that its attempt has left there."""
        if not self.undisturbed(case.actor):
            return True
        return ("Nothing was committed" not in case.text or bool(self.pending())) and (
            "has no receipt: replay" not in case.text or bool(self.unread())
        )

    def undisturbed(self, actor: Actor) -> bool:
        """Whether nobody else has worked since it began, nothing has happened to it, and no late write was on its way."""
        return not (actor.slept or actor.stopped or actor.waits) and not self._late_writes()

    def _late_writes(self) -> bool:
        stops = (
            one.stop.how.removesuffix(AND_OTHERS) for one in self.world.actors if one.stop is not None and one.stopped
        )
        return any(how in (LATE, DIES_SENDING) for how in stops)

    def has_changed(self, plan: str) -> bool:
        """Whether a plan is another one by now. Of one that was disturbed, nobody knows."""
        request, before = self._planned.get(plan, (None, None))
        return request is None or before != self._depends_on(request)

    def _depends_on(self, request: Request) -> object:
        """Kafka, and what counts at its offsets in the sinks that it writes, or was erased there."""
        logs = [
            (
                name,
                self.world.kafka.held[name].topic_id,
                number,
                log.start,
                log.stable,
                log.end,
                tuple(log.slots.items()),
            )
            for name, number, log in self.world.kafka.parts()
        ]
        counting, near = self.oracle.counting(), request.named | request.chosen
        counts = {sink: self._near(near, counting[sink]) for sink in request.sinks or self.oracle.sinks}
        return logs, counts, self.world.isolation, self.world.mended, self._near(near, self.oracle.erased).keys()

    @staticmethod
    def _near(near: Set[Place], found: Mapping[Place, int]) -> dict[Place, int]:
        return {place: one for place, one in found.items() if place in near}

    # what Kafka has

    def log_of(self, at: TopicPartition) -> Log | None:
        """The log that Kafka has now of this incarnation, by the ids that the ledger knows."""
        return self.world.kafka.log(at.topic, at.partition) if self.oracle.is_newest(at) else None

    def readable(self, log: Log, isolation: str | None = None) -> int:
        return log.stable if (isolation or self.world.isolation) == READ_COMMITTED else log.end

    def is_there(self, place: Place) -> bool:
        """Whether a reader now finds at a place the message that was read there; nothing, where nothing was."""
        log, known = self.log_of(place[0]), self.oracle.identity.get(place)
        slot = log.slots.get(place[1]) if log is not None else None
        if log is not None and slot is not None and self.world.isolation == READ_COMMITTED:
            slot = None if slot.transaction in log.aborted or place[1] >= log.stable else slot
        return (slot.number if slot is not None else None) == known

    def lost(self, places: Iterable[Place], *, pinned: bool = False) -> bool:
        """Whether a log begins above one of these offsets, or is another one; or ends at or below one that is pinned."""
        for at, offset in places:
            log = self.world.kafka.log(at.topic, at.partition)
            if log is None or offset < log.start or not self.oracle.is_newest(at) or (pinned and offset >= log.end):
                return True
        return False

    def pending(self) -> list[tuple[str, Window, str | None]]:
        """Each window that is pinned and not committed: its lane, and the run that works on it."""
        found = []
        for lane in (INGEST, *self.oracle.open_lanes()):
            head = self.oracle.ledger.head(lane)
            if head is not None and (one := head.head.pending) is not None:
                found.append((lane, one.window, one.attempt.run if one.attempt is not None else None))
        return found

    def changed_since_pin(self) -> bool:
        """Whether Kafka no longer is what a pinned window was pinned on."""
        return any(self._changed(window) for _, window, _ in self.pending())

    def changed_since_commit(self) -> bool:
        """The same of a window that was committed before it was read, and has no receipt."""
        return any(self._changed(record.window) for record in self.unread())

    def unread(self) -> list[Record]:
        """The windows that were committed before they were read, and have no receipt."""
        return [one.record for one in self.oracle.ledger.committed() if one.record.receipt is None]

    def _changed(self, window: Window) -> bool:
        for one in window.ranges:
            topic = self.world.kafka.held.get(one.topic)
            log = self.world.kafka.log(one.topic, one.partition)
            if topic is None or log is None or topic.topic_id != window.topic_ids[one.topic]:
                return True
            cut = any(epoch > (one.leader_epoch or 0) and first < one.until for epoch, first in log.epochs)
            # Of a partition of which nothing is read, a transaction may hold back what was read before.
            end = self.readable(log, window.isolation) if one.start < one.until else log.end
            if one.start < log.start or one.until > end or cut:
                return True
        return False

    def claimed(self, actor: Actor) -> set[Place]:
        """What lanes have claimed at any moment since a program began, in the ledger that it has opened."""
        found: set[Place] = set()
        values = actor.opened.ledger.store.network.values.get(REGISTER, ())
        before = [value for at, value in values if at <= actor.began][-1:]
        for value in (*before, *(value for at, value in values if at > actor.began)):
            for lane in decode(value, Register, "the register").lanes.values():
                if lane.selection is not None:
                    found |= each(self.oracle.ledger.selection(lane.selection))
        return found

    def has_name(self, request: Request | None) -> bool:
        """Whether another request has had the name of this one, or it has begun before."""
        if request is None:
            return False
        same = [one for (_, run), asked in self.oracle.requests.items() if run == request.run for one in asked]
        return len(same) > 1 or request.opened or bool(request.repair)


# The rules. Each says whether an error may be; what the text of one says decides where a kind has several reasons.


def _never(_: Refusals, __: Case) -> bool:
    return False


def _server_away(world: Refusals, case: Case) -> bool:
    stop = case.actor.stop
    lost = stop is not None and stop.how.removesuffix(AND_OTHERS) in _LOST_ANSWERS
    # Kafka knows no partition of a topic that was deleted while it was asked.
    gone = world.happened & {"delete topic", "recreate"} and case.actor.slept
    return bool("away" in world.happened or lost or gone)


def _refused_by_kafka(_: Refusals, case: Case) -> bool:
    return case.actor.stopped and case.actor.stop is not None and case.actor.stop.how == REFUSED


def _overlap(world: Refusals, case: Case) -> bool:
    if "at or above the ingest position" in case.text:
        ends = world.oracle.positions()
        return any(offset >= ends.get(at, 0) for at, offset in case.wanted)
    return bool(case.wanted & world.claimed(case.actor))


def _stale(world: Refusals, case: Case) -> bool:
    plan = case.request.options.get("plan") if case.request is not None else None
    if plan is None or not world.undisturbed(case.actor):
        return not world.undisturbed(case.actor)
    return world.has_changed(plan)


def _overtaken(world: Refusals, case: Case) -> bool:
    """Somebody else has taken, committed or given up the window: while it slept, or while its answer was lost."""
    return not world.undisturbed(case.actor)


def _held(world: Refusals, case: Case) -> bool:
    """A window that another run has begun is not committed, or still written, and that run has given a sign of life."""
    if not world.undisturbed(case.actor):
        return True
    own = None if case.name.startswith("abandon") else case.actor.run_name
    heads = {lane: world.oracle.ledger.head(lane) for lane in (INGEST, *world.oracle.open_lanes())}
    pending = [(lane, head.head.pending) for lane, head in heads.items() if head is not None]
    held = [(lane, one.attempt) for lane, one in pending if one is not None and one.attempt is not None]
    holders = [(lane, one) for lane, one in held if one.run != own]
    holders += [(one.lane, one.attempt) for one in world.unread()]
    # It was told a moment ago.
    return any(has_lease(world.oracle, lane, one.generation, one.taken_at, _A_MOMENT_MS) for lane, one in holders)


def _name_is_used(world: Refusals, case: Case) -> bool:
    return world.has_name(case.request)


def _lane_closed(world: Refusals, case: Case) -> bool:
    return world.has_name(case.request) or not world.undisturbed(case.actor)


def _was_erased(world: Refusals, case: Case) -> bool:
    return bool(case.wanted & world.oracle.erased.keys()) or not world.undisturbed(case.actor)


def _clock(world: Refusals, _: Case) -> bool:
    return "clock" in world.happened


def _cut(world: Refusals, _: Case) -> bool:
    return bool(world.happened & {"cut", "recreate", "delete topic"})


def _recreated(world: Refusals, _: Case) -> bool:
    return bool(world.happened & {"recreate", "create topic"})


def _gone(world: Refusals, _: Case) -> bool:
    return bool(world.happened & {"delete topic"})


def _partitions(world: Refusals, _: Case) -> bool:
    return bool(world.happened & {"cut", "recreate", "delete topic"})


def _out_of_range(world: Refusals, case: Case) -> bool:
    """Some log has lost what is named, or what is to be read next."""
    if not world.happened & {"retain", "recreate", "delete topic", "cut", "compact", "isolation"}:
        return False
    windows = [window for _, window, _ in world.pending()] + [record.window for record in world.unread()]
    pinned = {place for window in windows for place in each(world.oracle.ledger.covers(window))}
    ends = world.oracle.positions()
    # An ingest that has not begun is to begin where the stream file says.
    start = world.world.setting.start
    begins = not ends and start and any(log.start > start for log in world.world.kafka.all_logs())
    lost = world.lost({*case.wanted, *ends.items()}) or world.lost(pinned, pinned=True)
    return bool(begins) or lost or not world.undisturbed(case.actor)


def _source_changed(world: Refusals, case: Case) -> bool:
    return world.changed_since_commit() or world.changed_since_pin() or not world.undisturbed(case.actor)


def _held_back(world: Refusals, case: Case) -> bool:
    """An open transaction holds back what is named; a lane is not settled; or its name is used by another request."""
    if "was cut at" in case.text or "was deleted and created again" in case.text:
        return _cut(world, case)
    if "is pending: let it finish" in case.text:
        return any(lane == INGEST for lane, _, _ in world.pending())
    if "transaction" in case.text:
        return any(log.running for log in world.world.kafka.all_logs()) or not world.undisturbed(case.actor)
    return not world.undisturbed(case.actor) or world.has_name(case.request)


def _paused(world: Refusals, _: Case) -> bool:
    return "pause" in world.happened


def _damaged(world: Refusals, _: Case) -> bool:
    return world.oracle.is_damaged() or world.oracle.forgets


def _wrong_use(world: Refusals, case: Case) -> bool:
    """Each reason by its words: one that nobody has foreseen is a fault, of the product or of this list."""
    if not world.undisturbed(case.actor):
        return True
    return any(rule(world, case) for words, rule in _WORDS.items() if words in case.text)


def _nothing_to_read(world: Refusals, case: Case) -> bool:
    """Everything that was named is left out, and each answer was judged."""
    request = case.request
    if request is None:
        return False
    if request.since is not None:
        return not request.must_find - request.left_out - world.oracle.erased.keys()
    return not request.chosen


def _no_message_since(world: Refusals, case: Case) -> bool:
    """In some partition no message of this time or a later one is in the log."""
    begins = world.world.setting.since
    since = case.request.since if case.request is not None else None if begins is None else BEGIN + begins
    if since is None:
        return False
    return any(
        all(slot is None or slot.time < since for at, slot in log.slots.items() if at < world.readable(log))
        for log in world.world.kafka.all_logs()
    )


def _no_dead_letter(world: Refusals, case: Case) -> bool:
    return world.oracle.commits_first or not world.oracle.expected[None]


def _nothing_found(world: Refusals, case: Case) -> bool:
    """No message of a key is in Kafka or among the dead letters that is not erased already."""
    request = case.request
    if request is None:
        return False
    if request.key:
        named = {place for place, key in world.oracle.keys.items() if key == int(request.key)}
        left = {place for place in named - world.oracle.erased.keys() if world.is_there(place)}
        return not left
    return not request.named - world.oracle.erased.keys()


def _no_ledger(world: Refusals, _: Case) -> bool:
    return world.oracle.ledger.register() is None or world.oracle.ledger.head(INGEST) is None


def _nothing_to_skip(world: Refusals, _: Case) -> bool:
    """The positions are at the ends already, or where a person has named them."""
    positions, ends = world.oracle.positions(), _ends(world)
    reached = {at[:2]: max(end for one, end in positions.items() if one[:2] == at[:2]) for at in positions}
    to = world.oracle.skip_to
    return all(reached.get(name, 0) >= min(target, ends.get(name, target)) for name, target in to.items())


def _skips_above(world: Refusals, _: Case) -> bool:
    ends = _ends(world)
    return any(target > ends.get(at, target) for at, target in world.oracle.skip_to.items())


def _ends(world: Refusals) -> dict[tuple[str, int], int]:
    logs = {name: world.world.kafka.log(*name) for name in world.oracle.skip_to}
    return {name: world.readable(log) for name, log in logs.items() if log is not None}


def _starts_above(world: Refusals) -> bool:
    return any(log.end < world.world.setting.start for log in world.world.kafka.all_logs())


def _not_open(world: Refusals, case: Case) -> bool:
    """The lane is closed: it was, or its head says so already."""
    lanes = {lane for lane in world.oracle.open_lanes() if lane in case.text}
    heads = (world.oracle.ledger.head(lane) for lane in lanes)
    return all(head is not None and head.head.state == LaneState.CLOSED for head in heads)


def _always(_: Refusals, __: Case) -> bool:
    return True


_WORDS: dict[str, Callable[[Refusals, Case], bool]] = {
    "there is nothing to erase": _nothing_found,
    "there is nothing to": _nothing_to_read,
    "no message at or after": _no_message_since,
    "no dead letter of": _no_dead_letter,
    "has not been read yet": _no_ledger,
    "no ledger yet": _no_ledger,
    "has no ingest lane yet": _no_ledger,
    "has no open lane": _not_open,
    "is not open": _not_open,
    "has no lane": _not_open,
    "nothing would be skipped": _nothing_to_skip,
    "never falls back": lambda world, case: not world.undisturbed(case.actor),
    "was retired": lambda world, _: "move" in world.happened,
    "start.offsets": lambda world, _: world.world.kafka.gave_old_ends or _starts_above(world),
    "lies above it": _skips_above,
}
_RULES: dict[type[TidemarkError], Callable[[Refusals, Case], bool]] = {
    errors.Unreachable: _server_away,
    errors.OutcomeUnknown: _server_away,
    errors.NotAuthorized: _refused_by_kafka,
    errors.ClaimOverlap: _overlap,
    errors.StaleLedger: _stale,
    errors.Fenced: _overtaken,
    errors.AlreadyCommitted: _overtaken,
    errors.HeldByAnother: _held,
    errors.AnotherRequest: _name_is_used,
    errors.LaneClosed: _lane_closed,
    errors.LanePaused: _paused,
    errors.OffsetsErased: _was_erased,
    errors.ClockAhead: _clock,
    errors.ClockBehind: _clock,
    errors.LogTruncated: _cut,
    errors.TopicRecreated: _recreated,
    errors.TopicGone: _gone,
    errors.TopicUnknown: _gone,
    errors.PartitionsChanged: _partitions,
    errors.OffsetsOutOfRange: _out_of_range,
    errors.SourceChanged: _source_changed,
    errors.Conflict: _held_back,
    errors.LedgerContradiction: _damaged,
    errors.OwnedByAnother: lambda world, _: "move" in world.happened,
    errors.WrongUse: _wrong_use,
}


# The answers to offsets. An offset of a partition that Kafka no longer has in this incarnation is gone, whatever else.


def _of_log(holds: Callable[[Refusals, Log, int], bool]) -> Callable[[Refusals, Place], bool]:
    def rule(world: Refusals, place: Place) -> bool:
        log = world.log_of(place[0])
        return log is not None and holds(world, log, place[1])

    return rule


def _has_expired(world: Refusals, place: Place) -> bool:
    log = world.log_of(place[0])
    return log is None or place[1] < log.start


def _is_covered(world: Refusals, place: Place) -> bool:
    return any(
        place[1] in range(*one) for window in world.oracle.ledger.committed() for one in window.covers.of(place[0])
    )


def _below_ingest(world: Refusals, place: Place) -> bool:
    return place[1] < world.oracle.positions().get(place[0], 0)


def _is_tired(world: Refusals, place: Place) -> bool:
    """A dead letter that so many replays have read again, each of which may have left it one."""
    windows = [one for one in world.oracle.ledger.committed() if one.record.kind == LaneKind.REPLAY]
    again = [one for one in windows if any(place[1] in range(*part) for part in one.covers.of(place[0]))]
    return len(again) >= world.world.opened.stream.dead_letters.max_redrives


_ANSWERS: dict[str, Callable[[Refusals, Place], bool]] = {
    # Of a log that was recreated, too.
    answers.EXPIRED: _has_expired,
    answers.NOT_YET: _of_log(lambda world, log, offset: offset >= world.readable(log)),
    answers.GONE: lambda world, place: world.log_of(place[0]) is None,
    answers.NO_PARTITION: lambda world, place: world.log_of(place[0]) is None,
    answers.CUT: lambda world, place: "cut" in world.happened,
    answers.READ_ALREADY: _is_covered,
    answers.NOT_READ: lambda world, place: not _is_covered(world, place),
    answers.THE_INGESTS: lambda world, place: not _below_ingest(world, place),
    "redriven ": _is_tired,
    "erased": lambda world, place: place in world.oracle.erased,
}
__all__ = ["Case", "Refusals"]
