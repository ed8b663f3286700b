"""`tidemark status`: the positions of a stream, or all streams in a line each."""

from __future__ import annotations

from typing import Annotated

import typer

from tidemark.cli import many_streams, stream_lookup
from tidemark.cli.options import Json
from tidemark.cli.output import data, error
from tidemark.errors import Unreachable
from tidemark.ledger.covered import unread_now
from tidemark.ledger.ledger import now_ms
from tidemark.ledger.records import INGEST
from tidemark.offsets.times import in_words
from tidemark.planning.checking import check_topics
from tidemark.runs.live.kafka_now import known_now
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.streams.loading import stream_files
from tidemark.views.overview import Overview, overview
from tidemark.views.state_words import StreamState
from tidemark.views.states import reasons_of
from tidemark.views.stream_line import StreamLine, line_of
from tidemark.views.triage import StreamFilter, StreamNow, counted, in_order
from tidemark.views.values import as_plain


def status(
    stream: Annotated[
        str, typer.Argument(help="a stream's name, or its file; by default all streams, one per line")
    ] = "",
    as_json: Json = False,
) -> None:
    """Position, end, lag and status of each partition, a pending window's end, and when retention may delete what is unread.

    Also shows the worst partition's status with its rule, holes, a raised latency alarm, open transactions that hold an end
    back, and keys of JSON messages that the stream file does not name. Without STREAM it shows all streams, the worst first:
    by state, then by how long the oldest unread message waits.

    Example: tidemark status orders
    """
    if not stream:
        _status_of_all(as_json=as_json)
        return
    opened = stream_lookup.opened(stream)
    overview = _overview(opened)
    columns = ("topic", "partition", "log_start", "position", "end", "lag", "status", "pending", "retention_shown")
    rows = [[getattr(partition, column) for column in columns] for partition in overview.partitions]
    headings = ("topic", "partition", "log start", "position", "end", "lag", "status", "pending until", "retention")
    data(overview, as_json=as_json, rows=rows, columns=headings)
    for reason in reasons_of(line_of(overview)):
        # These two end the command.
        if reason.state not in (StreamState.UNREACHABLE, StreamState.NO_TOPIC):
            error(str(reason))
    for transaction in overview.open_transactions:
        error(transaction.sentence)
    if overview.unknown_fields:
        error(f"keys: {overview.unknown_fields}. To add them: tidemark streams add-fields {stream}")
    if overview.kafka_problem:
        raise Unreachable(f"{overview.kafka_problem}. What is shown is what the ledger knows")
    if missing := tuple(overview.missing_topics):
        # With the exit code of the next plan.
        head = opened.ledger.head(INGEST)
        read = {at.topic for at in head.head.offsets()} if head is not None else set[str]()
        check_topics(known_now(opened, missing, learn=False), missing, read)


def _overview(opened: OpenStream) -> Overview:
    return overview(opened, unread_now(opened.ledger), without_kafka=True)


def _status_of_all(*, as_json: bool) -> None:
    """Show all streams of the folders, a line each, the worst first. A stream that cannot be read takes no other with it."""
    paths = stream_files(*stream_lookup.folders())
    looked = many_streams.looked_at(paths, open_stream, _line)
    stream_lookup.say_where(stream.opened for stream in looked if stream.opened is not None)
    ordered = in_order([stream.now for stream in looked], StreamFilter())
    data([_as_plain(stream) for stream in ordered], as_json=as_json, rows=map(_in_words, ordered), columns=_OF_ALL)
    for stream in ordered:
        for reason in stream.reasons:
            error(f"{stream.stream}: {reason}")
    error(", ".join(f"{group.streams} {group.state}" for group in counted(ordered)) or stream_lookup.none_here())
    if codes := [stream.problem.exit_code for stream in looked if stream.problem is not None]:
        # The first one's code: each has printed its remedy.
        raise typer.Exit(codes[0])


_OF_ALL = ("stream", "state", "lag", "for", "dead letters", "owner")


def _line(opened: OpenStream) -> StreamLine:
    return line_of(_overview(opened))


def _as_plain(stream: StreamNow) -> dict[str, object]:
    """The stream's line with its state and what is wrong, or why there is no line."""
    reasons = [as_plain(reason) for reason in stream.reasons]
    if stream.line is None:
        return {"stream": stream.stream, "state": stream.state, "problem": stream.problem, "reasons": reasons}
    return {**as_plain(stream.line), "state": stream.state, "reasons": reasons}


def _in_words(stream: StreamNow) -> list[object]:
    line, owner = stream.line, stream.owner or ""
    if line is None:
        return [stream.stream, stream.state, "", "", "", owner]
    waits = "" if not line.lag or line.unread_since is None else in_words(now_ms() - line.unread_since)
    return [stream.stream, stream.state, "" if line.lag is None else line.lag, waits, line.dead_letters, owner]
