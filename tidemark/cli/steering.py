"""`tidemark pause`, `resume` and `cancel`: for a backfill or replay that is under way."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemark.cli import finding
from tidemark.cli.estimates import counted
from tidemark.cli.options import Json, Reason, Stream
from tidemark.cli.output import data, error, line
from tidemark.runs import steering
from tidemark.runs.open_stream import OpenStream

Lane = Annotated[str, typer.Argument(help="a backfill or replay, by its lane or by the name of its run")]


def pause(stream: Stream, lane: Lane, reason: Reason) -> None:
    """Let no further window of a backfill or replay begin. The window in work is finished, and the claim stays.

    The run then ends with code 3. `tidemark resume` lets it go on.

    Example: tidemark pause orders replay-1f0c2d3e4b5a --reason "the cluster is full until noon"
    """
    opened = finding.opened(stream)
    found = steering.lanes_of(opened, lane)
    for one in found:
        steering.pause(opened, one, reason)
    line(f"{_named(opened, found)} is paused: no further window begins. To go on: tidemark resume {stream} {lane}")


def resume(stream: Stream, lane: Lane) -> None:
    """Let windows of a paused backfill or replay begin again. Then run it again under its name, or clear its task in Airflow.

    Example: tidemark resume orders replay-1f0c2d3e4b5a
    """
    opened = finding.opened(stream)
    found = steering.lanes_of(opened, lane)
    for one in found:
        steering.resume(opened, one)
    line(f"{_named(opened, found)} may go on: run it again under its name, or clear its failed task in Airflow")


def cancel(stream: Stream, lane: Lane, reason: Reason, as_json: Json = False) -> None:
    """End a backfill or replay now, and free its claim. Its committed windows stay; what the window in work wrote never counts.

    A job that runs stops within seconds, as fenced. A later request can take what was not read.

    Example: tidemark cancel orders replay-1f0c2d3e4b5a --reason "asked for the wrong hour"
    """
    opened = finding.opened(stream)
    found = steering.lanes_of(opened, lane)
    cancelled = steering.cancel_all(opened, found, reason)
    value = {
        "lane": " ".join(found),
        "committed_windows": cancelled.windows,
        "given_up_window": cancelled.given_up,
        "not_read": counted(cancelled.left),
    }
    rows = [(one.partition, one.start, one.until, len(one)) for one in cancelled.left]
    data(value, as_json=as_json, rows=rows, columns=("partition", "from", "until", "offsets not read"))
    in_work = f", window {cancelled.given_up} is given up" if cancelled.given_up is not None else ""
    error(f"{_named(opened, found)} is closed: {cancelled.windows} windows are committed and stay{in_work}")
    error(f"{cancelled.left.count()} offsets were not read, and are free for a later request")


def _named(opened: OpenStream, lanes: list[str]) -> str:
    return " and ".join(f"{opened.book.stream}/{one}" for one in lanes)
