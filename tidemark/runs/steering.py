"""Steering a backfill or replay that is under way: pause it, let it go on, or cancel it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidemark.commit import protocol
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.records import INGEST, LaneKind, Paused, SelectionRef
from tidemark.ledger.register import close_lane, pause_lane, required_head
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.planner import unread_part
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import lanes

# A lane's job may be between two windows, and pin or settle one more, while the lane is cancelled. Then it has lost its
# fence. Each job that starts meanwhile needs another round.
_ROUNDS = 10

Acted = TypeVar("Acted")


@dataclass(frozen=True)
class Cancelled:
    """The rest of a cancelled lane: its committed windows, the window that was in work, and the offsets it has not read."""

    windows: int
    given_up: int | None
    left: RangeSet


def lanes_of(opened: OpenStream, named: str) -> list[str]:
    """The backfill or replay that a person names, by its lane or by its run: all lanes of a run, the last one first.

    The open ones, if any is open. Raises WrongUse when there is none.
    """
    ledger = opened.ledger
    stored = ledger.register()
    entries = stored[1].lanes if stored else {}
    kinds = (LaneKind.REPLAY, LaneKind.BACKFILL, LaneKind.ERASE)
    of_run = [lane for kind in kinds for job in reversed(lanes.may_open(kind, named)) for lane in reversed(job)]
    if there := [lane for lane in (named, *of_run) if lane != INGEST and lane in entries]:
        return there
    if named != INGEST and ledger.head(named) is not None:
        return [named]
    if there := [
        lane for kind in kinds for job in reversed(lanes.lanes_by_job(opened, kind, named)) for lane in reversed(job)
    ]:
        return there
    open_now = ", ".join(f"{lane} (run {entry.run})" for lane, entry in sorted(entries.items()) if lane != INGEST)
    raise WrongUse(
        f"{ledger.stream} has no backfill or replay {named}; expected a lane or the name of its run. Open are: "
        f"{open_now or 'none'}"
    )


def pause(opened: OpenStream, lane: str, reason: str) -> None:
    """Let no further window of a lane begin. The window in work is finished, and the claim stays. Raises WrongUse."""
    protocol.check_reason("pause", reason)
    pause_lane(opened.ledger, lane, Paused(reason=reason, at=opened.ledger.clock()))


def resume(opened: OpenStream, lane: str) -> None:
    """Let windows of a paused lane begin again; starts none. Raises WrongUse."""
    pause_lane(opened.ledger, lane, None)


def would_cancel(opened: OpenStream, lane: str, reason: str) -> Cancelled:
    """The rest of a lane if it were cancelled now. Changes nothing. Raises WrongUse for a lane that is not open."""
    selection = _to_cancel(opened, lane, reason)
    head = required_head(opened.ledger, lane).head
    given_up = head.pending.window.seq if head.pending is not None else None
    return Cancelled(head.seq, given_up, unread_part(head, opened.ledger.selection(selection)))


def cancel(opened: OpenStream, lane: str, reason: str) -> Cancelled:
    """End a lane now and free its claim; committed windows stay. A job that works on a window stops by its fence.

    Raises WrongUse for a lane that is not open.
    """
    ledger, selection = opened.ledger, _to_cancel(opened, lane, reason)
    given_up = None
    for left in reversed(range(_ROUNDS)):
        window = protocol.abandon(ledger, lane, reason, take_over=True)
        given_up = window.seq if window is not None else given_up
        protocol.settle(ledger, opened.sweeper, lane)
        try:
            close_lane(ledger, lane, because=reason)
            break
        except Conflict:
            if not left:
                raise
    head = required_head(ledger, lane).head
    return Cancelled(head.seq, given_up, unread_part(head, ledger.selection(selection)))


def _to_cancel(opened: OpenStream, lane: str, reason: str) -> SelectionRef:
    """The selection of an open lane. Raises WrongUse for one that is not open, and for no reason."""
    protocol.check_reason("cancel", reason)
    ledger = opened.ledger
    stored = ledger.register()
    entry = stored[1].lanes.get(lane) if stored else None
    if entry is None or entry.selection is None:
        early = required_head(ledger, lane).head.closed_early
        why = f"was closed before it was done: {early}" if early else "has read all of its offsets"
        raise WrongUse(f"{ledger.stream}/{lane} is not open: it {why}. There is nothing to cancel")
    return entry.selection


def steer_lanes(named: Sequence[str], act: Callable[[str], Acted]) -> dict[str, Acted]:
    """Do the same to several lanes of a run, in this order. Returns the results by lane.

    A lane that has been closed meanwhile is left out. Raises WrongUse if nothing could be done to any.
    """
    outcomes: dict[str, Acted] = {}
    refused: list[WrongUse] = []
    for lane in named:
        try:
            outcomes[lane] = act(lane)
        except WrongUse as problem:
            refused.append(problem)
    if refused and not outcomes:
        raise refused[0]
    return outcomes
