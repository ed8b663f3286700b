"""`tidemark pause`, `resume` and `cancel`: for a backfill or replay that is under way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.estimates import counted
from tidemark.cli.options import Json, Reason, Stream
from tidemark.cli.output import data, error, line
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import steering
from tidemark.runs.live.open_stream import OpenStream

Lane = Annotated[str, typer.Argument(help="a backfill or replay, by its lane or by the name of its run")]


def pause(stream: Stream, lane: Lane, reason: Reason) -> None:
    """Pause a backfill or replay after its current window. The claim stays.

    The run then ends with code 3. `tidemark resume` lets it continue.

    Example: tidemark pause orders replay-1f0c2d3e4b5a --reason "the cluster is full until noon"
    """
    opened = stream_lookup.opened(stream)
    outcomes = steering.steer_lanes(steering.lanes_of(opened, lane), lambda name: steering.pause(opened, name, reason))
    line(f"{_named(opened, outcomes)} is paused: no further window begins. To go on: tidemark resume {stream} {lane}")


def resume(stream: Stream, lane: Lane) -> None:
    """Allow a paused backfill or replay to continue. Then run it again under its name, or clear its task in Airflow.

    Example: tidemark resume orders replay-1f0c2d3e4b5a
    """
    opened = stream_lookup.opened(stream)
    outcomes = steering.steer_lanes(steering.lanes_of(opened, lane), lambda name: steering.resume(opened, name))
    line(f"{_named(opened, outcomes)} may go on: run it again under its name, or clear its failed task in Airflow")


@changes()
def cancel(stream: Stream, asking: Confirmation, lane: Lane, reason: Reason, as_json: Json = False) -> None:
    """End a backfill or replay now, and release its claim. Its committed windows stay; rows of the current window never count.

    Shows what would not be read, and asks. A running job stops within seconds, as fenced. A later request can read the rest.

    Example: tidemark cancel orders replay-1f0c2d3e4b5a --reason "asked for the wrong hour"
    """
    opened = stream_lookup.opened(stream)
    named = steering.lanes_of(opened, lane)
    if asking.shows:
        open_now = steering.steer_lanes(named, lambda name: steering.would_cancel(opened, name, reason))
        _show_cancelled(opened, open_now, as_json=as_json and asking.dry_run)
        unread = sum(lane_.left.count() for lane_ in open_now.values())
        if not asking.agrees(f"Cancel {_named(opened, open_now)}, with {number_of(unread, 'offset')} not read?"):
            return
    cancelled = steering.steer_lanes(named, lambda name: steering.cancel(opened, name, reason))
    windows, left, given_up = _show_cancelled(opened, cancelled, as_json=as_json)
    in_work = "".join(f", window {name}/{seq} is given up" for name, seq in given_up.items())
    stay = number_of(windows, "window", "is committed and stays", "are committed and stay")
    error(f"{_named(opened, cancelled)} is closed: {stay}{in_work}")
    free = number_of(left.count(), "offset", "was not read, and is", "were not read, and are")
    error(f"{free} free for a later request")


def _show_cancelled(
    opened: OpenStream, cancelled: Mapping[str, steering.Cancelled], *, as_json: bool
) -> tuple[int, RangeSet, dict[str, int]]:
    """Show the unread offsets of some lanes. Returns the committed windows, these offsets, and abandoned windows by lane."""
    windows = sum(outcome.windows for outcome in cancelled.values())
    left = RangeSet(part for outcome in cancelled.values() for part in outcome.left)
    given_up = {name: outcome.given_up for name, outcome in cancelled.items() if outcome.given_up is not None}
    value = {
        "lane": " ".join(cancelled),
        "committed_windows": windows,
        "given_up_window": next(iter(given_up.values()), None),
        "given_up": [f"{name}/{seq}" for name, seq in given_up.items()],
        "not_read": counted(opened.ledger.topics(), left),
    }
    rows = [(range_.partition, range_.start, range_.until, len(range_)) for range_ in left]
    data(value, as_json=as_json, rows=rows, columns=("partition", "from", "until", "offsets not read"))
    return windows, left, given_up


def _named(opened: OpenStream, lanes: Iterable[str]) -> str:
    return " and ".join(f"{opened.ledger.stream}/{lane}" for lane in lanes)
