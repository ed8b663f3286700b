"""The engine's start: Spark and its gateway, and then a process that only waits for runs and forks.

A fork copies one thread alone, and whatever other threads hold stays held. So the process that forks has never spoken to
the JVM: a child of its own has started Spark, and has ended.
"""

from __future__ import annotations

import argparse
import fcntl
import gc
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

from py4j.java_gateway import JavaGateway  # noqa: F401 - loaded once, for all runs
from pyspark import SparkConf, SparkContext

import tidemark.spark
from tidemark.clients import schema_registry  # noqa: F401
from tidemark.sinks.kinds import KINDS
from tidemark.spark.engine import daemon
from tidemark.spark.engine.serving import EngineServer
from tidemark.spark.engine.staleness import Code
from tidemark.spark.jobs import audit, compact, compare, entry, window  # noqa: F401
from tidemark.spark.runtime.compiling import compiled, kept_as
from tidemark.spark.runtime.session import open_session

log = logging.getLogger(__name__)

_RUNS = Path(__file__).with_name("Runs.java")
# The engine keeps less of what is over than one application does, whose page people look at.
_SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    # An engine lives for long, and serves many streams.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "20",
    # The streams' plans differ: what was compiled for one is not thrown away for the next.
    "spark.sql.codegen.cache.maxEntries": "1000",
}


def main() -> None:
    """Start Spark, listen, and work until there is nothing to do."""
    parser = argparse.ArgumentParser(prog="process_window engine")
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--runs", type=int, required=True)
    parser.add_argument("--idle-minutes", type=int, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with options.socket.with_suffix(".lives").open("a") as lives:
        try:
            fcntl.flock(lives, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("an engine listens at %s already", options.socket)
            return
        for kind in KINDS.values():
            # What a package of another's cannot load concerns the streams that use it.
            if not kind.refused:
                _loaded(kind)
        code = Code.of_now()
        port, secret = _spark()
        # What is there now is never freed: without this, a collection would copy it in each run.
        gc.collect()
        gc.freeze()
        EngineServer(
            options.socket, port, secret, code, runs=options.runs, idle_seconds=60 * options.idle_minutes
        ).serve()


def _loaded(kind: Any) -> None:
    try:
        kind.make_spark()
    except Exception as problem:
        log.warning("a sink of another package: %s", problem)


def _spark() -> tuple[int, str]:
    """Start Spark in a process that then ends. Returns the port of the engine's gateway, and its secret."""
    read, write = os.pipe()
    secret = os.urandom(32).hex()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            os.write(write, json.dumps(_gateway(secret)).encode())
        except BaseException:
            log.exception("Spark did not start")
            os._exit(1)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        port = said.read()
    _, status = os.waitpid(child, 0)
    if status:
        sys.exit(os.waitstatus_to_exitcode(status))
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        os.environ.pop(name, None)
    return json.loads(port), secret


def _gateway(secret: str) -> int:
    """Start Spark, and a gateway of ours in its JVM. Returns the gateway's port."""
    # Connects to the JVM of spark-submit, which knows what the user has set.
    SparkContext._ensure_initialized()
    given = SparkConf()
    ours = dict(_SETTINGS)
    if str(given.get("spark.master")).startswith("local") and os.environ.get("PYSPARK_PYTHON") == sys.executable:
        # On a cluster, the executors' Python need not have Tidemark.
        ours["spark.python.daemon.module"] = daemon.__name__
    more = {name: value for name, value in ours.items() if not given.contains(name)}
    spark = open_session("tidemark engine", more=more)
    context: Any = spark.sparkContext
    jvm, gateway = context._jvm, context._gateway
    sources = sorted(Path(str(tidemark.spark.__file__)).parent.rglob("*.java"))
    made = {source: compiled(context, source) for source in sources}
    arguments = gateway.new_array(jvm.java.lang.Object, 1)
    arguments[0] = context._jsc.sc()
    runs = made[_RUNS].newInstance(arguments)
    for source, constructor in made.items():
        # The first run would compile it again, and Spark logs an error for a second jar of one name.
        runs.keep(kept_as(source), constructor)
    server = runs.gateway(secret)
    return int(server.getJavaServer().getListeningPort())
