"""Opening the lanes of a backfill or a replay, which claim the offsets of its plan."""

from __future__ import annotations

from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind, RunRequest, positions
from tidemark.ledger.register import NewLane, open_together
from tidemark.planning.dividing import divide_evenly
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import plan
from tidemark.runs.requests.approval import NOBODY_KNOWN, Requesters, check_approved
from tidemark.runs.requests.plan import Plan
from tidemark.runs.windows import lanes


def claim(opened: OpenStream, planned: Plan, run: str, by: Requesters = NOBODY_KNOWN) -> list[str]:
    """Open the lanes of a run for its plan, all in one step. Returns their names, as `lanes.lanes_of`.

    A backfill reads `again` in replay lanes. Each of the two selections is divided among the lanes of the request. The
    names follow from the run's name, so that a retry finds the lanes that the first try opened or closed. Lanes that
    work at once share the rate. If the run has begun, its lanes are returned as they are.

    Raises AnotherRequest where the run has begun with another request, LaneClosed where it has and only cancelled
    offsets are left, StaleLedger where the request names another plan, NotApproved for too many offsets without a
    second person, OffsetsErased for offsets erased since the plan was made.
    """
    kind, request = planned.kind, planned.request
    if lanes.begun(opened, kind, run, planned.fields) is not None:
        lanes.left_of(opened, lanes.lanes_by_job(opened, kind, run))
        return lanes.lanes_of(opened, kind, run)
    # It may have waited for a second person, or for a comparison.
    plan.check(opened, planned, planned.view)
    chosen = [
        (lane_kind, name, part)
        for lane_kind, name, part in (
            (kind, run, planned.ranges),
            (LaneKind.REPLAY, lanes.reread_name(run), planned.again),
        )
        if part
    ]
    if not chosen:
        raise WrongUse(f"there is nothing to {kind.value}: everything selected was erased, or the selection is empty")
    check_approved(opened.stream.limits.approve_above, sum(part.count() for _, _, part in chosen), by)
    rate, at_once = request.rate, request.lanes
    if at_once > 1:
        rate = rate if rate is not None else opened.stream.limits.max_records_per_second
        at_once = at_once if rate is None else min(at_once, rate)
    divided = [(kind, name, divide_evenly(part, at_once)) for kind, name, part in chosen]
    at_once = max(len(parts) for _, _, parts in divided)
    claimed = {name: opened.ledger.store_selection(part) for _, name, part in chosen}
    noted = RunRequest(
        fields=dict(planned.fields),
        selection=claimed.get(run),
        again=claimed.get(lanes.reread_name(run)),
    )
    wanted = [
        NewLane(
            lane=lanes.lane_name(kind, name, number),
            kind=kind,
            run=run,
            start=positions({range_.partition: range_.start for range_ in part.hull()}),
            selection=opened.ledger.store_selection(part),
            reason=request.reason,
            asked_by=by.asked,
            approved_by=by.approved,
            rate=rate // at_once if rate is not None else None,
            sinks=planned.sinks,
            asked=noted,
        )
        for kind, name, parts in divided
        for number, part in enumerate(parts, 1)
    ]
    open_together(opened.ledger, *wanted, judge=lambda now: plan.check(opened, planned, now))
    return lanes.lanes_of(opened, kind, run)
