"""`tidemark ledger backup`, `restore` and `rebuild`: a ledger in a file, one that moves, and what is left of a damaged one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemark.audit.levels import Level
from tidemark.cli import stream_lookup
from tidemark.cli.audit_job import audited
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.options import Json, Stream, Verbose
from tidemark.cli.output import data, error, moment
from tidemark.cli.submitting import new_run
from tidemark.commit import protocol
from tidemark.errors import EXIT_DIFFERENCES, EXIT_LEDGER_UNREADABLE, WrongUse
from tidemark.ledger.codec import RESTORE
from tidemark.ledger.records import INGEST
from tidemark.ledger.recovery.backup import Summary, back_up, check_new, restorable, retire
from tidemark.ledger.recovery.backup import restore as restored
from tidemark.ledger.recovery.rebuilding import left_of
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.counting import number_of
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.forms import AuditRequest, checked
from tidemark.sinks.kinds import by_order
from tidemark.sinks.taking_over import take_over

File = Annotated[Path, typer.Argument(help="the file of the backup")]


@changes(when=lambda given: bool(given["final"]))
def backup(
    stream: Stream,
    asking: Confirmation,
    file: File,
    final: Annotated[
        bool, typer.Option("--final", help="retire this ledger for good, before it moves to another place")
    ] = False,
    reason: Annotated[str, typer.Option(help="why the backup is final; later runs report it")] = "",
    as_json: Json = False,
) -> None:
    """Write the ledger to a new file, as lines of JSON with gzip. Runs may continue meanwhile.

    After a final backup, which asks first, no run uses this ledger. An active run loses its window and commits nothing.

    Example: tidemark ledger backup orders orders-2026-11-23.ledger
    """
    ledger = stream_lookup.opened(stream).ledger
    if final:
        protocol.check_reason("backup --final", reason)
        check_new(file)
        protocol.check_nobody_writes(ledger)
        if not asking.agrees(f"End the use of this ledger of {ledger.stream} for good?"):
            return
        retire(ledger, reason)
    elif asking.dry_run:
        check_new(file)
        error(f"would write the ledger of {ledger.stream} to {file}; nothing was changed")
        return
    _show(back_up(ledger, file), as_json=as_json)
    if final:
        error(f"{ledger.stream} uses this ledger no more. Name its new place in the stream file, and restore it there")


@changes()
def restore(
    stream: Stream,
    asking: Confirmation,
    file: File,
    level: Annotated[
        str,
        typer.Option("--audit", help="the level of the audit: ledger, source (asks Kafka), sinks, full or recompute"),
    ] = Level.LEDGER.value,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Write a backup into the ledger that the stream file names, which has to be empty. Then verify it, and audit.

    Shows what the backup has, and asks.
    Ends with 7 if the ledger is incomplete, and with 1 if the audit finds differences.

    Example: tidemark ledger restore orders orders-2026-11-23.ledger --audit full
    """
    opened, depth = stream_lookup.opened(stream), checked(AuditRequest, {"level": level}, {}).depth
    if asking.shows:
        _show(restorable(opened.ledger, file), as_json=as_json and asking.dry_run)
        if not asking.agrees(f"Write this into the empty ledger of {opened.ledger.stream}?"):
            return
    _show(restored(opened.ledger, file), as_json=as_json)
    for place in take_over(opened.ledger, opened.connections):
        error(
            f"still marked as the earlier ledger's, until a window writes there: {place}. Until then, see that nobody uses the "
            "earlier ledger"
        )
    problems = verify(opened.ledger)
    for problem in problems:
        error(problem)
    if problems:
        raise typer.Exit(EXIT_LEDGER_UNREADABLE)
    error("the ledger is whole")
    if opened.ledger.head(INGEST) is None:
        return
    if depth.needs_spark:
        error(f"It is restored. If the audit does not end: tidemark audit {opened.ledger.stream} --level {depth.value}")
    report = audited(opened, new_run(), depth, verbose=verbose)
    error(f"audit, level {depth.value}: {report.sentence()}")
    if not depth.needs_spark:
        error(f"To prove the results: tidemark audit {opened.ledger.stream}")
    if not report.clean:
        raise typer.Exit(EXIT_DIFFERENCES)


@changes()
def rebuild(
    stream: Stream,
    asking: Confirmation,
    file: File,
    as_json: Json = False,
) -> None:
    """Write a backup of a damaged ledger: a lost register, heads and pages of closed lanes are made from the history.

    Stop the stream's runs first. Shows what is missing, and asks.
    Nothing in the ledger is changed: restore the file into an empty place.

    Example: tidemark ledger rebuild orders orders-rebuilt.ledger
    """
    opened = stream_lookup.opened(stream)
    check_new(file)
    left = left_of(opened.ledger, lambda: _ledger_of_results(opened), by_order)
    for lane in left.missing:
        error(f"was missing: {lane}")
    if not asking.agrees(f"Write what is left of the ledger of {opened.ledger.stream} to {file}?"):
        return
    _show(left.write(file), as_json=as_json)
    if not left.missing:
        error("nothing was missing: this is a backup like any other")
        return
    error(
        "Name an empty place in the stream file's ledger. Then: "
        f"tidemark ledger restore {opened.stream.name} {file}, and tidemark audit {opened.stream.name}"
    )


def _ledger_of_results(opened: OpenStream) -> str:
    """The id of a ledger without its register: the dead letters' table was written with it.

    Raises WrongUse where the table does not say so.
    """
    owner = opened.dead_letter_table().owner()
    if owner.get("stream") != opened.stream.name:
        raise WrongUse(
            f"the register of {opened.stream.name} is lost, and the table of its dead letters does not say which ledger it "
            f"belonged to. {RESTORE}"
        )
    return str(owner["ledger"])


def _show(summary: Summary, *, as_json: bool) -> None:
    value = {"at": summary.at, "values": summary.values, "lanes": dict(summary.lanes)}
    rows = [(lane, windows) for lane, windows in sorted(summary.lanes.items())]
    data(value, as_json=as_json, rows=rows, columns=("lane", "windows"))
    if not as_json:
        error(f"{number_of(summary.values, 'value')}, as of {moment(summary.at)}")
