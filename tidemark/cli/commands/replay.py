"""`tidemark backfill` and `tidemark replay`: what those DAGs do, for the same requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark.audit.comparison import ReplayComparison
from tidemark.cli import coordinates, request_options, stream_lookup
from tidemark.cli.comparison_job import compared, show_comparison
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.estimates import counted, show_estimate
from tidemark.cli.lanes_of_runs import work_off
from tidemark.cli.options import (
    ApprovedBy,
    From,
    Json,
    RunName,
    Stream,
    TakeOver,
    Until,
    Verbose,
)
from tidemark.cli.output import data, error
from tidemark.cli.people import user
from tidemark.cli.request_options import takes
from tidemark.cli.submitting import new_run, show_answers, show_committed
from tidemark.errors import AnotherRequest, WrongUse
from tidemark.ledger.records import LaneKind
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.comparisons import comparison_value, find_comparison
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests import claims, plan
from tidemark.runs.requests.answers import exact, table
from tidemark.runs.requests.approval import Requesters, check_approved
from tidemark.runs.requests.forms import BackfillRequest, ReplayRequest
from tidemark.runs.requests.outcomes import answers_of
from tidemark.runs.requests.plan import Plan
from tidemark.runs.requests.selecting import between_offsets
from tidemark.runs.windows import lanes
from tidemark.views.summary import committed_by

Requests = type[BackfillRequest] | type[ReplayRequest]


@dataclass(frozen=True)
class OffsetBounds:
    """`--from` and `--until`, which are another way to write ranges."""

    lower: list[str] | None
    upper: list[str] | None

    def written(self) -> dict[str, str]:
        """Bounds as they were written, in the place of ranges: an open end moves, and the request stays the same."""
        named = (("from", self.lower), ("until", self.upper))
        said = [f"{name} {' '.join(texts)}" for name, texts in named if texts]
        return {"ranges": ", ".join(said)} if said else {}


@takes(BackfillRequest)
@changes()
def backfill(
    stream: Stream,
    asking: Confirmation,
    from_: From = None,
    until: Until = None,
    approved_by: ApprovedBy = "",
    run_name: RunName = "",
    take_over: TakeOver = False,
    verbose: Verbose = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Read offsets that no window has read yet, in a separate lane. Shows them, and asks.

    Example: tidemark backfill orders --before-first --reason "the first days too"
    """
    bounds = OffsetBounds(from_, until)
    _selected(stream, BackfillRequest, given, bounds, asking, approved_by, run_name, take_over, verbose, as_json)


@takes(ReplayRequest)
@changes()
def replay(
    stream: Stream,
    asking: Confirmation,
    from_: From = None,
    until: Until = None,
    approved_by: ApprovedBy = "",
    run_name: RunName = "",
    take_over: TakeOver = False,
    verbose: Verbose = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Read again what windows have read before, in a separate lane. The ingest's position does not move.

    Shows what it would do, and asks. --compare --dry-run also shows what would change, as `tidemark report` does later.

    Example: tidemark replay orders --since 2026-11-21T07:00:00Z --until-time 2026-11-21T08:00:00Z --reason "bug 17"
    """
    bounds = OffsetBounds(from_, until)
    _selected(stream, ReplayRequest, given, bounds, asking, approved_by, run_name, take_over, verbose, as_json)


def _selected(
    stream: str,
    request: Requests,
    given: Mapping[str, Any],
    bounds: OffsetBounds,
    asking: Confirmation,
    approved_by: str,
    run_name: str,
    take_over: bool,
    verbose: bool,
    as_json: bool,
) -> None:
    opened = stream_lookup.opened(stream)
    values = _values(opened, given, bounds, dry_run=asking.dry_run)
    people, kind, name = Requesters(user(), approved_by or None), request.kind, run_name or new_run()
    begun = lanes.begun(opened, kind, name) is not None
    left_out: Mapping[str, RangeSet] = {}
    # An earlier try of the run has compared before it opened the lane.
    changes = find_comparison(opened, name) if begun and values.get("compare") else None
    if values["dry_run"] or not begun or request.asks(values):
        asked = _checked(request, values, name if begun else "")
        planned = _planned_for(opened, asked, name, bounds.written())
        if not planned.begun:
            changes = _compared(opened, planned, name, people, verbose=verbose) or changes
        if asked.dry_run:
            _show(opened, planned, changes, as_json=as_json)
            return
        if not planned.begun:
            left_out = planned.left_out
            if not _agreed(opened, planned, None if as_json and asking.yes else changes, asking):
                return
            claims.claim(opened, planned, name, people)
    jobs = lanes.lanes_by_job(opened, kind, name)
    mine = [lane for job in jobs for lane in job]
    if begun and (said := lanes.completion_note(opened, kind, name)):
        for lane in mine:
            lanes.finish(opened, lane)
        error(said)
    elif not begun or _goes_on(kind, name, asking):
        work_off(opened, f"tidemark {kind.value} {stream}", jobs, name, take_over=take_over, verbose=verbose)
    else:
        return
    _show_done(opened, mine, name, left_out, changes, as_json=as_json)


def _goes_on(kind: LaneKind, run: str, asking: Confirmation) -> bool:
    """Whether to go on with a run that has begun. It reads what it has claimed, whatever the request is now."""
    agreed = asking.agrees(f"Go on with the {kind.value} that run {run} has begun?")
    if agreed:
        error(f"going on with the {kind.value} that run {run} has begun: its offsets, at its rate")
    return agreed


def _agreed(opened: OpenStream, planned: Plan, changes: ReplayComparison | None, asking: Confirmation) -> bool:
    """Show what a run will do, and whether it may."""
    if asking.yes:
        _show_before(opened, planned, changes)
        return True
    _show(opened, planned, changes, as_json=False)
    return asking.agrees(_question(opened, planned))


def _checked(request: Requests, values: Mapping[str, Any], begun: str) -> BackfillRequest | ReplayRequest:
    """The request in some values; the run of this name has `begun`, if there is a name."""
    try:
        return request_options.request(request, values)
    except WrongUse as problem:
        if not begun:
            raise
        raise WrongUse(f"{problem}. Run {begun} has begun: to go on with it, name the run and nothing else") from None


def _planned_for(opened: OpenStream, asked: plan.Request, run: str, written: Mapping[str, str]) -> Plan:
    """The plan of a request under the name of a run. A dry run says that it would be refused, and shows the plan without it.

    Raises AnotherRequest for a comparison under a name that another request has used.
    """
    try:
        planned = plan.plan_request(opened, asked, run, written)
    except AnotherRequest as problem:
        if not asked.dry_run or (isinstance(asked, ReplayRequest) and asked.compare):
            raise
        error(f"this would be refused: {problem}")
        return plan.plan_request(opened, asked)
    if planned.begun and asked.dry_run:
        error(f"run {run} has begun, and would go on with what it has claimed")
    return planned


def _compared(
    opened: OpenStream, planned: Plan, run: str, people: Requesters, *, verbose: bool
) -> ReplayComparison | None:
    """The changes of a replay, if its request asks for them."""
    asked = planned.request
    if not isinstance(asked, ReplayRequest) or not asked.compare or not planned.ranges:
        return None
    if not asked.dry_run:
        # Refused before Spark is started.
        check_approved(opened.stream.limits.approve_above, planned.ranges.count(), people)
    return compared(opened, run, planned.ranges, planned.sinks, verbose=verbose)


def _show_before(opened: OpenStream, planned: Plan, changes: ReplayComparison | None) -> None:
    """Show the work of a run before it begins.

    If its job fails, whoever goes on with `--run` gets the answers to what was read, but no longer those to what was left out.
    """
    if changes is not None:
        show_comparison(changes)
    _show_more_or_less(planned)
    for said in table(exact(planned.left_out), opened.ledger.topics()) if planned.left_out else ():
        error(said)


def _show(opened: OpenStream, planned: Plan, changes: ReplayComparison | None, *, as_json: bool) -> None:
    """A dry run: the answer to each offset, how many are stored already, an estimate by earlier windows, and the changes."""
    guess, stored = plan.estimated(opened, planned), plan.stored_now(opened, planned)
    digest, topics = plan.digest(opened, planned), opened.ledger.topics()
    value = {
        "kind": planned.kind.value,
        "sinks": None if planned.sinks is None else list(planned.sinks),
        **counted(topics, planned.ranges),
        "again": counted(topics, planned.again),
        "left_out": {why: counted(topics, ranges) for why, ranges in planned.left_out.items()},
        **stored.as_fields(),
        "plan": digest,
        "estimate": guess,
        **_comparison(changes),
    }
    if as_json:
        data(value, as_json=True)
    else:
        show_answers(opened, exact(planned.answers()))
        if changes is not None:
            show_comparison(changes)
    how = "dry run: " if planned.request.dry_run else ""
    error(
        f"{how}{number_of(planned.all.count(), 'offset')} would be read; "
        f"rows of {number_of(str(stored), 'message')} of them are stored"
    )
    show_estimate(guess)
    if planned.request.dry_run:
        error(f"to start exactly this, and nothing else: --plan {digest}")
    _show_more_or_less(planned)


def _show_done(
    opened: OpenStream,
    mine: list[str],
    run: str,
    left_out: Mapping[str, RangeSet],
    changes: ReplayComparison | None,
    *,
    as_json: bool,
) -> None:
    """Show the commits of the run, the answer to each of its offsets, and in JSON the changes that were planned."""
    given = [answer for lane in mine for answer in answers_of(opened, committed_by(opened, lane, run))]
    answers, more = sorted([*given, *exact(left_out)]), _comparison(changes)
    show_committed(opened, mine, run, as_json=as_json, answers=answers, more=more)


def _comparison(changes: ReplayComparison | None) -> dict[str, Any]:
    return {} if changes is None else {"comparison": comparison_value(changes)}


def _question(opened: OpenStream, planned: Plan) -> str:
    """The question to a person: a replay replaces what is stored, and a backfill adds to it."""
    names = planned.sinks if planned.sinks is not None else [sink.name for sink in opened.stream.sinks]
    offsets, sinks = number_of(planned.all.count(), "offset"), number_of(len(names), "sink")
    replaces = planned.kind == LaneKind.REPLAY or planned.again
    if replaces:
        return f"Read {offsets} again, and replace what {sinks} {'has' if len(names) == 1 else 'have'} of them?"
    return f"Read {offsets}, and add them to {sinks}?"


def _show_more_or_less(planned: Plan) -> None:
    if planned.sinks is not None:
        error(f"into {', '.join(planned.sinks)} alone: other sinks and the dead letters stay as they are")
    for why, ranges in planned.left_out.items():
        error(f"left out, {why}: {number_of(ranges.count(), 'offset')}")


def _values(opened: OpenStream, given: Mapping[str, Any], bounds: OffsetBounds, **more: Any) -> dict[str, Any]:
    """The values of a request, whose ranges may be written as two bounds."""
    fields = request_options.values(given, **more)
    if not bounds.lower and not bounds.upper:
        return fields
    if given.get("ranges"):
        raise WrongUse("use either --ranges, or --from and --until: both choose offsets")
    both = coordinates.coordinates("--from", bounds.lower), coordinates.coordinates("--until", bounds.upper)
    # In three parts, as people write coordinates: the incarnation is filled in as for all requests.
    ranges = "\n".join(
        f"{range_.partition.topic}/{range_.partition.partition}@{range_.start}-{range_.until}"
        for range_ in between_offsets(opened, *both)
    )
    return {**fields, "ranges": ranges}
