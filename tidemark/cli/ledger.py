"""`tidemark ledger`: what the ledger holds, whether it is whole, and giving up a window."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from tidemark import protocol, runs
from tidemark.cli import finding
from tidemark.cli.asking import target
from tidemark.cli.exporting import export
from tidemark.cli.options import Json, Stream
from tidemark.cli.output import data, error, line, moment
from tidemark.cli.stored import stored_offsets
from tidemark.errors import EXIT_LEDGER_UNREADABLE, WrongUse
from tidemark.ledger.register import new_token
from tidemark.ledger.verifying import verify as problems_of
from tidemark.planning import skipping
from tidemark.ranges import RangeSet
from tidemark.views.coverage import coverage as coverage_of
from tidemark.views.events import events as events_of

app = typer.Typer(help="The ledger of a stream.", no_args_is_help=True)


@app.command()
def show(stream: Stream, as_json: Json = False) -> None:
    """The lanes: how many windows each has committed, and what is pending.

    Example: tidemark ledger show orders
    """
    found = []
    for lane, stored in finding.opened(stream).book.heads().items():
        head, attempt = stored.head, stored.head.pending.attempt if stored.head.pending else None
        found.append(
            {
                "lane": lane,
                "state": head.state.value,
                "windows": head.seq,
                "pending": head.pending.window.seq if head.pending else None,
                "held_by": attempt.run if attempt else None,
                "positions": {str(position.at): str(position.offset) for position in head.positions},
            }
        )
    columns = ("lane", "state", "windows", "pending", "held_by")
    data(found, as_json=as_json, rows=[[one[name] for name in columns] for one in found], columns=columns)


@app.command()
def coverage(stream: Stream, as_json: Json = False) -> None:
    """Per partition which lane has read which offsets, what a policy has jumped over, and the holes.

    Example: tidemark ledger coverage orders --json
    """
    found = coverage_of(finding.opened(stream).book.committed())
    plain = [
        {
            "partition": str(one.partition),
            "lanes": {lane: _ranges(ranges) for lane, ranges in one.lanes.items()},
            "holes": _ranges(one.holes),
            "again": _ranges(one.again),
            "lost": _ranges(one.lost),
            "skipped": _ranges(one.skipped),
        }
        for one in found
    ]
    rows = [(one.partition, lane, _text(ranges)) for one in found for lane, ranges in one.lanes.items()]
    for what in ("lost", "skipped", "holes"):
        rows += [(one.partition, f"({what})", _text(part)) for one in found if (part := getattr(one, what))]
    data(plain, as_json=as_json, rows=rows, columns=("partition", "lane", "offsets"))


@app.command()
def verify(stream: Stream) -> None:
    """Whether every record is there and is the one that its successor followed; ends with 7 if not.

    Example: tidemark ledger verify orders
    """
    opened = finding.opened(stream)
    problems = problems_of(opened.book)
    for problem in problems:
        error(problem)
    if problems:
        raise typer.Exit(EXIT_LEDGER_UNREADABLE)
    windows = sum(stored.head.seq for stored in opened.book.heads().values())
    line(f"{opened.book.stream}: {windows} windows, all of them there and unchanged")


@app.command()
def abandon(
    stream: Stream,
    lane: Annotated[str, typer.Argument(help="the lane whose pending window is given up")],
    reason: Annotated[str, typer.Option(help="why; it is kept in the ledger")],
) -> None:
    """Give up the pending window of a lane. What is committed stays; its offsets are read by the next window.

    Example: tidemark ledger abandon orders ingest --reason "pinned by a wrong stream file"
    """
    opened = finding.opened(stream)
    window = protocol.abandon(opened.book, lane, reason)
    if window is None:
        line(f"{opened.book.stream}/{lane} has no pending window")
    else:
        line(f"window {window.seq} of {opened.book.stream}/{lane} is given up; the next run plans anew")


@app.command()
def events(stream: Stream, as_json: Json = False) -> None:
    """What was lost, skipped, given up, or accepted by a policy of the stream file.

    Example: tidemark ledger events orders
    """
    found = [asdict(one) for one in events_of(finding.opened(stream).book)]
    rows = [(moment(one["at"]), *(one[name] for name in ("what", "where", "why", "run"))) for one in found]
    data(found, as_json=as_json, rows=rows, columns=("at", "what", "where", "why", "run"))


@app.command()
def skip(
    stream: Stream,
    to: Annotated[
        list[str],
        typer.Option(help="latest, a time with its zone, or topic/partition@offset (once for each partition)"),
    ],
    reason: Annotated[str, typer.Option(help="why; it is kept in the ledger")],
    write: Annotated[bool, typer.Option("--write", help="do it; without this, it is only shown")] = False,
    as_json: Json = False,
) -> None:
    """Move the ingest forward over offsets that it will not read. They are recorded as skipped; a backfill can read them.

    Example: tidemark ledger skip orders --to latest --reason "a load test filled the topic" --write
    """
    opened = finding.opened(stream)
    run = f"tidemark ledger skip {new_token()[:8]}"
    window = skipping.skip(opened, target(to), reason, run, write=write)
    found = [{"range": str(gap.as_range()), "kind": gap.kind.value} for gap in window.gaps]
    data(found, as_json=as_json, rows=[list(one.values()) for one in found], columns=("offsets", ""))
    if not write:
        error("Nothing was written: say --write to skip them.")


@app.command("import")
def import_(
    stream: Stream,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            help="csv:FILE, checkpoint:FOLDER, kafka-group, hbase:TABLE, consumers:ROOT or storm:ROOT",
        ),
    ],
    group: Annotated[str, typer.Option(help="the group (for Storm the id) whose offsets they are")] = "",
    others: Annotated[
        str, typer.Option(help="earliest or latest: for partitions without a stored offset")
    ] = "earliest",
    shift: Annotated[int, typer.Option(help="so many messages later, or earlier if negative, than is stored")] = 0,
    connection: Annotated[str | None, typer.Option(help="the HBase or ZooKeeper connection")] = None,
    write: Annotated[bool, typer.Option("--write", help="do it; without this, it is only shown")] = False,
    as_json: Json = False,
) -> None:
    """Begin a new stream at the offsets that another program has stored.

    Example: tidemark ledger import orders --from hbase:stream_kafka_offsets --group old-job --write
    """
    opened = finding.opened(stream)
    if others not in ("earliest", "latest"):
        raise WrongUse(f"--others {others!r}: expected earliest or latest")
    offsets = stored_offsets(opened, source, group, connection)
    start = runs.import_positions(opened, offsets, others, f"tidemark ledger import {source}", write=write, shift=shift)
    found = [
        {
            "partition": str(position.at),
            "offset": str(position.offset),
            "from": source if (position.topic, position.partition) in offsets else others,
        }
        for position in start
    ]
    data(found, as_json=as_json, rows=[list(one.values()) for one in found], columns=("partition", "offset", "from"))
    for position in start:
        before = offsets.get((position.topic, position.partition))
        if before is not None and position.offset != before + shift:
            end = "beginning" if position.offset > before + shift else "end"
            error(f"{position.at}: {before}{shift:+d} is outside the log: cut to its {end}, {position.offset}")
    if not write:
        error("Nothing was written: say --write to begin there.")


app.command()(export)


def _ranges(ranges: RangeSet) -> list[list[str]]:
    """[from, until) pairs, as strings: JavaScript loses digits above 2^53."""
    return [[str(one.start), str(one.until)] for one in ranges]


def _text(ranges: RangeSet) -> str:
    return " ".join(f"[{one.start}, {one.until})" for one in ranges)
