"""How far a backfill or replay is, per partition, by the ledger. Plain values for JSON: offsets and numbers are texts."""

from __future__ import annotations

from typing import Any

from tidemark.ledger.closed import closed_lanes
from tidemark.ledger.records import Head, LaneEntry, LaneKind, LaneState
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.planning.planner import not_read
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.steering import lanes_of
from tidemark.runs.windows import lanes

MOST_PARTITIONS = 200


def progress_of(opened: OpenStream, named: str) -> dict[str, Any]:
    """The lanes of a backfill or replay, which is named by its run or a lane, in the order of work. Raises WrongUse.

    Of a run, also those that are done while others are not.
    """
    kinds = (LaneKind.BACKFILL, LaneKind.REPLAY, LaneKind.ERASE)
    of_run = [lane for kind in kinds for lane in lanes.lanes_of(opened, kind, named)]
    found = [_lane(opened, lane) for lane in of_run or lanes_of(opened, named)]
    return {"run": found[0]["run"], "now": opened.book.clock(), "lanes": found}


def _lane(opened: OpenStream, lane: str) -> dict[str, Any]:
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
    state = "paused" if entry and entry.paused and not closed else "closed" if closed else "open"
    return {
        "lane": lane,
        "kind": head.kind.value if head else entry.kind.value if entry else None,
        "state": "done" if done else "cancelled" if closed else state,
        "closed_early": head.closed_early if head else None,
        "paused": {"reason": entry.paused.reason, "at": entry.paused.at} if entry and entry.paused else None,
        "run": _run(entry, head),
        "reason": entry.reason if entry else None,
        "asked_by": entry.asked_by if entry else None,
        "approved_by": entry.approved_by if entry else None,
        "opened_at": entry.opened_at if entry else None,
        "windows": head.seq if head else 0,
        "offsets": str(chosen.count()),
        "left": str(left.count()),
        "pending": _pending(opened, lane, head),
        "partitions": [_partition(at, chosen, left) for at in chosen.partitions[:MOST_PARTITIONS]],
        "more_partitions": max(0, len(chosen.partitions) - MOST_PARTITIONS),
    }


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


def _partition(at: TopicPartition, chosen: RangeSet, left: RangeSet) -> dict[str, str]:
    mine = chosen.only([at])
    (hull,) = mine.hull()
    return {
        "partition": str(at),
        "from": str(hull.start),
        "until": str(hull.until),
        "offsets": str(mine.count()),
        "left": str(left.count(at)),
    }


def _pending(opened: OpenStream, lane: str, head: Head | None) -> dict[str, Any] | None:
    """The window in work, the step that its job is at, and the messages that it has stored so far."""
    if head is None or head.pending is None:
        return None
    beat, attempt = opened.book.last_beat(lane), head.pending.attempt
    working = beat is not None and attempt is not None and beat.generation == attempt.generation
    return {
        "window": f"{lane}/{head.pending.window.seq}",
        "step": beat.step if beat is not None and working else None,
        "stored": str(beat.stored) if beat is not None and working and beat.stored is not None else None,
        "since": head.pending.window.pinned_at,
    }
