"""What a crash costs under each guarantee, and moving on over offsets on somebody's word."""

from __future__ import annotations

import pytest

from tests.support.command_line import asked, tidemark
from tests.support.cuts import crash, cut_after, read_by
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS
from tidemark.commit.protocol import Step
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.records import Guarantee, LaneKind, Record
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.requests import selecting
from tidemark.runs.skipping import skip
from tidemark.runs.windows import ingest
from tidemark.spark.jobs.audit import audit

pytestmark = pytest.mark.usefixtures("spark")


def records(live: LiveStream) -> list[Record]:
    return [window.record for window in live.opened.ledger.committed()]


@pytest.mark.covers("G4", "C1", "O7", "E37")
def test_what_a_crash_costs(make: Make, ledger: str) -> None:
    """The same messages and the same crash, after the first of two sinks, under each guarantee."""
    for guarantee in Guarantee:
        live = make(CDN, ledger=LEDGERS[ledger], guarantee=guarantee.value)
        live.produce(240)
        run = live.new_run()
        crash(live, run, on_step=cut_after(Step.SINK_STORED))
        head = live.head()
        read_before = read_by(records(live))
        live.ingest(run)
        report = audit(live.opened, "audit")
        live.produce(20)
        live.ingest()
        assert {record.window.guarantee for record in records(live)} == {guarantee}
        if guarantee == Guarantee.AT_LEAST_ONCE:
            # Nothing was committed: the same window is read again, and everything is there once.
            assert (head.seq, head.pending is None) == (0, False)
            assert (report.clean, report.expected, report.unfinished) == (True, 240, 0), report.sentence()
            assert [read_by([record]) for record in records(live)] == [240, 20]
            live.assert_exactly_what_was_read()
        elif guarantee == Guarantee.AT_MAX_ONCE:
            # The window was committed, nobody reads it again, and nobody claims to know how much of it is there.
            assert (head.seq, head.pending, read_before) == (1, None, 0)
            assert sum(head.offsets().values()) == 240
            assert (report.clean, report.expected, report.unfinished) == (True, 0, 240), report.sentence()
            assert [record.receipt is None for record in records(live)] == [True, False]
            assert read_by(records(live)) == 20
            hbase, files = live.independent.hbase(), live.independent.parquet(live.fields)
            wanted = live.expected().rows
            # The sink that was written before the crash has its rows, the other one has none of them; none is twice.
            assert (hbase.twice(), files.twice()) == (0, 0)
            assert hbase.by_place() == wanted
            assert 0 < len(files.rows) < len(wanted)
            # A replay is at least once, and fills in what is missing.
            live.select(
                LaneKind.REPLAY, RangeSet(OffsetRange(at, 0, until) for at, until in live.head().offsets().items())
            )
            live.assert_exactly_what_was_read()
            report = audit(live.opened, "audit 2")
            assert (report.clean, report.expected, report.unfinished) == (True, 260, 0), report.sentence()
        else:
            # Nothing was committed, and no position is kept: each run reads everything, and it is there once all the same.
            assert (head.seq, head.pending is None, head.positions) == (0, False, ())
            assert (report.clean, report.expected) == (True, 240), report.sentence()
            assert [read_by([record]) for record in records(live)] == [240, 260]
            assert live.head().positions == ()
            assert live.opened.ledger.authority().covered().count() == 260
            report = audit(live.opened, "audit 2")
            assert (report.clean, report.expected) == (True, 260), report.sentence()


@pytest.mark.full
@pytest.mark.parametrize(
    "step",
    [
        Step.COMMITTED,
        *(pytest.param(step, marks=pytest.mark.full) for step in (Step.TAKEN, Step.SETTLED, Step.READ, Step.VERIFIED)),
    ],
)
def test_at_most_once_never_reads_a_window_twice(make: Make, step: Step) -> None:
    live = make(CDN, guarantee="at_most_once")
    live.produce(120)
    run = live.new_run()
    crash(live, run, on_step=cut_after(step))
    live.ingest(run)
    # Before the commit nothing has begun, so the retry reads; after it, nobody does.
    assert read_by(records(live)) == (120 if step == Step.TAKEN else 0)
    assert sum(live.positions().values()) == 120
    assert live.ingest() == []
    hbase = live.independent.hbase()
    assert hbase.twice() == 0
    assert len(hbase.rows) == (len(live.expected().rows) if step in (Step.TAKEN, Step.VERIFIED) else 0)
    assert audit(live.opened, "audit").clean


@pytest.mark.full
@pytest.mark.covers("O7")
def test_without_positions_a_run_goes_on_to_its_end_all_the_same(make: Make) -> None:
    live = make(CDN, guarantee="none", limits={"max_records": 50})
    live.produce(120)
    assert [read_by([record]) for record in live.ingest()] == [48, 48, 24]
    # The next run begins where `start` says; a change to the default goes on from there too.
    assert sum(read_by([record]) for record in live.ingest()) == 120
    live.rewrite(limits={}, source={"start": "latest"}, guarantee="none")
    assert live.ingest() == []
    live.rewrite()
    (record,) = live.ingest()
    assert read_by([record]) == 120
    assert sum(live.positions().values()) == 120
    live.assert_exactly_what_was_read()
    assert audit(live.opened, "audit").clean


@pytest.mark.full
def test_skipping_offsets(live: LiveStream) -> None:
    file = str(live.file)
    topic = live.topics[0]
    live.produce(60)
    _, said = tidemark("ledger", "skip", "--dry-run", file, "--to", "latest", "--reason", "a test", code=2)
    assert "has no positions yet" in said
    live.ingest()
    before = live.positions()
    live.produce(60)
    ends = live.opened.log.topics([topic], "read_committed")[topic].partitions
    target = before[topic, 1] + 2

    found = asked("ledger", "skip", "--dry-run", file, "--to", f"{topic}/1@{target}", "--reason", "a load test")
    assert found == [{"range": f"{topic}/1@{before[topic, 1]}-{target}", "kind": "skipped"}]
    assert live.positions() == before
    _, said = tidemark(
        "ledger", "skip", "--dry-run", file, "--to", f"{topic}/1@{before[topic, 1] - 1}", "--reason", "back", code=2
    )
    assert f"the position is {before[topic, 1]}, and it never falls back" in said
    _, said = tidemark(
        "ledger", "skip", "--dry-run", file, "--to", f"{topic}/1@{ends[1].end + 1}", "--reason", "far", code=2
    )
    assert f"ends at {ends[1].end} now" in said
    _, said = tidemark("ledger", "skip", "--dry-run", file, "--to", f"{topic}/99@1", "--reason", "nowhere", code=2)
    assert f"{topic}/99 is not among the partitions" in said
    for wrong, reason in (("earliest", "expected latest, one time"), ("1763710000", "if it is seconds")):
        _, said = tidemark("ledger", "skip", "--dry-run", file, "--to", wrong, "--reason", "wrong", code=2)
        assert reason in said
    assert live.positions() == before

    tidemark("ledger", "skip", file, "--to", f"{topic}/1@{target}", "--reason", "a load test", "--yes")
    assert live.positions() == {**before, (topic, 1): target}
    skipped = [event for event in asked("ledger", "events", file) if event["what"] == "skipped"]
    assert [event["why"] for event in skipped] == ["ledger skip: a load test"]
    assert audit(live.opened, "audit").clean
    live.ingest()
    # What was skipped is still in Kafka: a backfill fills it, and then it is all there.
    live.select(LaneKind.BACKFILL, live.ranges(0, 1, (before[topic, 1], target)))
    live.assert_exactly_what_was_read()
    out, _ = tidemark("ledger", "verify", file)
    assert "all of them there and unchanged" in out


@pytest.mark.full
def test_a_skip_waits_for_the_window_that_is_pending(make: Make) -> None:
    live = make(CDN)
    live.produce(40)
    assert ingest.plan_ingest(live.opened, "run") is not None
    live.produce(40)
    with pytest.raises(Conflict, match=r"window 1 of .* is pending"):
        skip(live.opened, "latest", "a reason", "skip", write=True)
    live.ingest("run")
    skip(live.opened, "latest", "a reason", "skip", write=True)
    assert sum(live.positions().values()) == 80
    with pytest.raises(WrongUse, match="nothing would be skipped"):
        skip(live.opened, "latest", "a reason", "skip 2", write=True)
    assert live.ingest() == []


def test_a_guarantee_that_does_not_exist_is_refused(make: Make) -> None:
    live = make(CDN)
    live.rewrite(guarantee="exactly_once")
    _, said = tidemark("status", str(live.file), code=2)
    assert "guarantee: expected 'at_least_once', 'at_most_once' or 'none'" in said


@pytest.mark.covers("S3", "A06")
def test_ignoring_what_is_stored_reads_again_in_a_lane_of_its_own(live: LiveStream) -> None:
    live.produce(70)
    live.ingest()
    before = live.opened.ledger.store.read(("head", "ingest"))
    everything = selecting.everything_from_the_start(live.opened)
    assert everything.count() == 70
    (record,) = live.select(LaneKind.REPLAY, everything)
    assert read_by([record]) == 70
    assert record.lane.startswith("replay-")
    # The ingest's position is what it was, and the replay's rows are the ones that count.
    assert live.opened.ledger.store.read(("head", "ingest")) == before
    counting = {
        segment.generation for at in everything.partitions for segment in live.opened.ledger.authority().segments(at)
    }
    assert counting == {record.attempt.generation}
    live.assert_exactly_what_was_read()
    # From where `start` says: with offsets, from those.
    topic = live.topics[0]
    live.rewrite(source={"start": {"offsets": {f"{topic}/0": 3}, "others": "latest"}})
    (only,) = selecting.everything_from_the_start(live.opened)
    assert (only.partition.topic, only.partition.partition, only.start) == (topic, 0, 3)
    found = asked("replay", str(live.file), "--ignore-stored", "--reason", "all of it", "--dry-run")
    assert found["offsets"] == len(only)
