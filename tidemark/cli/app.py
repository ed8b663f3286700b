"""`tidemark`: the commands. Each ends with the exit code that ./docs/exit-codes.md explains."""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from contextlib import suppress
from types import FrameType
from typing import Annotated, NoReturn

import typer

from tidemark.cli.lazy import CommandGroup, made
from tidemark.cli.output import error, line
from tidemark.cli.programs import Interrupted
from tidemark.errors import EXIT_INTERNAL, DiskFull, TidemarkError

# The groups of commands, in the order of `--help`.
LOOK, RUN, REPLAY, PROVE, SET_UP, REPAIR = "Look", "Run", "Replay", "Prove", "Set up", "Repair"
_STREAMS = CommandGroup("Stream files.", {"": ("streams:check", "streams:try_", "fields:add_fields", "streams:schema")})
_ENGINE = CommandGroup(
    "Warm engines: Spark applications that stay, for the runs of many streams.",
    {"": ("engine:start", "engine:status", "engine:stop")},
)
_LEDGER = CommandGroup(
    "The ledger of a stream.",
    {
        "": (
            "ledger:show",
            "ledger:coverage",
            "ledger:verify",
            "ledger:abandon",
            "ledger:clock",
            "ledger:forget_place",
            "ledger:events",
            "ledger:skip",
            "backups:backup",
            "backups:restore",
            "backups:rebuild",
            "migrate:import_",
            "migrate:export",
        )
    },
)
_ALL = CommandGroup(
    "Kafka topics become tables in bounded batches. These commands run the batches, and show their results.",
    {
        LOOK: (
            "status:status",
            "plan:plan",
            "offsets:offsets",
            "results:results",
            "results:show",
            "messages:messages",
            "windows:window",
            "windows:dead_letters",
            "complete:complete",
        ),
        RUN: ("run:run", "steer:pause", "steer:resume", "steer:cancel"),
        REPLAY: ("replay:replay", "replay:backfill", "erase:erase"),
        PROVE: ("audit:audit", "audit:report"),
        SET_UP: ("init:init", ("streams", _STREAMS), ("engine", _ENGINE)),
        REPAIR: ("compact:compact", ("ledger", _LEDGER)),
    },
)
app = made(_ALL)


def _version(asked: bool) -> None:
    if asked:
        from tidemark.runs.windows.lanes import code_version

        line(code_version())
        raise typer.Exit


@app.callback()
def tidemark(
    version: Annotated[
        bool, typer.Option("--version", help="show the version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Take the options that stand before a command."""


def main() -> None:
    """The program. An error ends it with its own exit code, in one line on standard error."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupted)
    try:
        try:
            # What a script in front of it has been called as.
            app(prog_name=os.environ.get("TIDEMARK_CALLED_AS"))
        finally:
            sys.stdout.flush()
    except TidemarkError as problem:
        error(f"tidemark: {type(problem).__name__}: {problem}")
        sys.exit(problem.exit_code)
    except Interrupted as problem:
        error(f"tidemark: {problem}. What was not committed does not count.")
        # The exit code that shells give for a program that a signal has ended.
        sys.exit(128 + problem.number)
    except Exception as problem:
        if isinstance(problem, OSError) and problem.errno == errno.ENOSPC:
            _say_that_it_is_not_whole(DiskFull.of(problem.filename or "what this command prints to"))
        traceback.print_exc()
        sys.exit(EXIT_INTERNAL)


def _say_that_it_is_not_whole(problem: DiskFull) -> NoReturn:
    # Python tries at its end to write the rest.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with suppress(OSError):
        error(f"tidemark: DiskFull: {problem}. What was printed is not whole")
    sys.exit(problem.exit_code)


def _interrupted(number: int, _: FrameType | None) -> None:
    raise Interrupted(number)
