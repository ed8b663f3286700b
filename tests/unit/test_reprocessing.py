"""A backfill that also reads again what windows have read: two lanes of one run, over a Kafka and a ledger in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import Claimed, claim_lane, claim_lanes, claimed_by
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.cli import lanes_of_runs, stream_lookup
from tidemark.cli.commands import replay
from tidemark.errors import ClaimOverlap, Conflict, LanePaused, NotApproved, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import INGEST, LaneKind, LaneState
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import steering
from tidemark.runs.requests import answers
from tidemark.runs.requests.approval import Requesters
from tidemark.runs.requests.forms import BackfillRequest, checked
from tidemark.runs.requests.plan import Plan, plan_request
from tidemark.runs.windows import lanes

RUN = "orders__backfill/manual__1"
LATER = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20}}")
BACKFILL = lanes.lane_name(LaneKind.BACKFILL, RUN)
AGAIN = lanes.again_lane(RUN)


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """The ingest has read [20, 40), and a backfill [5, 10). Windows have ten offsets at most."""
    stream = StreamInMemory(tmp_path, text=f"{LATER}limits: {{max_records: 10, approve_above: 100}}\n")
    stream.ends((0, 40))
    for run in ("run 1", "run 2"):
        stream.ingest(run)
    lane = claim_lane(stream.opened, LaneKind.BACKFILL, "before", offsets((0, 5, 10)), "a test")
    lanes.plan_lane(stream.opened, lane, "before")
    stream.process(lane, "before")
    lanes.finish(stream.opened, lane)
    stream.ends((0, 50))
    return stream


def asked(**values: Any) -> BackfillRequest:
    return checked(BackfillRequest, {"reason": "bug 17", "mode": "reprocess", **values}, {})


def opened(made: StreamInMemory, chosen: Plan | Claimed, **more: Any) -> list[str]:
    return claim_lanes(made.opened, LaneKind.BACKFILL, RUN, chosen.ranges, "bug 17", again=chosen.again, **more)


def worked_off(made: StreamInMemory, lane: str) -> RangeSet:
    read = RangeSet()
    while lanes.plan_lane(made.opened, lane, RUN) is not None:
        read |= made.opened.ledger.covers(made.process(lane, RUN).window)
    lanes.finish(made.opened, lane)
    return read


@pytest.mark.covers("N24")
def test_one_request_reads_what_is_missing_and_then_the_others_again(made: StreamInMemory) -> None:
    request = asked(ranges="orders/0@0-45")
    found = plan_request(made.opened, request)
    assert (found.ranges, found.again) == (offsets((0, 0, 5), (0, 10, 20)), offsets((0, 5, 10), (0, 20, 40)))
    assert found.left_out == {answers.THE_INGESTS: offsets((0, 40, 45))}
    before = made.positions()
    mine = opened(made, found)
    assert mine == [BACKFILL, AGAIN]
    assert [worked_off(made, lane) for lane in mine] == [found.ranges, found.again]
    kinds = [all_lanes(made.opened.ledger)[lane].kind for lane in mine]
    assert (kinds, made.positions()) == ([LaneKind.BACKFILL, LaneKind.REPLAY], before)
    # By default, what was read stays as it is.
    only = plan_request(
        made.opened, checked(BackfillRequest, {"reason": "bug 17", "ranges": "orders/0@0-45", "dry_run": True}, {})
    )
    assert (only.all, set(only.left_out)) == (RangeSet(), {answers.READ_ALREADY, answers.THE_INGESTS})


@pytest.mark.covers("N24")
def test_both_lanes_are_opened_in_one_step_or_none_is(made: StreamInMemory) -> None:
    found = plan_request(made.opened, asked(ranges="orders/0@0-40"))
    other = claim_lane(made.opened, LaneKind.REPLAY, "other", offsets((0, 30, 31)), "another")
    with pytest.raises(ClaimOverlap, match=rf"orders/0@30-31: claimed by the open lane {other} \(run other\)"):
        opened(made, found)
    open_now = made.opened.ledger.register()[1].lanes  # type: ignore[index]
    assert set(open_now) == {INGEST, other}
    steering.cancel(made.opened, other, "a test")
    writes: list[Key] = []

    def dies(key: Key) -> None:
        writes.append(key)
        if key[0] == "head":
            raise KeyboardInterrupt

    made.store.before_swap = dies
    with pytest.raises(KeyboardInterrupt):
        opened(made, found)
    # One write has entered both, and whoever comes next finishes what the dead one has begun.
    assert writes.count(("register",)) == 1
    assert lanes.lanes_of(made.opened, LaneKind.BACKFILL, RUN) == [BACKFILL, AGAIN]
    made.store.before_swap = lambda key: None
    assert claimed_by(made.opened, LaneKind.BACKFILL, RUN) == Claimed(found.ranges, found.again)
    assert [worked_off(made, lane) for lane in (BACKFILL, AGAIN)] == [found.ranges, found.again]


def test_a_retry_goes_on_with_both_selections(made: StreamInMemory) -> None:
    found = plan_request(made.opened, asked(ranges="orders/0@0-40"))
    assert claimed_by(made.opened, LaneKind.BACKFILL, RUN) is None
    mine = opened(made, found, rate=40)
    worked_off(made, mine[0])
    lanes.plan_lane(made.opened, mine[1], RUN)
    made.process(mine[1], RUN)
    before = claimed_by(made.opened, LaneKind.BACKFILL, RUN)
    assert before == Claimed(found.ranges, found.again)
    assert opened(made, before, rate=40) == mine
    with pytest.raises(Conflict, match="begun with another request: rate was 40, and is left empty"):
        opened(made, before)
    assert worked_off(made, mine[1]) == found.again - offsets((0, 5, 10), (0, 20, 25))
    assert claimed_by(made.opened, LaneKind.REPLAY, RUN) is None


def test_either_part_may_be_empty(made: StreamInMemory) -> None:
    missing, there = (plan_request(made.opened, asked(ranges=f"orders/0@{one}")) for one in ("10-20", "20-30"))
    assert (missing.again, there.ranges) == (RangeSet(), RangeSet())
    assert opened(made, there) == [AGAIN]
    assert claim_lanes(made.opened, LaneKind.BACKFILL, "two", missing.ranges, "bug 17", again=missing.again) == [
        lanes.lane_name(LaneKind.BACKFILL, "two")
    ]


def test_the_two_parts_need_approval_together(made: StreamInMemory) -> None:
    now = StreamInMemory(made.folder, made.kafka, f"{LATER}limits: {{approve_above: 34}}\n", made.store)
    found = plan_request(now.opened, asked(ranges="orders/0@0-40"))
    assert max(found.ranges.count(), found.again.count()) < 35 < found.all.count()
    with pytest.raises(NotApproved, match="40 offsets are more than 34"):
        opened(now, found, by=Requesters("ann"))
    assert len(opened(now, found, by=Requesters("ann", "bob"))) == 2


def test_a_run_with_two_lanes_is_paused_and_cancelled_as_one(made: StreamInMemory) -> None:
    found = plan_request(made.opened, asked(ranges="orders/0@0-40"))
    mine = opened(made, found)
    lanes.plan_lane(made.opened, mine[0], RUN)
    # The later one first: the job that works on the other one does not begin it meanwhile.
    assert steering.lanes_of(made.opened, RUN) == [AGAIN, BACKFILL]
    for lane in steering.lanes_of(made.opened, RUN):
        steering.pause(made.opened, lane, "until noon")
    with pytest.raises(LanePaused):
        lanes.plan_lane(made.opened, AGAIN, RUN)
    named = steering.lanes_of(made.opened, RUN)
    cancelled = steering.steer_lanes(named, lambda lane: steering.cancel(made.opened, lane, "enough"))
    left = {lane: (one.windows, one.given_up, one.left) for lane, one in cancelled.items()}
    assert left == {AGAIN: (0, 1, found.again), BACKFILL: (0, 1, found.ranges)}
    assert {all_lanes(made.opened.ledger)[lane].state for lane in mine} == {LaneState.CLOSED}


@pytest.mark.parametrize("way", ["everything_before", "holes"])
def test_what_no_window_has_read_cannot_be_read_again(way: str) -> None:
    with pytest.raises(WrongUse, match="mode reprocess needs ranges, records, records_file, or since/until_time"):
        asked(**{way: True})
    with pytest.raises(WrongUse, match="mode: expected 'only_missing' or 'reprocess'"):
        asked(mode="all", ranges="orders/0@0-40")


@pytest.mark.covers("N24")
def test_the_command_works_off_one_lane_after_the_other_and_goes_on(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    begun: list[str] = []

    def process(opened: Any, command: str, lane: str, run: str, pending: Any, **_: Any) -> None:
        """No Spark here. The first try dies before its second lane."""
        begun.append(lane)
        if len(begun) == 2:
            raise KeyboardInterrupt
        if pending is not None:
            made.process(lane, run)
            worked_off(made, lane)

    monkeypatch.setattr(lanes_of_runs, "process", process)
    monkeypatch.setattr(replay, "answers_of", lambda opened, records: [])
    command = {"ranges": ["orders/0@0-40"], "mode": "reprocess", "reason": "bug 17"}
    replay.backfill("orders", yes=True, **command, dry_run=True, as_json=True)  # type: ignore[arg-type]
    out = capsys.readouterr().out
    assert '"again"' in out
    assert "to be read again" not in out
    replay.backfill("orders", yes=True, **command, dry_run=True)  # type: ignore[arg-type]
    assert "to be read again" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        replay.backfill("orders", yes=True, **command, run_name=RUN)  # type: ignore[arg-type]
    replay.backfill("orders", yes=True, run_name=RUN)
    assert begun == [BACKFILL, AGAIN, BACKFILL, AGAIN]
    assert all(lanes.is_done(made.opened, lane) for lane in (BACKFILL, AGAIN))
    replay.backfill("orders", yes=True, run_name=RUN, as_json=True)
    assert "is done, so this run reads nothing; a run's name is used once" in capsys.readouterr().err
    assert len(begun) == 4
