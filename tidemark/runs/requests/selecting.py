"""Which offsets a backfill or a replay reads: people's requests, as ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from tidemark.errors import WrongUse
from tidemark.ledger.erasures import erased_by_answer
from tidemark.ledger.holes import Ingest, holes
from tidemark.ledger.incarnations import assign_incarnations
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import INGEST, LaneKind, Register
from tidemark.offsets.coordinates import Coordinate, NamedOffsets, parse_ranges, parse_records
from tidemark.offsets.ranges import FIRST_INCARNATION, MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds, read_time
from tidemark.planning import checking, planner
from tidemark.planning.inputs import KafkaState
from tidemark.runs.live.kafka_now import known_now, newest_incarnations, topics_now
from tidemark.runs.live.message_lookup import of_the_stream
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import first_at
from tidemark.runs.requests import answers, dead_letters, window_names
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.record_tables import named_records
from tidemark.runs.windows.ingest import start_positions


@dataclass(frozen=True)
class SelectedOffsets:
    """The requested offsets that a run can read, and the others by the answer to each.

    A backfill may also read `again` offsets that windows have read; no other request does.
    """

    ranges: RangeSet
    left_out: Mapping[str, RangeSet] = field(default_factory=dict)
    again: RangeSet = field(default_factory=RangeSet)
    # The known dead letters now.
    dead: RangeSet = field(default_factory=RangeSet, compare=False)


def named_alone(opened: OpenStream, request: BackfillRequest | ReplayRequest) -> RangeSet | None:
    """The offsets that a request names, where it says so itself; None where only the history tells them.

    Raises WrongUse, TopicGone, Unreachable.
    """
    if isinstance(request, ReplayRequest) and request.dead_letters:
        return None
    if request.since or request.until_time:
        return within_times(opened, request.since, request.until_time, request.if_none)
    if request.ranges or request.records or request.records_file:
        stored = opened.ledger.register()
        return _by_name(opened, stored[1] if stored else None, request)
    if isinstance(request, BackfillRequest):
        return None
    if request.selection:
        return stored_selection(opened, request.selection)
    return window_names.read_by_one(opened, request.window) if request.window else None


def select(
    opened: OpenStream, view: LedgerSnapshot, request: BackfillRequest | ReplayRequest, named: RangeSet | None = None
) -> SelectedOffsets:
    """The offsets that a request names, divided into those that a lane of its kind may take, and the others.

    `named`: these offsets, if they are known. Raises WrongUse, TopicGone, TopicRecreated, Unreachable.
    """
    if isinstance(request, ReplayRequest) and request.dead_letters:
        reason = None if request.dead_letters == "*" else request.dead_letters
        bounds = times(request.since, request.until_time)
        return _dead_letters(opened, view, DeadLetterFilter(reason, request.dead_letters_window, *bounds))
    if named is None:
        known = named_alone(opened, request)
        named = known if known is not None else _named(opened, view, request)
    selected = answered(opened, view, request.kind, named)
    if isinstance(request, BackfillRequest) and request.reprocess:
        left_out = dict(selected.left_out)
        again = left_out.pop(answers.READ_ALREADY, RangeSet())
        if request.sinks and selected.ranges:
            # The other sinks need these too: another backfill reads them, into all sinks.
            return SelectedOffsets(RangeSet(), again=again, left_out={answers.NOT_READ: selected.ranges, **left_out})
        return SelectedOffsets(selected.ranges, again=again, left_out=left_out)
    return selected


def answered(opened: OpenStream, view: LedgerSnapshot, kind: LaneKind, wanted: RangeSet) -> SelectedOffsets:
    """The part of some offsets that a lane may take: a replay takes covered offsets, a backfill the others."""
    read_before = view.register.topics if view.register else {}
    asked = {at.topic for at in wanted.partitions}
    known = known_now(opened, tuple(sorted(of_the_stream(opened, asked))), learn=False)
    # Kafka's messages of a topic that was deleted or recreated do not answer questions about the one before.
    checking.check_topics(known, tuple(sorted(asked & set(read_before))), set(read_before))
    return SelectedOffsets(*answers.before(kind, wanted, known, *_read_below_and_erased(view)))


def _by_name(opened: OpenStream, register: Register | None, request: BackfillRequest | ReplayRequest) -> RangeSet:
    if request.ranges:
        return with_incarnations(register, parse_ranges(request.ranges, "ranges"))
    if request.records:
        return with_incarnations(register, parse_records(request.records, "records"))
    return with_incarnations(register, named_records(opened, request.records_file))


def _named(opened: OpenStream, view: LedgerSnapshot, request: BackfillRequest | ReplayRequest) -> RangeSet:
    """The offsets of a request that only the history tells."""
    if isinstance(request, BackfillRequest):
        return _holes(opened, view) if request.holes else before_the_first_window(opened, view)
    if request.window:
        return window_names.read_by(opened, view, request.window)
    return everything_from_the_start(opened, view)


def with_incarnations(register: Register | None, named: NamedOffsets) -> RangeSet:
    """Offsets that people named; those in three parts in the newest incarnation of each topic, the only readable one.

    So the answer to offsets below a cut is that they were cut. Topics that were never read have the first incarnation.
    """
    newest = newest_incarnations(register) if register else {}
    filled = RangeSet.of_intervals(
        (TopicPartition(at.topic, at.partition, newest.get(at.topic, FIRST_INCARNATION)), named.open.of(at))
        for at in named.open.partitions
    )
    return filled | named.exact


def _dead_letters(opened: OpenStream, view: LedgerSnapshot, wanted: DeadLetterFilter) -> SelectedOffsets:
    letters = dead_letters.redrive(opened, wanted, view)
    most = opened.stream.dead_letters.max_redrives
    left_out = {answers.EXPIRED: letters.expired, dead_letters.too_often(most): letters.too_often}
    return SelectedOffsets(
        letters.ranges, {why: ranges for why, ranges in left_out.items() if ranges}, dead=letters.ranges
    )


def _holes(opened: OpenStream, view: LedgerSnapshot) -> RangeSet:
    """The holes of the stream. Raises WrongUse when there are none."""
    missing = holes(view.windows, Ingest.seen(view))
    if not missing:
        raise WrongUse(
            f"{opened.ledger.stream} has no holes: from the beginning of the ingest to its position, every offset is in a "
            "window, lost, or skipped. To read what lies before that: everything_before (--before-first), or name the offsets"
        )
    return missing


def divided(opened: OpenStream, wanted: RangeSet) -> Mapping[str, RangeSet]:
    """Split offsets: those that were erased, that a window has read, that the ingest will read, and the others."""
    read, below, gone = _read_below_and_erased(opened.ledger.view())
    left = wanted - RangeSet(range_ for part in gone.values() for range_ in part)
    return {why: wanted & part for why, part in gone.items()} | answers.split_by_lane(left, read, below)


def _read_below_and_erased(view: LedgerSnapshot) -> tuple[RangeSet, RangeSet, dict[str, RangeSet]]:
    """The offsets that committed windows cover, those below the ingest positions, and what was erased, by its answer."""
    return view.authority.covered(), view.below, erased_by_answer(view.windows)


def within_times(opened: OpenStream, since: str, until: str, if_none: str) -> RangeSet:
    """Per partition, from the first message at or after `since` up to the first at or after `until`. Empty: no bound.

    The ends of the logs are taken first, so messages that arrive meanwhile are left out. Raises WrongUse.
    """
    bounds = times(since, until)
    topics = topics_now(opened)
    known = known_now(opened, topics, learn=False)
    checking.check_topics(known, topics, set())
    return between(known, *(_at(opened, known, time) for time in bounds), since=since, if_none=if_none)


def times(since: str, until: str) -> tuple[datetime | None, datetime | None]:
    """Two bounds in time; None for an empty text. Raises WrongUse."""
    lower, upper = (read_time(text) if text else None for text in (since, until))
    if lower is not None and upper is not None and lower >= upper:
        raise WrongUse(f"since {since} until {until}: the first has to lie before the second")
    return lower, upper


FirstAt = Mapping[tuple[str, int], int | None]


def between(known: KafkaState, lower: FirstAt | None, upper: FirstAt | None, *, since: str, if_none: str) -> RangeSet:
    """The offsets between two times. A bound has, per (topic, partition), the first offset at or after its time; None
    for no bound.

    If no message is at or after the upper time, the end of the log is the bound. If none is at or after the lower time,
    `if_none` decides: `fail` raises WrongUse naming the partitions, `end` takes nothing of them.
    """
    logs = known.to_read()
    if lower is not None and if_none == "fail":
        missing = [str(at) for at in logs if lower.get((at.topic, at.partition)) is None]
        if missing:
            raise WrongUse(
                f"no message at or after {since} in {', '.join(missing)}: take an earlier time, "
                "or say if_none (--if-none) end to take nothing of such a partition"
            )

    def bound(at_time: FirstAt | None, at: TopicPartition, unbounded: int) -> int:
        if at_time is None:
            return unbounded
        first = at_time.get((at.topic, at.partition))
        return logs[at].end if first is None else min(max(first, known.begins(at, logs[at])), logs[at].end)

    return RangeSet(
        OffsetRange(at, start := bound(lower, at, known.begins(at, log)), max(start, bound(upper, at, log.end)))
        for at, log in logs.items()
    )


def _at(opened: OpenStream, known: KafkaState, time: datetime | None) -> FirstAt | None:
    if time is None:
        return None
    return first_at(opened, known.logs, milliseconds(time))


def between_offsets(
    opened: OpenStream, lower: Sequence[Coordinate], upper: Sequence[Coordinate], *, to_the_end: bool = False
) -> RangeSet:
    """Per named partition, the offsets from its lower coordinate up to its upper one.

    Without any lower coordinates, partitions begin at their log starts. Without any upper coordinates, they go up to
    the ingest positions, or `to_the_end` of the logs.

    Raises WrongUse for a partition that is named twice, or that Kafka does not have, and when both sides name
    partitions but one partition is on one side only.
    """
    starts, ends = (_by_partition(bounds) for bounds in (lower, upper))
    if starts and ends and (alone := starts.keys() ^ ends.keys()):
        sides = ", ".join(f"{at} only in {'--from' if at in starts else '--until'}" for at in sorted(alone))
        raise WrongUse(
            f"--from and --until name different partitions: {sides}. Name each partition in both, or in one alone"
        )
    topics = {at.topic for at in starts | ends}
    known = known_now(opened, tuple(sorted(of_the_stream(opened, topics))), learn=False)
    logs = known.partitions()
    head = opened.ledger.head(INGEST)
    positions = head.head.offsets() if head is not None else {}
    newest = {(at.topic, at.partition): at for at in logs}
    ranges = []
    for named in sorted(starts | ends):
        at = newest.get((named.topic, named.partition))
        if at is None:
            raise WrongUse(f"{named} does not exist, or its topic is not the one that {opened.ledger.stream} has read")
        open_end = logs[at].end if to_the_end else positions.get(at, logs[at].end)
        ranges.append(OffsetRange(at, starts.get(named, known.begins(at, logs[at])), ends.get(named, open_end)))
    return RangeSet(ranges)


def _by_partition(coordinates: Sequence[Coordinate]) -> dict[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for coordinate in coordinates:
        if offsets.setdefault(coordinate.partition, coordinate.offset) != coordinate.offset:
            raise WrongUse(
                f"{coordinate.partition} is named twice, at {offsets[coordinate.partition]} and at {coordinate.offset}"
            )
    return offsets


def in_known_incarnations(opened: OpenStream, named: NamedOffsets) -> RangeSet:
    """Offsets that people named, in the incarnations to which they belong, as `tidemark show` finds them.

    Raises WrongUse for a topic that the stream has never read, and for an unknown incarnation.
    """
    topics = opened.ledger.topics()
    for at in (*named.open.partitions, *named.exact.partitions):
        if not topics.get(at.topic):
            raise WrongUse(f"{at.topic}: the stream {opened.ledger.stream} has never read this topic")
    for at in named.exact.partitions:
        known = sorted(incarnation.incarnation for incarnation in topics[at.topic])
        if at.incarnation not in known:
            raise WrongUse(f"{at.topic} has no incarnation {at.incarnation}; known are {', '.join(map(str, known))}")
    return assign_incarnations(topics, named.open) | named.exact


def everything_from_the_start(opened: OpenStream, view: LedgerSnapshot | None = None) -> RangeSet:
    """The offsets from `start` on that windows have read and Kafka still holds. Ignores the stored positions."""
    view = view or opened.ledger.view()
    topics = topics_now(opened)
    known = known_now(opened, topics, learn=False)
    start = start_positions(opened, known, topics)
    above = RangeSet(OffsetRange(position.at, position.offset, MAX_OFFSET) for position in start)
    return planner.offsets_within(known, above) & view.authority.covered()


def before_the_first_window(opened: OpenStream, view: LedgerSnapshot | None = None) -> RangeSet:
    """The offsets below the ingest's beginning that Kafka still holds and no lane has covered."""
    view = view or opened.ledger.view()
    known = known_now(opened, topics_now(opened), learn=False)
    if INGEST not in view.heads:
        raise WrongUse(f"{opened.ledger.stream} has no ingest lane yet: run the ingest once first")
    return planner.offsets_within(known, view.below) - view.authority.covered()


def stored_selection(opened: OpenStream, digest: str) -> RangeSet:
    """The offsets of a stored selection. Raises WrongUse when no selection has this digest."""
    selection = opened.ledger.find_selection(digest)
    if selection is None:
        raise WrongUse(f"{opened.ledger.stream} has no stored selection {digest}")
    return selection
