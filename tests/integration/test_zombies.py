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
from tests.support.oracle import CDN, ORDERS, Example
from tests.support.playground import Make, Playground
from tests.support.sink_topics import written
from tidemark.commit import protocol
from tidemark.commit.fence import HeadFence
from tidemark.commit.protocol import Fence, Step, Taken
from tidemark.errors import Fenced, VerificationFailed
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.offsets.ranges import TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest, lanes
from tidemark.sinks.hbase.rows import MARK, PartitionKeys
from tidemark.sinks.stored import Mark
from tidemark_spark.jobs.window_work import SparkWork
from tidemark_spark.sinks import make_sinks
from tidemark_spark.sinks.dead_letters import dead_letters_writer

# A check under which about half of the messages are invalid that were stored before.
STRICTER = {"cdn": "size > 2500000", "orders": "amount > 20"}


class Blind(HeadFence):
    """A fence that is never looked at."""

    def check(self) -> None: ...

    def check_now_and_then(self) -> None: ...


@contextmanager
def blindly(opened: OpenStream, taken: Taken) -> Iterator[Fence]:
    yield Blind(opened.book, INGEST, taken.attempt.generation)


def zombie(
    play: Playground,
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
    ledger = opened.book.register()
    assert ledger is not None
    sinks = make_sinks(opened)
    dead = dead_letters_writer(opened)
    for place in (*sinks, dead):
        place.prepare(opened.book.stream, ledger[1].ledger)  # type: ignore[attr-defined]
    work = SparkWork(spark, opened, sinks, dead, INGEST, longer=longer)

    def when_read(step: Step) -> None:
        if step == Step.READ:
            newer()  # type: ignore[operator]

    head = play.head()
    assert head.pending is not None
    me = lanes.this_run(opened, run)
    problem, said = refused
    with pytest.raises(problem, match=said):
        protocol.process(
            opened.book,
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
    play = make(example)
    play.produce(300)
    run = play.new_run()
    assert ingest.plan_ingest(play.opened, run) is not None
    # The late attempt runs older code, under which half of the messages are invalid.
    checks = play.example.stream.get("checks", [])
    play.rewrite(checks=[*checks, {"invalid_when": STRICTER[example.name], "reason": "older code"}])
    older = play.opened
    play.rewrite()
    refused = (Fenced, "was committed by run") if longer else GONE
    zombie(play, spark, run, older, lambda: play.ingest(run), refused=refused, longer=longer)
    assert play.head().seq == 1
    # Its rows are there, in HBase and in Parquet, beside and under those that count ...
    play.assert_exactly_what_was_read()
    dead = play.independent.hbase(f"{play.name}_dead")
    assert dead.debris > 50
    # ... and they do not count after a flush and a major compaction either, when delete markers are gone.
    for table in (play.name, f"{play.name}_dead"):
        flush_and_compact(play.site, table)
    play.assert_exactly_what_was_read()
    # A replay over all of it sweeps them out.
    everything = play.opened.book.authority().covered()
    play.select(LaneKind.REPLAY, everything)
    play.assert_exactly_what_was_read()
    assert play.independent.hbase(f"{play.name}_dead").debris == 0


def with_all_kinds(play: Playground) -> list[dict[str, Any]]:
    """Sinks of every kind that has a row for each message."""
    out = f"{play.name}-out"
    play.kafka.create(out, 1)
    return [
        {"type": "kafka", "topic": out},
        {"type": "hbase", "table": play.name},
        {"type": "parquet", "folder": play.name},
        {"type": "delta", "folder": f"{play.name}_delta"},
    ]


def messages_in(play: Playground) -> Counter[str]:
    """How many messages each generation has in the topic."""
    return Counter(headers["tidemark.generation"] for headers, *_ in written(play, f"{play.name}-out"))


@pytest.mark.full
@pytest.mark.covers("F5")
def test_what_a_late_attempt_writes_to_delta_and_kafka_does_not_count(make: Make, spark: SparkSession) -> None:
    play = make(ORDERS)
    sinks = with_all_kinds(play)
    play.produce(200)
    run = play.new_run()
    play.rewrite(sinks=sinks)
    assert ingest.plan_ingest(play.opened, run) is not None
    # Older code, under which the amounts are others: a row of it would be seen.
    play.rewrite(sinks=sinks, transform=FIXED)
    older = play.opened
    play.rewrite(sinks=sinks)
    # A Delta table takes nothing of an attempt that is older than the last one, and so nothing is acknowledged there.
    refused = (VerificationFailed, "acknowledged by sink delta")
    zombie(play, spark, run, older, lambda: play.ingest(run), refused=refused)
    rows = len(play.expected().rows)
    assert sorted(messages_in(play).values()) == [rows, rows]
    play.assert_exactly_what_was_read()


@pytest.mark.covers("E48")
def test_rows_of_a_replay_that_was_abandoned_do_not_count(make: Make) -> None:
    play = make(ORDERS)
    sinks = with_all_kinds(play)
    play.rewrite(sinks=sinks)
    play.produce(200)
    play.ingest()
    rows = len(play.expected().rows)
    play.rewrite(sinks=sinks, transform=FIXED)
    run = play.new_run()
    with pytest.raises(Cut):
        play.select(LaneKind.REPLAY, play.opened.book.authority().covered(), run, on_step=cut_after(Step.VERIFIED))
    play.rewrite(sinks=sinks)
    # All that it wrote is there, and newer than what counts.
    assert sorted(messages_in(play).values()) == [rows, rows]
    assert len(DeltaTable(f"{play.site.folder('lake')}/{play.name}_delta").to_pyarrow_table()) == 2 * rows
    play.assert_exactly_what_was_read()
    assert (
        protocol.abandon(play.opened.book, lanes.lane_name(LaneKind.REPLAY, run), "a test", take_over=True) is not None
    )
    play.assert_exactly_what_was_read()
    play.produce(40)
    play.ingest()
    play.assert_exactly_what_was_read(with_spark=True)


@pytest.mark.covers("F5")
@pytest.mark.parametrize("compacted", [False, True], ids=["fresh", "compacted"])
def test_rows_that_only_the_old_attempt_produced_do_not_count(make: Make, spark: SparkSession, compacted: bool) -> None:
    """Older code made three rows of a message, and a row of a message that is now a dead letter or dropped."""
    play = make(CDN)
    play.produce(200)
    (record,) = play.ingest()
    wanted = play.expected()
    dead_topic, dead_partition, dead_offset = next(iter(wanted.dead))
    old = record.attempt.generation - 1
    table = play.opened.result_table("hbase_default", play.name)
    kept = PartitionKeys(TopicPartition(play.topics[0], 0))
    gone = PartitionKeys(TopicPartition(dead_topic, dead_partition))
    cells = [(MARK, Mark(old, 7, INGEST, 1).encode()), (b"d:host", b"from an older attempt")]
    late = [*(kept.key(5, index) for index in range(3)), gone.key(dead_offset, 0)]
    table.write_cells([(key, *cell) for key in late for cell in cells], old)
    if compacted:
        flush_and_compact(play.site, play.name)
    # Index 0 of offset 5 is hidden below the row that counts; the other three rows are visible debris.
    assert play.independent.hbase().debris == 3
    play.assert_exactly_what_was_read(with_spark=True)


@pytest.mark.full
@pytest.mark.covers("E48")
def test_rows_of_an_attempt_that_never_committed_do_not_hide_what_counts(make: Make, spark: SparkSession) -> None:
    """A replay that stored and crashed lies over the rows that count: readers look below it."""
    play = make(CDN)
    play.produce(200)
    play.ingest()

    class Cut(BaseException):
        pass

    def cut(step: Step) -> None:
        if step == Step.VERIFIED:
            raise Cut

    play.rewrite(checks=[{"invalid_when": "size > 2500000", "reason": "newer code"}])
    with pytest.raises(Cut):
        play.select(LaneKind.REPLAY, play.opened.book.authority().covered(), on_step=cut)
    play.rewrite()
    connection = happybase.Connection("127.0.0.1", play.site.port("thrift"))
    newest = {mark[1] for _, row in connection.table(play.name).scan(include_timestamp=True) for mark in row.values()}
    connection.close()
    assert len(newest) > 1
    play.assert_exactly_what_was_read(with_spark=True)
