"""What a run does on a stream: plans its first window, goes on to the end that it saw, and closes what it opened.

The DAGs and the command line both call these; none of them touches the data.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Mapping

from tidemark import __version__, planning, protocol
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.records import INGEST, Head, LaneKind, LaneState, Pending, Position, Window, positions
from tidemark.ledger.register import close_lane, know_topics, known_topics, open_lane
from tidemark.planning import Known, Request
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.results.reading import hbase_rows
from tidemark.streams.model import StartOffsets
from tidemark.streams.opened import OpenStream


def code_version() -> str:
    """The code that an attempt runs: Tidemark's version, and what TIDEMARK_CODE_VERSION adds (a commit, an image)."""
    more = os.environ.get("TIDEMARK_CODE_VERSION")
    return f"{__version__}+{more}" if more else __version__


def this_run(opened: OpenStream, name: str) -> protocol.Run:
    return protocol.Run(name, code_version(), opened.file.digest)


def plan_ingest(opened: OpenStream, run: str) -> Pending | None:
    """Step 1 for the ingest lane: its pending window, or a new one up to the ends of now; None when nothing is new."""
    source = opened.stream.source
    known = known_now(opened, source.topics)
    if opened.book.head(INGEST) is None:
        planning.check_topics(known, source.topics, set())
        start = _start_positions(opened, known)
        open_lane(opened.book, INGEST, LaneKind.INGEST, run=run, start=start)
    return _pin_ingest(opened, run, known)


def import_positions(
    opened: OpenStream, offsets: Mapping[tuple[str, int], int], others: str, run: str, *, write: bool, shift: int = 0
) -> tuple[Position, ...]:
    """Where a new stream begins: at offsets that another program has stored, `others` for partitions that it does not know.

    With a `shift` they are moved by it, within what Kafka's logs hold. Without `write` they are only checked.
    Raises WrongUse when the stream has positions already, or when there is no offset of
    its topics.
    """
    topics = opened.stream.source.topics
    if opened.book.head(INGEST) is not None:
        raise WrongUse(
            f"{opened.book.stream} has positions already, and they never fall back: an import is for a new stream"
        )
    given = {place: offset for place, offset in offsets.items() if place[0] in topics}
    if not given:
        raise WrongUse(f"there is no offset of {', '.join(topics)} to import")
    known = known_now(opened, topics, learn=write)
    if shift:
        given = planning.shifted(known, given, shift)
    start = planning.start_positions(known, topics, others, given)
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
    known = known_now(opened, opened.stream.source.topics, learn=False)
    found = opened.book.head(INGEST)
    if found is not None and found.head.pending is not None:
        return found.head.pending.window, True
    head = found.head if found is not None else _head_before_the_first_run(opened, known)
    return planning.next_window(head, known, _request(opened, run)), False


def _head_before_the_first_run(opened: OpenStream, known: Known) -> Head:
    start = _start_positions(opened, known)
    return Head(
        stream=opened.book.stream,
        lane=INGEST,
        kind=LaneKind.INGEST,
        state=LaneState.OPEN,
        token="",
        seq=0,
        positions=start,
    )


def _start_positions(opened: OpenStream, known: Known) -> tuple[Position, ...]:
    """Where the ingest begins, as the stream file says."""
    topics, start = opened.stream.source.topics, opened.stream.source.start
    if isinstance(start, str):
        return planning.start_positions(known, topics, start)
    if isinstance(start, StartOffsets):
        given = {}
        for name, offset in start.offsets.items():
            topic, _, partition = name.rpartition("/")
            given[topic, int(partition)] = offset
        return planning.start_positions(known, topics, start.others, given)
    found = opened.log.first_at_or_after(known.logs, int(start.time.timestamp() * 1000))
    given = planning.offsets_at_time(known, found, start.time.isoformat(), start.if_none)
    return planning.start_positions(known, topics, "earliest", given)


def _pin_ingest(
    opened: OpenStream, run: str, known: Known, goal: Mapping[TopicPartition, int] | None = None
) -> Pending | None:
    request = _request(opened, run)

    def plan(head: Head) -> Window | None:
        return planning.next_window(head, known, request, goal)

    return protocol.pin(opened.book, opened.sweeper, INGEST, plan)


def open_selected(opened: OpenStream, kind: LaneKind, run: str, selection: RangeSet, reason: str) -> str:
    """Open a backfill or replay lane over a selection, claiming its offsets; gives the lane's name.

    The name follows from the run's, so that a retry finds the lane that the first try opened.
    """
    if not selection:
        raise WrongUse(f"there is nothing to {kind.value}: the selection is empty")
    lane = lane_name(kind, run)
    ref = opened.book.store_selection(selection)
    starts = {one.partition: one.start for one in selection.hull()}
    start = positions(starts)
    open_lane(opened.book, lane, kind, run=run, start=start, selection=ref, reason=reason)
    return lane


def lane_name(kind: LaneKind, run: str) -> str:
    return f"{kind.value}-{hashlib.sha256(run.encode()).hexdigest()[:12]}"


def plan_lane(opened: OpenStream, lane: str, run: str) -> Pending | None:
    """Step 1 for an open backfill or replay lane: its pending window, or the next part of its selection."""
    found = opened.book.register()
    entry = found[1].lanes.get(lane) if found else None
    if entry is None or entry.selection is None:
        raise WrongUse(f"{opened.book.stream} has no lane {lane} over a selection")
    ref, selection = entry.selection, opened.book.selection(entry.selection)
    request = _request(opened, run, entry.reason)

    def plan(head: Head) -> Window | None:
        topics = tuple(sorted({at.topic for at in selection.partitions}))
        return planning.next_selected(head, known_now(opened, topics), request, selection, ref)

    return protocol.pin(opened.book, opened.sweeper, lane, plan)


def next_window(opened: OpenStream, lane: str, run: str, goal: tuple[Position, ...]) -> Pending | None:
    """The window that a run goes on with after a commit; None when it has reached what it set out for.

    `goal` are the ends that the run saw when it pinned its first window; without it, the ends of now.
    """
    if lane == INGEST:
        ends = {position.at: position.offset for position in goal} or None
        return _pin_ingest(opened, run, known_now(opened, opened.stream.source.topics), ends)
    return plan_lane(opened, lane, run)


def finish(opened: OpenStream, lane: str) -> None:
    """Settle a lane, and close it if it is a backfill or replay that is done."""
    protocol.settle(opened.book, opened.sweeper, lane)
    if lane != INGEST:
        found = opened.book.head(lane)
        if found is not None and found.head.state != LaneState.CLOSED:
            close_lane(opened.book, lane)


def known_now(opened: OpenStream, topics: tuple[str, ...], *, learn: bool = True) -> Known:
    """What Kafka says of these topics, and the incarnations that the ledger knows them as.

    Topics that are new are entered in the ledger; without `learn`, they only get the number that they would have there.
    """
    logs = opened.log.topics(topics, opened.stream.source.isolation)
    ids = {topic: log.topic_id for topic, log in logs.items()}
    # A plan that will be refused for a missing topic leaves the ledger as it is.
    learn = learn and logs.keys() >= set(topics)
    return Known(logs, know_topics(opened.book, ids) if learn else known_topics(opened.book, ids))


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


def before_the_first_window(opened: OpenStream) -> RangeSet:
    """Everything that Kafka still holds below what the ingest began with, and that no lane has covered."""
    source = opened.stream.source
    known = known_now(opened, source.topics)
    found = opened.book.head(INGEST)
    if found is None:
        raise WrongUse(f"{opened.book.stream} has no ingest lane yet: run the ingest once first")
    below = RangeSet(OffsetRange(at, 0, offset) for at, offset in found.head.offsets().items())
    return planning.offsets_within(known, below) - opened.book.authority().covered()


def stored_selection(opened: OpenStream, digest: str) -> RangeSet:
    """The offsets of a selection that was stored before. Raises WrongUse when there is none of this digest."""
    found = opened.book.find_selection(digest)
    if found is None:
        raise WrongUse(f"{opened.book.stream} has no stored selection {digest}")
    return found


def dead_letters_by_reason(opened: OpenStream, reason: str | None) -> RangeSet:
    """The coordinates of the dead letters that count and have exactly this reason; None for every reason.

    Raises WrongUse when there are none, naming the reasons that there are.
    """
    wanted = None if reason is None else reason.encode()
    seen: Counter[str] = Counter()
    found = []
    for row in hbase_rows(opened.book, opened.dead_letter_table()):
        why = row.fields.get("reason", b"")
        seen[why.decode(errors="replace")] += 1
        if wanted is None or why == wanted:
            found.append(OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1))
    if not found:
        known = ", ".join(f"{why!r} ({number})" for why, number in seen.most_common()) or "there are none at all"
        raise WrongUse(f"no dead letter of {opened.book.stream} has the reason {reason!r}; reasons are: {known}")
    return RangeSet(found)


def _request(opened: OpenStream, run: str, reason: str | None = None) -> Request:
    source = opened.stream.source
    return Request(
        topics=source.topics,
        isolation=source.isolation,
        run=run,
        now=opened.book.clock(),
        reason=reason,
        max_records=opened.stream.limits.max_records,
        on_out_of_range=source.on_out_of_range,
        max_behind=opened.stream.limits.max_behind,
    )
