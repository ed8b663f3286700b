"""Where one copy of the servers lives: its folders and its ports."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from services.errors import ServiceError

REPOSITORY = Path(__file__).resolve().parent.parent

# Below Linux's ephemeral ports (32768 and up), so that no outgoing connection can use one of ours.
DEFAULT_PORT_BASE = 26300

# A name's place is its port's distance from the base. Appending is safe; reordering moves the ports of running copies.
PORT_NAMES = (
    "kafka",
    "kafka-controller",
    "zookeeper",
    "hbase-master",
    "hbase-region",
    "thrift",
    "airflow",
    "airflow-worker-logs",
    "airflow-triggerer-logs",
    "thrift2",
    "kafka-secure",
    "kafka-secure-certificates",
    "kafka-secure-controller",
    "zookeeper-secure",
    "postgresql",
    "mariadb",
    "s3",
    "registry",
    "iceberg",
    "spark-master",
    "spark-master-page",
    "spark-worker-page",
    "hdfs",
    "hdfs-page",
    "yarn",
    "yarn-scheduler",
    "yarn-nodes",
    "yarn-page",
    "yarn-node-1",
    "yarn-node-2",
)


@dataclass(frozen=True)
class Site:
    """One copy of the servers.

    `state` holds everything they write; `port_base` is the first of their ports.
    """

    state: Path
    port_base: int
    jars: Path

    @classmethod
    def from_environment(cls) -> Site:
        """The site that TIDEMARK_STATE and TIDEMARK_PORT_BASE name, or the default one under `.local/`."""
        local = REPOSITORY / ".local"
        state = _state(os.environ.get("TIDEMARK_STATE") or str(local / "site"))
        return cls(state=state, port_base=_port_base(os.environ.get("TIDEMARK_PORT_BASE")), jars=local / "jars")

    def port(self, name: str) -> int:
        return self.port_base + PORT_NAMES.index(name)

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.port(name)}"

    def folder(self, *parts: str) -> Path:
        """A folder below the state, created if it does not exist."""
        path = self.state.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def log_file(self, server: str) -> Path:
        return self.folder("log") / f"{server}.log"

    def class_path(self, profile: str) -> str:
        return f"{self.jars / profile}/*"


def _state(text: str) -> Path:
    state = Path(text).resolve()
    there = next(path for path in (state, *state.parents) if path.exists())
    if not there.is_dir():
        raise ServiceError(f"TIDEMARK_STATE={text!r}: {there} is not a folder")
    return state


def _port_base(text: str | None) -> int:
    if not text:
        return DEFAULT_PORT_BASE
    highest = 65535 - len(PORT_NAMES)
    if not re.fullmatch("[0-9]{4,5}", text) or not 1024 <= int(text) <= highest:
        raise ServiceError(f"TIDEMARK_PORT_BASE={text!r}: expected a whole number from 1024 to {highest}")
    return int(text)
