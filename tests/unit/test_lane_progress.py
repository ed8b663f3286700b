"""How far a replay is, as its page shows it: what it has committed, whatever became of it, and how far its window is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.commit import protocol
from tidemark.errors import WrongUse
from tidemark.ledger.records import INGEST, Attempt, Heartbeat, JobProgress, LaneKind, Record
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.runs import steering
from tidemark.runs.windows import ingest, lanes
from tidemark.views import lane_progress
from tidemark.views.lane_progress import MAX_WINDOWS, JobInWork, PartitionInWork, WindowInWork, progress_of
from tidemark.views.values import PartitionRanges

RUN = "orders__replay/manual__1"


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """The ingest has read [0, 400); windows have ten offsets at most."""
    stream = StreamInMemory(tmp_path, text=f"{TEXT}limits: {{max_records: 10}}\n")
    stream.ends((0, 400))
    for number in range(40):
        stream.ingest(f"run {number}")
    return stream


def begun(made: StreamInMemory, windows: int) -> str:
    lane = claim_lane(made.opened, LaneKind.REPLAY, RUN, offsets((0, 0, 400)), "bug 17")
    for _ in range(windows):
        lanes.plan_lane(made.opened, lane, RUN)
        made.process(lane, RUN)
    return lane


@pytest.mark.covers("U13")
@pytest.mark.parametrize("stop", [steering.pause, steering.cancel])
def test_a_paused_or_cancelled_run_lists_what_it_has_committed(made: StreamInMemory, stop: object) -> None:
    lane = begun(made, 2)
    assert callable(stop)
    stop(made.opened, lane, "it was only a trial")
    (found,) = progress_of(made.opened, RUN).lanes
    assert found.state in ("paused", "cancelled")
    assert [(one.window, one.ranges, one.more_ranges) for one in found.committed] == [
        (f"{lane}/2", [PartitionRanges("orders/0", 10, 20)], 0),
        (f"{lane}/1", [PartitionRanges("orders/0", 0, 10)], 0),
    ]


@pytest.mark.covers("U13")
@pytest.mark.parametrize("windows", [MAX_WINDOWS, MAX_WINDOWS + 9])
def test_of_many_windows_the_newest_are_listed_and_the_others_counted(made: StreamInMemory, windows: int) -> None:
    lane = begun(made, windows)
    (found,) = progress_of(made.opened, RUN).lanes
    assert (len(found.committed), found.windows) == (MAX_WINDOWS, windows)
    assert [one.window for one in found.committed[:2]] == [f"{lane}/{windows}", f"{lane}/{windows - 1}"]


@pytest.mark.covers("U13")
def test_the_window_in_work_says_how_far_it_is(made: StreamInMemory) -> None:
    lane = begun(made, 1)
    lanes.plan_lane(made.opened, lane, RUN)
    (found,) = progress_of(made.opened, RUN).lanes
    assert found.pending is not None
    assert (found.pending.offsets, found.pending.done, found.pending.beat) == (10, None, None)
    head = made.opened.ledger.head(lane)
    assert head is not None
    assert head.head.pending is not None
    attempt = Attempt(
        **{**msgspec.structs.asdict(made.opened.ledger.newest_records(lane, 1)[0].attempt), "generation": 999}
    )
    taken = msgspec.structs.replace(head.head, pending=msgspec.structs.replace(head.head.pending, attempt=attempt))

    def in_work() -> WindowInWork | None:
        beat = lane_progress._beat(made.opened, lane, taken)
        return lane_progress._pending(made.opened, lane, taken, beat)

    for told, done in ((4, 4), (40, 10)):
        # Spark counts twice what a task has done twice.
        beat = Heartbeat(generation=999, run=RUN, at=77, step="storing orders", done={"orders/0": told})
        made.opened.ledger.beat(lane, beat)
        pending = in_work()
        assert pending is not None
        assert (pending.done, pending.beat, pending.step) == (done, 77, "storing orders")
    # A sign of life of an earlier attempt says nothing of this one.
    made.opened.ledger.beat(lane, Heartbeat(generation=5, run=RUN, at=78, step="reading", done={"orders/0": 9}))
    earlier = in_work()
    assert earlier == replace(found.pending)


@pytest.mark.covers("U13")
def test_the_pace_of_a_run_is_that_of_its_windows_without_what_lies_between(made: StreamInMemory) -> None:
    lane = begun(made, 2)
    second, first = made.opened.ledger.newest_records(lane, 2)
    ten = (PartitionTally(topic="orders", incarnation=1, partition=0, read=Count(10), stored=Count(10)),)

    def read_within(record: Record, since: int, until: int) -> Record:
        assert record.receipt is not None
        receipt = msgspec.structs.replace(record.receipt, started_at=since, tallies=ten)
        return msgspec.structs.replace(record, committed_at=until, receipt=receipt)

    # A pause of an hour between them.
    records = [read_within(second, 3_601_000, 3_604_000), read_within(first, 0, 1_000)]
    assert lane_progress._pace(records) == 20 / 4
    assert lane_progress._pace([msgspec.structs.replace(first, receipt=None)]) is None
    assert lane_progress._pace([]) is None


@pytest.mark.covers("U13")
def test_a_run_of_the_ingest_says_how_far_its_window_is_and_what_it_has_committed(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=f"{TEXT}limits: {{max_records: 10}}\n")
    made.ends((0, 18), (0, 4))
    run, ledger = "orders__ingest/scheduled__1", made.opened.ledger
    made.ingest(run)
    ingest.plan_ingest(made.opened, run)
    seen = progress_of(made.opened, run)
    assert seen.ingest is not None
    assert ([one.window for one in seen.ingest.committed], seen.ingest.windows) == (["ingest/1"], 1)
    assert seen.job is not None
    left = seen.job.offsets
    assert (seen.job.window, seen.job.step, seen.job.done, seen.job.beat) == ("ingest/2", None, None, None)
    attempt = protocol.take(ledger, INGEST, 2, protocol.Run(run, "v1", "d")).attempt
    beat = Heartbeat(generation=attempt.generation, run=run, at=77, step="reading", done={"orders/0": 3})
    ledger.beat(INGEST, beat)
    job = progress_of(made.opened, run).job
    assert job is not None
    assert sum(part.offsets for part in job.partitions) == left
    assert [(part.partition, part.done) for part in job.partitions] == [("orders/0", 3), ("orders/1", 0)]
    assert job == JobInWork(run, 0, "ingest/2", "reading", left, 3, 77, job.partitions, 0)
    # What another run does is not this one's.
    other = progress_of(made.opened, "orders__ingest/scheduled__2")
    assert (other.job, other.ingest and other.ingest.windows) == (None, 0)


@pytest.mark.covers("U13")
def test_an_audit_says_what_it_has_read(made: StreamInMemory) -> None:
    run = "orders__audit/manual__1"
    assert progress_of(made.opened, run).job is None
    total = (("orders/0", 400), ("orders/1", 0), ("orders/2", 7))
    for name in (run, f"{run}/after-repair"):
        noted = JobProgress(
            run=name,
            at=9,
            step="reading 407 offsets",
            try_number=2,
            done={"orders/0": 500, "orders/2": 3},
            total=total,
        )
        made.opened.ledger.note_progress(noted)
        # Offsets that are read twice are counted twice.
        parts = [PartitionInWork("orders/0", 400, 400), PartitionInWork("orders/2", 7, 3)]
        assert progress_of(made.opened, run).job == JobInWork(name, 2, None, noted.step, 407, 403, 9, parts, 0)
    assert progress_of(made.opened, "orders__audit/manual__2").job is None
    # A replay compares before it has a lane; afterwards its lanes say how far it is.
    made.opened.ledger.note_progress(JobProgress(run=RUN, at=9, step="reading 7 offsets"))
    assert progress_of(made.opened, RUN).job == JobInWork(RUN, 0, None, "reading 7 offsets", 0, 0, 9, [], 0)
    begun(made, 1)
    assert progress_of(made.opened, RUN).job is None


@pytest.mark.covers("U13")
def test_a_run_has_no_lanes_before_it_has_claimed_any_and_a_wrong_name_is_refused(made: StreamInMemory) -> None:
    assert (progress_of(made.opened, RUN).lanes, progress_of(made.opened, RUN).run) == ([], RUN)
    for wrong in ("zzz", "replay-0", "clicks__replay/manual__1"):
        with pytest.raises(WrongUse, match=f"has no backfill or replay {wrong}"):
            progress_of(made.opened, wrong)
