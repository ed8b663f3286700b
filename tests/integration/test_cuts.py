"""Crashes at every cut point, in this process: an exception that nothing catches, and then the same run again.

What counts must be what an oracle computes from the topics alone, as sets; and the retry reads exactly the pinned
window, although more has been produced meanwhile. Real kills, of real processes, are in test_kills.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from tests.support.cuts import Cut, crash, cut_after, read_by
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGER, LEDGERS, OFFSETS
from tests.support.proxy import lossy
from tidemark.clients.connections import variable
from tidemark.commit.protocol import Step
from tidemark.errors import VerificationFailed
from tidemark.ledger.records import LaneKind, Record, SinkReceipt
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.tallies import Acknowledgements
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest
from tidemark.sinks.sweeping import SinkSweeper
from tidemark.spark.jobs import window_work
from tidemark.spark.runtime import progress
from tidemark.spark.sinks.contract import OnePassSink, WriteContext
from tidemark.spark.sinks.hbase.writer import HBaseResults

pytestmark = pytest.mark.usefixtures("spark")


# In every run those behind which something else stands; what the others leave behind is the same as of one of these.
CUTS = [
    pytest.param(Step.TAKEN, 1, marks=pytest.mark.full),
    pytest.param(Step.READ, 1, marks=pytest.mark.full),
    pytest.param(Step.DEAD_LETTERS_STORED, 1, marks=pytest.mark.full),
    (Step.SINK_STORED, 1),
    pytest.param(Step.SINK_STORED, 2, marks=pytest.mark.full),
    pytest.param(Step.VERIFIED, 1, marks=pytest.mark.full),
    (Step.COMMITTED, 1),
    pytest.param(Step.PUBLISHED, 1, marks=pytest.mark.full),
    pytest.param(Step.SETTLED, 1, marks=pytest.mark.full),
]


@pytest.fixture
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Rows are written while they are made; or they are kept in Spark, and then written."""
    passes: list[bool] = []
    in_one_pass = window_work.SparkWork._in_one_pass

    def watched(work: window_work.SparkWork, first: OnePassSink) -> bool:
        passes.append(in_one_pass(work, first))
        return passes[-1]

    monkeypatch.setattr(window_work.SparkWork, "_in_one_pass", watched)
    if request.param == "kept":
        monkeypatch.setattr(window_work, "takes_one_pass", lambda stream: False)
    yield request.param
    assert set(passes) == ({True} if request.param == "one pass" else set())


@pytest.mark.full
@pytest.mark.covers("F1", "O9", "S18")
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", ["one pass", "kept"], indirect=True)
@pytest.mark.parametrize(("step", "times"), CUTS, ids=lambda value: str(value).replace(" ", "-"))
def test_a_crash_after_any_step(live: LiveStream, step: Step, times: int) -> None:
    live.produce(240)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step, times))
    # All of the window counts, or nothing of it.
    live.assert_exactly_what_was_read(with_spark=True)
    pinned = live.head().pending or live.head().last
    assert pinned is not None
    live.produce(60)
    live.ingest(run)
    head = live.head()
    assert head.last is not None
    # The window that was pinned, and no more of it than that.
    assert head.pending is None
    first = live.opened.ledger.record("ingest", 1)
    assert first is not None
    assert first[1].window == pinned.window
    assert read_by([first[1]]) == 240
    assert head.seq == 1 if step not in (Step.COMMITTED, Step.PUBLISHED, Step.SETTLED) else head.seq == 2
    live.ingest()
    assert read_by([window.record for window in live.opened.ledger.committed()]) == 300
    live.assert_exactly_what_was_read()


@pytest.mark.covers("F1", "S18", "A23")
def test_a_crash_after_the_pin(live: LiveStream) -> None:

    # One message in each of partitions 0 to 2; then nine more in partition 2.
    live.produce(3)
    run = live.new_run()
    pending = ingest.plan_ingest(live.opened, run)
    live.kafka.send((live.topics[0], 2, key, value) for key, value in live.example.generate(9, 100))
    assert ingest.plan_ingest(live.opened, run) == pending
    (record,) = live.ingest(run)
    read = {(tally.topic, tally.partition): tally.read.number for tally in record.tallies}
    assert read == {(live.topics[0], partition): 1 for partition in range(3)}
    (rest,) = live.ingest()
    assert read_by([rest]) == 9
    live.assert_exactly_what_was_read()


class HalfReport(progress.Report):
    """Fails in Spark's workers, for the partitions with an odd number, after their rows have been written."""

    def __call__(self, partition: TopicPartition, messages: int) -> None:
        super().__call__(partition, messages)
        if partition.partition % 2:
            raise RuntimeError("half of the tasks crash")


class HalfProgress(progress.AttemptProgress):
    def __init__(self, spark: Any) -> None:
        super().__init__(spark)
        self.report = HalfReport(self._counts)


@pytest.mark.covers("F1", "A43", "F24")
def test_a_crash_after_half_of_the_tasks(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    live.produce(240)
    run = live.new_run()
    monkeypatch.setattr(window_work, "AttemptProgress", HalfProgress)
    with pytest.raises(Exception, match="half of the tasks crash"):
        live.ingest(run)
    assert live.head().seq == 0
    monkeypatch.undo()
    (record,) = live.ingest(run)
    assert read_by([record]) == 240
    live.assert_exactly_what_was_read()


@pytest.mark.full
@pytest.mark.covers("G1")
def test_a_sink_that_holds_less_than_was_read(live: LiveStream, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = HBaseResults.store

    def less(self: HBaseResults, rows: DataFrame, context: WriteContext) -> Acknowledgements:
        return whole(self, rows.where("_offset % 7 != 0"), context)

    live.produce(240)
    run = live.new_run()
    monkeypatch.setattr(HBaseResults, "store", less)
    with pytest.raises(VerificationFailed, match="acknowledged by sink hbase"):
        live.ingest(run)
    assert live.head().seq == 0
    monkeypatch.undo()
    live.ingest(run)
    live.assert_exactly_what_was_read()


class CutSweeper(SinkSweeper):
    """Crashes when the first of the places has been swept."""

    def sweep(self, record: Record, covers: RangeSet, places: Sequence[SinkReceipt]) -> None:
        super().sweep(record, covers, places[:1])
        raise Cut


def with_cut_sweep(opened: OpenStream) -> OpenStream:
    return replace(opened, sweeper=CutSweeper(opened.connections))


@pytest.mark.full
@pytest.mark.covers("F1", "O9")
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", ["one pass", pytest.param("kept", marks=pytest.mark.full)], indirect=True)
@pytest.mark.parametrize("step", [Step.SINK_STORED, Step.SWEPT], ids=str)
def test_a_crash_in_the_sweep(live: LiveStream, step: Step) -> None:
    live.produce(240)
    run = live.new_run()
    crash(live, run, on_step=cut_after(Step.SINK_STORED))
    # The second try owes a sweep, and is cut in it or right behind it.
    if step == Step.SWEPT:
        crash(live, run, on_step=cut_after(Step.SWEPT))
    else:
        crash(live, run, opened=with_cut_sweep(live.opened))
    ledger, last = live.opened.ledger, live.head().last
    assert last is not None
    assert not ledger.is_settled(last)
    live.produce(30)
    live.ingest()
    assert live.head().seq == 2
    live.assert_exactly_what_was_read()
    assert live.independent.hbase().debris == 0


@pytest.mark.full
@pytest.mark.covers("F1", "O9")
@pytest.mark.parametrize(
    ("step", "times"),
    [
        pytest.param(Step.TAKEN, 1, marks=pytest.mark.full),
        (Step.SINK_STORED, 1),
        pytest.param(Step.COMMITTED, 1, marks=pytest.mark.full),
        pytest.param(Step.SWEPT, 1, marks=pytest.mark.full),
        pytest.param(Step.SETTLED, 1, marks=pytest.mark.full),
    ],
    ids=lambda value: str(value).replace(" ", "-"),
)
def test_a_crash_in_a_replay(live: LiveStream, step: Step, times: int) -> None:
    live.produce(240)
    live.ingest()
    position = live.positions()
    run = live.new_run()
    selection = live.ranges(0, 0, (3, 9), (20, 21)) | live.ranges(-1, 2, (5, 6))
    with pytest.raises(Cut):
        live.select(LaneKind.REPLAY, selection, run, on_step=cut_after(step, times))
    live.assert_exactly_what_was_read()
    # Run again: what was committed is settled, what was not is done; the lane is closed at the end.
    from tidemark.runs.windows import lanes
    from tidemark.spark.jobs.window import process_windows

    lane = lanes.lane_name(LaneKind.REPLAY, run)
    process_windows(live.opened, lane, 1, run)
    assert live.head(lane).seq == 1
    assert live.head(lane).state == "closed"
    assert live.positions() == position
    live.assert_exactly_what_was_read()
    assert live.independent.hbase().debris == 0


@pytest.mark.full
@pytest.mark.covers("F2", "E38", "A42", "O9")
@pytest.mark.parametrize("applied", [True, pytest.param(False, marks=pytest.mark.full)], ids=["applied", "not applied"])
def test_the_commits_answer_is_lost(make: Make, monkeypatch: pytest.MonkeyPatch, applied: bool) -> None:
    live = make(CDN)
    with lossy(live.site.port("thrift")) as proxy:
        connection = {"conn_type": "generic", "host": "127.0.0.1", "port": proxy.port}
        monkeypatch.setenv(variable("hbase_lossy"), json.dumps(connection))
        live.rewrite(ledger={"type": "hbase", "hbase": "hbase_lossy", "table": LEDGER, "offsets_table": OFFSETS})
        live.produce(200)

        def lose_the_commit(step: Step) -> None:
            if step == Step.VERIFIED:
                proxy.lose_next(b"checkAndPut", b"/head/ingest", applied=applied)

        (record,) = live.ingest(on_step=lose_the_commit)
        assert proxy.lost == 1
        live.rewrite(ledger=LEDGERS["hbase"])
    assert record.seq == live.head().seq == 1
    assert [one["attempt"]["token"] for one in live.independent.records()] == [record.attempt.token]
    live.assert_exactly_what_was_read()
