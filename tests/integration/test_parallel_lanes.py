"""One backfill in several lanes at a time: real spark-submit for each, one of them killed midway, and run again."""

from __future__ import annotations

import signal
import threading
import time
from contextlib import suppress

import psutil
import pytest

from services import environment
from services.site import Site
from tests.support.command_line import asked, tidemark
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN
from tidemark.ledger.records import LaneKind
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.requests import selecting
from tidemark.runs.windows import lanes

RUN = "three"


@pytest.fixture(autouse=True)
def submitting(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """What spark-submit needs, in the environment."""
    for key, value in {**environment.spark(site), **environment.connections(site)}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)


def killed_midway(live: LiveStream, lane: str, over: threading.Event, killed: list[int]) -> None:
    """Kill the job of a lane when it has committed a window, and works on the next one."""
    while not over.wait(0.05):
        found = live.opened.ledger.head(lane)
        if found is None or found.head.seq == 0 or found.head.pending is None:
            continue
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                words = process.cmdline()
                if lane in words and str(live.file) in words:
                    process.send_signal(signal.SIGKILL)
                    killed.append(process.pid)
        if killed:
            return


@pytest.mark.full
@pytest.mark.covers("N33")
def test_a_backfill_in_three_lanes_of_which_one_is_killed(make: Make) -> None:
    live = make(CDN, source={"start": "latest"})
    live.produce(300)
    assert live.ingest() == []
    live.produce(40)
    live.ingest()
    live.rewrite(limits={"max_records": 40})
    before = selecting.before_the_first_window(live.opened)
    mine = [lanes.lane_name(LaneKind.BACKFILL, RUN, number) for number in (1, 2, 3)]
    over, killed = threading.Event(), list[int]()
    thread = threading.Thread(target=killed_midway, args=(live, mine[1], over, killed))
    thread.start()
    command = [
        "backfill",
        "--yes",
        str(live.file),
        "--before-first",
        "--reason",
        "a test",
        "--run",
        RUN,
        "--lanes",
        "3",
    ]
    try:
        _, said = tidemark(*command, code=6)
    finally:
        over.set()
        thread.join()
    assert killed
    assert f"{live.name}/{mine[1]}: its job ended with code " in said
    assert said.count("its job ended") == 1
    # The others have read all that is theirs.
    heads = {lane: live.head(lane) for lane in mine}
    assert [heads[lane].state for lane in mine] == ["closed", "open", "closed"]
    first = {lane: heads[lane].seq for lane in mine}
    assert selecting.before_the_first_window(live.opened)

    begun = time.time() * 1000
    found = asked("backfill", "--yes", str(live.file), "--run", RUN)
    windows = [one.record for one in live.opened.ledger.committed() if one.record.lane in mine]
    assert len(found["windows"]) == len(windows)
    # Only what was left of the killed lane was read again, and each offset by one window.
    again = [one for one in windows if one.committed_at >= begun]
    assert {one.lane for one in again} == {mine[1]}
    assert min(one.seq for one in again) == first[mine[1]] + 1
    covers = [live.opened.ledger.covers(one.window) for one in windows]
    assert RangeSet(one for part in covers for one in part) == before
    assert sum(part.count() for part in covers) == before.count()
    assert not selecting.before_the_first_window(live.opened)
    live.assert_exactly_what_was_read()
    report = asked("audit", str(live.file))
    assert report["clean"]
    places = [(one["missing"], one["twice"]) for one in report["places"]]
    assert set(places) == {(0, 0)}
