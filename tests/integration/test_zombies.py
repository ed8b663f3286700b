"""What an old attempt writes after a newer one has committed never counts, and cannot destroy what does.

The old attempts here have lost their eyes: they do not look at their fence, as if they had been paused between looking
and writing. Their rows really arrive, behind the newer attempt's commit and its sweep.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import happybase
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.cuts import Cut, cut_after
from tests.support.fixed_layouts import FIXED
from tests.support.flushing import flush_and_compact
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, ORDERS, Example
from tests.support.sink_topics import written
from tidemark.commit import protocol
from tidemark.commit.fence import HeadFence
from tidemark.commit.protocol import Fence, HeldWindow, Step
from tidemark.errors import Fenced
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.hbase.rows import MARK, PartitionKeys
from tidemark.sinks.hbase.table import stream_table
from tidemark.sinks.mounts import FolderMarks
from tidemark.sinks.stored_rows import Mark
from tidemark.spark.jobs.window_work import SparkWork
from tidemark.spark.sinks import make_sinks
from tidemark.spark.sinks.dead_letters import dead_letters_writer

# A check under which about half of the messages are invalid that were stored before.
STRICTER = {"cdn": "size > 2500000", "orders": "amount > 20"}


class Blind(HeadFence):
    """A fence that is never looked at."""

    def check(self) -> None: ...

    def check_now_and_then(self) -> None: ...


@contextmanager
def blindly(opened: OpenStream, taken: HeldWindow) -> Iterator[Fence]:
    yield Blind(opened.ledger, INGEST, taken.attempt.generation)


def zombie(
    live: LiveStream,
    spark: SparkSession,
    run: str,
    opened: OpenStream,
    newer: object,
    *,
    refused: tuple[type[Exception] | tuple[type[Exception], ...], str] = (Fenced, "was committed by run"),
    longer: bool = True,
) -> None:
    """An attempt that takes and reads with `opened`, lets `newer` happen, and then goes on to write and to commit.

    `longer`: not in one pass, so that it has written nothing before.
    """
    ledger = opened.ledger.register()
    assert ledger is not None
    sinks = make_sinks(opened)
    dead = dead_letters_writer(opened)
    for place in (*sinks, dead):
        place.prepare(opened.ledger.stream, ledger[1].ledger)  # type: ignore[attr-defined]
    mounts = FolderMarks(opened.ledger, opened.connections, [*opened.stream.sinks, opened.stream.dead_letters])
    work = SparkWork(spark, opened, sinks, dead, INGEST, mounts, longer=longer)

    def when_read(step: Step) -> None:
        if step == Step.READ:
            newer()  # type: ignore[operator]

    head = live.head()
    assert head.pending is not None
    me = lanes.this_run(opened, run)
    problem, said = refused
    with pytest.raises(problem, match=said):
        protocol.process(
            opened.ledger,
            opened.sweeper,
            work,
            partial(blindly, opened),
            INGEST,
            head.pending.window.seq,
            me,
            on_step=when_read,
        )
    work.close()


# The newer attempt has swept the files that the late one has written, and from which it would fill its other sinks.
GONE = ((Py4JError, PySparkException), "does not exist|FILE_NOT_EXIST")


@pytest.mark.full
@pytest.mark.covers("F5", "A46", "E40")
@pytest.mark.parametrize("longer", [pytest.param(True, marks=pytest.mark.full), False], ids=["kept", "one pass"])
def test_a_late_attempt_with_other_code_changes_nothing(
    make: Make, spark: SparkSession, example: Example, longer: bool
) -> None:
    """What the late attempt stores are dead letters of the newer one, and the other way round."""
    live = make(example)
    live.produce(300)
    run = live.new_run()
    assert ingest.plan_ingest(live.opened, run) is not None
    # The late attempt runs older code, under which half of the messages are invalid.
    checks = live.example.stream.get("checks", [])
    live.rewrite(checks=[*checks, {"invalid_when": STRICTER[example.name], "reason": "older code"}])
    older = live.opened
    live.rewrite()
    refused = (Fenced, "was committed by run") if longer else GONE
    zombie(live, spark, run, older, lambda: live.ingest(run), refused=refused, longer=longer)
    assert live.head().seq == 1
    # Its rows are there, in HBase and in Parquet, beside and under those that count ...
    live.assert_exactly_what_was_read()
    dead = live.independent.hbase(f"{live.name}_dead")
    assert dead.debris > 50
    # ... and they do not count after a flush and a major compaction either, when delete markers are gone.
    for table in (live.name, f"{live.name}_dead"):
        flush_and_compact(live.site, table)
    live.assert_exactly_what_was_read()
    # A replay over all of it sweeps them out.
    everything = live.opened.ledger.authority().covered()
    live.select(LaneKind.REPLAY, everything)
    live.assert_exactly_what_was_read()
    assert live.independent.hbase(f"{live.name}_dead").debris == 0


def with_all_kinds(live: LiveStream) -> list[dict[str, Any]]:
    """Sinks of every kind that has a row for each message."""
    out = f"{live.name}-out"
    live.kafka.create(out, 1)
    return [
        {"type": "kafka", "topic": out},
        {"type": "hbase", "table": live.name},
        {"type": "parquet", "folder": live.name},
        {"type": "delta", "folder": f"{live.name}_delta"},
    ]


def messages_in(live: LiveStream) -> Counter[str]:
    """How many messages each generation has in the topic."""
    return Counter(headers["tidemark.generation"] for headers, *_ in written(live, f"{live.name}-out"))


@pytest.mark.full
@pytest.mark.covers("F5")
def test_what_a_late_attempt_writes_to_delta_and_kafka_does_not_count(make: Make, spark: SparkSession) -> None:
    live = make(ORDERS)
    sinks = with_all_kinds(live)
    live.produce(200)
    run = live.new_run()
    live.rewrite(sinks=sinks)
    assert ingest.plan_ingest(live.opened, run) is not None
    # Older code, under which the amounts are others: a row of it would be seen.
    live.rewrite(sinks=sinks, transform=FIXED)
    older = live.opened
    live.rewrite(sinks=sinks)
    # It finds that out once it has written its files beside the table, of which no reader sees any.
    refused = (Fenced, "was committed by run")
    zombie(live, spark, run, older, lambda: live.ingest(run), refused=refused)
    rows = len(live.expected().rows)
    assert sorted(messages_in(live).values()) == [rows, rows]
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("E48")
def test_rows_of_a_replay_that_was_abandoned_do_not_count(make: Make) -> None:
    live = make(ORDERS)
    sinks = with_all_kinds(live)
    live.rewrite(sinks=sinks)
    live.produce(200)
    live.ingest()
    rows = len(live.expected().rows)
    live.rewrite(sinks=sinks, transform=FIXED)
    run = live.new_run()
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.opened.ledger.authority().covered(), run, on_step=cut_after(Step.VERIFIED))
    live.rewrite(sinks=sinks)
    # All that it wrote is in the topic, and newer than what counts. A table has nothing of it.
    assert sorted(messages_in(live).values()) == [rows, rows]
    assert len(DeltaTable(f"{live.site.folder('lake')}/{live.name}_delta").to_pyarrow_table()) == rows
    live.assert_exactly_what_was_read()
    assert (
        protocol.abandon(live.opened.ledger, lanes.lane_name(LaneKind.REPLAY, run), "a test", take_over=True)
        is not None
    )
    live.assert_exactly_what_was_read()
    live.produce(40)
    live.ingest()
    live.assert_exactly_what_was_read(with_spark=True)


@pytest.mark.full
@pytest.mark.covers("F5")
@pytest.mark.parametrize("compacted", [False, True], ids=["fresh", "compacted"])
def test_rows_that_only_the_old_attempt_produced_do_not_count(make: Make, spark: SparkSession, compacted: bool) -> None:
    """Older code made three rows of a message, and a row of a message that is now a dead letter or dropped."""
    live = make(CDN)
    live.produce(200)
    (record,) = live.ingest()
    wanted = live.expected()
    dead_topic, dead_partition, dead_offset = next(iter(wanted.dead))
    old = record.attempt.generation - 1
    table = stream_table(live.opened, "hbase_default", live.name)
    kept = PartitionKeys(TopicPartition(live.topics[0], 0))
    gone = PartitionKeys(TopicPartition(dead_topic, dead_partition))
    cells = [(MARK, Mark(old, 7, INGEST, 1).encode()), (b"d:host", b"from an older attempt")]
    late = [*(kept.key(5, index) for index in range(3)), gone.key(dead_offset, 0)]
    table.write_cells([(key, *cell) for key in late for cell in cells], old)
    if compacted:
        flush_and_compact(live.site, live.name)
    # Index 0 of offset 5 is hidden below the row that counts; the other three rows are visible debris.
    assert live.independent.hbase().debris == 3
    live.assert_exactly_what_was_read(with_spark=True)


@pytest.mark.full
@pytest.mark.covers("E48")
def test_rows_of_an_attempt_that_never_committed_do_not_hide_what_counts(make: Make, spark: SparkSession) -> None:
    """A replay that stored and crashed lies over the rows that count: readers look below it."""
    live = make(CDN)
    live.produce(200)
    live.ingest()

    class Cut(BaseException):
        pass

    def cut(step: Step) -> None:
        if step == Step.VERIFIED:
            raise Cut

    live.rewrite(checks=[{"invalid_when": "size > 2500000", "reason": "newer code"}])
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, live.opened.ledger.authority().covered(), on_step=cut)
    live.rewrite()
    connection = happybase.Connection("127.0.0.1", live.site.port("thrift"))
    newest = {mark[1] for _, row in connection.table(live.name).scan(include_timestamp=True) for mark in row.values()}
    connection.close()
    assert len(newest) > 1
    live.assert_exactly_what_was_read(with_spark=True)
