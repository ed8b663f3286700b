"""What a run does on a stream: plans its first window, goes on to the end that it saw, and closes the lane that it opened.

The DAGs and the command line both call these functions. No function here touches the data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from msgspec import structs

from tidemark import __version__
from tidemark.clients.kafka.topics import READ_UNCOMMITTED
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.commit import protocol
from tidemark.errors import Conflict, LaneClosed, SourceChanged, TidemarkError, WrongUse
from tidemark.ledger.book import View
from tidemark.ledger.incarnations import by_cuts
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import (
    INGEST,
    Asked,
    Guarantee,
    Head,
    LaneEntry,
    LaneKind,
    LaneState,
    Pending,
    Position,
    Record,
    SelectionRef,
    Window,
    positions,
    selected_lane,
)
from tidemark.ledger.register import (
    check_asked,
    check_not_early,
    check_not_paused,
    close_lane,
    open_lane,
    required_head,
)
from tidemark.offsets.coordinates import Named
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds
from tidemark.planning import planner, starting
from tidemark.planning.inputs import Known, Request
from tidemark.runs import into_sinks, pacing, pinning, whole_windows
from tidemark.runs.conditions import request, sized
from tidemark.runs.discovery import known_now, known_to_ingest, known_up_to, topics_now, with_epoch_ends
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.requests import MOST_LANES
from tidemark.streams.source import StartOffsets

# A retried run looks for its committed windows among this many newest windows of its lane. That is one read for most
# streams, and more windows than a lane commits between two tries.
RETRIED_WITHIN = 1_000
NOTHING = RangeSet()


def code_version() -> str:
    """The code that an attempt runs: Tidemark's version, and what TIDEMARK_CODE_VERSION adds (a commit, an image)."""
    more = os.environ.get("TIDEMARK_CODE_VERSION")
    return f"{__version__}+{more}" if more else __version__


def this_run(opened: OpenStream, name: str) -> protocol.Run:
    return protocol.Run(name, code_version(), opened.file.digest)


def plan_ingest(opened: OpenStream, run: str, *, again: bool = False) -> Pending | None:
    """Step 1 for the ingest lane: its pending window, or a new one up to the present ends. None when nothing is new.

    `again`: an earlier try of the run may have committed windows. Then the run goes no further than the end that it saw.
    """
    before = committed_before(opened, INGEST, run) if again else []
    if before and before[-1].window.run == run:
        return next_window(opened, INGEST, run, before[-1].window.goal)
    if opened.book.head(INGEST) is None:
        start = _first_positions(opened, request(opened, run, topics_now(opened)))
        kept = () if Guarantee(opened.stream.guarantee) == Guarantee.NONE else start
        open_lane(opened.book, INGEST, LaneKind.INGEST, run=run, start=kept)
    return _pin_ingest(opened, run)


def import_positions(
    opened: OpenStream, offsets: Mapping[tuple[str, int], int], others: str, run: str, *, write: bool, shift: int = 0
) -> tuple[Position, ...]:
    """Begin a new stream at offsets that another program has stored; `others` is for partitions that it does not know.

    `shift` moves the offsets, within Kafka's logs. Without `write`, the offsets are only checked. Raises WrongUse when the
    stream has positions already, or when no offset is of its topics.
    """
    topics = topics_now(opened)
    if opened.book.head(INGEST) is not None:
        raise WrongUse(
            f"{opened.book.stream} has positions already, and they never fall back: an import is for a new stream"
        )
    given = {place: offset for place, offset in offsets.items() if place[0] in topics}
    if not given:
        raise WrongUse(f"there is no offset of {', '.join(topics)} to import")
    known = known_now(opened, topics, learn=write)
    if shift:
        given = starting.shifted(known, given, shift)
    start = starting.start_positions(known, topics, others, given)
    if write:
        opening = open_lane(opened.book, INGEST, LaneKind.INGEST, run=run, start=start, reason="import")
        if opening.head.positions != start:
            raise Conflict(
                f"another program has begun {opened.book.stream} at other positions meanwhile; nothing was imported"
            )
    return start


def preview(opened: OpenStream, run: str = "preview") -> tuple[Window | None, bool]:
    """The window that the next ingest would work on, and whether it is pinned already. Writes nothing.

    None when nothing is new. Raises what planning raises.
    """
    found = opened.book.head(INGEST)
    if found is not None and found.head.pending is not None:
        return found.head.pending.window, True
    asked = request(opened, run, topics_now(opened))
    head = found.head if found is not None else _nothing_read(opened)
    return _next_of_ingest(opened, asked, head, learn=False)[0], False


def open_transactions(opened: OpenStream) -> tuple[OpenTransaction, ...]:
    """The open transactions that hold back messages from the ingest; none under read_uncommitted."""
    source = opened.stream.source
    if source.isolation == READ_UNCOMMITTED:
        return ()
    logs = opened.log.topics(topics_now(opened), source.isolation)
    return opened.log.open_transactions(logs, opened.log.high_watermarks(logs))


def _first_positions(opened: OpenStream, asked: Request) -> tuple[Position, ...]:
    """Where the ingest begins, in topics that may have changed since the ledger learned of them."""
    known = known_to_ingest(opened, asked, _nothing_read(opened), learn=True)
    return _start_positions(opened, known, asked.topics)


def _nothing_read(opened: OpenStream) -> Head:
    stream, kind = opened.book.stream, LaneKind.INGEST
    return Head(stream=stream, lane=INGEST, kind=kind, state=LaneState.OPEN, token="", seq=0, positions=())


def _start_positions(opened: OpenStream, known: Known, topics: tuple[str, ...]) -> tuple[Position, ...]:
    """Where the ingest begins, as the stream file says."""
    start = opened.stream.source.start
    if isinstance(start, str):
        return starting.start_positions(known, topics, start)
    if isinstance(start, StartOffsets):
        given = {}
        for name, offset in start.offsets.items():
            topic, _, partition = name.rpartition("/")
            given[topic, int(partition)] = offset
        return starting.start_positions(known, topics, start.others, given)
    found = opened.log.first_at_or_after(known.logs, milliseconds(start.time), opened.stream.source.isolation)
    given = starting.offsets_at_time(known, found, start.time.isoformat(), start.if_none)
    return starting.start_positions(known, topics, "earliest", given)


def _pin_ingest(opened: OpenStream, run: str, goal: Mapping[TopicPartition, int] | None = None) -> Pending | None:
    def plan(head: Head) -> tuple[Window | None, Known]:
        return _next_of_ingest(opened, request(opened, run, topics_now(opened)), head, goal)

    return pinning.pin(opened, INGEST, plan)


def _next_of_ingest(
    opened: OpenStream,
    asked: Request,
    head: Head,
    goal: Mapping[TopicPartition, int] | None = None,
    *,
    learn: bool = True,
) -> tuple[Window | None, Known]:
    found = known = known_to_ingest(opened, asked, head, learn=learn)
    if asked.guarantee == Guarantee.NONE or not head.positions:
        head = structs.replace(head, positions=_positions_of_run(opened, known, asked, head))
        # `start` does not say that the ingest has read up to there. Pinning checks what it has read.
        known = replace(known, epoch_ends={})
    return planner.next_window(head, known, sized(opened, known, asked), goal), found


def _positions_of_run(opened: OpenStream, known: Known, asked: Request, head: Head) -> tuple[Position, ...]:
    """For a lane without stored positions: where this run is after its last window, or where `start` says."""
    if head.last is not None and head.last.window.run == asked.run:
        return positions({one.at: one.until for one in head.last.window.ranges})
    return _start_positions(opened, known, asked.topics)


def begun(opened: OpenStream, kind: LaneKind, run: str, fields: Mapping[str, str] | None = None) -> Asked | None:
    """What a run was asked for when it began, with all that it has claimed; None when no run of this name has begun.

    `fields` are those of a request: raises AnotherRequest when the run has begun with another one. Without `fields`, whoever
    calls goes on with what the run has begun, and asks for nothing else.
    """
    mine = lanes_of(opened, kind, run)
    if not mine:
        return None
    found = opened.book.register()
    entry = found[1].lanes.get(mine[0]) if found else None
    asked = entry.asked if entry is not None else required_head(opened.book, mine[0]).head.asked
    if fields is not None:
        check_asked(opened.book.stream, run, asked, fields)
    return asked or Asked(fields={})


def jobs_of(opened: OpenStream, kind: LaneKind, run: str) -> list[list[str]]:
    """The lanes that a run of a backfill or replay has opened. Each list is for one job, which works them off in this order.

    Jobs may work at the same time: their offsets do not overlap.
    """
    register = opened.book.register()
    open_now = register[1].lanes if register else {}
    jobs = (
        [lane for lane in named if lane in open_now or opened.book.head(lane) is not None]
        for named in may_open(kind, run)
    )
    # A run has opened all of its lanes in one step, and they are numbered without a gap.
    return list(takewhile(bool, jobs))


def may_open(kind: LaneKind, run: str) -> list[list[str]]:
    """The names of the lanes that a run may have, as `jobs_of` gives them."""
    again = kind == LaneKind.BACKFILL
    return [
        [lane_name(kind, run, number), *([again_lane(run, number)] if again else [])]
        for number in range(1, MOST_LANES + 1)
    ]


def lanes_of(opened: OpenStream, kind: LaneKind, run: str) -> list[str]:
    """The lanes that a run of a backfill or replay has opened, those of one job after those of another."""
    return [lane for job in jobs_of(opened, kind, run) for lane in job]


def left_of(opened: OpenStream, jobs: list[list[str]]) -> list[list[str]]:
    """The lanes that are not done, for each job. Raises LaneClosed if nothing else is left than a lane that never will be."""
    left: list[list[str]] = []
    closed: LaneClosed | None = None
    for job in jobs:
        mine = []
        for lane in job:
            try:
                mine += [] if is_done(opened, lane) else [lane]
            except LaneClosed as problem:
                closed = problem
        left += [mine] if mine else []
    if closed is not None and not left:
        raise closed
    return left


def said_if_done(opened: OpenStream, kind: LaneKind, run: str) -> str:
    """What a run is told that is named as one which has done all of its request: it reads nothing. Empty for all others."""
    jobs = jobs_of(opened, kind, run)
    try:
        if not jobs or left_of(opened, jobs):
            return ""
    except LaneClosed:
        # Of a lane that was closed early, whoever goes on with it is told.
        return ""
    what, does = ("erasure", "erases") if kind == LaneKind.ERASE else (kind.value, "reads")
    return (
        f"the {what} of run {run} is done, so this run {does} nothing; a run's name is used once. Ask for the same again "
        "under another name of the run"
    )


def selected_before(opened: OpenStream, lane: str) -> RangeSet:
    """The selection of a lane that an earlier try has opened; empty when there is no such lane."""
    register, found = opened.book.register(), opened.book.head(lane)
    entry = register[1].lanes.get(lane) if register else None
    last = found.head.last if found else None
    ref = entry.selection if entry is not None else last.window.selection if last else None
    return opened.book.selection(ref) if ref is not None else NOTHING


def again_lane(run: str, number: int = 1) -> str:
    """The lane in which a backfill reads again what windows have read. A replay of the same name has another lane."""
    return lane_name(LaneKind.REPLAY, again_of(run), number)


def again_of(run: str) -> str:
    """The name under which a run claims what it reads again."""
    return f"{run}/again"


def lane_name(kind: LaneKind, run: str, number: int = 1) -> str:
    """The lane of a run, or one of the lanes among which the run is divided: `number` is 1 for the first."""
    named = run if number == 1 else f"{run}/lane {number}"
    return selected_lane(kind, hashlib.sha256(named.encode()).hexdigest()[:12])


def committed_before(opened: OpenStream, lane: str, run: str) -> list[Record]:
    """The windows that a run has committed in a lane, in order; only among the newest `RETRIED_WITHIN` windows."""
    found = opened.book.head(lane)
    newest = newest_of_lane(opened.book, lane, found.head if found else None, RETRIED_WITHIN)
    return sorted((record for record in newest if record.attempt.run == run), key=lambda record: record.seq)


def is_done(opened: OpenStream, lane: str) -> bool:
    """Whether a backfill or replay has read its whole selection. Raises LaneClosed if the lane was closed before that."""
    found = opened.book.head(lane)
    if found is None or found.head.state != LaneState.CLOSED:
        return False
    check_not_early(found.head)
    return True


def plan_lane(opened: OpenStream, lane: str, run: str) -> Pending | None:
    """Step 1 for a backfill or replay lane: its pending window, or the next part of its selection. None: the lane is done.

    If the first window can never be planned, since Kafka no longer holds what the lane was asked to read, the lane is closed,
    which frees its claim. Whatever else is in the way may be gone at the next try: a login that is refused, or what another
    lane has left to do. Raises LaneClosed for a lane that was closed before it was done, LanePaused for one that is paused.
    """
    if is_done(opened, lane):
        return None
    found = opened.book.register()
    entry = found[1].lanes.get(lane) if found else None
    if entry is None or entry.selection is None:
        raise WrongUse(f"{opened.book.stream} has no lane {lane} over a selection")
    try:
        pending = _pin_selected(opened, lane, run, entry, entry.selection)
    except LaneClosed:
        if is_done(opened, lane):
            return None
        raise
    except _Never as never:
        problem = never.problem
        raise type(problem)(f"{problem} {_freed(opened, lane, problem)}") from problem
    except (WrongUse, SourceChanged) as problem:
        raise type(problem)(f"{problem} {_kept(opened, lane)}") from problem
    if pending is not None:
        check_not_paused(opened.book, lane)
    return pending


class _Never(Exception):
    """Raised when what a lane was asked for can never be read."""

    def __init__(self, problem: WrongUse | SourceChanged) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _pin_selected(opened: OpenStream, lane: str, run: str, entry: LaneEntry, ref: SelectionRef) -> Pending | None:
    into_sinks.check_still_there(opened, f"{opened.book.stream}/{lane}", entry.sinks)
    selection = opened.book.selection(ref)
    at_once = whole_windows.read_at_once(opened, entry.sinks) if entry.kind != LaneKind.BACKFILL else None
    erasing = _erasing(opened, entry)
    read = selection if erasing is None else selection - erasing.offsets
    named = entry.asked.named if entry.asked is not None else None
    topics = tuple(sorted({at.topic for at in read.partitions}))
    ends = {one.partition: one.until for one in read.hull()}
    most = pacing.most_records(opened.stream.limits.max_records, _rate(opened, entry))
    asked = replace(request(opened, run, topics, entry.reason), max_records=most, sinks=entry.sinks)

    def plan(head: Head) -> tuple[Window | None, Known]:
        # An erasure that reads nothing asks Kafka nothing.
        ingest, known = opened.book.head(INGEST), known_up_to(opened, topics, ends) if topics else Known({}, {})
        known = with_epoch_ends(opened, known, ingest.head) if ingest and topics else known
        sizes = sized(opened, known, asked)
        try:
            window = planner.next_selected(head, known, sizes, selection, ref, at_once and whole, erasing, named)
        except SourceChanged as problem:
            raise _Never(problem) from problem
        return window, known

    def whole(chosen: RangeSet, left: RangeSet) -> RangeSet:
        try:
            return at_once(chosen, left) if at_once is not None else chosen
        except WrongUse as problem:
            raise _Never(problem) from problem

    return pinning.pin(opened, lane, plan)


def _erasing(opened: OpenStream, entry: LaneEntry) -> planner.Erasing | None:
    if entry.erases is None:
        return None
    return planner.Erasing(opened.book.selection(entry.erases.selection), entry.erases)


def rate_of(opened: OpenStream, lane: str) -> int | None:
    """The most records a second that an open lane reads on average; None for the ingest, and where nothing limits it."""
    found = opened.book.register()
    entry = found[1].lanes.get(lane) if found else None
    return _rate(opened, entry) if lane != INGEST and entry is not None else None


def _rate(opened: OpenStream, entry: LaneEntry) -> int | None:
    return entry.rate if entry.rate is not None else opened.stream.limits.max_records_per_second


def _freed(opened: OpenStream, lane: str, problem: TidemarkError) -> str:
    """Close a lane if it has no committed and no pending window. Gives a sentence on what became of its claim."""
    head = required_head(opened.book, lane).head
    if head.seq == 0 and head.pending is None:
        close_lane(opened.book, lane, because=f"{type(problem).__name__}: {problem}"[: protocol.MOST_REASON])
        return f"Nothing was read, and what {lane} had claimed is free again."
    return _kept(opened, lane)


def _kept(opened: OpenStream, lane: str) -> str:
    return (
        f"What {lane} has not read stays claimed. To free it: tidemark cancel {opened.book.stream} {lane} --reason ..."
    )


def next_window(opened: OpenStream, lane: str, run: str, goal: tuple[Position, ...]) -> Pending | None:
    """The window that a run goes on with after a commit; None when the run has reached its goal.

    `goal`: the ends that the run saw when it pinned its first window. Without `goal`: the present ends.
    """
    if lane != INGEST:
        return plan_lane(opened, lane, run)
    ends = {position.at: position.offset for position in goal} or None
    if ends is not None and _has_reached(opened, ends):
        # A window that is pending now belongs to another run.
        return None
    return _pin_ingest(opened, run, ends)


def _has_reached(opened: OpenStream, goal: Mapping[TopicPartition, int]) -> bool:
    head = opened.book.head(INGEST)
    if head is None or Guarantee(opened.stream.guarantee) == Guarantee.NONE:
        return False
    offsets = head.head.offsets()
    return all(offsets.get(at, -1) >= end for at, end in goal.items())


def finish(opened: OpenStream, lane: str) -> None:
    """Settle a lane. Close the lane too if it is a backfill or replay that is done."""
    protocol.settle(opened.book, opened.sweeper, lane)
    if lane != INGEST:
        close_lane(opened.book, lane)


def with_incarnations(opened: OpenStream, named: Named) -> RangeSet:
    """Offsets that people named, in the incarnations to which they belong, as `tidemark show` finds them.

    Raises WrongUse for a topic that the stream has never read, and for an incarnation that the ledger does not know.
    """
    found = opened.book.register()
    topics = found[1].topics if found else {}
    for at in (*named.open.partitions, *named.exact.partitions):
        if not topics.get(at.topic):
            raise WrongUse(f"{at.topic}: the stream {opened.book.stream} has never read this topic")
    for at in named.exact.partitions:
        known = sorted(one.incarnation for one in topics[at.topic])
        if at.incarnation not in known:
            raise WrongUse(f"{at.topic} has no incarnation {at.incarnation}; known are {', '.join(map(str, known))}")
    return by_cuts(topics, named.open) | named.exact


def everything_from_the_start(opened: OpenStream, view: View | None = None) -> RangeSet:
    """The offsets from `start` on that windows have read and Kafka still holds. Ignores the stored positions."""
    view = view or opened.book.view()
    topics = topics_now(opened)
    known = known_now(opened, topics, learn=False)
    start = _start_positions(opened, known, topics)
    above = RangeSet(OffsetRange(one.at, one.offset, MAX_OFFSET) for one in start)
    return planner.offsets_within(known, above) & view.authority.covered()


def before_the_first_window(opened: OpenStream, view: View | None = None) -> RangeSet:
    """The offsets below the ingest's beginning that Kafka still holds and no lane has covered."""
    view = view or opened.book.view()
    known = known_now(opened, topics_now(opened), learn=False)
    if INGEST not in view.heads:
        raise WrongUse(f"{opened.book.stream} has no ingest lane yet: run the ingest once first")
    return planner.offsets_within(known, view.below) - view.authority.covered()


def stored_selection(opened: OpenStream, digest: str) -> RangeSet:
    """The offsets of a stored selection. Raises WrongUse when no selection has this digest."""
    found = opened.book.find_selection(digest)
    if found is None:
        raise WrongUse(f"{opened.book.stream} has no stored selection {digest}")
    return found
