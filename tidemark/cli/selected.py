"""`tidemark backfill` and `tidemark replay`: what those DAGs do, for the same requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.cli import finding
from tidemark.cli.estimates import counted, estimated, show_estimate
from tidemark.cli.options import (
    DryRun,
    From,
    IfNone,
    Json,
    Ranges,
    Reason,
    Records,
    RecordsFile,
    RunName,
    Since,
    Stream,
    TakeOver,
    Until,
    UntilTime,
)
from tidemark.cli.output import data, error
from tidemark.cli.submitting import new_run, process, show_committed
from tidemark.errors import WrongUse
from tidemark.ledger.records import LaneKind, Pending
from tidemark.offsets.coordinate_files import lines_of
from tidemark.offsets.coordinates import parse_coordinates
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.estimating import stored_before
from tidemark.runs import lanes, whole_windows
from tidemark.runs.open_stream import OpenStream
from tidemark.runs.requests import BackfillRequest, ReplayRequest, checked
from tidemark.runs.selecting import Selected, between_offsets, of_kind, select

Requests = type[BackfillRequest] | type[ReplayRequest]


def backfill(
    stream: Stream,
    ranges: Ranges = None,
    from_: From = None,
    until: Until = None,
    everything_before: Annotated[
        bool,
        typer.Option(
            "--before-first", "--everything-before", help="everything that Kafka holds below where the ingest began"
        ),
    ] = False,
    holes: Annotated[bool, typer.Option("--holes", help="the offsets between windows that are in no window")] = False,
    since: Since = "",
    until_time: UntilTime = "",
    if_none: IfNone = "fail",
    reason: Reason = "",
    run_name: RunName = "",
    take_over: TakeOver = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read offsets that no window has read yet, in a lane of their own.

    Example: tidemark backfill orders --before-first --reason "the first days too"
    """
    opened = finding.opened(stream)
    values = {
        "ranges": _ranges(opened, ranges, from_, until),
        "everything_before": everything_before,
        "holes": holes,
        "since": since,
        "until_time": until_time,
        "if_none": if_none,
        "reason": reason,
        "dry_run": dry_run,
    }
    _selected(opened, BackfillRequest, values, f"tidemark backfill {stream}", run_name, take_over, as_json)


def replay(
    stream: Stream,
    records: Records = None,
    records_file: RecordsFile = "",
    ranges: Ranges = None,
    from_: From = None,
    until: Until = None,
    dead_letters: Annotated[
        str,
        typer.Option(
            help="the dead letters with exactly this reason or error class, * for all; the times choose among them"
        ),
    ] = "",
    dead_letters_window: Annotated[
        str, typer.Option(help="only the dead letters of this lane, or of its window LANE/NUMBER")
    ] = "",
    selection: Annotated[str, typer.Option(help="an audit's findings, by the digest that its report names")] = "",
    ignore_stored: Annotated[
        bool, typer.Option("--ignore-stored", help="everything from where `start` says; the ingest stays where it is")
    ] = False,
    since: Since = "",
    until_time: UntilTime = "",
    if_none: IfNone = "fail",
    reason: Reason = "",
    run_name: RunName = "",
    take_over: TakeOver = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Read again what windows have read before, in a lane of its own. The ingest's position does not move.

    Example: tidemark replay orders --since 2026-11-21T07:00:00Z --until-time 2026-11-21T08:00:00Z --reason "bug 17"
    """
    opened = finding.opened(stream)
    values = {
        "records": lines(records),
        "records_file": records_file,
        "ranges": _ranges(opened, ranges, from_, until),
        "dead_letters": dead_letters,
        "dead_letters_window": dead_letters_window,
        "selection": selection,
        "ignore_stored": ignore_stored,
        "since": since,
        "until_time": until_time,
        "if_none": if_none,
        "reason": reason,
        "dry_run": dry_run,
    }
    _selected(opened, ReplayRequest, values, f"tidemark replay {stream}", run_name, take_over, as_json)


def _selected(
    opened: OpenStream,
    request: Requests,
    values: dict[str, Any],
    command: str,
    run_name: str,
    take_over: bool,
    as_json: bool,
) -> None:
    kind, name = request.kind, run_name or new_run()
    lane = lanes.lane_name(kind, name)
    if lanes.is_done(opened, lane):
        lanes.finish(opened, lane)
        error(f"the {kind.value} of run {name} is done; a run's name is used once")
        show_committed(opened, lane, name, as_json=as_json)
        return
    found = opened.book.register()
    if found is not None and lane in found[1].lanes:
        error(f"going on with the {kind.value} that run {name} has begun, with the offsets that it has selected")
    else:
        asked = checked(request, values, {})
        chosen = select(opened, asked)
        if asked.dry_run:
            _show(opened, kind, chosen, as_json=as_json)
            return
        _show_more_or_less(opened, chosen)
        lanes.open_selected(opened, kind, name, chosen.ranges, asked.reason)
    process(opened, command, lane, name, _planned(opened, lane, name), take_over=take_over)
    show_committed(opened, lane, name, as_json=as_json)


def repair(opened: OpenStream, run: str, findings: RangeSet, reason: str, command: str) -> None:
    """Replay an audit's findings."""
    lane = lanes.open_selected(opened, LaneKind.REPLAY, run, findings, reason)
    process(opened, command, lane, run, _planned(opened, lane, run))


def _planned(opened: OpenStream, lane: str, run: str) -> Pending | None:
    pending = lanes.plan_lane(opened, lane, run)
    if pending is None:
        lanes.finish(opened, lane)
        error("everything selected has been read")
    return pending


def _show(opened: OpenStream, kind: LaneKind, chosen: Selected, *, as_json: bool) -> None:
    """A dry run: the offsets to read, how many are stored already, and an estimate by earlier windows."""
    possible = of_kind(opened, kind, chosen.ranges)
    guess = estimated(opened, possible.ranges.count())
    stored = stored_before(opened.book.view(), possible.ranges)
    value = {
        "kind": kind.value,
        **counted(chosen.ranges),
        "added": counted(chosen.added),
        "left_out": {why: counted(ranges) for why, ranges in chosen.left_out.items()},
        "refused": {why: counted(ranges) for why, ranges in possible.left_out.items()},
        "stored_before": stored,
        "estimate": guess,
    }
    rows = [(one.partition, one.start, one.until, len(one)) for one in chosen.ranges]
    data(value, as_json=as_json, rows=rows, columns=("partition", "from", "until", "offsets"))
    error(f"dry run: {chosen.ranges.count()} offsets would be read; of about {stored} messages of them rows are stored")
    show_estimate(guess)
    _show_more_or_less(opened, chosen)
    for why, ranges in possible.left_out.items():
        error(f"would be refused, {why}: {ranges.count()} offsets")


def _show_more_or_less(opened: OpenStream, chosen: Selected) -> None:
    if chosen.added:
        error(
            f"added, since {whole_windows.made_of_them(opened)} are made of whole windows: {chosen.added.count()} offsets"
        )
    for why, ranges in chosen.left_out.items():
        error(f"left out, {why}: {ranges.count()} offsets")


def _ranges(opened: OpenStream, given: list[str] | None, lower: list[str] | None, upper: list[str] | None) -> str:
    said = lines(given)
    if not lower and not upper:
        return said
    if said:
        raise WrongUse("--ranges and --from, --until say the same in two ways: use one of them")
    bounds = (parse_coordinates(lines(found)) for found in (lower, upper))
    # As people write coordinates, in three parts: the incarnation is filled in as for all requests.
    return "\n".join(
        f"{one.partition.topic}/{one.partition.partition}@{one.start}-{one.until}"
        for one in between_offsets(opened, *bounds)
    )


def lines(given: list[str] | None) -> str:
    """The values of an option, one per line; `@FILE` stands for a file's lines. Raises WrongUse."""
    said = []
    for one in given or ():
        if not one.startswith("@"):
            said.append(one)
            continue
        said.append(lines_of(Path(one[1:])))
    return "\n".join(said)
