"""How far a run is, per partition, by the ledger: its lanes, or what its job says that it is at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tidemark.audit.repair import name_after_repair
from tidemark.errors import WrongUse
from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.incarnations import Topics
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST, Head, Heartbeat, JobProgress, LaneEntry, LaneKind, LaneState, Record
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.planner import unread_part
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.steering import lanes_of
from tidemark.runs.windows import lanes
from tidemark.views.summary import committed_by, messages
from tidemark.views.values import Number, PartitionRanges, part_of

MAX_PARTITIONS = 200
# Of a lane, the newest; and of a window. The pages of windows have all.
MAX_WINDOWS, MAX_RANGES = 20, 3


@dataclass(frozen=True)
class PauseShown:
    reason: str
    at: int


@dataclass(frozen=True)
class WindowInWork:
    """The window in work: the step of its job, and the messages stored so far, if the job has given a sign of life.

    `done` are the messages that the step is done with, of the `offsets` of the window; `beat` is when the job has said so.
    """

    window: str
    step: str | None
    stored: Number | None
    since: int
    offsets: Number
    done: Number | None
    beat: int | None


@dataclass(frozen=True)
class PartitionOfLane(PartitionRanges):
    """The `offsets` of a partition that the lane has chosen; `left` of them are not read yet."""

    offsets: Number
    left: Number


@dataclass(frozen=True)
class CommittedByLane:
    """A window that a lane has committed: its first ranges, how many more there are, and what became of its messages."""

    window: str
    at: int
    ranges: list[PartitionRanges]
    more_ranges: int
    read: int
    stored: int
    skipped: int
    dead_letters: int


@dataclass(frozen=True)
class ProgressOfLane:
    """`windows` counts the windows that the lane has committed, of which `committed` are the newest, the newest first.

    `pace`: how many messages a second these have read while they were in work; None while nothing is known of it.
    """

    lane: str
    kind: str | None
    state: Literal["open", "paused", "done", "cancelled"]
    closed_early: str | None
    paused: PauseShown | None
    run: str | None
    reason: str | None
    asked_by: str | None
    approved_by: str | None
    opened_at: int | None
    windows: int
    committed: list[CommittedByLane]
    offsets: Number
    left: Number
    pace: float | None
    pending: WindowInWork | None
    partitions: list[PartitionOfLane]
    more_partitions: int


@dataclass(frozen=True)
class PartitionInWork:
    """The `offsets` of a partition that a job reads, and the messages that its step is `done` with."""

    partition: str
    offsets: Number
    done: Number


@dataclass(frozen=True)
class JobInWork:
    """The progress of the job of a run without lanes of its own: the window of an ingest, or a step of an audit or comparison.

    `done` and `beat` as of a window in work. A step that reads nothing from Kafka has no `offsets` and no partitions. `run`
    is the job's own name: an audit after a repair has one of its own. `try_number` is that of its task in Airflow; 0 for a
    window, whose attempt it is in any case, and without Airflow.
    """

    run: str
    try_number: int
    window: str | None
    step: str | None
    offsets: Number
    done: Number | None
    beat: int | None
    partitions: list[PartitionInWork]
    more_partitions: int


@dataclass(frozen=True)
class CommittedByIngest:
    """`windows` counts the windows that a run of the ingest has committed, of which `committed` are the newest."""

    windows: int
    committed: list[CommittedByLane]


@dataclass(frozen=True)
class ProgressOfRun:
    """The lanes of a run, in the order of work. `may_steer`: whether the person may pause, resume and cancel it.

    A run that has none yet, or never has any: what its `job` was at last, which may have ended since; and of an ingest, what
    it has committed.
    """

    run: str | None
    now: int
    lanes: list[ProgressOfLane]
    may_steer: bool
    job: JobInWork | None = None
    ingest: CommittedByIngest | None = None


def progress_of(opened: OpenStream, named: str) -> ProgressOfRun:
    """The lanes of a backfill or replay, which is named by its run or a lane, in the order of work. Raises WrongUse.

    Of a run, also those that are done while others are not. A run of the stream's DAGs has none before it has claimed any;
    those of the ingest and of audits never have.
    """
    kinds = (LaneKind.BACKFILL, LaneKind.REPLAY, LaneKind.ERASE)
    of_run = [lane for kind in kinds for lane in lanes.lanes_of(opened, kind, named)]
    try:
        shown = [_lane(opened, lane) for lane in of_run or lanes_of(opened, named)]
    except WrongUse:
        if not (named.startswith(f"{opened.ledger.stream}__") and "/" in named):
            raise
        shown = []
    progress = ProgressOfRun(shown[0].run if shown else named, opened.ledger.clock(), shown, may_steer=False)
    if shown:
        return progress
    if named.startswith(f"{opened.ledger.stream}__{INGEST}/"):
        return replace(progress, job=_window_of_ingest(opened, named), ingest=_committed_by_ingest(opened, named))
    noted = opened.ledger.last_progress()
    mine = noted is not None and noted.run in (named, name_after_repair(named))
    return replace(progress, job=_job(noted)) if mine and noted is not None else progress


def _window_of_ingest(opened: OpenStream, run: str) -> JobInWork | None:
    stored = opened.ledger.head(INGEST)
    pending = stored.head.pending if stored else None
    if stored is None or pending is None or run not in (pending.window.run, pending.attempt and pending.attempt.run):
        return None
    beat = _beat(opened, INGEST, stored.head)
    window = _pending(opened, INGEST, stored.head, beat)
    if window is None:
        return None
    done = beat.done if beat is not None else {}
    covers = opened.ledger.covers(pending.window)
    total = [(str(at), covers.count(at)) for at in covers.partitions]
    partitions, more = _partitions(total, done)
    return JobInWork(run, 0, window.window, window.step, window.offsets, window.done, window.beat, partitions, more)


def _committed_by_ingest(opened: OpenStream, run: str) -> CommittedByIngest:
    records, topics = committed_by(opened, INGEST, run), opened.ledger.topics()
    return CommittedByIngest(len(records), [_shown(record, topics) for record in records[: -MAX_WINDOWS - 1 : -1]])


def _job(noted: JobProgress) -> JobInWork:
    partitions, more = _partitions(noted.total, noted.done)
    offsets = sum(total for _, total in noted.total)
    # Offsets that are read twice are counted twice.
    done = sum(min(total, noted.done.get(name, 0)) for name, total in noted.total)
    return JobInWork(noted.run, noted.try_number, None, noted.step, offsets, done, noted.at, partitions, more)


def _partitions(total: Sequence[tuple[str, int]], done: Mapping[str, int]) -> tuple[list[PartitionInWork], int]:
    moved = [(name, offsets) for name, offsets in total if offsets]
    shown = [
        PartitionInWork(name, offsets, min(offsets, done.get(name, 0))) for name, offsets in moved[:MAX_PARTITIONS]
    ]
    return shown, max(0, len(moved) - MAX_PARTITIONS)


def _lane(opened: OpenStream, lane: str) -> ProgressOfLane:
    ledger = opened.ledger
    stored = ledger.head(lane)
    head = stored.head if stored else None
    entry = _entry(opened, lane)
    # A lane that was cancelled before its first window has its selection only here.
    ref = entry.selection if entry else None
    chosen = ledger.selection(ref) if ref is not None else lanes.selected_before(opened, lane)
    closed = head is not None and head.state == LaneState.CLOSED
    done = closed and head is not None and head.closed_early is None
    left = lanes.NOTHING if done else unread_part(head, chosen) if head is not None else chosen
    topics = ledger.topics()
    newest = [] if head is None else _newest(opened, lane, head)
    paused = PauseShown(entry.paused.reason, entry.paused.at) if entry and entry.paused else None
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
        committed=[_shown(record, topics) for record in newest],
        offsets=chosen.count(),
        left=left.count(),
        pace=_pace(newest),
        pending=_pending(opened, lane, head, _beat(opened, lane, head)),
        partitions=[_partition(at, chosen, left, topics) for at in chosen.partitions[:MAX_PARTITIONS]],
        more_partitions=max(0, len(chosen.partitions) - MAX_PARTITIONS),
    )


def _entry(opened: OpenStream, lane: str) -> LaneEntry | None:
    stored = opened.ledger.register()
    if stored is None:
        return None
    if lane in stored[1].lanes:
        return stored[1].lanes[lane]
    return next((page[lane] for page in closed_lanes(opened.ledger, stored[1]) if lane in page), None)


def _run(entry: LaneEntry | None, head: Head | None) -> str | None:
    if entry is not None:
        return entry.run
    return head.last.attempt.run if head is not None and head.last is not None else None


def _partition(at: TopicPartition, chosen: RangeSet, left: RangeSet, topics: Topics) -> PartitionOfLane:
    mine = chosen.only([at])
    (hull,) = mine.hull()
    part = vars(part_of(topics, hull))
    return PartitionOfLane(**part, offsets=mine.count(), left=left.count(at))


def _beat(opened: OpenStream, lane: str, head: Head | None) -> Heartbeat | None:
    """The last sign of life of the attempt at work; None without one."""
    attempt = head.pending.attempt if head is not None and head.pending is not None else None
    beat = opened.ledger.last_beat(lane) if attempt is not None else None
    return beat if beat is not None and attempt is not None and beat.generation == attempt.generation else None


def _pending(opened: OpenStream, lane: str, head: Head | None, beat: Heartbeat | None) -> WindowInWork | None:
    if head is None or head.pending is None:
        return None
    window, since = head.pending.window, head.pending.window.pinned_at
    offsets, name = opened.ledger.covers(window).count(), f"{lane}/{window.seq}"
    if beat is None:
        return WindowInWork(name, None, None, since, offsets, None, None)
    # Spark counts twice what a task has done twice.
    done = min(offsets, sum(beat.done.values()))
    return WindowInWork(name, beat.step, beat.stored, since, offsets, done, beat.at)


def _newest(opened: OpenStream, lane: str, head: Head) -> list[Record]:
    newest = sorted(newest_of_lane(opened.ledger, lane, head, MAX_WINDOWS), key=lambda record: -record.seq)
    return newest[:MAX_WINDOWS]


def _pace(records: list[Record]) -> float | None:
    """Messages a second. What lies between two windows, such as a pause, is left out."""
    ms = sum(record.committed_at - record.receipt.started_at for record in records if record.receipt)
    read = sum(messages(record).read for record in records if record.receipt)
    return 1000 * read / ms if ms > 0 and read else None


def _shown(record: Record, topics: Topics) -> CommittedByLane:
    moved = [range_ for range_ in record.window.ranges if range_.start < range_.until]
    return CommittedByLane(
        window=f"{record.lane}/{record.seq}",
        at=record.committed_at,
        ranges=[part_of(topics, OffsetRange(range_.at, range_.start, range_.until)) for range_ in moved[:MAX_RANGES]],
        more_ranges=max(0, len(moved) - MAX_RANGES),
        **vars(messages(record)),
    )
