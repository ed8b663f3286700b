"""Jobs of Spark that say where they listen, and what others get there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.peers_of_spark import fetched

JOB = Path(__file__).parent.parent / "jobs" / "listening_job.py"
# A machine whose own settings would have the driver listen for others.
OPEN = {"spark.driver.host": "localhost", "spark.driver.bindAddress": "0.0.0.0", "spark.authenticate": "false"}
BLOCKS = ["broadcast_0_piece0", "broadcast_1_piece0"]


@contextmanager
def listening(command: list[str], **variables: str) -> Iterator[list[tuple[str, int]]]:
    """Where the JVM of a job listens, while it does."""
    own = {**os.environ, "PYSPARK_PYTHON": sys.executable, **variables}
    job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=own, text=True)
    assert job.stdout is not None
    try:
        line = next((one for one in iter(job.stdout.readline, "") if one.startswith("LISTENS")), "")
        assert line, f"the job ended with {job.wait()}"
        yield [(host.removeprefix("::ffff:"), port) for host, port in json.loads(line.removeprefix("LISTENS"))]
    finally:
        # spark-submit is the JVM, and its Python driver ends with it. A run of an engine ends with its client.
        job.kill()
        job.communicate(timeout=120)


def gives_something(ports: list[tuple[str, int]]) -> bool:
    hosts = {"::": "127.0.0.1", "0.0.0.0": "127.0.0.1"}
    return any(fetched(hosts.get(host, host), port, block) for host, port in ports for block in BLOCKS)


def assert_nobody_gets_anything(ports: list[tuple[str, int]]) -> None:
    assert ports
    assert {host for host, _ in ports} == {"127.0.0.1"}
    assert not gives_something(ports)
