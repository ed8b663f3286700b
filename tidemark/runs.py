"""What a run does on a stream: plans its first window, goes on to the end that it saw, and closes what it opened.

The DAGs and the command line both call these; none of them touches the data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from msgspec import structs

from tidemark import __version__, protocol
from tidemark.errors import Conflict, WrongUse
from tidemark.kafka.topics import READ_UNCOMMITTED
from tidemark.kafka.transactions import OpenTransaction
from tidemark.ledger.records import (
    INGEST,
    Guarantee,
    Head,
    LaneKind,
    LaneState,
    Pending,
    Position,
    Window,
    positions,
    selected_lane,
)
from tidemark.ledger.register import close_lane, open_lane
from tidemark.planning import planner, starting, whole_windows
from tidemark.planning.conditions import request, sized
from tidemark.planning.discovery import known_now, known_to_ingest, topics_now, with_epoch_ends
from tidemark.planning.inputs import Known, Request
from tidemark.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition
from tidemark.streams.opened import OpenStream
from tidemark.streams.source import StartOffsets
from tidemark.times import milliseconds


def code_version() -> str:
    """The code that an attempt runs: Tidemark's version, and what TIDEMARK_CODE_VERSION adds (a commit, an image)."""
    more = os.environ.get("TIDEMARK_CODE_VERSION")
    return f"{__version__}+{more}" if more else __version__


def this_run(opened: OpenStream, name: str) -> protocol.Run:
    return protocol.Run(name, code_version(), opened.file.digest)


def plan_ingest(opened: OpenStream, run: str) -> Pending | None:
    """Step 1 for the ingest lane: its pending window, or a new one up to the ends of now; None when nothing is new."""
    if opened.book.head(INGEST) is None:
        topics = topics_now(opened)
        known = known_now(opened, topics)
        start = _start_positions(opened, known, topics)
        kept = () if Guarantee(opened.stream.guarantee) == Guarantee.NONE else start
        open_lane(opened.book, INGEST, LaneKind.INGEST, run=run, start=kept)
    return _pin_ingest(opened, run)


def import_positions(
    opened: OpenStream, offsets: Mapping[tuple[str, int], int], others: str, run: str, *, write: bool, shift: int = 0
) -> tuple[Position, ...]:
    """Where a new stream begins: at offsets that another program has stored, `others` for partitions that it does not know.

    With a `shift` they are moved by it, within what Kafka's logs hold. Without `write` they are only checked.
    Raises WrongUse when the stream has positions already, or when there is no offset of
    its topics.
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
                f"{opened.book.stream} was begun at other positions by somebody else meanwhile; nothing was imported"
            )
    return start


def preview(opened: OpenStream, run: str = "preview") -> tuple[Window | None, bool]:
    """The window that the next ingest would work on, and whether it is pinned already; nothing is written.

    None when nothing is new. Raises what planning raises.
    """
    found = opened.book.head(INGEST)
    if found is not None and found.head.pending is not None:
        return found.head.pending.window, True
    asked = request(opened, run, topics_now(opened))
    head = found.head if found is not None else _head_before_the_first_run(opened, asked.topics)
    return _next_of_ingest(opened, asked, head, learn=False), False


def open_transactions(opened: OpenStream) -> tuple[OpenTransaction, ...]:
    """The transactions that hold back what the ingest could read now; none under read_uncommitted."""
    source = opened.stream.source
    if source.isolation == READ_UNCOMMITTED:
        return ()
    logs = opened.log.topics(topics_now(opened), source.isolation)
    return opened.log.open_transactions(logs, opened.log.high_watermarks(logs))


def _head_before_the_first_run(opened: OpenStream, topics: tuple[str, ...]) -> Head:
    start = _start_positions(opened, known_now(opened, topics, learn=False), topics)
    return Head(
        stream=opened.book.stream,
        lane=INGEST,
        kind=LaneKind.INGEST,
        state=LaneState.OPEN,
        token="",
        seq=0,
        positions=start,
    )


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
    def plan(head: Head) -> Window | None:
        return _next_of_ingest(opened, request(opened, run, topics_now(opened)), head, goal)

    return protocol.pin(opened.book, opened.sweeper, INGEST, plan)


def _next_of_ingest(
    opened: OpenStream,
    asked: Request,
    head: Head,
    goal: Mapping[TopicPartition, int] | None = None,
    *,
    learn: bool = True,
) -> Window | None:
    known = known_to_ingest(opened, asked, head, learn=learn)
    if asked.guarantee == Guarantee.NONE or not head.positions:
        head = structs.replace(head, positions=_positions_of_run(opened, known, asked, head))
    return planner.next_window(head, known, sized(opened, known, asked), goal)


def _positions_of_run(opened: OpenStream, known: Known, asked: Request, head: Head) -> tuple[Position, ...]:
    """Without stored positions: where this run is after its last window, or where `start` says."""
    if head.last is not None and head.last.window.run == asked.run:
        return positions({one.at: one.until for one in head.last.window.ranges})
    return _start_positions(opened, known, asked.topics)


def open_selected(opened: OpenStream, kind: LaneKind, run: str, selection: RangeSet, reason: str) -> str:
    """Open a backfill or replay lane over a selection, claiming its offsets; gives the lane's name.

    The name follows from the run's, so that a retry finds the lane that the first try opened. A replay takes whole windows
    where a sink needs them.
    """
    if kind == LaneKind.REPLAY:
        selection = whole_windows.widened(opened, selection)
    if not selection:
        raise WrongUse(f"there is nothing to {kind.value}: the selection is empty")
    lane = lane_name(kind, run)
    ref = opened.book.store_selection(selection)
    starts = {one.partition: one.start for one in selection.hull()}
    start = positions(starts)
    open_lane(opened.book, lane, kind, run=run, start=start, selection=ref, reason=reason)
    return lane


def lane_name(kind: LaneKind, run: str) -> str:
    return selected_lane(kind, hashlib.sha256(run.encode()).hexdigest()[:12])


def plan_lane(opened: OpenStream, lane: str, run: str) -> Pending | None:
    """Step 1 for an open backfill or replay lane: its pending window, or the next part of its selection."""
    found = opened.book.register()
    entry = found[1].lanes.get(lane) if found else None
    if entry is None or entry.selection is None:
        raise WrongUse(f"{opened.book.stream} has no lane {lane} over a selection")
    ref, selection = entry.selection, opened.book.selection(entry.selection)
    first = whole_windows.first_windows(opened) if entry.kind == LaneKind.REPLAY else None
    topics = tuple(sorted({at.topic for at in selection.partitions}))
    asked = request(opened, run, topics, entry.reason)

    def plan(head: Head) -> Window | None:
        ingest, known = opened.book.head(INGEST), known_now(opened, topics)
        known = with_epoch_ends(opened, known, ingest.head) if ingest else known
        return planner.next_selected(head, known, sized(opened, known, asked), selection, ref, first)

    return protocol.pin(opened.book, opened.sweeper, lane, plan)


def next_window(opened: OpenStream, lane: str, run: str, goal: tuple[Position, ...]) -> Pending | None:
    """The window that a run goes on with after a commit; None when it has reached what it set out for.

    `goal` are the ends that the run saw when it pinned its first window; without it, the ends of now.
    """
    if lane == INGEST:
        ends = {position.at: position.offset for position in goal} or None
        return _pin_ingest(opened, run, ends)
    return plan_lane(opened, lane, run)


def finish(opened: OpenStream, lane: str) -> None:
    """Settle a lane, and close it if it is a backfill or replay that is done."""
    protocol.settle(opened.book, opened.sweeper, lane)
    if lane != INGEST:
        found = opened.book.head(lane)
        if found is not None and found.head.state != LaneState.CLOSED:
            close_lane(opened.book, lane)


def with_incarnations(opened: OpenStream, ranges: RangeSet) -> RangeSet:
    """What people wrote in three parts, with the newest incarnation of each topic filled in.

    Raises WrongUse for a topic that the stream has never read.
    """
    found = opened.book.register()
    filled = []
    for one in ranges:
        known = found[1].topics.get(one.partition.topic) if found else None
        if not known:
            raise WrongUse(f"{one.partition.topic}: the stream {opened.book.stream} has never read this topic")
        at = TopicPartition(one.partition.topic, one.partition.partition, max(topic.incarnation for topic in known))
        filled.append(OffsetRange(at, one.start, one.until))
    return RangeSet(filled)


def everything_from_the_start(opened: OpenStream) -> RangeSet:
    """What windows have read from where `start` says now, as far as Kafka still holds it: the stored positions are ignored."""
    topics = topics_now(opened)
    known = known_now(opened, topics)
    start = _start_positions(opened, known, topics)
    above = RangeSet(OffsetRange(one.at, one.offset, MAX_OFFSET) for one in start)
    return planner.offsets_within(known, above) & opened.book.authority().covered()


def before_the_first_window(opened: OpenStream) -> RangeSet:
    """Everything that Kafka still holds below what the ingest began with, and that no lane has covered."""
    known = known_now(opened, topics_now(opened))
    found = opened.book.head(INGEST)
    if found is None:
        raise WrongUse(f"{opened.book.stream} has no ingest lane yet: run the ingest once first")
    below = RangeSet(OffsetRange(at, 0, offset) for at, offset in found.head.offsets().items())
    return planner.offsets_within(known, below) - opened.book.authority().covered()


def stored_selection(opened: OpenStream, digest: str) -> RangeSet:
    """The offsets of a selection that was stored before. Raises WrongUse when there is none of this digest."""
    found = opened.book.find_selection(digest)
    if found is None:
        raise WrongUse(f"{opened.book.stream} has no stored selection {digest}")
    return found
