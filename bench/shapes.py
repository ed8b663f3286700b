"""The same job on data of other shapes: skewed, ten times as much, few large records."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
from pyspark.sql import functions as F

from bench.pairs import Pairs, in_pairs
from bench.workbench import Workbench, window
from services import environment
from services.site import REPOSITORY
from tidemark.ledger.records import INGEST
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest
from tidemark.spark.columns import UNKNOWN_NAMES
from tidemark.spark.schemes import json_object

_PARQUET = {"type": "parquet"}
# Two jobs of so many lines, whose memory is compared.
FEW, MANY = 1_000_000, 10_000_000
# Java takes more of its heap while there is more to do, and gives nothing back: so all of it from the start.
_WHOLE_HEAP = ("--conf", "spark.driver.extraJavaOptions=-Xms1g -XX:+AlwaysPreTouch")
LARGE, _LARGE_BYTES, _SMALL_BYTES = 2_000, 1_000_000, 1_000
# What Kafka takes in one record, and a batch with one of them in it.
_LARGEST = str(2 * _LARGE_BYTES)


def skew(bench: Workbench) -> Pairs:
    skewed, even = bench.lines(bench.messages, 0.9), bench.lines(bench.messages)
    return in_pairs(
        bench.pairs,
        lambda: window(bench.stream(skewed, _PARQUET)),
        lambda: window(bench.stream(even, _PARQUET)),
    )


def memory(bench: Workbench) -> Pairs:
    many, few = bench.lines(MANY), bench.lines(FEW)
    return in_pairs(
        bench.pairs,
        lambda: _peak(bench, bench.stream(many, _PARQUET), MANY),
        lambda: _peak(bench, bench.stream(few, _PARQUET), FEW),
        warm=False,
    )


def unknown_keys(bench: Workbench) -> Pairs:
    """Objects of twelve keys, of which the stream has nine, against the same without the count of the others."""
    topic = bench.objects(bench.messages, 9, 3)
    fields = {f"a{at}": "string" for at in range(9)}
    stream: dict[str, Any] = {"scheme": {"type": "json", "fields": fields}, "checks": []}
    nothing = F.lit(None).cast("array<string>").alias(UNKNOWN_NAMES)

    def without() -> float:
        with patch.object(json_object, "_unknown_names", lambda scheme: nothing):
            return window(bench.stream(topic, _PARQUET, **stream))

    return in_pairs(bench.pairs, lambda: window(bench.stream(topic, _PARQUET, **stream)), without)


def large_records(bench: Workbench) -> Pairs:
    """Random bytes, which no compression makes small."""
    large = _random(bench, LARGE, _LARGE_BYTES)
    small = _random(bench, LARGE * _LARGE_BYTES // _SMALL_BYTES, _SMALL_BYTES)
    raw: dict[str, Any] = {"scheme": {"type": "raw"}, "checks": []}
    return in_pairs(
        1,
        lambda: _peak(bench, bench.stream(large, _PARQUET, **raw), LARGE),
        lambda: _peak(bench, bench.stream(small, _PARQUET, **raw), LARGE * _LARGE_BYTES // _SMALL_BYTES),
        warm=False,
    )


def _random(bench: Workbench, count: int, size: int) -> str:
    topic = bench.create(4, **{"max.message.bytes": _LARGEST})
    value = F.expr(f"substring(repeat(sha2(cast(rand() as string), 512), {-(-size // 128)}), 1, {size})")
    rows = bench.spark.range(count).repartition(4)
    rows.select(
        F.lit(topic).alias("topic"), (F.col("id") % 4).cast("int").alias("partition"), value.alias("value")
    ).write.format("kafka").option("kafka.bootstrap.servers", bench.servers).option(
        "kafka.max.request.size", _LARGEST
    ).save()
    return topic


def _peak(bench: Workbench, opened: OpenStream, messages: int) -> float:
    """Run a window as Airflow runs it; gives the largest resident memory of all its processes together, in bytes."""
    pending = ingest.plan_ingest(opened, "bench")
    assert pending is not None
    arguments = ["--stream-file", str(opened.file.path), "--lane", INGEST, "--seq", "1", "--run", "bench"]
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    log = bench.site.folder("bench") / "job.log"
    with log.open("wb") as out:
        job = subprocess.Popen(
            [*submit, *_WHOLE_HEAP, str(REPOSITORY / "spark_jobs" / "process_window.py"), *arguments],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment.spark(bench.site), **environment.connections(bench.site)},
        )
    largest = 0
    while job.poll() is None:
        largest = max(largest, _resident(psutil.Process(job.pid)))
        time.sleep(0.2)
    if job.returncode:
        raise RuntimeError(f"the job ended with {job.returncode}: {log.read_text()[-2000:]}")
    read = sum(tally.read.number for window in opened.ledger.committed() for tally in window.record.tallies)
    assert read == messages, f"{read} of {messages} messages were read"
    return float(largest)


def _resident(parent: psutil.Process) -> int:
    total = 0
    try:
        for process in [parent, *parent.children(recursive=True)]:
            # Forked workers share pages with their parent: what is shared counts once.
            total += process.memory_full_info().pss
    except psutil.NoSuchProcess:
        pass
    return total
