"""One backfill or replay in several lanes that read at the same time: over a Kafka and a ledger in memory."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import typer

from tests.support.claiming import Claimed, claim_lane, claim_lanes, claimed_by
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.cli import lanes_of_runs, stream_lookup, submitting
from tidemark.cli.commands import replay
from tidemark.errors import ClaimOverlap, LaneClosed, LanePaused, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import RangeSet
from tidemark.planning import dividing
from tidemark.runs import steering
from tidemark.runs.requests import claims
from tidemark.runs.requests.forms import BackfillRequest, checked
from tidemark.runs.requests.plan import Plan, plan_request
from tidemark.runs.windows import lanes
from tidemark.views.lane_progress import progress_of

RUN = "orders__backfill/manual__1"
ASKED = {"ranges": "orders/0@0-40", "mode": "reprocess", "reason": "bug 17"}


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """The ingest has read [20, 40), and a backfill [5, 10). Windows have ten offsets at most."""
    text = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20}}")
    stream = StreamInMemory(tmp_path, text=f"{text}limits: {{max_records: 10}}\n")
    stream.ends((0, 40))
    for run in ("run 1", "run 2"):
        stream.ingest(run)
    lane = claim_lane(stream.opened, LaneKind.BACKFILL, "before", offsets((0, 5, 10)), "a test")
    worked_off(stream, lane, "before")
    return stream


def worked_off(made: StreamInMemory, lane: str, run: str = RUN) -> RangeSet:
    read = RangeSet()
    while lanes.plan_lane(made.opened, lane, run) is not None:
        read |= made.opened.ledger.covers(made.process(lane, run).window)
    lanes.finish(made.opened, lane)
    return read


def found_in(made: StreamInMemory) -> Plan:
    return plan_request(made.opened, checked(BackfillRequest, ASKED, {}))


def opened(made: StreamInMemory, chosen: Plan, at_once: int = 3, **more: Any) -> list[list[str]]:
    claim_lanes(made.opened, LaneKind.BACKFILL, RUN, chosen.ranges, "bug 17", again=chosen.again, lanes=at_once, **more)
    return lanes.lanes_by_job(made.opened, LaneKind.BACKFILL, RUN)


def test_each_job_has_a_part_of_what_is_missing_and_then_of_what_is_read_again(made: StreamInMemory) -> None:
    found = found_in(made)
    jobs = opened(made, found)
    kinds = [[lane.partition("-")[0] for lane in job] for job in jobs]
    assert kinds == [["backfill", "replay"]] * 3
    # The first lane has the name that the only one would have.
    assert jobs[0] == [lanes.lane_name(LaneKind.BACKFILL, RUN), lanes.again_lane(RUN)]
    read = {lane: worked_off(made, lane) for job in jobs for lane in job}
    assert [read[job[0]].count() for job in jobs] == [5, 5, 5]
    assert RangeSet(one for job in jobs for one in read[job[0]]) == found.ranges
    assert RangeSet(one for job in jobs for one in read[job[1]]) == found.again
    assert sum(one.count() for one in read.values()) == found.all.count()


@pytest.mark.covers("N33")
def test_all_lanes_are_opened_in_one_step_whichever_write_is_the_last(made: StreamInMemory) -> None:
    """The run dies before each of its writes. There are none of its lanes then, or all, and it goes on with the same."""
    found, before = found_in(made), dict(made.store.values)
    after = 0
    while True:
        made.store.values.clear()
        made.store.values.update(before)
        left = [after]

        def dies(key: Key, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt

        made.store.before_swap = dies
        try:
            opened(made, found)
            break
        except KeyboardInterrupt:
            made.store.before_swap = lambda key: None
        there = lanes.lanes_of(made.opened, LaneKind.BACKFILL, RUN)
        assert len(there) in (0, 6)
        assert claimed_by(made.opened, LaneKind.BACKFILL, RUN) == (
            Claimed(found.ranges, found.again) if there else None
        )
        jobs = opened(made, found)
        assert [lane for job in jobs for lane in job] == there or not there
        read = [worked_off(made, lane) for job in jobs for lane in job]
        assert RangeSet(one for part in read for one in part) == found.all
        after += 1
    made.store.before_swap = lambda key: None
    assert after > 6


def test_the_ledger_refuses_lanes_that_overlap(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    """However the offsets were divided."""
    found = found_in(made)

    def wrongly(selection: RangeSet, most: int, *_: Any) -> list[RangeSet]:
        first, *others = dividing.divide_evenly(selection, most)
        return [first, *(one | first.first(1) for one in others)]

    monkeypatch.setattr(claims, "divide_evenly", wrongly)
    with pytest.raises(ClaimOverlap):
        opened(made, found)
    assert set(made.opened.ledger.register()[1].lanes) == {INGEST}  # type: ignore[index]


@pytest.mark.parametrize(
    ("rate", "limit", "at_once", "expected"),
    [
        (10, None, 3, [3] * 3),
        (2, 9, 3, [1] * 2),
        (None, 9, 3, [3] * 3),
        (None, None, 2, [None] * 2),
        (None, 9, 1, [None]),
    ],
)
def test_the_rate_is_divided_among_the_lanes(
    tmp_path: Path, rate: int | None, limit: int | None, at_once: int, expected: list[int | None]
) -> None:
    limits = f"limits: {{max_records_per_second: {limit}}}\n" if limit else ""
    stream = StreamInMemory(tmp_path, text=f"{TEXT}{limits}")
    stream.ends((0, 40))
    stream.ingest()
    mine = claim_lanes(stream.opened, LaneKind.REPLAY, "r", offsets((0, 0, 40)), "bug 17", rate=rate, lanes=at_once)
    assert [all_lanes(stream.opened.ledger)[lane].rate for lane in mine] == expected


def test_all_lanes_are_paused_shown_and_cancelled_as_one(made: StreamInMemory) -> None:
    found = found_in(made)
    jobs = opened(made, found)
    mine = [lane for job in jobs for lane in job]
    # One is done already, and another is cancelled by its own name.
    worked_off(made, mine[0])
    steering.cancel(made.opened, mine[3], "not this one")
    named = steering.lanes_of(made.opened, RUN)
    assert sorted(named) == sorted({*mine} - {mine[0], mine[3]})
    assert all(named.index(job[1]) < named.index(job[0]) for job in jobs if {*job} <= {*named})
    # One that ends meanwhile stops nothing.
    worked_off(made, mine[1])
    steering.steer_lanes(named, lambda lane: steering.pause(made.opened, lane, "until noon"))
    for lane in {*named} - {mine[1]}:
        with pytest.raises(LanePaused):
            lanes.plan_lane(made.opened, lane, RUN)
    states = {one.lane: one.state for one in progress_of(made.opened, RUN).lanes}
    assert list(states) == mine
    assert [states[lane] for lane in mine] == ["done", "done", "paused", "cancelled", "paused", "paused"]
    left = steering.steer_lanes(named, lambda lane: steering.cancel(made.opened, lane, "enough"))
    assert set(left) == {*named} - {mine[1]}
    assert [one.lane for one in progress_of(made.opened, RUN).lanes] == mine
    with pytest.raises(WrongUse, match="has read all of its offsets"):
        steering.steer_lanes([mine[0]], lambda lane: steering.cancel(made.opened, lane, "enough"))


@pytest.mark.parametrize("number", [0, 9, -1])
def test_the_number_of_lanes_is_bounded(number: int) -> None:
    with pytest.raises(WrongUse, match=r"lanes: expected a number of at (least|most) [18]"):
        checked(BackfillRequest, {**ASKED, "lanes": number}, {})


def test_the_command_reads_all_other_lanes_when_one_fails_and_then_what_is_left(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs that say their lane stand for the jobs. What they would read is read here."""
    here = replace(made.opened, connections=cast("Any", lambda name: None))
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: here)
    monkeypatch.setattr(replay, "answers_of", lambda opened, records: [])
    begun: list[list[str]] = []
    dies: list[str] = []

    def job(stream: Any, connection: Any, script: str, arguments: list[str]) -> list[str]:
        lane = arguments[arguments.index("--lane") + 1]
        mine = [lane, *(one.removeprefix("--then=") for one in arguments if one.startswith("--then="))]
        begun.append(mine)
        if not dies:
            dies.append(lane)
        code = 6 if lane in dies and len(begun) <= 3 else 0
        for one in mine if code == 0 else ():
            worked_off(made, one)
        return [sys.executable, "-c", f"print('tidemark: of {lane}'); raise SystemExit({code})"]

    monkeypatch.setattr(submitting, "submit_command", job)
    command = {"ranges": ["orders/0@0-40"], "mode": "reprocess", "reason": "bug 17"}
    with pytest.raises(typer.Exit) as ended:
        replay.backfill("orders", yes=True, **command, lanes=3, run_name=RUN)  # type: ignore[arg-type]
    assert ended.value.exit_code == 6
    said = capsys.readouterr().err
    assert f"orders/{dies[0]}: its job ended with code 6" in said
    assert said.count("its job ended") == 1
    assert f"To read what is left: tidemark backfill orders --run {RUN}" in said
    jobs = lanes.lanes_by_job(made.opened, LaneKind.BACKFILL, RUN)
    assert begun == jobs
    replay.backfill("orders", yes=True, run_name=RUN)
    # Only the lanes of the failed job, and then none.
    assert begun[3:] == [jobs[0]]
    replay.backfill("orders", yes=True, run_name=RUN)
    assert len(begun) == 4
    assert "is done, so this run reads nothing; a run's name is used once" in capsys.readouterr().err


def test_a_lane_that_was_cancelled_is_named_when_all_others_are_done(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    jobs = opened(made, found_in(made))
    steering.cancel(made.opened, jobs[1][0], "not this one")

    def process(opened: Any, command: str, left: list[list[str]], run: str, **_: Any) -> None:
        assert left == [jobs[0], [jobs[1][1]], jobs[2]]
        for lane in (lane for job in left for lane in job):
            worked_off(made, lane)

    monkeypatch.setattr(lanes_of_runs, "process_together", process)
    with pytest.raises(LaneClosed, match=f"{jobs[1][0]} was closed before it was done: not this one"):
        replay.backfill("orders", yes=True, run_name=RUN)
