"""Processes that race for one window: real processes, the real HBase ledger, and work that does nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from tests.oracle import CDN
from tests.playground import Make
from tidemark import protocol, runs
from tidemark.errors import Conflict
from tidemark.ledger.records import INGEST, Attempt, LaneKind, Receipt, SinkReceipt, Window
from tidemark.ledger.register import draw_generation
from tidemark.ledger.verifying import verify
from tidemark.protocol import Fence, Listener, Taken
from tidemark.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.streams.opened import open_stream

WINDOWS = 15
RACERS = 2


class NoWork:
    def read(self, window: Window, covers: RangeSet, fence: Fence) -> None: ...

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt:
        dead = SinkReceipt(name="dead_letters", type="hbase", place={})
        return Receipt(tallies=(), sinks=(), dead_letters=dead, started_at=1, finished_at=2)


class NoSweep:
    def sweep(self, record: object, covers: RangeSet) -> None: ...


class NoFence:
    def check(self) -> None: ...


@contextmanager
def hold(taken: Taken) -> Iterator[Fence]:
    yield NoFence()


def race(file: Path, racer: int, barrier: Barrier, results: Queue[tuple[int, int, str]]) -> None:
    """Pin, take and commit the same windows as the other process, everything at the same moment."""
    opened = open_stream(file)
    for number in range(1, WINDOWS + 1):
        run = f"racer {racer} window {number}"
        me = runs.this_run(opened, run)
        barrier.wait()
        pending = runs.plan_ingest(opened, run)
        barrier.wait()
        try:
            if pending is None:
                raise Conflict("the other one has finished already")
            taken = protocol.take(opened.book, INGEST, pending.window.seq, me, take_over=True)
            barrier.wait()
            protocol.commit(opened.book, taken, NoWork().verify())
            results.put((number, racer, "committed"))
        except Conflict as lost:
            results.put((number, racer, type(lost).__name__))
        barrier.wait()
        protocol.settle(opened.book, NoSweep(), INGEST)


@pytest.mark.covers("A39", "E39")
def test_one_commit_for_each_window(make: Make) -> None:
    play = make(CDN, limits={"max_records": 8})
    play.produce(8 * (WINDOWS + 4))
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(RACERS, timeout=60), context.Queue()
    racers = [context.Process(target=race, args=(play.file, number, barrier, results)) for number in range(RACERS)]
    for racer in racers:
        racer.start()
    outcomes = [results.get(timeout=120) for _ in range(WINDOWS * RACERS)]
    for racer in racers:
        racer.join(30)
        assert racer.exitcode == 0
    for number in range(1, WINDOWS + 1):
        said = sorted(outcome for window, _, outcome in outcomes if window == number)
        assert said == ["Fenced", "committed"]
    assert play.head().seq == WINDOWS
    assert verify(play.opened.book) == []


def draw(file: Path, barrier: Barrier, results: Queue[list[int]]) -> None:
    opened = open_stream(file)
    barrier.wait()
    results.put([draw_generation(opened.book)[0] for _ in range(50)])


@pytest.mark.covers("E39")
def test_no_generation_is_drawn_twice(make: Make) -> None:
    play = make(CDN)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(3, timeout=60), context.Queue()
    drawers = [context.Process(target=draw, args=(play.file, barrier, results)) for _ in range(3)]
    for drawer in drawers:
        drawer.start()
    drawn = [results.get(timeout=120) for _ in drawers]
    for drawer in drawers:
        drawer.join(30)
    assert all(one == sorted(one) for one in drawn)
    together = [generation for one in drawn for generation in one]
    assert len(set(together)) == 150


def open_replay(file: Path, racer: int, barrier: Barrier, results: Queue[str]) -> None:
    opened = open_stream(file)
    at = TopicPartition(opened.stream.source.topics[0], 0)
    barrier.wait()
    try:
        runs.open_selected(
            opened, LaneKind.REPLAY, f"racer {racer}", RangeSet([OffsetRange(at, racer, 2 + racer)]), "race"
        )
        results.put("opened")
    except Conflict as lost:
        results.put(type(lost).__name__)


@pytest.mark.covers("E48")
def test_one_of_two_overlapping_claims(make: Make) -> None:
    play = make(CDN)
    play.produce(40)
    opened = play.opened
    pending = runs.plan_ingest(opened, "first")
    assert pending is not None
    me = runs.this_run(opened, "first")
    protocol.process(opened.book, NoSweep(), NoWork(), hold, INGEST, pending.window.seq, me)
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2, timeout=60), context.Queue()
    racers = [context.Process(target=open_replay, args=(play.file, number, barrier, results)) for number in range(2)]
    for racer in racers:
        racer.start()
    assert sorted(results.get(timeout=60) for _ in racers) == ["ClaimOverlap", "opened"]
    for racer in racers:
        racer.join(30)
