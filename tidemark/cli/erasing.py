"""`tidemark erase`: results that never come back."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tidemark.cli import finding
from tidemark.cli.estimates import counted
from tidemark.cli.options import (
    ApprovedBy,
    Json,
    Reason,
    Records,
    RecordsFile,
    RunName,
    Stream,
    TakeOver,
    Verbose,
)
from tidemark.cli.output import data, error
from tidemark.cli.selected import lines, user
from tidemark.cli.submitting import new_run, process, show_answers
from tidemark.errors import WrongUse
from tidemark.ledger.erased import Tombstone, by_answer, tombstones
from tidemark.ledger.records import LaneKind
from tidemark.offsets.coordinates import parse_coordinates
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import in_utc
from tidemark.runs import erasing, keys, lanes
from tidemark.runs.answers import exact
from tidemark.runs.approval import People
from tidemark.runs.erasing import Chosen, Remaining
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.record_files import records_in

TO_ERASE = "to be erased"
TO_READ_AGAIN = "to be read again, without what is erased"


def erase(
    stream: Stream,
    records: Records = None,
    records_file: RecordsFile = "",
    key: Annotated[
        str,
        typer.Option(help="every message with this key: its text, or hex: and its bytes as hexadecimal digits"),
    ] = "",
    reason: Reason = "",
    approved_by: ApprovedBy = "",
    run_name: RunName = "",
    take_over: TakeOver = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only show what would be erased, and where it is")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Remove the results of messages from every sink and the dead letters, for good: no replay brings them back.

    Kafka's own copy stays until Kafka deletes it. The command says what remains where.

    Example: tidemark erase orders --records orders/3@17 --reason "request 4711"
    """
    opened = finding.opened(stream)
    name = run_name or new_run()
    mine = lanes.lanes_of(opened, LaneKind.ERASE, name)
    before: dict[str, RangeSet] = {}
    if mine:
        error(f"going on with the erasure that run {name} has begun")
        (lane,) = mine
    else:
        chosen = erasing.choose(opened, _wanted(opened, records, records_file, key))
        before = dict(chosen.before)
        if dry_run or not chosen.offsets:
            _show_plan(opened, chosen, as_json=as_json)
            return
        lane = erasing.open_erasure(opened, name, chosen, reason, People(user(), approved_by or None))
    command = f"tidemark erase {stream}"
    pending = lanes.plan_lane(opened, lane, name)
    if pending is None:
        lanes.finish(opened, lane)
    elif erasing.reads_nothing(opened, pending.window):
        try:
            erasing.erase_only(opened, lane, pending.window.seq, name, take_over=take_over)
            lanes.finish(opened, lane)
        except BaseException:
            error(f"To go on: {command} --run {name}")
            raise
    else:
        process(opened, command, lane, name, pending, take_over=take_over, verbose=verbose)
    _show_done(opened, lane, name, before, as_json=as_json)


def _wanted(opened: OpenStream, records: list[str] | None, records_file: str, key: str) -> RangeSet:
    given = [name for name, value in (("records", records), ("records-file", records_file), ("key", key)) if value]
    if len(given) != 1:
        raise WrongUse(
            f"name what to erase by exactly one of --records, --records-file, --key; found {given or 'none'}"
        )
    if key:
        found = keys.with_key(opened, keys.parse_key(key))
        error(found.sentence())
        return found.offsets
    named = records_in(records_file) if records_file else None
    if named is None:
        named = RangeSet(one.as_range() for one in parse_coordinates(lines(records)))
    return lanes.with_incarnations(opened, named)


def _show_plan(opened: OpenStream, chosen: Chosen, *, as_json: bool) -> None:
    found = erasing.remaining(opened, chosen.offsets)
    if as_json:
        value = {
            "to_erase": counted(chosen.offsets),
            "to_read_again": counted(chosen.rest),
            "erased_before": {why: counted(part) for why, part in chosen.before.items()},
            "places": [one.as_fields() for one in found],
        }
        data(value, as_json=True)
    else:
        parts = {TO_ERASE: chosen.offsets, TO_READ_AGAIN: chosen.rest, **chosen.before}
        show_answers(exact({why: part for why, part in parts.items() if part}))
        _show_places(found, "would remain")
    if chosen.offsets:
        error(f"dry run: {chosen.offsets.count()} offsets would be erased; nothing was changed")
    else:
        error("everything that was named is erased already; nothing was changed")


def _show_done(opened: OpenStream, lane: str, run: str, before: dict[str, RangeSet], *, as_json: bool) -> None:
    committed = [one for one in opened.book.committed() if one.record.lane == lane]
    found = tombstones(committed)
    erased = RangeSet(part for one in found for part in one.offsets)
    places = erasing.remaining(opened, erased)
    if as_json:
        value = {
            "stream": opened.book.stream,
            "lane": lane,
            "run": run,
            "erased": counted(erased),
            "read_again": counted(RangeSet(part for one in committed for part in one.covers) - erased),
            "erased_before": {why: counted(part) for why, part in before.items()},
            "tombstones": [_as_fields(one) for one in found],
            "places": [one.as_fields() for one in places],
        }
        data(value, as_json=True)
        return
    show_answers(exact({**before, **by_answer(committed)}))
    _show_places(places, "remains")


def _as_fields(one: Tombstone) -> dict[str, Any]:
    record = one.record
    return {
        "window": f"{record.lane}/{record.seq}",
        "at": in_utc(record.committed_at),
        "reason": record.window.reason,
        "asked_by": one.asked_by,
        "approved_by": one.approved_by,
        "offsets": one.offsets.count(),
    }


def _show_places(places: list[Remaining], what: str) -> None:
    rows = [(one.name, one.type, one.where(), one.remains or "nothing") for one in places]
    data(None, as_json=False, rows=rows, columns=("place", "type", "where", what))
