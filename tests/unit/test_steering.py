"""A backfill or replay that is under way is paused, goes on, or is cancelled: over a ledger in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.claiming import claim_lane
from tests.support.protocol_world import NoWork, hold
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.commit import protocol
from tidemark.commit.protocol import Run, Step
from tidemark.errors import ClaimOverlap, Conflict, Fenced, LaneClosed, LanePaused, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import INGEST, LaneKind, LaneState
from tidemark.runs import steering
from tidemark.runs.windows import lanes
from tidemark.views.events import events

RUN = "orders__replay/manual__1"


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """A stream with ten offsets that were read, in windows of at most four from now on."""
    stream = StreamInMemory(tmp_path)
    stream.ends((0, 10))
    stream.ingest()
    now = StreamInMemory(tmp_path, stream.kafka, TEXT + "limits:\n  max_records: 4\n")
    now.store.values.update(stream.store.values)
    return now


def opened_replay(made: StreamInMemory) -> str:
    """The lane of a replay of all ten offsets, with its first window pinned."""
    lane = claim_lane(made.opened, LaneKind.REPLAY, RUN, offsets((0, 0, 10)), "bug 17")
    assert lanes.plan_lane(made.opened, lane, RUN) is not None
    return lane


def test_a_cancelled_replay_keeps_its_windows_and_frees_the_rest(made: StreamInMemory) -> None:
    lane = opened_replay(made)
    first = made.process(lane, RUN)
    lanes.plan_lane(made.opened, lane, RUN)
    cancelled = steering.cancel(made.opened, lane, "the wrong hour")
    assert (cancelled.windows, cancelled.given_up, cancelled.left) == (1, 2, offsets((0, 4, 10)))
    ledger = made.opened.ledger
    assert ledger.authority().held_by(first.attempt.generation, offsets((0, 0, 10))) == offsets((0, 0, 4))
    entry = all_lanes(ledger)[lane]
    assert (entry.state, entry.closed_early, entry.windows) == (LaneState.CLOSED, "the wrong hour", 1)
    # A later request takes the rest.
    again = claim_lane(made.opened, LaneKind.REPLAY, "again", cancelled.left, "bug 17")
    assert lanes.plan_lane(made.opened, again, "again") is not None
    # The cancelled run is told so, whatever it tries.
    for what in (
        lambda: lanes.plan_lane(made.opened, lane, RUN),
        lambda: made.process(lane, RUN),
        lambda: claim_lane(made.opened, LaneKind.REPLAY, RUN, offsets((0, 0, 10)), "bug 17"),
    ):
        with pytest.raises(LaneClosed, match="closed before it was done: the wrong hour"):
            what()
    assert ("closed early", "the wrong hour") in {(one.what, one.why) for one in events(ledger)}


@pytest.mark.parametrize("at", [Step.TAKEN, Step.READ, Step.VERIFIED])
def test_a_job_that_works_on_a_window_cannot_commit_it_after_a_cancel(made: StreamInMemory, at: Step) -> None:
    lane = opened_replay(made)

    def cancelling(step: Step) -> None:
        if step == at:
            assert steering.cancel(made.opened, lane, "stop").given_up == 1

    ledger = made.opened.ledger
    with pytest.raises(Fenced, match="abandoned"):
        protocol.process(ledger, made.sweeps, NoWork(), hold, lane, 1, Run(RUN, "v1", "d"), on_step=cancelling)
    assert [one.record.lane for one in ledger.committed()] == [INGEST]
    assert claim_lane(made.opened, LaneKind.REPLAY, "again", offsets((0, 0, 10)), "bug 17")


def test_a_window_that_is_pinned_while_the_lane_is_cancelled_is_given_up_too(made: StreamInMemory) -> None:
    """The job has committed a window before the cancel; while the cancel settles that window, the job pins the next one."""
    lane = opened_replay(made)
    made.process(lane, RUN)
    ledger = made.opened.ledger
    # As after a crash that follows the commit: the window is not settled.
    (key,) = [key for key in made.store.values if key[:2] == ("history", lane)]
    del made.store.values[key]

    class Pinning:
        def sweep(self, record: object, covers: object, places: object) -> None:
            made.sweeps.sweep = lambda record, covers, places: None  # type: ignore[method-assign]
            lanes.plan_lane(made.opened, lane, RUN)

    made.sweeps.sweep = Pinning().sweep  # type: ignore[method-assign]
    cancelled = steering.cancel(made.opened, lane, "stop")
    assert (cancelled.windows, cancelled.given_up, cancelled.left) == (1, 2, offsets((0, 4, 10)))
    assert ledger.register()[1].lanes.keys() == {INGEST}  # type: ignore[index]


def test_a_paused_replay_begins_no_window_until_it_may_go_on(made: StreamInMemory) -> None:
    lane = opened_replay(made)
    steering.pause(made.opened, lane, "the cluster is full")
    # The window in work is finished.
    made.process(lane, RUN)
    with pytest.raises(LanePaused, match="the cluster is full") as caught:
        lanes.plan_lane(made.opened, lane, RUN)
    assert caught.value.exit_code == 3
    with pytest.raises(ClaimOverlap):
        claim_lane(made.opened, LaneKind.REPLAY, "other", offsets((0, 8, 9)), "another")
    steering.resume(made.opened, lane)
    while lanes.plan_lane(made.opened, lane, RUN) is not None:
        made.process(lane, RUN)
    lanes.finish(made.opened, lane)
    assert lanes.is_done(made.opened, lane)


def test_a_paused_replay_that_has_read_everything_is_done(made: StreamInMemory) -> None:
    lane = claim_lane(made.opened, LaneKind.REPLAY, RUN, offsets((0, 0, 3)), "bug 17")
    lanes.plan_lane(made.opened, lane, RUN)
    steering.pause(made.opened, lane, "the cluster is full")
    made.process(lane, RUN)
    assert lanes.plan_lane(made.opened, lane, RUN) is None


def test_a_paused_replay_can_be_cancelled(made: StreamInMemory) -> None:
    lane = opened_replay(made)
    steering.pause(made.opened, lane, "for now")
    assert steering.cancel(made.opened, lane, "for good").left == offsets((0, 0, 10))


def test_a_lane_is_named_by_itself_or_by_its_run(made: StreamInMemory) -> None:
    lane = opened_replay(made)
    assert steering.lanes_of(made.opened, lane) == steering.lanes_of(made.opened, RUN) == [lane]
    with pytest.raises(WrongUse, match=rf"no backfill or replay yesterday; .* Open are: {lane} \(run {RUN}\)"):
        steering.lanes_of(made.opened, "yesterday")
    steering.cancel(made.opened, lane, "stop")
    assert steering.lanes_of(made.opened, RUN) == [lane]
    with pytest.raises(WrongUse, match=r"no backfill or replay ingest; .* Open are: none"):
        steering.lanes_of(made.opened, INGEST)


def test_what_is_not_open_is_neither_cancelled_nor_paused(made: StreamInMemory) -> None:
    lane = opened_replay(made)
    with pytest.raises(WrongUse, match="cancel needs a reason"):
        steering.cancel(made.opened, lane, " ")
    with pytest.raises(WrongUse, match="pause needs a reason"):
        steering.pause(made.opened, lane, "")
    steering.cancel(made.opened, lane, "stop")
    with pytest.raises(WrongUse, match="is not open: it was closed before it was done: stop"):
        steering.cancel(made.opened, lane, "stop")
    for change in (lambda: steering.pause(made.opened, lane, "why"), lambda: steering.resume(made.opened, lane)):
        with pytest.raises(WrongUse, match="no open lane"):
            change()
    done = claim_lane(made.opened, LaneKind.REPLAY, "done", offsets((0, 0, 2)), "bug 17")
    lanes.plan_lane(made.opened, done, "done")
    made.process(done, "done")
    lanes.finish(made.opened, done)
    with pytest.raises(WrongUse, match="is not open: it has read all of its offsets"):
        steering.cancel(made.opened, done, "stop")
    with pytest.raises(WrongUse, match="paused and resumed in Airflow"):
        steering.pause(made.opened, INGEST, "why")


def test_a_cancel_does_not_go_on_for_ever(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    lane = opened_replay(made)
    monkeypatch.setattr(protocol, "abandon", lambda *_, **__: None)
    with pytest.raises(Conflict, match="has window 1 pending"):
        steering.cancel(made.opened, lane, "stop")
