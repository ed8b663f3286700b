"""How far a backfill or replay is, per partition, by the ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemark.ledger.closed import closed_lanes
from tidemark.ledger.records import Head, LaneEntry, LaneKind, LaneState
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.planning.planner import not_read
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.steering import lanes_of
from tidemark.runs.windows import lanes
from tidemark.views.values import Number, PartOf

MOST_PARTITIONS = 200


@dataclass(frozen=True)
class Paused:
    reason: str
    at: int


@dataclass(frozen=True)
class WindowInWork:
    """The window in work: the step of its job, and the messages stored so far, if the job has given a sign of life."""

    window: str
    step: str | None
    stored: Number | None
    since: int


@dataclass(frozen=True)
class PartitionOfLane(PartOf):
    """Of the `offsets` of a partition that the lane has chosen, `left` are not read yet."""

    offsets: Number
    left: Number


@dataclass(frozen=True)
class ProgressOfLane:
    lane: str
    kind: str | None
    state: Literal["open", "paused", "done", "cancelled"]
    closed_early: str | None
    paused: Paused | None
    run: str | None
    reason: str | None
    asked_by: str | None
    approved_by: str | None
    opened_at: int | None
    windows: int
    offsets: Number
    left: Number
    pending: WindowInWork | None
    partitions: list[PartitionOfLane]
    more_partitions: int


@dataclass(frozen=True)
class ProgressOfRun:
    """The lanes of a run, in the order of work. `may_steer`: whether the person may pause, resume and cancel it."""

    run: str | None
    now: int
    lanes: list[ProgressOfLane]
    may_steer: bool


def progress_of(opened: OpenStream, named: str) -> ProgressOfRun:
    """The lanes of a backfill or replay, which is named by its run or a lane, in the order of work. Raises WrongUse.

    Of a run, also those that are done while others are not.
    """
    kinds = (LaneKind.BACKFILL, LaneKind.REPLAY, LaneKind.ERASE)
    of_run = [lane for kind in kinds for lane in lanes.lanes_of(opened, kind, named)]
    found = [_lane(opened, lane) for lane in of_run or lanes_of(opened, named)]
    return ProgressOfRun(found[0].run, opened.book.clock(), found, may_steer=False)


def _lane(opened: OpenStream, lane: str) -> ProgressOfLane:
    book = opened.book
    stored = book.head(lane)
    head = stored.head if stored else None
    entry = _entry(opened, lane)
    # A lane that was cancelled before its first window has its selection only here.
    ref = entry.selection if entry else None
    chosen = book.selection(ref) if ref is not None else lanes.selected_before(opened, lane)
    closed = head is not None and head.state == LaneState.CLOSED
    done = closed and head is not None and head.closed_early is None
    left = lanes.NOTHING if done else not_read(head, chosen) if head is not None else chosen
    paused = Paused(entry.paused.reason, entry.paused.at) if entry and entry.paused else None
    return ProgressOfLane(
        lane=lane,
        kind=head.kind.value if head else entry.kind.value if entry else None,
        state="done" if done else "cancelled" if closed else "paused" if paused else "open",
        closed_early=head.closed_early if head else None,
        paused=paused,
        run=_run(entry, head),
        reason=entry.reason if entry else None,
        asked_by=entry.asked_by if entry else None,
        approved_by=entry.approved_by if entry else None,
        opened_at=entry.opened_at if entry else None,
        windows=head.seq if head else 0,
        offsets=chosen.count(),
        left=left.count(),
        pending=_pending(opened, lane, head),
        partitions=[_partition(at, chosen, left) for at in chosen.partitions[:MOST_PARTITIONS]],
        more_partitions=max(0, len(chosen.partitions) - MOST_PARTITIONS),
    )


def _entry(opened: OpenStream, lane: str) -> LaneEntry | None:
    found = opened.book.register()
    if found is None:
        return None
    if lane in found[1].lanes:
        return found[1].lanes[lane]
    return next((page[lane] for page in closed_lanes(opened.book, found[1]) if lane in page), None)


def _run(entry: LaneEntry | None, head: Head | None) -> str | None:
    if entry is not None:
        return entry.run
    return head.last.attempt.run if head is not None and head.last is not None else None


def _partition(at: TopicPartition, chosen: RangeSet, left: RangeSet) -> PartitionOfLane:
    mine = chosen.only([at])
    (hull,) = mine.hull()
    return PartitionOfLane(str(at), hull.start, hull.until, mine.count(), left.count(at))


def _pending(opened: OpenStream, lane: str, head: Head | None) -> WindowInWork | None:
    if head is None or head.pending is None:
        return None
    beat, attempt = opened.book.last_beat(lane), head.pending.attempt
    working = beat is not None and attempt is not None and beat.generation == attempt.generation
    window, since = head.pending.window, head.pending.window.pinned_at
    step, stored = (beat.step, beat.stored) if beat is not None and working else (None, None)
    return WindowInWork(f"{lane}/{window.seq}", step, stored, since)
