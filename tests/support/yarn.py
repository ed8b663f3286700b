"""YARN's servers, what it says of its applications, and an archive with the Python of its containers."""

from __future__ import annotations

import json
import re
import sys
import tarfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil

from services import control, environment, jars, processes, servers
from services.site import Site

NODES = ("yarn-node-1", "yarn-node-2")
# The classes of an application's containers, in client mode.
EXECUTOR, MASTER = "YarnCoarseGrainedExecutorBackend", "ExecutorLauncher"
_SERVERS = ("hdfs-name", "hdfs-data", "yarn-manager", *NODES)
_ARCHIVE = "python.tar"
# What the documents say that executors need, beside what the driver and Spark send them.
_PACKAGES = ("numpy", "pyarrow", "happybase", "kafka-python", "crc32c", "kazoo", "msgspec", "xxhash", "pydantic")
_NOT_NEEDED = re.compile(r"(^|/)(tests|include|__pycache__)/|^\.\./")


@dataclass(frozen=True)
class Yarn:
    """`conf`: what a stream file for it has under `engine`."""

    site: Site
    conf: dict[str, str]

    def applications(self, stream: str) -> list[dict[str, Any]]:
        """What its resource manager says of a stream's, the first one first."""
        with urlopen(f"{environment.yarn_page(self.site)}/apps", timeout=10) as answer:
            found = (json.load(answer)["apps"] or {}).get("app", [])
        return sorted((one for one in found if stream in one["name"]), key=lambda one: one["id"])

    def log_files(self, application: dict[str, Any]) -> list[Path]:
        """What its containers have said, the application master and the executors, and how they were started."""
        return sorted(self.site.folder("yarn").glob(f"yarn-node-*/logs/{application['id']}/*/*"))

    def containers(self, application: dict[str, Any], main: str) -> list[psutil.Process]:
        """The processes of an application that run this class of Spark."""
        return [
            process
            for process in processes.running(self.site)
            if any(word.endswith(f".{main}") for word in process.cmdline()) and application["id"] in process.cwd()
        ]


@contextmanager
def yarn(site: Site) -> Iterator[Yarn]:
    """Start YARN, with the archive on its HDFS. At the end, end it with everything that it has started."""
    try:
        control.up(site, _SERVERS)
        _pack(site.folder("yarn", "python"), site.folder("yarn") / _ARCHIVE)
        servers.put_on_hdfs(site, site.folder("yarn") / _ARCHIVE)
        yield Yarn(site, _conf(site))
    finally:
        for name in reversed(_SERVERS):
            processes.kill(site, name)


def _conf(site: Site) -> dict[str, str]:
    connectors = sorted((site.jars / jars.folder_of("spark")).glob("*.jar"))
    return {
        "spark.jars": ",".join(map(str, connectors)),
        "spark.submit.deployMode": "client",
        "spark.yarn.dist.archives": f"hdfs:///{_ARCHIVE}#python",
        "spark.pyspark.python": "./python/bin/python",
        "spark.pyspark.driver.python": sys.executable,
        "spark.executor.instances": "2",
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "256m",
        # They are on every node here: without this, each job would send 400 MB.
        "spark.yarn.jars": f"local:{jars.of_pyspark()}/*",
    }


def _pack(folder: Path, archive: Path) -> None:
    """As venv-pack does: an environment of this Python, with its packages."""
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    with tarfile.open(archive, "w") as packed:
        for path in folder.iterdir():
            packed.add(path, path.name)
        for name in _with_all_they_need(_PACKAGES):
            for file in metadata.files(name) or ():
                if not _NOT_NEEDED.search(str(file)):
                    packed.add(file.locate(), packages.relative_to(folder) / file)


def _with_all_they_need(names: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    left = [*names]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            needed = [one for one in metadata.requires(name) or () if "extra ==" not in one]
            left += [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in needed]
    return found
