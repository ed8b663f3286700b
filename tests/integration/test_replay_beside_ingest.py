"""A replay that is killed anywhere, while the ingest goes on: at the end nothing is missing, and nothing is there twice."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.support.claiming import claim_lane
from tests.support.live_streams import LiveStream, Make
from tests.support.oracle import CDN, LEDGERS
from tests.support.submitted import WINDOW_JOB, Submitted
from tests.support.waiting import until
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import lanes
from tidemark.spark.jobs.audit import audit
from tidemark.spark.jobs.window import process_windows

pytestmark = pytest.mark.usefixtures("spark")

# Seconds after an attempt has taken its window. In so long, a job reads, stores and commits on an idle machine.
WITHIN = 6.0


def kill_somewhere(live: LiveStream, lane: str, run: str, after: float, log: Path) -> None:
    """A job of the replay, killed with all that it has started; meanwhile the ingest reads what comes."""
    pending = lanes.plan_lane(live.opened, lane, run)
    if pending is None:
        return
    before = live.head(lane)
    arguments = ("--stream-file", str(live.file), "--lane", lane, "--seq", str(pending.window.seq), "--run", run)
    job = Submitted(live.site, log, WINDOW_JOB, *arguments, conf=None)
    try:
        live.produce(60)
        live.ingest()

        def began() -> bool:
            assert job.process.poll() is None or live.head(lane) != before, job.output
            return live.head(lane) != before

        until(began, "the replay has taken no window")
        time.sleep(after)
    finally:
        # By SIGKILL: spark-submit's JVM, the driver and Spark's workers.
        job.end()


@pytest.mark.full
@pytest.mark.covers("F21")
@pytest.mark.parametrize("kills", [1, pytest.param(12, marks=pytest.mark.full)])
def test_a_replay_killed_anywhere_beside_the_ingest(make: Make, ledger: str, kills: int, tmp_path: Path) -> None:
    chance = random.Random(kills)
    live = make(CDN, ledger=LEDGERS[ledger], limits={"max_records": 200})
    live.produce(800 if kills > 1 else 400)
    live.ingest()
    replayed, ingested = live.opened.ledger.authority().covered(), live.positions()
    run = live.new_run()
    lane = claim_lane(live.opened, LaneKind.REPLAY, run, replayed, "a corrected parser")
    for number in range(kills):
        kill_somewhere(live, lane, run, chance.uniform(0, WITHIN), tmp_path / f"job-{number}.log")
    live.produce(60)
    live.ingest()
    # The retry of the run takes at once what the last kill has left.
    if (pending := lanes.plan_lane(live.opened, lane, run)) is not None:
        process_windows(live.opened, lane, pending.window.seq, run)
    assert lanes.is_done(live.opened, lane)
    # Each window of the replay once, whatever its attempts; the ingest has read all that came, and nothing else.
    windows = [one for one in live.opened.ledger.committed() if one.record.lane == lane]
    assert sum(one.covers.count() for one in windows) == replayed.count()
    assert sum(live.positions().values()) == sum(ingested.values()) + 60 * (kills + 1)
    report = audit(live.opened, "audit")
    assert report.clean, report.sentence()
    assert "missing 0, different 0, extra 0, twice 0" in report.sentence()
    live.assert_exactly_what_was_read()
