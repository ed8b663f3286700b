"""What all chapters of the demonstration use: the servers, the console, the commands that they show, and their claims."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

from kafka import KafkaAdminClient
from rich.console import Console

from demo.airflow import Airflow
from demo.cdn_lines import produce
from services import processes
from services.site import Site

Chapter = Callable[[], None]
# Whether a line is shown.
Shown = Callable[[str], bool]
PARTITIONS = 4


def _all(_: str) -> bool:
    return True


def _none(_: str) -> bool:
    return False


class ClaimFailed(Exception):
    """A claim of the demonstration did not hold."""


@dataclass(frozen=True)
class CommandEnd:
    """What a command has said, on standard output and on standard error, and how it ended."""

    output: str
    errors: str
    code: int


class Stage:
    """The servers of the demonstration and its console."""

    def __init__(self, site: Site, console: Console) -> None:
        self.site = site
        self.console = console

    @cached_property
    def airflow(self) -> Airflow:
        return Airflow(self.site)

    def say(self, line: str) -> None:
        self.console.print(f"  {line}", markup=False, soft_wrap=True)

    def claim(self, holds: bool, claim: str, dag: str = "", run: str = "") -> None:
        """Show a claim that holds. Raises ClaimFailed for any other, with the log of the run that it is about."""
        if holds:
            self.console.print(f"  [green]✓[/] {claim}", soft_wrap=True)
            return
        log = f"\n{self.airflow.last_lines(dag, run)}" if dag else ""
        raise ClaimFailed(f"{claim}{log}")

    # Kafka

    def make_topics(self, *topics: str, anew: bool = False) -> None:
        """Make the topics that are not there. `anew`: also those that are, without their messages."""
        admin = KafkaAdminClient(bootstrap_servers=self.site.address("kafka"))
        there = set(topics) & set(admin.list_topics())
        if anew and there:
            admin.delete_topics(sorted(there))
            while there & set(admin.list_topics()):
                time.sleep(0.1)
            there = set()
        settings = {"num_partitions": PARTITIONS, "replication_factor": 1}
        if missing := sorted(set(topics) - there):
            admin.create_topics(dict.fromkeys(missing, settings))
        admin.close()

    def produce(self, topic: str, count: int, *, first: int, formats: int = 2) -> None:
        began = time.monotonic()
        with self.console.status(f"{count} lines are on their way to {topic}"):
            produce(self.site.address("kafka"), topic, count, first=first, formats=formats)
        self.console.print(f"  {count} lines produced to {topic} in {time.monotonic() - began:.0f} s")

    # Airflow

    def wait_for_dag(self, dag: str) -> None:
        """Wait until Airflow has found a DAG, and let it run."""
        self.airflow.wait_for_dag(dag)
        self.airflow.unpause(dag.rpartition("__")[0])

    def run_dag(self, dag: str, conf: dict[str, Any] | None = None) -> str:
        """Trigger a run, and claim that it succeeds. Gives its id."""
        self.wait_for_dag(dag)
        run = self.airflow.trigger(dag, conf)
        with self.console.status(f"{dag} is running"):
            state = self.airflow.wait(dag, run)
        self.claim(state == "success", f"{dag} ended with {state}", dag, run)
        return run

    # the command line

    def tidemark(self, *words: str, output: Shown = _all, errors: Shown = _none, may_fail: bool = False) -> CommandEnd:
        """Run a command, and show it and what it says as that comes.

        `output` and `errors` choose the lines that are shown; most on standard error are Spark's. Raises ClaimFailed when the
        command fails, unless it may.
        """
        self.say(f"$ tidemark {' '.join(_quoted(word) for word in words)}")
        # By its mark, the processes of its job are found.
        marked = {**os.environ, processes.SITE_MARK: str(self.site.state)}
        command = [sys.executable, "-m", "tidemark", *words]
        pipe = subprocess.PIPE
        with (
            self.console.status(f"tidemark {words[0]} is running"),
            subprocess.Popen(command, cwd=self.site.state, env=marked, stdout=pipe, stderr=pipe, text=True) as started,
        ):
            said = _Lines(started.stdout, self.say, output, "..."), _Lines(started.stderr, self.say, errors)
            ended = CommandEnd(said[0].all(), said[1].all(), started.wait())
        if ended.code and not may_fail:
            raise ClaimFailed(f"tidemark {words[0]} ended with {ended.code}:\n{ended.errors[-1_000:]}")
        return ended


class _Lines:
    """The lines of a program's stream. Those that are shown are passed on as they come, in a thread.

    `instead` stands for others that follow each other, if it is not empty.
    """

    def __init__(self, stream: IO[str] | None, say: Callable[[str], None], shown: Shown, instead: str = "") -> None:
        self._found: list[str] = []
        self._stream, self._say, self._shown, self._instead = stream, say, shown, instead
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        left_out = False
        for line in self._stream or ():
            self._found.append(line)
            if self._shown(line):
                self._say(line.rstrip("\n"))
            elif self._instead and not left_out:
                self._say(self._instead)
            left_out = not self._shown(line)

    def all(self) -> str:
        self._thread.join()
        return "".join(self._found)


def _quoted(word: str) -> str:
    return f'"{word}"' if set(word) & set(" *") else word
