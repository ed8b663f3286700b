"""A Spark standalone cluster on this machine: a master and two workers, whose Python does not know this project."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import psutil
import pyspark

from tests.support.servers import free_ports

# Two names of this machine: Spark starts no second copy of a task on the same host.
_HOSTS = ("127.0.0.1", "localhost")
_READY_SECONDS = 300
_SECRET = "_SPARK_AUTH_SECRET"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


@dataclass(frozen=True)
class Cluster:
    """`python` is the interpreter of the workers. `executors` are the logs of the executors that have run there."""

    master: str
    python: Path
    folder: Path

    def executors(self) -> list[Path]:
        return sorted(self.folder.glob("worker-*/app-*/*/stderr"))

    def kill_executors(self) -> None:
        """Kill those that run now."""
        for process in psutil.process_iter(["cmdline"]):
            if self.runs(process):
                process.kill()

    def runs(self, process: psutil.Process) -> bool:
        """Whether a process is one of its executors. Each works in a folder below that of its worker."""
        return _EXECUTOR in (process.info["cmdline"] or ()) and self.folder in Path(process.cwd()).parents


@contextmanager
def spark_cluster(folder: Path, cores: int = 1) -> Iterator[Cluster]:
    """Start a cluster of workers with so many cores each. At the end, end it with everything that it has started."""
    # Who does not know it is let in nowhere. Drivers and daemons of Spark find it in their environment. A cluster beside
    # another one takes the same.
    is_first = _SECRET not in os.environ
    os.environ.setdefault(_SECRET, secrets.token_hex(16))
    port = free_ports()
    master, page = f"spark://127.0.0.1:{port}", f"http://127.0.0.1:{port + 1}/json"
    cluster = Cluster(master, _python_without_this_project(folder / "nodes"), folder)
    started = [_start(folder, "master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", str(port + 1))]
    try:
        _wait(page, 0)
        for number in range(len(_HOSTS)):
            work = folder / f"worker-{number}"
            options = ("--host", _HOSTS[number], "--cores", str(cores), "--memory", "1g", "--work-dir", str(work))
            started.append(_start(folder, "worker", *options, "--webui-port", str(port + 2 + number), master))
        _wait(page, len(_HOSTS))
        yield cluster
    finally:
        # A worker that is told to end takes its executors with it.
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(120)
        if is_first:
            del os.environ[_SECRET]


def _start(folder: Path, what: str, *options: str) -> subprocess.Popen[bytes]:
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    command += [f"org.apache.spark.deploy.{what}.{what.capitalize()}", *options]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.authenticate=true -Dspark.network.crypto.enabled=true"
    with (folder / f"{what}.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=folder)


def _wait(page: str, workers: int) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while True:
        try:
            with urlopen(page, timeout=5) as answer:
                if json.load(answer)["aliveworkers"] == workers:
                    return
        except (URLError, ConnectionError):
            pass
        assert time.monotonic() < deadline, f"{page} does not show {workers} workers"
        time.sleep(0.3)


def _python_without_this_project(folder: Path) -> Path:
    """An interpreter with this one's packages, but not the project's: it ignores the .pth file that names those."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    (packages,) = {path for path in sys.path if path.endswith("site-packages") and path.startswith(sys.prefix)}
    (site / "packages.pth").write_text(f"{packages}\n")
    python = folder / "bin" / "python"
    knows = subprocess.run(
        [python, "-c", "import pyarrow, happybase; import tidemark"], capture_output=True, cwd=folder
    )
    assert b"No module named 'tidemark'" in knows.stderr, knows.stderr
    return python
