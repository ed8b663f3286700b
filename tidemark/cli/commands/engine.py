"""`tidemark engine`: starts, shows and ends warm engines. Runs start theirs by themselves."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from tidemark.cli.confirmation import Confirmation, changes
from tidemark.cli.options import Json
from tidemark.cli.output import data, error
from tidemark.clients.environment import from_environment
from tidemark.errors import EngineEnded, WrongUse
from tidemark.offsets.counting import number_of
from tidemark.submit.address import sockets
from tidemark.submit.command import WARM, WarmEngine, engine_command, job_environment, warm_engine
from tidemark.submit.status import ask

_LOOK_SECONDS = 0.1
# How long an engine with nothing to do, or told to end now, may take to be gone.
_PATIENCE_SECONDS = 60.0

Connection = Annotated[str, typer.Option("--connection", help="the Spark connection that it belongs to")]
Which = Annotated[str, typer.Option("--connection", help="only engines of this Spark connection")]


def start(connection: Connection = "spark_default") -> None:
    """Start the engine of a Spark connection, unless it runs already, and return when it accepts runs.

    Optional: the first run starts the engine by itself. With this, the first run is as quick as the others.

    Example: tidemark engine start
    """
    connection_ = from_environment(connection)
    # A connection without the extra may be tried out.
    engine = warm_engine(connection_) or WarmEngine()
    if connection_.extra.get(WARM) in (None, False):
        error(f"the connection {connection} does not have `{WARM}` among its extras: no run will use this engine")
    code = subprocess.run(engine_command(connection_, engine, {}), env=job_environment(), check=False).returncode
    if code:
        raise EngineEnded(f"the engine of {connection} did not start")


def status(as_json: Json = False) -> None:
    """The engines of this user on this machine, with their active and waiting runs.

    Example: tidemark engine status
    """
    engines = [(path, answer) for path in sockets() if (answer := ask(path, "status")) is not None]
    value = [{"connection": _connection(path), "socket": str(path), **answer} for path, answer in engines]
    rows = [
        (
            engine["connection"],
            engine["pid"],
            f"{len(engine['at_work'])} of {engine['places']}",
            len(engine["waiting"]),
            engine["done"],
            _age(engine["seconds"]),
            f"old: {engine['stale']} has changed" if engine["stale"] else "ready",
        )
        for engine in value
    ]
    columns = ("connection", "process", "at work", "waiting", "done", "age", "state")
    data({"engines": value}, as_json=as_json, rows=rows, columns=columns)
    if not value:
        error("no warm engine lives")
    elif not as_json:
        for engine in value:
            for run in engine["at_work"]:
                error(f"{engine['connection']}: process {run['pid']}: {' '.join(run['command'])}")


@changes(when=lambda given: bool(given["now"]))
def stop(
    asking: Confirmation,
    connection: Which = "",
    now: Annotated[bool, typer.Option("--now", help="end active runs too; Airflow retries them")] = False,
) -> None:
    """Stop engines after their active runs. Waiting and later runs start a new engine.

    Example: tidemark engine stop
    """
    paths = [path for path in sockets() if connection in ("", _connection(path))]
    if now or asking.dry_run:
        at_work = [run for path in paths for run in (ask(path, "status") or {"at_work": ()})["at_work"]]
        for run in at_work:
            error(f"at work: process {run['pid']}: {' '.join(run['command'])}")
        if not asking.agrees(f"End {number_of(len(paths), 'engine')} and {number_of(len(at_work), 'run')} at work?"):
            return
    answers = {path: ask(path, "stop", now=now) for path in paths}
    if not any(answers.values()):
        raise WrongUse(f"no warm engine{f' of {connection}' if connection else ''} lives")
    for path, answer in answers.items():
        if answer is None:
            continue
        if answer["at_work"] and not now:
            error(f"{_connection(path)}: takes no more runs, and ends when {len(answer['at_work'])} have ended")
        else:
            _wait(answer)
            error(f"{_connection(path)}: ended")


def _connection(path: Path) -> str:
    return path.name.split("-")[0]


def _age(seconds: int) -> str:
    return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def _wait(answer: dict[str, Any]) -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while any(_lives(int(answer[process])) for process in ("pid", "jvm")) and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
