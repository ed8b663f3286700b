"""This process as a run of a warm engine: in the engine's JVM, with a session, a gateway and Python workers of its own.

The engine forks a process for each run (`tidemark.spark.engine`), which then begins here. In a job that spark-submit has
started there is no such run, and `current` returns None.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import _accumulatorRegistry
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

# In the environment of Python workers that belong to one run: Spark shares workers among equal environments only.
WORKERS_OF = "TIDEMARK_RUN"

_LENGTH = struct.Struct("!i")


@dataclass(frozen=True)
class EngineRun:
    """A run: its name in the engine, its pool of the fair scheduler, how to reach the JVM, and what was asked for.

    `conf` are the stream's settings of Spark. `environment` is that of the program that asked.
    """

    name: str
    pool: str
    port: int
    secret: str
    conf: Mapping[str, str]
    environment: Mapping[str, str]


class Attached:
    """The engine's Spark, as a run uses it."""

    def __init__(self, run: EngineRun, settings: Mapping[str, str]) -> None:
        self.run = run
        engine = _connected(run.port, run.secret)
        secret = os.urandom(32).hex()
        port = engine.entry_point.begin(run.name, run.pool, secret, dict(settings))
        engine.close()
        # PySpark finds a gateway that is there by these variables.
        os.environ.update(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret)
        gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
        self._java: Any = gateway.entry_point
        self.spark = self._session(gateway)
        self._updates = _Updates(self._java, self.spark.sparkContext)

    def _session(self, gateway: Any) -> SparkSession:
        java: Any = self._java.session(self.run.name)
        jvm = gateway.jvm
        interrupted = signal.getsignal(signal.SIGINT)
        context: Any = SparkContext(
            gateway=gateway,
            jsc=jvm.JavaSparkContext.fromSparkContext(java.sparkContext()),
            conf=SparkConf(_jvm=jvm, _jconf=java.sparkContext().conf()),
        )
        # PySpark's own answer to an interrupt is to cancel all jobs, also those of other runs.
        signal.signal(signal.SIGINT, interrupted)
        self._java.folder(self.run.name, context._temp_dir)
        # Without this, PySpark would make this session the default one of the whole JVM.
        spark: Any = SparkSession.__new__(SparkSession)
        spark._sc = context
        SparkSession._instantiatedSession = SparkSession._activeSession = spark
        spark.__init__(context, java)
        # The engine stays when a run has ended.
        spark.stop = context.stop = lambda: None
        return spark  # type: ignore[no-any-return]

    def own_workers(self, python_path: Sequence[str]) -> None:
        """Have Python workers of its own, which end with the run: they import code that other runs must not see.

        With a local master they also have the environment of the run, as after spark-submit.
        """
        context: Any = self.spark.sparkContext
        if str(context.master).startswith("local"):
            context.environment.update(self.run.environment)
            context.environment["PYTHONPATH"] = os.pathsep.join(python_path)
        context.environment[WORKERS_OF] = self.run.name

    def refuse_other_files(self, place: str, digest: str, stream: str) -> str | None:
        """The stream that the engine has opened a file system for with other settings. None: these hold for it now."""
        refusal: str | None = self._java.opened(place, digest, stream)
        return refusal

    def kept(self, name: str, make: Callable[[], Any]) -> Any:
        """An object of the JVM that all runs share, made by the first one."""
        value = self._java.kept(name)
        if value is None:
            value = make()
            self._java.keep(name, value)
        return value

    def stages(self) -> list[tuple[int, int, int, int]]:
        """The progress of the run's jobs: number of a stage, its tasks that are done and at work, and all of them."""
        numbers = [[int(number) for number in line.split()] for line in self._java.stages(self.run.name)]
        return [(number, done, at_work, tasks) for number, done, at_work, tasks in numbers]

    def collect(self) -> None:
        """Bring the accumulators of this process up to date."""
        self._updates.collect()


class _Updates:
    """The values that tasks have added to accumulators. The JVM keeps them until this process asks for them.

    After spark-submit, Spark's scheduler tells the driver's process at the end of each task, and waits for it. In an engine,
    a run that hangs would hold up all others.
    """

    def __init__(self, java: Any, context: Any) -> None:
        self._java = java
        self._counts = context._javaAccumulator = java.counts()
        self._seen = 0
        self._lock = threading.Lock()
        context._accumulatorServer.shutdown()

    def collect(self) -> None:
        with self._lock:
            updates = bytes(self._java.added(self._counts, self._seen))
            at = 0
            while at < len(updates):
                (size,) = _LENGTH.unpack_from(updates, at)
                at += _LENGTH.size + size
                number, update = pickle.loads(updates[at - size : at])  # noqa: S301 - from our own workers
                self._seen += 1
                if number in _accumulatorRegistry:
                    _accumulatorRegistry[number] += update


_run: EngineRun | None = None
_attached: Attached | None = None


def begin(run: EngineRun) -> None:
    """Say that this process is a run. The engine's process calls this after its fork."""
    global _run
    _run = run


def current() -> EngineRun | None:
    return _run


def attach(settings: Mapping[str, str]) -> tuple[Attached, bool]:
    """The engine's Spark, and whether it was attached just now. `settings` are those of the session."""
    global _attached
    if _run is None:
        raise RuntimeError("this process is no run of an engine")
    if _attached is not None:
        return _attached, False
    _attached = Attached(_run, settings)
    return _attached, True


def attached() -> Attached | None:
    return _attached


def _connected(port: int, secret: str) -> Any:
    return ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )


def end(run: EngineRun) -> None:
    """End in the JVM what a run may have left there. For the engine, in a process of its own."""
    engine = _connected(run.port, run.secret)
    engine.entry_point.end(run.name, WORKERS_OF)
    engine.close()
