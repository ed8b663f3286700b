"""`tidemark compact`: one folder of larger files in place of the folders of many windows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any

import typer

from tidemark.cli import stream_lookup
from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.coordinates import time_of
from tidemark.cli.options import Json, RunName, Stream, Verbose
from tidemark.cli.output import data, error
from tidemark.cli.progress import ShownJob
from tidemark.cli.submitting import new_run, submit
from tidemark.offsets.counting import number_of
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.open_stream import OpenStream
from tidemark.sinks.contract import CompactionRequest, Replaceable, Replacement, SinkSettings
from tidemark.sinks.kinds import kind_of, sink_to_compact
from tidemark.submit.command import COMPACT_JOB


@changes()
def compact(
    stream: Stream,
    asking: Confirmation,
    sink: Annotated[
        str | None,
        typer.Option(help="the name of a sink of files or of a table in a lake, where there are several"),
    ] = None,
    before: Annotated[
        str, typer.Option(help="only windows committed before this time, like 2026-11-21T07:00:00Z")
    ] = "",
    windows: Annotated[int | None, typer.Option(min=2, help="at most this many windows, the oldest ones")] = None,
    again: Annotated[bool, typer.Option("--again", help="include compacted folders")] = False,
    run_name: RunName = "",
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Rewrite the files of many windows, in Parquet or a lake's table, into few larger ones. The rows that count stay the same.

    Shows what it would do, and asks. Ingests, replays and readers keep working. After a crash, run the same command again.

    Example: tidemark compact orders --before 2026-11-21T00:00:00Z
    """
    opened = stream_lookup.opened(stream)
    chosen = sink_to_compact(opened.stream.sinks, opened.stream.name, sink)
    until = milliseconds(time_of("--before", before)) if before else None
    if asking.shows:
        shown = _show_plan(opened, chosen, CompactionRequest(until, windows, again), as_json=as_json and asking.dry_run)
        if not shown or not asking.agrees(_question(shown)):
            return
    name = run_name or new_run()
    arguments = ["--stream-file", str(opened.file.path), "--sink", chosen.name, "--run", name]
    arguments += ["--before", str(until)] if until is not None else []
    arguments += ["--windows", str(windows)] if windows is not None else []
    arguments += ["--again"] if again else []
    submit(opened, COMPACT_JOB, arguments, look=lambda: ShownJob(f"compacting {chosen.name}"), verbose=verbose)
    made = kind_of(chosen.type).make_compaction().made(opened, chosen, name)
    _show(opened, chosen, made, Replacement, as_json=as_json)


def _question(shown: Sequence[Replaceable]) -> str:
    folders = sum(folder.folders for folder in shown)
    return f"Merge {number_of(folders, 'folder')} into {len(shown)}, and remove them once nobody reads them?"


def _show_plan(
    opened: OpenStream, sink: SinkSettings, asked: CompactionRequest, *, as_json: bool
) -> Sequence[Replaceable]:
    compaction = kind_of(sink.type).make_compaction()
    shown = compaction.planned(opened, sink, asked)
    _show(opened, sink, shown, Replaceable, as_json=as_json)
    if run := compaction.at_work(opened, sink):
        error(f"the compaction of run {run} is at work, or has died: this command goes on with what is left")
    return shown


def _show(
    opened: OpenStream,
    sink: SinkSettings,
    items: Sequence[Replaceable | Replacement],
    kind: type[Replaceable | Replacement],
    *,
    as_json: bool,
) -> None:
    shown: list[dict[str, Any]] = [asdict(item) for item in items]
    columns = [field.name for field in fields(kind)]
    value = {"stream": opened.ledger.stream, "sink": sink.name, "compacted": shown}
    rows = [[", ".join(item["windows"]), *(item[name] for name in columns[1:])] for item in shown]
    data(value, as_json=as_json, rows=rows, columns=columns)
    if not shown:
        error("there is nothing to compact: it takes two folders at least, with the same columns")
