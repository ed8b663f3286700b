"""`tidemark erase`: results that never come back."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tidemark.cli import request_options, stream_lookup
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.estimates import counted
from tidemark.cli.options import ApprovedBy, Json, RunName, Stream, TakeOver
from tidemark.cli.output import data, error
from tidemark.cli.people import user
from tidemark.cli.request_options import takes
from tidemark.cli.submitting import new_run, show_answers
from tidemark.cli.terminal import reading_shown
from tidemark.errors import AnotherRequest
from tidemark.ledger.records import LaneKind
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.reading import Reading
from tidemark.runs import erasing
from tidemark.runs.erasing import OffsetsToErase, Remaining
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.answers import exact
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import EraseRequest
from tidemark.runs.requests.identity import fields_of
from tidemark.runs.windows import lanes


@takes(EraseRequest)
@changes()
def erase(
    stream: Stream,
    asking: Confirmation,
    approved_by: ApprovedBy = "",
    run_name: RunName = "",
    take_over: TakeOver = False,
    as_json: Json = False,
    **given: Any,
) -> None:
    """Remove the results of messages from every sink and the dead letters, for good: no replay brings them back.

    Shows what it would erase, and asks. Kafka's own copy stays until Kafka deletes it. The command lists what remains where.

    Example: tidemark erase orders --records orders/3@17 --reason "request 4711"
    """
    opened = stream_lookup.opened(stream)
    name = run_name or new_run()
    begun = erasing.begun(opened, name) is not None
    before: dict[str, RangeSet] = {}
    values = request_options.values(given, dry_run=asking.dry_run)
    if asking.dry_run or not begun or EraseRequest.asks(values):
        asked = request_options.request(EraseRequest, values)
        fields = fields_of(opened, asked, lanes.begun(opened, LaneKind.ERASE, name))
        if asking.dry_run:
            begun = _begun_so(opened, name, fields)
        reading = Reading()
        with reading_shown("looking for the key", reading) if values.get("key") else nullcontext():
            chosen, how = erasing.requested(
                opened, name if begun or not asking.dry_run else new_run(), asked, fields, reading
            )
        if how:
            error(how)
        before = dict(chosen.before)
        if asking.dry_run:
            _show_plan(opened, chosen, asking, as_json=as_json)
            return
        if not begun:
            if chosen.offsets and not _agreed(opened, chosen, asking):
                return
            erasing.clear_again(opened, chosen.erased_before)
            if not chosen.offsets:
                _show_plan(opened, chosen, asking, as_json=as_json)
                return
            people = Requesters(user(), approved_by or None)
            erasing.open_erasure(opened, name, chosen, asked.reason, people, asked=fields, plan=asked.plan)
    if begun and not _goes_on(name, asking):
        return
    lane = lanes.lane_name(LaneKind.ERASE, name)
    try:
        erasing.erase(opened, lane, name, take_over=take_over)
    except BaseException:
        error(f"The erasure has begun, and is not finished. To go on: tidemark erase {stream} --run {name}")
        raise
    _show_done(opened, lane, name, before, as_json=as_json)


def _goes_on(run: str, asking: Confirmation) -> bool:
    """Whether to go on with an erasure that has begun."""
    agreed = asking.agrees(f"Go on with the erasure that run {run} has begun, for good?")
    if agreed:
        error(f"going on with the erasure that run {run} has begun")
    return agreed


def _agreed(opened: OpenStream, chosen: OffsetsToErase, asking: Confirmation) -> bool:
    """Show what would be erased, and whether it may be."""
    if asking.shows:
        _show_plan(opened, chosen, asking, as_json=False)
    return asking.agrees(_question(opened, chosen))


def _question(opened: OpenStream, chosen: OffsetsToErase) -> str:
    messages, sinks = chosen.offsets.count(), len(opened.stream.sinks)
    return f"Erase {number_of(messages, 'message')} from {number_of(sinks, 'sink')} and the dead letters, for good?"


def _begun_so(opened: OpenStream, run: str, fields: dict[str, str]) -> bool:
    """For a dry run: whether the run has begun with this request. Prints so, and when it has begun with another one."""
    try:
        begun = erasing.begun(opened, run, fields)
    except AnotherRequest as problem:
        error(f"this would be refused: {problem}")
        return False
    if begun is not None:
        error(f"run {run} has begun, and would go on with what it has claimed")
    return begun is not None


def _show_plan(opened: OpenStream, chosen: OffsetsToErase, asking: Confirmation, *, as_json: bool) -> None:
    remaining, digest = erasing.remaining(opened, chosen.named), erasing.digest(opened, chosen)
    if as_json:
        topics = opened.ledger.topics()
        value = {
            "plan": digest,
            "to_erase": counted(topics, chosen.offsets),
            "erased_before": {why: counted(topics, part) for why, part in chosen.before.items()},
            "places": [place.as_fields() for place in remaining],
        }
        data(value, as_json=True)
    else:
        show_answers(opened, exact(chosen.answers))
        _show_places(remaining, "would remain")
    if asking.dry_run and chosen.offsets:
        error(f"dry run: {number_of(chosen.offsets.count(), 'offset')} would be erased; nothing was changed")
        error(f"to erase exactly this, and nothing else: --plan {digest}")
    elif not chosen.offsets:
        again = "what lay there is cleared once more" if chosen.before and not asking.dry_run else "nothing was changed"
        error(f"nothing was found that is not erased already; {again}")


def _show_done(opened: OpenStream, lane: str, run: str, before: dict[str, RangeSet], *, as_json: bool) -> None:
    done = erasing.done(opened, lane)
    places = erasing.remaining(opened, done.erased)
    if as_json:
        topics = opened.ledger.topics()
        value = {
            "stream": opened.ledger.stream,
            "lane": lane,
            "run": run,
            "erased": counted(topics, done.erased),
            "erased_before": {why: counted(topics, part) for why, part in before.items()},
            "tombstones": [tombstone.as_fields() for tombstone in done.tombstones],
            "places": [place.as_fields() for place in places],
        }
        data(value, as_json=True)
        return
    show_answers(opened, exact({**before, **done.answers}))
    _show_places(places, "remains")


def _show_places(places: list[Remaining], what: str) -> None:
    rows = [(place.name, place.type, place.where(), place.remains or "nothing") for place in places]
    data(None, as_json=False, rows=rows, columns=("place", "type", "where", what))
