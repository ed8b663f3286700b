"""`tidemark run`: what the ingest DAG does."""

from __future__ import annotations

from tidemark.cli import stream_lookup
from tidemark.cli.options import Json, RunName, Stream, TakeOver, Verbose
from tidemark.cli.output import error
from tidemark.cli.submitting import new_run, process, show_committed
from tidemark.ledger.records import INGEST
from tidemark.runs.windows import ingest, lanes


def run(
    stream: Stream,
    run_name: RunName = "",
    take_over: TakeOver = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Read what is new, from the positions to the current ends, and show the committed windows.

    A pending window is read as it is. If nothing is new, the command says so and ends with 0.

    Example: tidemark run orders
    """
    opened = stream_lookup.opened(stream)
    name = run_name or new_run()
    pending = ingest.plan_ingest(opened, name, again=bool(run_name))
    if pending is None:
        done = bool(run_name) and lanes.committed_before(opened, INGEST, name)
        error(f"run {name} is done" if done else "nothing is new")
        lanes.finish(opened, INGEST)
    process(opened, f"tidemark run {stream}", INGEST, name, pending, take_over=take_over, verbose=verbose)
    show_committed(opened, [INGEST], name, as_json=as_json)
