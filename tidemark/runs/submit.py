"""Starting one of Tidemark's Spark jobs without Airflow: by spark-submit, with the stream's Spark connection.

The command line holds no secrets: connections reach the job through its environment.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tidemark.clients.connections import Connection
from tidemark.errors import WrongUse
from tidemark.streams.model import Stream

WINDOW_JOB = "process_window.py"
AUDIT_JOB = "audit_stream.py"
COMPARE_JOB = "compare_replay.py"
COMPACT_JOB = "compact_stream.py"

# As in Airflow's provider: a connection cannot name any other program.
_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


def job_script(name: str) -> Path:
    """The path of a job's script: beside its package in a checkout, inside the package in a wheel. Raises WrongUse."""
    spec = find_spec("tidemark_spark")
    if spec is None or spec.origin is None:
        raise WrongUse("the package tidemark_spark is not installed beside tidemark: it holds the Spark jobs")
    package = Path(spec.origin).parent
    return next(path for path in (package.parent / name, package / "scripts" / name) if path.is_file())


def master(connection: Connection) -> str:
    """The Spark master that a connection names: `host`, and `port` if it has one, as Airflow's provider reads it."""
    host = str(connection.required("host, which is the Spark master", connection.host))
    if connection.port is None:
        return host
    return f"{host if '://' in host else f'spark://{host}'}:{connection.port}"


def local_cores(master: str) -> int | None:
    """How many tasks a local master runs at a time. None for a cluster: only the cluster knows."""
    words = master.removeprefix("local").removeprefix("[").removesuffix("]").split(",")[0]
    if not master.startswith("local"):
        return None
    return int(words) if words.isdecimal() else (os.cpu_count() if words == "*" else 1)


def refused(connection: str, master: str | None, deploy_mode: object, expected: str | None) -> str | None:
    """Why a Spark connection is refused for jobs; None when it is accepted."""
    if expected is not None and master != expected:
        return f"the Spark connection {connection} gives master {master}; the stream file expects {expected}"
    if deploy_mode == "cluster":
        return (
            f"the Spark connection {connection} asks for deploy mode cluster; Tidemark's jobs run in client mode, "
            "so that their connections need not stand on a command line"
        )
    return None


def submit_command(
    stream: Stream,
    connection: Connection,
    script: str,
    arguments: list[str],
    more: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that runs a job of a stream and ends with its exit code. Raises WrongUse.

    The stream's `engine` gives the settings, its Spark connection the master. If both name a master, they have to agree.
    `more` are settings of this one start.
    """
    found = master(connection)
    if refusal := refused(connection.name, found, connection.extra.get("deploy-mode"), stream.engine.master):
        raise WrongUse(refusal)
    options = ["--master", found, "--name", f"tidemark {stream.name}"]
    if queue := connection.extra.get("queue"):
        options += ["--queue", str(queue)]
    settings = {**stream.engine.conf, **(more or {})}
    if namespace := connection.extra.get("namespace"):
        settings["spark.kubernetes.namespace"] = str(namespace)
    for key, value in settings.items():
        options += ["--conf", f"{key}={value}"]
    return [_submit(connection), *options, str(job_script(script)), *arguments]


def job_environment() -> dict[str, str]:
    """This process's environment. Spark's Python is this one, unless the environment names another."""
    ours = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return {**ours, **os.environ}


def _submit(connection: Connection) -> str:
    name = str(connection.extra.get("spark-binary", _BINARIES[0]))
    if name not in _BINARIES:
        raise WrongUse(f"connection {connection.name}: spark-binary {name!r}; expected one of {', '.join(_BINARIES)}")
    # The spark-submit of the pyspark that is installed beside this program comes first.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    found = shutil.which(name, path=places)
    if found is None:
        raise WrongUse(
            f"{name} was not found: install pyspark (the extra `spark` of this package), or put it on the PATH"
        )
    return found
