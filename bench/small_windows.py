"""Small windows in a warm engine: what one takes, through the command line and through Airflow, and what 200 streams take.

The other side of each pair is the time that it should take at most, so the ratio is at most 1 where the target is met.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import yaml

from bench.pairs import Pairs
from bench.workbench import EXAMPLE, PARTITIONS, Workbench
from demo.airflow import Airflow
from demo.cdn_lines import produce
from services import control, environment
from services.site import Site
from tidemark.submit.address import sockets
from tidemark.submit.status import ask

SMALL, LARGER = 1_000, 50_000
STREAMS = 200
# Runs that are not counted: Java compiles what is used often only after some time.
_WARM_UP = 10
# As many runs at a time as Airflow would have them on a machine with two cores.
_AT_A_TIME = 2
_LOOK_SECONDS = 0.1
# An engine's processes note their times a moment after a run has ended.
_SETTLING_SECONDS = 1.0

_HBASE = ({"type": "hbase", "table": "-"},)


def wall(bench: Workbench) -> Pairs:
    """`tidemark run` from start to end, against 4 seconds."""
    return _runs(bench, 4.0, lambda run: _timed(run)[0])


def processor(bench: Workbench) -> Pairs:
    """The processor time of such a run, all processes together but the servers, against 3 seconds."""
    return _runs(bench, 3.0, lambda run: _timed(run)[1])


def airflow_small(bench: Workbench) -> Pairs:
    """The example's 1,000 lines, from the trigger to success, against 10 seconds."""
    return _through_airflow(bench, SMALL, 10.0)


def airflow_larger(bench: Workbench) -> Pairs:
    """The example's 50,000 lines, from the trigger to success, against 15 seconds."""
    return _through_airflow(bench, LARGER, 15.0)


def hour(bench: Workbench) -> Pairs:
    """One hour's work of 200 streams with 1,000 messages each, against ten minutes."""
    with _engine(bench.site):
        streams = [_Small(bench) for _ in range(STREAMS)]
        for number in range(_WARM_UP):
            streams[number].produce(SMALL)
            streams[number].run()
        for one in streams:
            one.produce(SMALL)
        began = time.perf_counter()
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for done in [pool.submit(one.run) for one in streams]:
                done.result()
        took = time.perf_counter() - began
    return Pairs((took,), (600.0,))


class _Small:
    """A stream of the example's lines with a topic of its own."""

    def __init__(self, bench: Workbench, sinks: tuple[dict[str, Any], ...] = _HBASE) -> None:
        self._bench = bench
        name = f"bench_{uuid.uuid4().hex[:8]}"
        self.topic = bench.create(PARTITIONS)
        stream = yaml.safe_load(EXAMPLE.read_text())
        del stream["transform"]
        stream |= {"stream": name, "sinks": [{**one, "table": name} for one in sinks]}
        stream["source"]["topics"] = [self.topic]
        stream["dead_letters"]["table"] = f"{name}_dead_letters"
        self.file = bench.site.folder("bench") / f"{name}.yaml"
        self.file.write_text(yaml.safe_dump(stream, sort_keys=False))

    def produce(self, count: int) -> None:
        produce(self._bench.servers, self.topic, count)

    def run(self) -> None:
        command = [sys.executable, "-m", "tidemark", "run", str(self.file), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=_environment(self._bench.site), check=False)
        assert done.returncode == 0, done.stderr
        assert f'"read": {SMALL}' in done.stdout, done.stdout


def _runs(bench: Workbench, most: float, measured: Callable[[Callable[[], None]], float]) -> Pairs:
    found = []
    with _engine(bench.site):
        stream = _Small(bench)
        for number in range(_WARM_UP + bench.pairs):
            stream.produce(SMALL)
            took = measured(stream.run)
            if number >= _WARM_UP:
                found.append(took)
    return Pairs(tuple(found), (most,) * len(found))


def _timed(run: Callable[[], None]) -> tuple[float, float]:
    """The seconds of a run, and those of the processors: of its own processes, and of all of the engine."""
    before, own = _of_engine(), _of_children()
    began = time.perf_counter()
    run()
    took = time.perf_counter() - began
    time.sleep(_SETTLING_SECONDS)
    return took, _of_children() - own + _of_engine() - before


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _of_engine() -> float:
    """The processor time of the engine's JVM, of its Python workers, and of the runs that it has forked so far."""
    total = 0.0
    for answer in (ask(path, "status") for path in sockets()):
        if answer is not None:
            jvm = psutil.Process(int(answer["jvm"]))
            for process in (jvm, *jvm.children(recursive=True)):
                total += sum(process.cpu_times()[:4])
    return total


def _environment(site: Site) -> dict[str, str]:
    return {
        **os.environ,
        **environment.spark(site),
        **environment.connections(site, warm=True),
        **environment.engines(site),
    }


@contextmanager
def _engine(site: Site) -> Iterator[None]:
    """A warm engine for the block."""
    before = dict(os.environ)
    os.environ.update(environment.engines(site))
    command = [sys.executable, "-m", "tidemark", "engine"]
    try:
        subprocess.run([*command, "start"], env=_environment(site), check=True)
        yield
        subprocess.run([*command, "stop", "--now", "--yes"], env=_environment(site), check=True)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _through_airflow(bench: Workbench, count: int, most: float) -> Pairs:
    """The ingest of a stream with the example's four sinks."""
    control.up(bench.site, report=lambda _: None)
    airflow, found = Airflow(bench.site), []
    with _example(bench) as (name, topic):
        dag = f"{name}__ingest"
        airflow.wait_for_dag(dag)
        for number in range(3 + bench.pairs):
            produce(bench.servers, topic, count)
            began = time.perf_counter()
            run = airflow.trigger(dag)
            while (state := airflow.state(dag, run)) not in ("success", "failed"):
                time.sleep(_LOOK_SECONDS)
            took = time.perf_counter() - began
            assert state == "success", airflow.last_lines(dag, run)
            if number >= 3:
                found.append(took)
    return Pairs(tuple(found), (most,) * len(found))


@contextmanager
def _example(bench: Workbench) -> Iterator[tuple[str, str]]:
    """The example under another name, with all its sinks, among the streams of Airflow."""
    name, topic = f"bench_{uuid.uuid4().hex[:8]}", bench.create(PARTITIONS)
    stream = yaml.safe_load(EXAMPLE.read_text())
    stream["stream"] = name
    stream["source"]["topics"] = [topic]
    stream["dead_letters"]["table"] = f"{name}_dead_letters"
    for sink in stream["sinks"]:
        for key in ("table", "folder", "topic"):
            if key in sink:
                sink[key] = bench.create(PARTITIONS) if key == "topic" else f"{name}_{sink['type']}"
    path = Path(bench.site.folder("streams")) / f"{name}.yaml"
    path.write_text(yaml.safe_dump(stream, sort_keys=False))
    try:
        yield name, topic
    finally:
        path.unlink()
