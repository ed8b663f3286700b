"""Starting, finding and ending the servers' processes.

A process belongs to a site when its environment says so (`TIDEMARK_SITE`), which children inherit. There is no pid file
that could go stale. After any crash, `down` finds what `up` started, and ends nothing else.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from services.site import Site

SITE_MARK = "TIDEMARK_SITE"
SERVER_MARK = "TIDEMARK_SERVER"
PORT_MARK = "TIDEMARK_SITE_PORT"


# Servers outlive the program that started them. This list keeps Python from warning about them.
_started: list[subprocess.Popen[bytes]] = []


def start(site: Site, server: str, command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a server in a process group of its own. Its output goes to a new log file."""
    # Airflow's setproctitle writes its titles over the environment that we read, unless SPT_NOENV is set.
    marks = {SITE_MARK: str(site.state), SERVER_MARK: server, PORT_MARK: str(site.port_base), "SPT_NOENV": "1"}
    with site.log_file(server).open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=site.folder(server),
            env={**os.environ, **environment, **marks},
            start_new_session=True,
        )
    _started.append(process)
    return process


def running(site: Site, server: str | None = None) -> list[psutil.Process]:
    """The living processes of this site, or of one of its servers, children included."""
    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            alive = process.status() != psutil.STATUS_ZOMBIE
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
        of_site = environment.get(SITE_MARK) == str(site.state)
        if alive and of_site and server in (None, environment.get(SERVER_MARK)):
            found.append(process)
    return found


def servers_running(site: Site) -> set[str]:
    """The names of the servers of this site that have a living process."""
    names = set()
    for process in running(site):
        try:
            names.add(process.environ()[SERVER_MARK])
        except (psutil.NoSuchProcess, psutil.AccessDenied, KeyError):
            continue
    return names


def other_port_bases(site: Site) -> set[str]:
    """The port bases of this site's living processes that are not its own: they were started with another setting."""
    found = set()
    for process in running(site):
        with suppress(psutil.NoSuchProcess):
            found.add(process.environ().get(PORT_MARK, str(site.port_base)))
    return found - {str(site.port_base)}


def send(processes: Iterable[psutil.Process], number: signal.Signals) -> None:
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def end(site: Site, server: str, patience: float = 20.0) -> None:
    """End a server: SIGTERM to all its processes, and SIGKILL to the rest after `patience` seconds."""
    send(running(site, server), signal.SIGTERM)
    deadline = time.monotonic() + patience
    while running(site, server) and time.monotonic() < deadline:
        time.sleep(0.1)
    kill(site, server)


def kill(site: Site, server: str) -> None:
    """SIGKILL every process of a server, until none is left (one may have forked meanwhile)."""
    while left := running(site, server):
        send(left, signal.SIGKILL)
        psutil.wait_procs(left, timeout=5)
    # Reap the processes that this program started, so that no zombie stays.
    for process in [*_started]:
        if process.poll() is not None:
            _started.remove(process)


def log_tail(log: Path, lines: int = 40) -> str:
    """The end of a log: long enough for a Java stack trace and the line above it, which says what happened."""
    if not log.exists():
        return "(no log yet)"
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
