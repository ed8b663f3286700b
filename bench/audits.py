"""An audit of unchanged data, against a bare read of the same data; and an audit after replays, against one before them."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from pyspark.sql import SparkSession

from bench.pairs import Pairs, in_pairs
from bench.workbench import PARTITIONS, Workbench, window
from tests.support.claiming import claim_lane
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import lanes
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows
from tidemark.spark.runtime.session import PARQUET_ROWS, setting

# Replays of scattered records, and the windows that they are scattered over.
SCATTERED, _WINDOWS, _REPLAYS, _RECORDS = 200_000, 100, 4, 1_200
# The third one was seen to free the last that a plan has held.
_COLLECTIONS = 5


def against_a_read(bench: Workbench) -> Pairs:
    """The stream has one sink, in Parquet. A read takes all columns of the messages, of the files, and of the dead letters."""
    topic = bench.lines(bench.messages)
    opened = bench.stream(topic, {"type": "parquet"})
    window(opened)
    (committed,) = opened.ledger.committed()
    letters = opened.stream.dead_letters.place(opened.connections)["table"]
    folders = [one.place["folder"] for one in committed.record.places if one.type == "parquet"]

    def ours() -> None:
        report = audit(opened, "bench")
        assert report.clean, report.sentence()
        assert report.expected == bench.messages

    def bare() -> None:
        _computed(bench.source(topic))
        # With Spark's own default: Tidemark's is for rows of any size.
        with setting(bench.spark, PARQUET_ROWS, "4096"):
            _computed(bench.spark.read.option("recursiveFileLookup", True).parquet(*folders))
        with closing(bench.hbase()) as connection:
            dead_letters = sum(1 for _ in connection.table(letters).scan(batch_size=1000))
        assert dead_letters

    return in_pairs(bench.pairs, ours, bare)


def after_replays(bench: Workbench) -> Pairs:
    """Two streams with sinks in Parquet and Delta read the same messages. Scattered records of one of them were replayed."""
    ours, other = _scattered(bench)
    return in_pairs(bench.pairs, lambda: _audited(ours), lambda: _audited(other))


def heap_after_replays(bench: Workbench) -> Pairs:
    """As `after_replays`: what lives in the heap of the driver after an audit."""
    ours, other = _scattered(bench)

    def heap(opened: OpenStream) -> Callable[[], float]:
        def lives() -> float:
            _audited(opened)
            return _lives(bench.spark)

        return lives

    return in_pairs(bench.pairs, heap(ours), heap(other))


def _lives(spark: SparkSession) -> float:
    """The bytes in use when all garbage has been collected.

    Spark keeps a table that was joined until a collection finds that its plan has gone: the next ones free it.
    """
    jvm: Any = spark._jvm
    runtime = jvm.Runtime.getRuntime()
    # Python lets go of what it holds in the JVM.
    gc.collect()
    for _ in range(_COLLECTIONS):
        jvm.System.gc()
        time.sleep(1)
    return float(runtime.totalMemory() - runtime.freeMemory())


def _scattered(bench: Workbench) -> tuple[OpenStream, OpenStream]:
    topic = bench.lines(SCATTERED)
    sinks = {"type": "parquet"}, {"type": "delta"}
    limits = {"max_records": SCATTERED // _WINDOWS}
    ours, other = (bench.stream(topic, *sinks, beside=beside, limits=limits) for beside in (False, True))
    window(ours), window(other)
    every, chance = bench.everything(topic), random.Random(1)  # noqa: S311
    for number in range(_REPLAYS):
        some = RangeSet(
            OffsetRange(one.partition, offset, offset + 1)
            for one in every
            for offset in chance.sample(range(one.start, one.until), _RECORDS // PARTITIONS)
        )
        lane = claim_lane(ours, LaneKind.REPLAY, f"bench-{number}", some, "a benchmark")
        pending = lanes.plan_lane(ours, lane, f"bench-{number}")
        assert pending is not None
        process_windows(ours, lane, pending.window.seq, f"bench-{number}")
    return ours, other


def _audited(opened: OpenStream) -> None:
    report = audit(opened, "bench")
    assert report.clean, report.sentence()
    assert report.expected == SCATTERED


def _computed(rows: Any) -> None:
    """All columns of all rows, which nothing is done with."""
    rows.write.format("noop").mode("overwrite").save()
