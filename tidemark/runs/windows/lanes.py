"""The lanes of a run: their names, what they have committed, the next window of each, and their end.

The DAGs and the command line both call these functions. No function here touches the data.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile

from tidemark import __version__
from tidemark.commit import protocol
from tidemark.errors import LaneClosed, SourceChanged, TidemarkError, WrongUse
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import (
    INGEST,
    Erasure,
    Head,
    LaneEntry,
    LaneKind,
    LaneState,
    Pending,
    Record,
    RunRequest,
    SelectionRef,
    Window,
    selected_lane,
)
from tidemark.ledger.register import (
    check_asked,
    check_not_early,
    check_not_paused,
    close_lane,
    required_head,
)
from tidemark.offsets.ranges import RangeSet
from tidemark.planning import planner
from tidemark.planning.dividing import MAX_LANES
from tidemark.planning.inputs import KafkaState
from tidemark.runs.live.conditions import request, sized
from tidemark.runs.live.kafka_now import known_now, with_epoch_ends
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import chosen_sinks, pacing, pinning
from tidemark.submit.command import TASK

# A retried run looks for its committed windows among this many newest windows of its lane. That is one read for most
# streams, and more windows than a lane commits between two tries.
RETRIED_WITHIN = 1_000
NOTHING = RangeSet()


def code_version() -> str:
    """The code that an attempt runs: Tidemark's version, and what TIDEMARK_CODE_VERSION adds (a commit, an image)."""
    more = os.environ.get("TIDEMARK_CODE_VERSION")
    return f"{__version__}+{more}" if more else __version__


def this_run(opened: OpenStream, name: str) -> protocol.Run:
    return protocol.Run(name, code_version(), opened.file.digest, os.environ.get(TASK, ""))


def begun(opened: OpenStream, kind: LaneKind, run: str, fields: Mapping[str, str] | None = None) -> RunRequest | None:
    """The request of a run when it began, with all its claims; None when no run of this name has begun.

    `fields` are those of a request: raises AnotherRequest when the run has begun with another one. Without `fields`,
    the caller goes on with what the run has begun, and asks for nothing else.
    """
    mine = lanes_of(opened, kind, run)
    if not mine:
        return None
    register = opened.ledger.register()
    entry = register[1].lanes.get(mine[0]) if register else None
    asked = entry.asked if entry is not None else required_head(opened.ledger, mine[0]).head.asked
    if fields is not None:
        check_asked(opened.ledger.stream, run, asked, fields)
    return asked or RunRequest(fields={})


def lanes_by_job(opened: OpenStream, kind: LaneKind, run: str) -> list[list[str]]:
    """The lanes that a run of a backfill or replay has opened, in lists: one for each job, which processes them in this order.

    Jobs may work at the same time: their offsets do not overlap.
    """
    register = opened.ledger.register()
    open_now = register[1].lanes if register else {}
    jobs = (
        [lane for lane in named if lane in open_now or opened.ledger.head(lane) is not None]
        for named in may_open(kind, run)
    )
    # A run has opened all of its lanes in one step, and they are numbered without a gap.
    return list(takewhile(bool, jobs))


def may_open(kind: LaneKind, run: str) -> list[list[str]]:
    """The names of the lanes that a run may have, as `jobs_of` gives them."""
    again = kind == LaneKind.BACKFILL
    return [
        [lane_name(kind, run, number), *([again_lane(run, number)] if again else [])]
        for number in range(1, MAX_LANES + 1)
    ]


def lanes_of(opened: OpenStream, kind: LaneKind, run: str) -> list[str]:
    """The lanes that a run of a backfill or replay has opened, those of one job after those of another."""
    return [lane for job in lanes_by_job(opened, kind, run) for lane in job]


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


def completion_note(opened: OpenStream, kind: LaneKind, run: str) -> str:
    """The answer to a run that has done all of its request: it reads nothing. Empty for all others."""
    jobs = lanes_by_job(opened, kind, run)
    try:
        if not jobs or left_of(opened, jobs):
            return ""
    except LaneClosed:
        # Tell whoever goes on with a lane that it was closed early.
        return ""
    what, does = ("erasure", "erases") if kind == LaneKind.ERASE else (kind.value, "reads")
    return (
        f"the {what} of run {run} is done, so this run {does} nothing; a run's name is used once. Ask for the same again "
        "under another name of the run"
    )


def selected_before(opened: OpenStream, lane: str) -> RangeSet:
    """The selection of a lane that an earlier try has opened; empty when there is no such lane."""
    register, stored = opened.ledger.register(), opened.ledger.head(lane)
    entry = register[1].lanes.get(lane) if register else None
    last = stored.head.last if stored else None
    ref = entry.selection if entry is not None else last.window.selection if last else None
    return opened.ledger.selection(ref) if ref is not None else NOTHING


def again_lane(run: str, number: int = 1) -> str:
    """The lane in which a backfill reads again what windows have read. A replay of the same name has another lane."""
    return lane_name(LaneKind.REPLAY, reread_name(run), number)


def reread_name(run: str) -> str:
    """The name under which a run claims what it reads again."""
    return f"{run}/again"


def lane_name(kind: LaneKind, run: str, number: int = 1) -> str:
    """The lane of a run, or one of the lanes among which the run is divided: `number` is 1 for the first."""
    named = run if number == 1 else f"{run}/lane {number}"
    return selected_lane(kind, hashlib.sha256(named.encode()).hexdigest()[:12])


def committed_before(opened: OpenStream, lane: str, run: str) -> list[Record]:
    """The windows that a run has committed in a lane, in order; only among the newest `RETRIED_WITHIN` windows."""
    stored = opened.ledger.head(lane)
    newest = newest_of_lane(opened.ledger, lane, stored.head if stored else None, RETRIED_WITHIN)
    return sorted((record for record in newest if record.attempt.run == run), key=lambda record: record.seq)


def is_done(opened: OpenStream, lane: str) -> bool:
    """Whether a backfill or replay has read its whole selection. Raises LaneClosed if the lane was closed before that."""
    stored = opened.ledger.head(lane)
    if stored is None or stored.head.state != LaneState.CLOSED:
        return False
    check_not_early(stored.head)
    return True


def plan_lane(opened: OpenStream, lane: str, run: str) -> Pending | None:
    """Step 1 for a backfill or replay lane: its pending window, or the next part of its selection. None when the lane is done.

    If the first window can never be planned, because Kafka no longer holds its offsets, the lane is closed, which frees
    its claim. Any other obstacle may be gone at the next try, such as a refused login or another lane's work. Raises
    LaneClosed for a lane that was closed before it was done, LanePaused for one that is paused.
    """
    if is_done(opened, lane):
        return None
    register = opened.ledger.register()
    entry = register[1].lanes.get(lane) if register else None
    if entry is None or entry.selection is None:
        raise WrongUse(f"{opened.ledger.stream} has no lane {lane} over a selection")
    try:
        pending = (
            _pin_selected(opened, lane, run, entry, entry.selection)
            if entry.erases is None
            else _pin_erasure(opened, lane, run, entry, entry.erases)
        )
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
        check_not_paused(opened.ledger, lane)
    return pending


class _Never(Exception):
    """Raised when what a lane was asked for can never be read."""

    def __init__(self, problem: SourceChanged) -> None:
        super().__init__(str(problem))
        self.problem = problem


def _pin_selected(opened: OpenStream, lane: str, run: str, entry: LaneEntry, ref: SelectionRef) -> Pending | None:
    chosen_sinks.check_still_there(opened, f"{opened.ledger.stream}/{lane}", entry.sinks)
    selection = opened.ledger.selection(ref)
    topics = tuple(sorted({at.topic for at in selection.partitions}))
    ends = {range_.partition: range_.until for range_ in selection.hull()}
    most = pacing.most_records(opened.stream.limits.max_records, _rate(opened, entry))
    asked = replace(request(opened, run, topics, entry.reason), max_records=most, sinks=entry.sinks)

    def plan(head: Head) -> tuple[Window | None, KafkaState]:
        ingest = opened.ledger.head(INGEST)
        known = known_now(opened, topics, learn=True, reached=ends)
        known = with_epoch_ends(opened, known, ingest.head) if ingest else known
        try:
            window = planner.next_selected(head, known, sized(opened, known, asked), selection, ref)
        except SourceChanged as problem:
            raise _Never(problem) from problem
        return window, known

    return pinning.pin(opened, lane, plan)


def _pin_erasure(opened: OpenStream, lane: str, run: str, entry: LaneEntry, erasure: Erasure) -> Pending | None:
    offsets, asked = opened.ledger.selection(erasure.selection), request(opened, run, (), entry.reason)
    return pinning.pin(opened, lane, lambda head: (planner.erasing(head, asked, erasure, offsets), KafkaState({}, {})))


def rate_of(opened: OpenStream, lane: str) -> int | None:
    """The most records a second that an open lane reads on average; None for the ingest, and where nothing limits it."""
    register = opened.ledger.register()
    entry = register[1].lanes.get(lane) if register else None
    return _rate(opened, entry) if lane != INGEST and entry is not None else None


def _rate(opened: OpenStream, entry: LaneEntry) -> int | None:
    return entry.rate if entry.rate is not None else opened.stream.limits.max_records_per_second


def _freed(opened: OpenStream, lane: str, problem: TidemarkError) -> str:
    """Close a lane if it has no committed and no pending window. Returns a sentence on its claim."""
    head = required_head(opened.ledger, lane).head
    if head.seq == 0 and head.pending is None:
        close_lane(opened.ledger, lane, because=f"{type(problem).__name__}: {problem}"[: protocol.MAX_REASON])
        return f"Nothing was read, and what {lane} had claimed is free again."
    return _kept(opened, lane)


def _kept(opened: OpenStream, lane: str) -> str:
    return f"What {lane} has not read stays claimed. To free it: tidemark cancel {opened.ledger.stream} {lane} --reason ..."


def finish(opened: OpenStream, lane: str) -> None:
    """Settle a lane. Close the lane too if it is a backfill or replay that is done."""
    protocol.settle(opened.ledger, opened.sweeper, lane)
    if lane != INGEST:
        close_lane(opened.ledger, lane)
