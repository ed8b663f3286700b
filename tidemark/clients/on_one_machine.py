"""Stand-ins for connections on one machine: a ledger in a file, a folder for results, and a local Spark.

They are below TIDEMARK_HOME, or its default, and count once `tidemark init` has made them there. Neither a missing connection
nor the variable is enough: on a second machine, or while a disk is not mounted, either would begin a second ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tidemark.clients.connections import Connection
from tidemark.errors import ConnectionMissing, WrongUse

HOME = "TIDEMARK_HOME"
SQL, LAKE, SPARK = "sql_default", "lake_default", "spark_default"

_SPARK = "local[*]"
# Without settings of its own, Spark says what it does in hundreds of lines.
_QUIET = {"spark.log.level": "WARN"}


def home() -> Path:
    """The folder below which everything is. Raises WrongUse where this user has no home."""
    try:
        return Path(os.environ.get(HOME) or Path.home() / ".tidemark").absolute()
    except RuntimeError:
        raise WrongUse(f"this user has no home folder (HOME): set {HOME} to a folder for ledger and results") from None


def streams_folder() -> Path:
    """Where `tidemark init` writes stream files, unless there is another folder for them."""
    return home() / "streams"


def begin() -> None:
    """Make the folders, so that they stand in for missing connections from now on. Raises WrongUse."""
    try:
        home().mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (_lake(), streams_folder()):
            folder.mkdir(exist_ok=True)
    except OSError as problem:
        raise WrongUse(
            f"the folder {problem.filename} cannot be made: {problem.strerror}. Ledger and results of this machine are kept "
            f"below {home()}: let this user write there, or set {HOME} to another folder"
        ) from problem


def begun() -> bool:
    """Whether this machine keeps a ledger and results of its own. A user without a home has none."""
    return _is_there(_lake)


def has_streams() -> bool:
    """Whether `tidemark init` has written stream files for this machine; its connections may be elsewhere."""
    return _is_there(streams_folder)


def _is_there(folder: Callable[[], Path]) -> bool:
    try:
        return folder().is_dir()
    except (WrongUse, OSError):
        return False


def connection_or_stand_in(name: str, stored: Callable[[str], Connection | None], missing: str) -> Connection:
    """The connection of this name, or its stand-in.

    `stored` returns a connection, or None; `missing` words that for the error. Raises ConnectionMissing.
    """
    return stored(name) or _stand_in(name, stored, missing)


def _stand_in(name: str, stored: Callable[[str], Connection | None], missing: str) -> Connection:
    if name not in (SQL, LAKE, SPARK):
        raise ConnectionMissing(missing)
    if not begun():
        raise ConnectionMissing(f"{missing}. {_how_to_begin()}")
    if name == SPARK:
        return Connection(name, _SPARK, kind="spark")
    spark = stored(SPARK)
    if spark is not None and spark.host is not None and not spark.host.startswith("local"):
        raise ConnectionMissing(
            f"{missing}. {home()} does not stand in for it: Spark's master is {spark.host}, whose machines do not see that "
            "folder"
        )
    if name == SQL:
        return Connection(name, str(_ledger()), kind="sqlite")
    return Connection(name, extra={"path": str(_lake())}, kind="fs")


def _how_to_begin() -> str:
    if os.environ.get(HOME):
        return (
            f"{HOME} is {home()}, where `tidemark init` has begun nothing. If a ledger is there, is its disk mounted? "
            "To begin one, run `tidemark init`"
        )
    return "To keep ledger and results on this machine alone, run `tidemark init`"


def describe_stand_ins(names: Collection[str], connections: Callable[[str], Connection]) -> str | None:
    """A command's first line if one of these connections has a stand-in; None if none has."""
    used = []
    for name, place in ((SQL, f"the ledger is {_ledger()}"), (LAKE, f"results are below {_lake()}")):
        with suppress(ConnectionMissing):
            if name in names and is_stand_in(connections(name)):
                used.append(place)
    return f"on this machine alone: {', '.join(used)}" if used else None


def is_stand_in(connection: Connection) -> bool:
    """Whether a connection is a stand-in of this module."""
    if not begun():
        return False
    match connection.name:
        case "sql_default":
            return connection.kind == "sqlite" and connection.host == str(_ledger())
        case "lake_default":
            return connection.extra.get("path") == str(_lake())
        case "spark_default":
            return connection.host == _SPARK and connection.kind == "spark" and not connection.extra
    return False


def spark_settings(connection: Connection) -> dict[str, str]:
    """The settings of a local Spark with the connector from Maven Central, if this machine has stand-ins. Else empty.

    A file of settings that Spark reads on this machine has precedence: it may name the connector's jars.
    """
    if not begun() or not (connection.host or "").startswith("local"):
        return {}
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        return {}
    if _has_settings():
        return {}
    # pyspark has what they leave out.
    left_out = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
    said = _QUIET if is_stand_in(connection) else {}
    return {**said, "spark.jars.packages": connector(spark, avro=True), "spark.jars.excludes": left_out}


def connector(spark: str, *, avro: bool) -> str:
    """The `spark.jars.packages` for a version of Spark: its Kafka connector, with a newer client than its own."""
    packages = [f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark}", "org.apache.kafka:kafka-clients:3.9.2"]
    return ",".join([*packages, *([f"org.apache.spark:spark-avro_2.13:{spark}"] if avro else [])])


def _has_settings() -> bool:
    named = [Path(os.environ[name]) for name in ("SPARK_CONF_DIR", "SPARK_HOME") if os.environ.get(name)]
    return any(
        (folder / file).is_file() for folder in named for file in ("spark-defaults.conf", "conf/spark-defaults.conf")
    )


def _ledger() -> Path:
    return home() / "ledger.db"


def _lake() -> Path:
    return home() / "lake"
