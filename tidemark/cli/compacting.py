"""`tidemark compact`: one folder of larger files in place of the Parquet folders of many windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from tidemark.cli import finding
from tidemark.cli.options import Json, RunName, Stream
from tidemark.cli.output import data, error
from tidemark.cli.submitting import new_run, submit
from tidemark.jobs import COMPACT_JOB
from tidemark.ledger import compactions
from tidemark.ledger.compactions import Span, described, spans
from tidemark.streams.opened import OpenStream
from tidemark.streams.parquet_sink import ParquetSink
from tidemark.times import milliseconds, read_time


def compact(
    stream: Stream,
    sink: Annotated[
        str | None, typer.Option(help="a sink of type parquet by its name, where there are several")
    ] = None,
    before: Annotated[
        str, typer.Option(help="only windows committed before this time, like 2026-11-21T07:00:00Z")
    ] = "",
    windows: Annotated[int | None, typer.Option(min=2, help="at most so many windows, the oldest ones")] = None,
    again: Annotated[bool, typer.Option("--again", help="take folders that were compacted before too")] = False,
    write: Annotated[bool, typer.Option("--write", help="do it; without this, only show what would be done")] = False,
    run_name: RunName = "",
    as_json: Json = False,
) -> None:
    """Rewrite the Parquet folders of many windows into few with larger files; what counts stays what it is.

    Ingests, replays and readers go on. After a crash, the same command finishes what is left.

    Example: tidemark compact orders --before 2026-11-21T00:00:00Z --write
    """
    opened = finding.opened(stream)
    chosen = opened.parquet_sink(sink)
    until = milliseconds(read_time(before)) if before else None
    if not write:
        _show_plan(opened, chosen, until, windows, again=again, as_json=as_json)
        return
    name = run_name or new_run()
    arguments = ["--stream-file", str(opened.file.path), "--sink", chosen.name, "--run", name]
    arguments += ["--before", str(until)] if until is not None else []
    arguments += ["--windows", str(windows)] if windows is not None else []
    submit(opened, COMPACT_JOB, [*arguments, *(["--again"] if again else [])])
    found = compactions.find(opened.book, chosen.name)
    made = [one for one in found.value.folders if one.run == name] if found else []
    shown = [{"windows": _named(one.windows), "rows": one.rows, "folder": one.folder} for one in made]
    _show(opened, chosen, shown, ("windows", "rows", "folder"), as_json=as_json)


def _show_plan(
    opened: OpenStream, sink: ParquetSink, before: int | None, windows: int | None, *, again: bool, as_json: bool
) -> None:
    # Arrow takes a third of a second to load, and other commands do without it.
    from tidemark.results import compacting
    from tidemark.results.parquet_parts import steady

    asked = compacting.Asked(before, windows, again)
    base = opened.files_base(sink)
    shown = steady(
        opened.book,
        sink.name,
        lambda parts, _: [
            {
                "windows": _named(spans(name for part in group for name in part.names)),
                "folders": len(group),
                "files": compacting.size(group).files,
                "bytes": compacting.size(group).bytes,
            }
            for group in compacting.groups(compacting.choose(parts, base, asked))
        ],
    )
    _show(opened, sink, shown, ("windows", "folders", "files", "bytes"), as_json=as_json)
    found = compactions.find(opened.book, sink.name)
    if found is not None and found.value.claim is not None:
        error(
            f"the compaction of run {found.value.claim.run} is at work, or has died: --write goes on with what is left"
        )
    if shown:
        error("nothing was changed; --write does it")


def _show(
    opened: OpenStream, sink: ParquetSink, shown: Sequence[dict[str, Any]], columns: Sequence[str], *, as_json: bool
) -> None:
    value = {"stream": opened.book.stream, "sink": sink.name, "compacted": list(shown)}
    rows = [[", ".join(one["windows"]), *(one[name] for name in columns[1:])] for one in shown]
    data(value, as_json=as_json, rows=rows, columns=columns)
    if not shown:
        error("there is nothing to compact: it takes two folders at least, with the same columns")


def _named(windows: Sequence[Span]) -> list[str]:
    return [described([one]) for one in windows]
