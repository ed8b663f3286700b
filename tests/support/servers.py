"""The real servers for the tests: a site of their own, on ports that no other program uses.

TIDEMARK_KEEP_SERVERS=1 leaves the servers running, for the next run.
"""

from __future__ import annotations

import logging
import os
import random
import shutil
import socket
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from services import control, environment, processes
from services.site import PORT_NAMES, REPOSITORY, Site
from tests.support.canary import logs_that_tell
from tests.support.quick_java import quick_java

# In a run with several processes, each has a site of its own.
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
STATE = REPOSITORY / ".local" / f"test{WORKER}"
_PORTS = STATE / "port_base"

# One session for all tests of a process, so that each test can use the code compiled for earlier ones.
_MANY_QUERIES = "--conf spark.sql.codegen.cache.maxEntries=2000 --conf spark.ui.enabled=false"


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Kafka, ZooKeeper, HBase and its Thrift gateway, ready; their connections are in the environment."""
    jars = REPOSITORY / ".local" / "jars"
    base = int(_PORTS.read_text()) if _PORTS.exists() else 0
    found = Site(STATE, base, jars)
    if not processes.running(found):
        shutil.rmtree(STATE, ignore_errors=True)
        found = Site(STATE, free_ports(), jars)
        STATE.mkdir(parents=True)
        _PORTS.write_text(str(found.port_base))
    try:
        with quick_java(found):
            control.up(found, control.DATA_SERVERS)
        os.environ.update(environment.connections(found))
        yield found
        # Not the data of servers, which are messages.
        told = [path for name in ("airflow", "warm-logs", "warm-dags") for path in logs_that_tell(found.folder(name))]
        assert not told, f"what a message says is in {told}"
    finally:
        if not os.environ.get("TIDEMARK_KEEP_SERVERS"):
            # Clients live as long as this process. Their warnings about servers that we have stopped do not matter.
            logging.getLogger("kazoo").setLevel(logging.CRITICAL)
            # Nobody needs them any more: to end in order takes them half a minute.
            for name in reversed(control.ALL):
                processes.kill(found, name)


@pytest.fixture(scope="session")
def spark(site: Site) -> Iterator[SparkSession]:
    """One warm Spark for all tests of this process that need one."""
    from tidemark.spark.runtime.session import open_session

    os.environ.update(environment.spark(site))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--master local[2] --driver-memory 2g {_MANY_QUERIES} pyspark-shell"
    session = open_session("tests")
    yield session
    # py4j would log the end of its connections to a stream that pytest has closed.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    session.stop()


def free_ports() -> int:
    """The first of enough neighbouring ports that are all free."""
    for _ in range(200):
        base = random.randrange(20_000, 32_000, len(PORT_NAMES))
        if all(_is_free(base + number) for number in range(len(PORT_NAMES))):
            return base
    raise RuntimeError("no free ports between 20000 and 32000")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0
