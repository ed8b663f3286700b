"""`tidemark run`: what the ingest DAG does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tidemark.cli import finding
from tidemark.cli.options import Json, RunName, Stream, TakeOver, Verbose
from tidemark.cli.output import error
from tidemark.cli.submitting import new_run, process, show_committed
from tidemark.ledger.records import INGEST
from tidemark.runs import lanes, saved_plans


def run(
    stream: Stream,
    run_name: RunName = "",
    take_over: TakeOver = False,
    plan: Annotated[Path | None, typer.Option(help="read exactly this plan, saved by `tidemark plan --save`")] = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Read what is new, from the positions to the current ends, and show the committed windows.

    A pending window is read as it is. When nothing is new, the command says so and ends with 0.

    Example: tidemark run orders
    """
    opened = finding.opened(stream)
    if plan is not None:
        saved = saved_plans.load(plan)
        # By this name a second try finds its own window, and goes no further than the plan.
        name = run_name or f"plan/{saved.digest[:12]}"
        pending = saved_plans.pin(opened, saved, name)
        command = f"tidemark run {stream} --plan {plan}"
    else:
        name = run_name or new_run()
        command = f"tidemark run {stream}"
        pending = lanes.plan_ingest(opened, name, again=bool(run_name))
    if pending is None:
        done = bool(run_name or plan) and lanes.committed_before(opened, INGEST, name)
        error(f"run {name} is done" if done else "nothing is new")
        lanes.finish(opened, INGEST)
    process(opened, command, INGEST, name, pending, take_over=take_over, verbose=verbose)
    show_committed(opened, [INGEST], name, as_json=as_json)
