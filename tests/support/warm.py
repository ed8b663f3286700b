"""A warm engine for tests, and runs in it as commands give them to it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from services import environment
from services.site import Site
from tests.support.waiting import until
from tidemark.clients.connections import Connection
from tidemark.submit.address import FOLDER, sockets
from tidemark.submit.command import WarmEngine, engine_command
from tidemark.submit.status import ask

SPARK = "AIRFLOW_CONN_SPARK_DEFAULT"


class Run:
    """A run that an engine was asked for. It ends with the test, whatever happens."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        self.log = log
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=dict(environment)
            )

    def wait(self, seconds: float = 900) -> int:
        return self.process.wait(seconds)

    def ends(self, code: int = 0) -> str:
        """Wait for the end with this code, and give the output."""
        assert self.wait() == code, self.output[-3000:]
        return self.output

    def says(self, text: str) -> None:
        """Wait until the output has this text."""
        until(lambda: text in self.output or self.process.poll() is not None, f"it does not say {text!r}", 300)
        assert text in self.output, self.output[-3000:]

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")


class Engine:
    """The engine of the connection spark_default, in a folder of its own. The first run starts it."""

    def __init__(self, site: Site, folder: Path, master: str = "local[2]", **settings: Any) -> None:
        folder.chmod(0o700)
        self.folder = folder
        self.settings = WarmEngine.model_validate(settings)
        self._logs = site.folder("warm-logs")
        self._number = 0
        self._master = master
        connection = {"conn_type": "spark", "host": master, "extra": {"engine": settings or True}}
        self.variables = {
            **environment.spark(site),
            **environment.connections(site),
            SPARK: json.dumps(connection),
            FOLDER: str(folder),
        }
        self._started: list[Run] = []

    def run(self, script: Path, *arguments: str, conf: Mapping[str, str] | None = None, **variables: str) -> Run:
        """Ask for a run of a script, without waiting for it."""
        self._number += 1
        given = {**os.environ, **self.variables, **variables}
        given.pop("PYSPARK_SUBMIT_ARGS", None)
        connection = Connection("spark_default", self._master)
        with _environment(given):
            command = [*engine_command(connection, self.settings, conf or {}), str(script), *arguments]
        run = Run(command, self._logs / f"{self.folder.name}-{self._number}.log", given)
        self._started.append(run)
        return run

    def status(self) -> dict[str, Any]:
        with _environment({**os.environ, FOLDER: str(self.folder)}):
            answers = [answer for path in sockets() if (answer := ask(path, "status")) is not None]
        (found,) = answers
        return found

    def runs_done(self) -> int:
        """How many runs are done, once none is at work: a program's end comes a little before its run is done."""

        def rests() -> bool:
            said = self.status()
            return not (said["at_work"] or said["cleaning"])

        until(rests, "the engine is still at work", 300)
        return int(self.status()["done"])

    def process_of(self, word: str) -> int:
        """The process of the run that has this word in its command, once it is at work."""
        found: list[int] = []

        def at_work() -> bool:
            found[:] = [one["pid"] for one in self.status()["at_work"] if word in one["command"]]
            return bool(found)

        until(at_work, f"no run with {word} is at work", 300)
        return found[0]

    def end(self) -> None:
        for run in self._started:
            if run.process.poll() is None:
                run.process.kill()
                run.process.wait(60)
        with _environment({**os.environ, FOLDER: str(self.folder)}):
            for path in sockets():
                answer = ask(path, "stop", now=True)
                if answer is not None:
                    _end(answer["jvm"], answer["pid"])
        shutil.rmtree(self.folder, ignore_errors=True)


def _end(*pids: int) -> None:
    processes = []
    for pid in pids:
        try:
            processes.append(psutil.Process(pid))
        except psutil.NoSuchProcess:
            continue
    for process in psutil.wait_procs(processes, timeout=60)[1]:
        process.send_signal(signal.SIGKILL)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
