"""The processes of the Spark jobs that work on windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil

from services import environment, processes
from services.site import Site
from tidemark.submit.address import SUFFIX
from tidemark.submit.command import WINDOW_JOB
from tidemark.submit.status import ask

_SCRIPT = "process_window.py"


def window_jobs(site: Site) -> list[psutil.Process]:
    """The processes of this site's window jobs: what Airflow has started for each, and its process in a warm engine.

    Without a warm engine: spark-submit's JVM, the Python driver, and the workers below them.
    """
    found: set[psutil.Process] = set()
    for process in processes.running(site):
        try:
            if _is_job(process.cmdline()):
                found |= {process, *process.children(recursive=True)}
        except psutil.NoSuchProcess:
            continue
    return list(found | _in_engines(site))


def in_an_engine(site: Site) -> list[psutil.Process]:
    """As `window_jobs`, once the process in a warm engine is among them; none before: what waits for it is too little."""
    return window_jobs(site) if _in_engines(site) else []


def _in_engines(site: Site) -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for engine in engines(site):
        for run in engine["at_work"]:
            try:
                if _is_job(run["command"]):
                    found.add(psutil.Process(run["pid"]))
            except psutil.NoSuchProcess:
                continue
    return found


def engines(site: Site) -> list[dict[str, Any]]:
    """The status of this site's warm engines."""
    folder = Path(environment.engines(site)["TIDEMARK_ENGINES"])
    return [answer for path in sorted(folder.glob(f"*{SUFFIX}")) if (answer := ask(path, "status")) is not None]


def _is_job(words: list[str]) -> bool:
    """Whether the script is there without the word of another job."""
    places = [at for at, word in enumerate(words) if Path(word).name == _SCRIPT]
    return any(word == WINDOW_JOB or word.startswith("-") for at in places for word in words[at + 1 : at + 2])
