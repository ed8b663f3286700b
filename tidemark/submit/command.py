"""The command that runs one of Tidemark's Spark jobs with the stream's Spark connection: by spark-submit, or a warm engine.

The command line holds no secrets: connections reach the job through its environment.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

import tidemark
from tidemark.clients import on_one_machine
from tidemark.clients.connections import Connection
from tidemark.errors import PYSPARK, PackageMissing, WrongUse, install
from tidemark.settings import wording
from tidemark.settings.parts import Part, Text
from tidemark.sinks.dead_letters.kinds import KINDS as DEAD_LETTER_KINDS
from tidemark.sinks.kinds import kind_of
from tidemark.streams.engine import shown_to_people
from tidemark.streams.model import Stream
from tidemark.submit import client
from tidemark.submit.address import socket_path
from tidemark.submit.same_code import ASKING, asking_code

# The one script of all jobs, and the words by which it knows them. Without one, it processes windows.
_SCRIPT = "process_window.py"
WINDOW_JOB = "window"
AUDIT_JOB = "audit"
COMPARE_JOB = "compare"
COMPACT_JOB = "compact"
_ENGINE = "engine"
# The variables that name the Python of Spark's workers, and of its driver.
PYTHONS = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
# The variable by which a job knows the task that has started it from one of the same name in another Airflow.
TASK = "TIDEMARK_TASK"
# The extra of a Spark connection that says that its jobs run in a warm engine.
WARM = "engine"

# What makes pyspark a client of Spark Connect, by a setting or a variable.
_API_MODE = "spark.api.mode"
_CONNECT_VARIABLES = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")
_YARNS_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
# The setting by which an application knows that the connection says `allow_insecure`.
INSECURE = "spark.tidemark.allowInsecure"

# As in Airflow's provider: a connection cannot name any other program.
_BINARIES = ("spark-submit", "spark2-submit", "spark3-submit")


def job_script() -> Path:
    """The path of the jobs' script: in `spark_jobs/` of a checkout, inside the package in a wheel."""
    package = Path(tidemark.__file__).parent
    places = (package.parent / "spark_jobs" / _SCRIPT, package / "spark" / "scripts" / _SCRIPT)
    return next(path for path in places if path.is_file())


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


def refused(
    connection: str, master: str | None, deploy_mode: object, expected: str | None, conf: Mapping[str, str]
) -> str | None:
    """Why a Spark connection is refused for jobs with these settings; None when it is accepted."""
    if expected is not None and master != expected:
        return f"the Spark connection {connection} gives master {master}; the stream file expects {expected}"
    if deploy_mode == "cluster":
        return (
            f"the Spark connection {connection} asks for deploy mode cluster; Tidemark's jobs run in client mode, "
            "so that their connections need not stand on a command line"
        )
    connect = [f"the Spark connection {connection} gives {master}"] if str(master).startswith("sc://") else []
    connect += [f"{name} is set among the settings" for name in ("spark.remote",) if name in conf]
    connect += [f"{name} is {conf[name]}" for name in (_API_MODE,) if conf.get(name, "classic") != "classic"]
    connect += [f"{name} is set in the environment" for name in _CONNECT_VARIABLES if os.environ.get(name)]
    if connect:
        return (
            f"{connect[0]}, which asks for Spark Connect; Tidemark's jobs need Spark's own JVM beside them, and that has "
            "none. Give the connection a master: local[2], spark://HOST:7077, yarn or k8s://..."
        )
    if master == "yarn" and not _has_spark_env() and not any(map(_is_yarns, _YARNS_FOLDERS)):
        named = " or ".join(_YARNS_FOLDERS)
        return (
            f"the Spark connection {connection} gives master yarn, and no folder with a yarn-site.xml is named in {named}, so "
            f"nothing says where YARN is: set {_YARNS_FOLDERS[0]} to the folder of the cluster's configuration"
        )
    return None


def _is_yarns(variable: str) -> bool:
    folder = os.environ.get(variable)
    return bool(folder) and (Path(str(folder)) / "yarn-site.xml").is_file()


def _has_spark_env() -> bool:
    """Whether Spark's scripts read a file of settings of their own, which may set any variable."""
    named = [os.environ[name] for name in ("SPARK_CONF_DIR", "SPARK_HOME") if name in os.environ]
    return any((Path(folder) / file).exists() for folder in named for file in ("spark-env.sh", "conf/spark-env.sh"))


class WarmEngine(Part):
    """The settings of a Spark connection's warm engine: the extra `engine`. `true` keeps the defaults."""

    runs: int = Field(default=2, ge=1, le=64, description="The number of concurrent runs; the others wait.")
    idle_minutes: int = Field(
        default=90, ge=1, le=10_080, description="The engine stops after this many minutes without a run."
    )
    conf: Annotated[dict[Text, Text], AfterValidator(shown_to_people)] = Field(
        default_factory=dict, description="Spark settings of the engine, for all its streams."
    )


def warm_engine(connection: Connection) -> WarmEngine | None:
    """The warm engine of a Spark connection; None if spark-submit starts its jobs. Raises WrongUse."""
    given = connection.extra.get(WARM)
    if given in (None, False):
        return None
    try:
        return WarmEngine.model_validate({} if given is True else given)
    except ValidationError as problem:
        said = "; ".join(
            f"{'.'.join(map(str, error['loc'])) or WARM}: {wording.describe_error(error, WarmEngine)}"
            for error in wording.errors(problem)
        )
        raise WrongUse(f"connection {connection.name}: {WARM} among its extras: {said}") from None


def check_machine(sinks: Iterable[str], dead_letters: str | None = None) -> None:
    """Look for what jobs need on this machine, before anything starts. `sinks` are the types of the stream's sinks, and
    `dead_letters` that of their store.

    Raises PackageMissing, and WrongUse when there is no Java.
    """
    for type_ in sinks:
        kind_of(type_).check_packages()
    if dead_letters is not None:
        DEAD_LETTER_KINDS[dead_letters].check_packages()
    # As Spark's scripts look for Java. Their own file of settings may still name one.
    if _has_spark_env():
        return
    home = os.environ.get("JAVA_HOME")
    if home and not (Path(home) / "bin" / "java").is_file():
        raise WrongUse(f"JAVA_HOME={home}: there is no bin/java in it. Spark needs Java 17 or 21: set JAVA_HOME to one")
    if not home and shutil.which("java") is None:
        raise WrongUse(
            "Java was not found, and Spark runs on it: install Java 17 or 21 (Debian: openjdk-17-jre-headless), put its "
            "`java` on the PATH, or set JAVA_HOME"
        )


def submit_command(
    stream: Stream,
    connection: Connection,
    job: str,
    arguments: list[str],
    more: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that runs a job of a stream and ends with its exit code. Raises WrongUse, and
    PackageMissing for what this machine lacks.

    The stream's `engine` gives the settings, its Spark connection the master. If both name a master, they have to agree.
    `more` are settings of this one start.
    """
    check_machine((sink.type for sink in stream.sinks), stream.dead_letters.type)
    url, settings = master(connection), {**stream.engine.conf, **(more or {})}
    if refusal := refused(connection.name, url, connection.extra.get("deploy-mode"), stream.engine.master, settings):
        raise WrongUse(refusal)
    words = [str(job_script()), job, *arguments]
    engine = warm_engine(connection)
    if engine is not None:
        return [*engine_command(connection, engine, settings), *words]
    return [*_spark_submit(connection, f"tidemark {stream.name}", settings), *words]


def engine_command(connection: Connection, engine: WarmEngine, settings: Mapping[str, str]) -> list[str]:
    """The command that hands a run to the warm engine of a connection, up to the script, and starts the engine if needed.

    Without a script, it only starts the engine. Raises WrongUse as `submit_command` does.
    """
    asked = {**engine.conf, **settings}
    if refusal := refused(connection.name, master(connection), connection.extra.get("deploy-mode"), None, asked):
        raise WrongUse(refusal)
    submit = _spark_submit(connection, f"tidemark engine {connection.name}", engine.conf)
    ours = ["--runs", str(engine.runs), "--idle-minutes", str(engine.idle_minutes)]
    # The same words start the same engine, of the same installation and with the same files of settings.
    path = socket_path(connection.name, [*submit, *ours, *_files_of_spark()])
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    start = [*submit, str(job_script()), _ENGINE, "--socket", str(path), *ours]
    return [sys.executable, "-I", "-S", client.__file__, str(path), *conf, "--start", *start, "--"]


def _files_of_spark() -> list[str]:
    """Spark's own files of settings, with their time: an engine has read them when it started."""
    places = [
        Path(os.environ[name]) for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR") if name in os.environ
    ]
    files = [file for place in places if place.is_dir() for file in sorted(place.iterdir())]
    return [f"{file} {file.stat().st_mtime_ns}" for file in files]


def _spark_submit(connection: Connection, name: str, conf: Mapping[str, str]) -> list[str]:
    options = ["--master", master(connection), "--name", name]
    if queue := connection.extra.get("queue"):
        options += ["--queue", str(queue)]
    settings = {**settings_of(connection), **conf}
    if namespace := connection.extra.get("namespace"):
        settings["spark.kubernetes.namespace"] = str(namespace)
    for key, value in settings.items():
        options += ["--conf", f"{key}={value}"]
    return [_submit(connection), *options]


def settings_of(connection: Connection) -> dict[str, str]:
    """Spark's settings for whatever is started with a connection; those of the stream file have precedence."""
    insecure = {INSECURE: "true"} if connection.flag("allow_insecure") else {}
    return {**on_one_machine.spark_settings(connection), **insecure}


def job_environment() -> dict[str, str]:
    """This process's environment. Spark's Python is this one, unless the environment names another, and the code is its own."""
    return {**dict.fromkeys(PYTHONS, sys.executable), **os.environ, ASKING: asking_code()}


def _submit(connection: Connection) -> str:
    name = str(connection.extra.get("spark-binary", _BINARIES[0]))
    if name not in _BINARIES:
        raise WrongUse(f"connection {connection.name}: spark-binary {name!r}; expected one of {', '.join(_BINARIES)}")
    # Prefer the spark-submit of the pyspark that is installed beside this program.
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    command = shutil.which(name, path=places)
    if command is None:
        raise PackageMissing(f"{name} was not found: put it on the PATH, or install Spark: {install(*PYSPARK)}")
    return command
