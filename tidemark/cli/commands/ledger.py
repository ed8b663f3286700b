"""`tidemark ledger`: shows and verifies the ledger, gives up windows, and moves positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from tidemark.audit.coverage import coverage_by
from tidemark.cli import stream_lookup
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error, line, moment
from tidemark.cli.people import user
from tidemark.commit import protocol
from tidemark.errors import EXIT_LEDGER_UNREADABLE, WrongUse
from tidemark.ledger import places
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.covered import history_of
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.newest import open_heads
from tidemark.ledger.records import INGEST, LaneState, Window
from tidemark.ledger.recovery.verifying import verify as problems_of
from tidemark.ledger.register import accept_generation, new_token, required_head
from tidemark.offsets.coordinates import parse_coordinates
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import read_time
from tidemark.runs import skipping
from tidemark.views.events import events as events_of


def show(
    stream: Stream,
    closed: Annotated[bool, typer.Option("--closed", help="closed lanes too")] = False,
    as_json: Json = False,
) -> None:
    """The open lanes: how many windows each has committed, what is pending, and who asked for it and approved it.

    Example: tidemark ledger show orders
    """
    lanes = []
    ledger = stream_lookup.opened(stream).ledger
    register = ledger.register()
    heads = ledger.heads() if closed or register is None else open_heads(ledger, register[1])
    entries = all_lanes(ledger) if closed else register[1].lanes if register else {}
    for lane, stored in heads.items():
        head, attempt = stored.head, stored.head.pending.attempt if stored.head.pending else None
        entry = entries.get(lane)
        paused = entry is not None and entry.paused is not None and head.state != LaneState.CLOSED
        lanes.append(
            {
                "lane": lane,
                "state": "paused" if paused else head.state.value,
                "windows": head.seq,
                "pending": head.pending.window.seq if head.pending else None,
                "held_by": attempt.run if attempt else None,
                "run": entry.run if entry else None,
                "reason": entry.reason if entry else None,
                "asked_by": entry.asked_by if entry else None,
                "approved_by": entry.approved_by if entry else None,
                "rate": entry.rate if entry else None,
                # The sinks that the lane writes alone; None for all.
                "only_sinks": list(entry.sinks) if entry and entry.sinks is not None else None,
                "positions": {str(position.at): str(position.offset) for position in head.positions},
            }
        )
    columns = ("lane", "state", "windows", "pending", "held_by", "asked_by", "approved_by", "reason")
    headings = [name.replace("_", " ") for name in columns]
    data(lanes, as_json=as_json, rows=[[row[name] or "" for name in columns] for row in lanes], columns=headings)
    stream_lookup.say_if_retired(ledger)
    if not closed and register is not None and (others := register[1].closed):
        error(f"{number_of(others, 'lane', 'is', 'are')} closed: --closed shows {'it' if others == 1 else 'them'} too")


def coverage(stream: Stream, as_json: Json = False) -> None:
    """For each partition: which lane has read which offsets, what a policy has skipped, and the holes.

    `before`: what no lane has read between a backfill and the beginning of the ingest. Nobody has asked for it.

    Example: tidemark ledger coverage orders --json
    """
    history = history_of(stream_lookup.opened(stream).ledger)
    partitions = coverage_by(history.lanes, history.covered, history.ingest) if history else []
    plain = [
        {
            "partition": str(partition.partition),
            "lanes": {lane: _ranges(ranges) for lane, ranges in partition.lanes.items()},
            "holes": _ranges(partition.holes),
            "again": _ranges(partition.again),
            "lost": _ranges(partition.lost),
            "skipped": _ranges(partition.skipped),
            "before": _ranges(partition.before),
        }
        for partition in partitions
    ]
    rows = [
        (partition.partition, lane, _text(ranges))
        for partition in partitions
        for lane, ranges in partition.lanes.items()
    ]
    for what in ("lost", "skipped", "before", "holes"):
        rows += [
            (partition.partition, f"({what})", _text(part))
            for partition in partitions
            if (part := getattr(partition, what))
        ]
    data(plain, as_json=as_json, rows=rows, columns=("partition", "lane", "offsets"))


def verify(stream: Stream) -> None:
    """Check that every record is there, and is the one that the next record followed. Ends with 7 if not.

    Example: tidemark ledger verify orders
    """
    opened = stream_lookup.opened(stream)
    problems = problems_of(opened.ledger)
    for problem in problems:
        error(problem)
    if problems:
        raise typer.Exit(EXIT_LEDGER_UNREADABLE)
    windows = sum(stored.head.seq for stored in opened.ledger.heads().values())
    line(f"{opened.ledger.stream}: {number_of(windows, 'window')}, all of them there and unchanged")


@changes()
def abandon(
    stream: Stream,
    asking: Confirmation,
    lane: Annotated[str, typer.Argument(help="the lane of the pending window")],
    reason: Annotated[str, typer.Option(help="the reason, which the ledger stores")],
    take_over: Annotated[bool, typer.Option("--take-over", help="even if the window's holder seems alive")] = False,
) -> None:
    """Abandon the pending window of a lane. Asks first. Committed windows stay. The next window reads its offsets.

    Refused while the window's holder has heartbeats: stop that run first.

    Example: tidemark ledger abandon orders ingest --reason "pinned by a wrong stream file"
    """
    opened = stream_lookup.opened(stream)
    pending = required_head(opened.ledger, lane).head.pending
    if pending is not None and not asking.agrees(
        f"Give up window {pending.window.seq} of {opened.ledger.stream}/{lane}, which may be at work?"
    ):
        return
    shown = pending.window if pending is not None else None
    window = protocol.abandon(opened.ledger, lane, reason, take_over=take_over, agreed=shown)
    if window is None:
        line(f"{opened.ledger.stream}/{lane} has no pending window")
    else:
        line(f"window {window.seq} of {opened.ledger.stream}/{lane} is given up; the next run plans again")
    stored = opened.ledger.head(lane)
    if lane != INGEST and stored is not None and stored.head.state != LaneState.CLOSED:
        line(
            f"What {lane} claims stays claimed. To free it: tidemark cancel {opened.ledger.stream} {lane} --reason ..."
        )


@changes(when=lambda given: bool(given["accept"]))
def clock(
    stream: Stream,
    asking: Confirmation,
    accept: Annotated[
        bool, typer.Option("--accept", help="let generations count on from one that is far ahead of all clocks")
    ] = False,
    reason: Annotated[str, typer.Option(help="the reason, which the ledger stores")] = "",
    as_json: Json = False,
) -> None:
    """Show the last generation, this machine's clock and the ledger server's clock, and how far apart they are.

    Example: tidemark ledger clock orders
    """
    ledger = stream_lookup.opened(stream).ledger
    if accept:
        protocol.check_reason("clock --accept", reason)
        if asking.shows:
            _show_clocks(ledger, as_json=False)
        if not asking.agrees(f"Let runs of {ledger.stream} count on from its last generation?"):
            return
        accept_generation(ledger, reason)
    _show_clocks(ledger, as_json=as_json)


def _show_clocks(ledger: Ledger, *, as_json: bool) -> None:
    stored = ledger.register()
    value = {
        "generation": stored[1].generation if stored else None,
        "here": ledger.clock(),
        "server": ledger.store.time() if stored else None,
    }
    rows = [(what, moment(at)) for what, at in value.items()]
    data(value, as_json=as_json, rows=rows, columns=("clock", "time"))


@changes()
def forget_place(
    stream: Stream,
    asking: Confirmation,
    place: Annotated[
        list[str],
        typer.Argument(help="the name of the sink, and more to identify the place, such as table=orders"),
    ],
    reason: Annotated[str, typer.Option(help="why it is gone for good; it is kept in the ledger")] = "",
    back: Annotated[
        bool, typer.Option("--back", help="the place is back: clear what was erased there, and let runs write to it")
    ] = False,
) -> None:
    """Declare that a place is gone for good, with the results that it holds. No erasure or sweep uses it any more.

    If the place is only temporarily unavailable, bring it back instead: an erasure has to clear every place.

    Example: tidemark ledger forget-place orders rows table=orders_2019 --reason "the cluster was switched off"
    """
    opened = stream_lookup.opened(stream)
    chosen = places.named(opened.ledger, place, opened.places_now())
    words = " ".join(chosen.words)
    if back:
        if not asking.agrees(f"Clear in {words} what was erased, and let {opened.ledger.stream} write to it?"):
            return
        cleared = places.come_back(opened.ledger, chosen, opened.sweeper.erase)
        line(
            f"{words}: what {cleared} erasures have erased is cleared there, and {opened.ledger.stream} may write to it"
        )
        return
    protocol.check_reason("forget-place", reason)
    if not asking.agrees(f"Say that {words} is gone for good, so that no erasure clears it any more?"):
        return
    noted = places.forget(opened.ledger, chosen, reason, user())
    line(f"{words}: {noted.said()}. What it holds of erased messages is not cleared")


def events(stream: Stream, as_json: Json = False) -> None:
    """Show what was lost, skipped, abandoned, or accepted by a policy of the stream file.

    Example: tidemark ledger events orders
    """
    values = [asdict(event) for event in events_of(stream_lookup.opened(stream).ledger)]
    rows = [(moment(event["at"]), *(event[name] for name in ("what", "where", "why", "run"))) for event in values]
    data(values, as_json=as_json, rows=rows, columns=("at", "what", "where", "why", "run"))


@changes()
def skip(
    stream: Stream,
    asking: Confirmation,
    to: Annotated[
        list[str],
        typer.Option(help="latest, a time with its zone, or topic/partition@offset (once for each partition)"),
    ],
    reason: Annotated[str, typer.Option(help="the reason, which the ledger stores")],
    as_json: Json = False,
) -> None:
    """Move the ingest forward over offsets that it will not read. They are recorded as skipped; a backfill can read them.

    Shows them, and asks.

    Example: tidemark ledger skip orders --to latest --reason "a load test filled the topic"
    """
    opened = stream_lookup.opened(stream)
    run = f"tidemark ledger skip {new_token()[:8]}"
    target = _target(to)
    if asking.shows:
        shown = skipping.skip(opened, target, reason, run, write=False)
        _show_gaps(shown, as_json=as_json)
        # The gaps that were shown are skipped, wherever the end is by then.
        target = {
            (range_.partition.topic, range_.partition.partition): range_.until
            for range_ in (gap.as_range() for gap in shown.gaps)
        }
        offsets = sum(len(gap.as_range()) for gap in shown.gaps)
        if not asking.agrees(f"Skip {number_of(offsets, 'offset')} of {opened.ledger.stream}?"):
            return
    window = skipping.skip(opened, target, reason, run, write=True)
    if not asking.shows:
        _show_gaps(window, as_json=as_json)


def _show_gaps(window: Window, *, as_json: bool) -> None:
    gaps = [{"range": str(gap.as_range()), "kind": gap.kind.value} for gap in window.gaps]
    data(gaps, as_json=as_json, rows=[list(gap.values()) for gap in gaps], columns=("offsets", ""))


def _ranges(ranges: RangeSet) -> list[list[str]]:
    """[from, until) pairs, as strings: JavaScript loses digits above 2^53."""
    return [[str(range_.start), str(range_.until)] for range_ in ranges]


def _text(ranges: RangeSet) -> str:
    return " ".join(map(str, ranges))


def _target(said: Sequence[str]) -> skipping.Target:
    """Where a skip goes: `latest`, one time, or coordinates. Raises WrongUse."""
    if any("@" in text for text in said):
        wanted = [coordinate for text in said for coordinate in parse_coordinates(text)]
        offsets = {
            (coordinate.partition.topic, coordinate.partition.partition): coordinate.offset for coordinate in wanted
        }
        if len(offsets) < len(wanted):
            raise WrongUse("--to names a partition twice")
        return offsets
    if list(said) == ["latest"]:
        return "latest"
    try:
        (one,) = said
        return read_time(one)
    except (ValueError, WrongUse) as problem:
        why = f" ({problem})" if isinstance(problem, WrongUse) and any(map(str.isdigit, said[0])) else ""
        expected = "expected latest, one time with its zone, or topic/partition@offset for each partition"
        raise WrongUse(f"--to {' '.join(said)}: {expected}{why}") from None
