"""Lanes over offsets that a test names, without the way of a person's request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import claims, plan
from tidemark.runs.requests.approval import NOBODY_KNOWN, Requesters
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.identity import fields_of_offsets
from tidemark.runs.windows import lanes
from tidemark.runs.windows.chosen_sinks import Sinks

_NOTHING = RangeSet()


def claim_lanes(
    opened: OpenStream,
    kind: LaneKind,
    run: str,
    selection: RangeSet,
    reason: str,
    by: Requesters = NOBODY_KNOWN,
    *,
    again: RangeSet = _NOTHING,
    sinks: Sinks = None,
    asked: Mapping[str, str] | None = None,
    view: LedgerSnapshot | None = None,
    **how: Any,
) -> list[str]:
    """Claim offsets for a run. `how`: `rate` and `lanes` of the request. Returns the lanes' names."""
    fields = {"reason": reason, **{name: str(value) for name, value in how.items()}}
    fields |= {"sinks": ",".join(sinks)} if sinks is not None else {}
    fields |= fields_of_offsets(selection=selection, again=again)
    values = {"reason": reason, "ranges": "named/0@0-1", "dry_run": False, "sinks": list(sinks or ()), **how}
    values |= {"mode": "reprocess"} if kind == LaneKind.BACKFILL and again else {}
    request = (ReplayRequest if kind == LaneKind.REPLAY else BackfillRequest)(**values)
    fields = dict(asked or fields)
    begun = plan.plan_of_run(opened, request, run, fields)
    planned = begun or plan.plan_offsets(opened, request, selection, again, fields=fields, view=view)
    return claims.claim(opened, planned, run, by)


def claim_lane(
    opened: OpenStream,
    kind: LaneKind,
    run: str,
    selection: RangeSet,
    reason: str,
    by: Requesters = NOBODY_KNOWN,
    **how: Any,
) -> str:
    """As `claim_lanes`, for one lane."""
    (lane,) = claim_lanes(opened, kind, run, selection, reason, by, **how)
    return lane


@dataclass(frozen=True)
class Claimed:
    """What a run has claimed: what it reads, and what a backfill reads `again`."""

    ranges: RangeSet
    again: RangeSet


def claimed_by(opened: OpenStream, kind: LaneKind, run: str) -> Claimed | None:
    """What a run has claimed; None when it has not begun."""
    asked = lanes.begun(opened, kind, run)
    if asked is None:
        return None
    ranges, again = (opened.ledger.selection(ref) if ref else _NOTHING for ref in (asked.selection, asked.again))
    return Claimed(ranges, again)
