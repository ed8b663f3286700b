"""Starting servers in parallel, each after those that it waits for, and stopping them again."""

from __future__ import annotations

import fcntl
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from services import processes
from services.errors import ServiceError
from services.servers import ON_DEMAND, SERVERS, Server
from services.site import Site

# The jars and an empty Kafka, HBase and Airflow take about 1 GB; a demo's data some hundred MB more.
NEEDED_DISK_BYTES = 2 * 1024**3

AIRFLOW = tuple(name for name in SERVERS if name.startswith("airflow-"))
DATA_SERVERS = tuple(name for name in SERVERS if name not in AIRFLOW)

ALL = {**SERVERS, **ON_DEMAND}

Report = Callable[[str], None]


def up(site: Site, names: Collection[str] = tuple(SERVERS), report: Report = print) -> None:
    """Start the named servers that do not run yet, and return when each of them is ready.

    Raises ServiceError naming the server, the reason and its log file. Started servers stay up, so that people can look.
    """
    with starting(site, names, report):
        pass


@contextmanager
def starting(site: Site, names: Collection[str], report: Report = print) -> Iterator[Starting]:
    """As `up`, while the block runs, which can wait for those that it needs. At its end, each of them is ready."""
    with _alone(site):
        _check_disk(site.state)
        check_port_base(site)
        running = processes.servers_running(site)
        servers = [ALL[name] for name in names]
        for server in servers:
            if server.name not in running:
                _check_ports(site, server)
        started = Starting(site, servers, running, report)
        try:
            started.begin()
            yield started
            started.wait()
        except BaseException:
            # Also when interrupted. Nothing may start any more once the lock is free: a `down` would miss it.
            started.stop()
            raise


def check_port_base(site: Site) -> None:
    """Raises ServiceError if servers of this site run with other ports: on its own may be those of somebody else."""
    if bases := processes.other_port_bases(site):
        raise ServiceError(
            f"servers in {site.state} run with TIDEMARK_PORT_BASE={', '.join(sorted(bases))}, and it is {site.port_base} "
            "now. Set it to that, or end them: ./run down"
        )


class Starting:
    """Starts servers in parallel. Each has a thread, waits for those before it, and is watched until it is ready."""

    def __init__(self, site: Site, servers: Sequence[Server], running: Collection[str], report: Report) -> None:
        self._site = site
        self._running = running
        self._report = report
        self._done = {server.name: threading.Event() for server in servers}
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._bring_up, args=(one,), name=one.name) for one in servers]
        self.problems: list[ServiceError] = []

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait(self, *names: str) -> None:
        """Return when the named servers are ready, or all. Raises the first ServiceError of any."""
        for name in names or self._done:
            self._done[name].wait()
        if self.problems:
            raise self.problems[0]

    def stop(self) -> None:
        """Start no further server, and wait for none."""
        self._stop.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _bring_up(self, server: Server) -> None:
        try:
            for before in server.after:
                if before in self._done:
                    self._done[before].wait()
            if not self.problems and not self._stop.is_set():
                self._start(server)
        except ServiceError as problem:
            self.problems.append(problem)
        except Exception as problem:  # Java is missing, the disk is full: whatever it is, this is not up
            self.problems.append(ServiceError(f"{server.name} could not be started: {problem}"))
        finally:
            self._done[server.name].set()

    def _start(self, server: Server) -> None:
        if server.name in self._running:
            # The `up` that started it may have been killed before the server was ready.
            _wait_until_ready(self._site, server, self._stop)
            return
        began = time.monotonic()
        _start(self._site, server, self._stop)
        if not self._stop.is_set():
            self._report(f"  {server.name:22} ready after {time.monotonic() - began:4.1f} s")


def start(site: Site, name: str) -> None:
    """Start one server unless it runs already, and wait until it is ready."""
    if name not in processes.servers_running(site):
        _start(site, ALL[name])


def down(site: Site, names: Collection[str] = tuple(ALL), report: Report = print) -> None:
    """End the named servers of this site and nothing else, the last started first."""
    with _alone(site):
        for name in reversed([name for name in ALL if name in names]):
            if processes.running(site, name):
                processes.end(site, name)
                report(f"  {name:22} stopped")


def status(site: Site) -> Iterator[tuple[str, str, str]]:
    """(name, state, where) of each server; the state is `ready`, `not ready: why`, or `stopped`."""
    running = processes.servers_running(site)
    for server in SERVERS.values():
        if server.command is None:
            continue
        where = ", ".join(site.address(port) for port in server.ports)
        if server.name not in running:
            yield server.name, "stopped", where
            continue
        try:
            server.ready(site)
        except Exception as problem:  # whatever a client says while its server is away
            yield server.name, f"not ready: {problem}", where
        else:
            yield server.name, "ready", where


def _start(site: Site, server: Server, stop: threading.Event | None = None) -> None:
    server.prepare(site)
    if server.command is None or (stop and stop.is_set()):
        return
    process = processes.start(site, server.name, server.command(site), server.environment(site))
    _wait_until_ready(site, server, stop, process)


def _wait_until_ready(
    site: Site, server: Server, stop: threading.Event | None, process: subprocess.Popen[bytes] | None = None
) -> None:
    """Return when a server is ready, or when `stop` is set. If `process` is given, its end is an error."""
    log = site.log_file(server.name)
    deadline = time.monotonic() + server.patience
    while not (stop and stop.is_set()):
        if process is not None and process.poll() is not None:
            ended = f"{server.name} ended with code {process.returncode} while starting"
            raise ServiceError(f"{ended}. The end of its log {log}:\n{processes.log_tail(log)}")
        try:
            server.ready(site)
        except Exception as problem:  # whatever a client says while its server is away
            if time.monotonic() > deadline:
                late = f"{server.name} is not ready after {server.patience:.0f} s ({problem})"
                raise ServiceError(f"{late}. The end of its log {log}:\n{processes.log_tail(log)}") from problem
            time.sleep(0.3)
        else:
            return


def _check_disk(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < NEEDED_DISK_BYTES:
        raise ServiceError(
            f"{folder} has {free / 1e9:.1f} GB free; the servers need {NEEDED_DISK_BYTES / 1e9:.1f} GB. "
            "Free some, or set TIDEMARK_STATE to a folder on a larger disk."
        )


def _check_ports(site: Site, server: Server) -> None:
    for name in server.ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", site.port(name)))
            except OSError as problem:
                raise ServiceError(
                    f"{server.name} needs port {site.port(name)} ({name}), which another program uses ({problem.strerror}). "
                    "End that program, or set TIDEMARK_PORT_BASE to move all ports."
                ) from problem


@contextmanager
def _alone(site: Site) -> Iterator[None]:
    """Allow one `up` or `down` of a site at a time. The lock ends with the process that holds it."""
    site.state.mkdir(parents=True, exist_ok=True)
    with (site.state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceError(f"another up or down is at work in {site.state}; wait for it, then try again") from None
        yield
