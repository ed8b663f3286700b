"""Processes that race for one window: real processes, the real HBase ledger, and work that does nothing."""

from __future__ import annotations

import multiprocessing
import random
import re
import time
from dataclasses import replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path

import pytest

from tests.support.claiming import claim_lane
from tests.support.live_streams import Make
from tests.support.oracle import CDN, LEDGERS
from tests.support.protocol_world import NoWork, Sweeps, hold
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence
from tidemark.errors import Conflict
from tidemark.ledger.records import INGEST, Attempt, LaneKind, Window
from tidemark.ledger.recovery.verifying import verify
from tidemark.ledger.register import draw_generation
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import open_stream
from tidemark.runs.windows import ingest, lanes

WINDOWS = 15
RACERS = 2


def race(file: Path, racer: int, barrier: Barrier, results: Queue[tuple[int, int, str]]) -> None:
    """Pin, take and commit the same windows as the other process, everything at the same moment."""
    opened = open_stream(file)
    for number in range(1, WINDOWS + 1):
        run = f"racer {racer} window {number}"
        me = lanes.this_run(opened, run)
        barrier.wait()
        pending = ingest.plan_ingest(opened, run)
        barrier.wait()
        try:
            if pending is None:
                raise Conflict("the other one has finished already")
            taken = protocol.take(opened.ledger, INGEST, pending.window.seq, me, take_over=True)
            barrier.wait()
            protocol.commit(opened.ledger, taken, NoWork().verify())
            results.put((number, racer, "committed"))
        except Conflict as lost:
            results.put((number, racer, f"{type(lost).__name__} {lost.exit_code}: {lost}"))
        barrier.wait()
        protocol.settle(opened.ledger, Sweeps(), INGEST)


@pytest.mark.covers("A39", "E39", "F4")
def test_one_commit_for_each_window(make: Make) -> None:
    live = make(CDN, limits={"max_records": 8})
    live.produce(8 * (WINDOWS + 4))
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(RACERS, timeout=300), context.Queue()
    racers = [context.Process(target=race, args=(live.file, number, barrier, results)) for number in range(RACERS)]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=300) for _ in range(WINDOWS * RACERS)]
    for racer in racers:
        racer.join(120)
        assert racer.exitcode == 0
    for number in range(1, WINDOWS + 1):
        (winner,) = (racer for window, racer, outcome in outcomes if (window, outcome) == (number, "committed"))
        (lost,) = (outcome for window, racer, outcome in outcomes if window == number and racer != winner)
        # The other one is told who has committed, or who has taken the window and then commits.
        assert re.match(rf"Fenced 3: window {number} of .* by run racer {winner} window {number} ", lost), lost
    assert live.head().seq == WINDOWS
    assert verify(live.opened.ledger) == []


def draw(file: Path, barrier: Barrier, results: Queue[list[int]]) -> None:
    opened = open_stream(file)
    barrier.wait()
    results.put([draw_generation(opened.ledger)[0] for _ in range(50)])


@pytest.mark.covers("E39")
def test_no_generation_is_drawn_twice(make: Make) -> None:
    live = make(CDN)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3, timeout=300), context.Queue()
    drawers = [context.Process(target=draw, args=(live.file, barrier, results)) for _ in range(3)]
    for drawer in drawers:
        drawer.start()
    drawn = [results.get(timeout=300) for _ in drawers]
    for drawer in drawers:
        drawer.join(120)
    assert all(one == sorted(one) for one in drawn)
    together = [generation for one in drawn for generation in one]
    assert len(set(together)) == 150


def open_replay(file: Path, racer: int, barrier: Barrier, results: Queue[str]) -> None:
    opened = open_stream(file)
    at = TopicPartition(opened.stream.source.topics[0], 0)
    barrier.wait()
    try:
        claim_lane(opened, LaneKind.REPLAY, f"racer {racer}", RangeSet([OffsetRange(at, racer, 2 + racer)]), "race")
        results.put("opened")
    except Conflict as lost:
        results.put(type(lost).__name__)


@pytest.mark.covers("E48")
def test_one_of_two_overlapping_claims(make: Make) -> None:
    live = make(CDN)
    live.produce(40)
    opened = live.opened
    pending = ingest.plan_ingest(opened, "first")
    assert pending is not None
    me = lanes.this_run(opened, "first")
    protocol.process(opened.ledger, Sweeps(), NoWork(), hold, INGEST, pending.window.seq, me)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2, timeout=300), context.Queue()
    racers = [context.Process(target=open_replay, args=(live.file, number, barrier, results)) for number in range(2)]
    for racer in racers:
        racer.start()
    assert sorted(results.get(timeout=300) for _ in racers) == ["ClaimOverlap", "opened"]
    for racer in racers:
        racer.join(120)


KILLS = 20


class Slow(NoWork):
    """Takes a moment, so that some kills fall between two writes."""

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        time.sleep(0.05)


def work_off(file: Path, run: str, began: Event, windows: int) -> None:
    """What a job does for one window after the other, so many of them."""
    # A pin sweeps too, what a killed attempt has left: the receipts of this work name no place.
    opened = replace(open_stream(file), sweeper=Sweeps())
    began.set()
    for _ in range(windows):
        pending = ingest.plan_ingest(opened, run)
        assert pending is not None
        me = lanes.this_run(opened, run)
        protocol.process(opened.ledger, Sweeps(), Slow(), hold, INGEST, pending.window.seq, me)


@pytest.mark.covers("A55")
def test_chained_windows_and_twenty_kills_anywhere(make: Make, ledger: str) -> None:
    """A new process goes on where the last one was killed: at any moment of its work, within a write or between two."""
    live = make(CDN, limits={"max_records": 4}, ledger=LEDGERS[ledger])
    # More windows than are worked off between the kills.
    live.produce(4 * 200)
    chance, context = random.Random(55), multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    kills = 0
    # On a slow machine, as many more as it takes for some windows.
    while kills < KILLS or live.head().seq < 8:
        kills += 1
        began = context.Event()
        job = context.Process(target=work_off, args=(live.file, "a run", began, 200))
        job.start()
        assert began.wait(300)
        job.join(chance.uniform(0, 0.6))
        assert job.is_alive(), f"it ended by itself, with code {job.exitcode}"
        job.kill()
        job.join()
    before = live.head().seq
    last = context.Process(target=work_off, args=(live.file, "a run", began, 2))
    last.start()
    last.join(300)
    assert last.exitcode == 0
    assert live.head().seq == before + 2 >= 10
    assert verify(live.opened.ledger) == []
    positions = {position.at: position.offset for position in live.head().positions}
    assert sum(positions.values()) == 4 * live.head().seq
