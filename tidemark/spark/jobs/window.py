"""The job that processes the windows of a lane, with Spark."""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from tidemark.commit.fence import holding
from tidemark.commit.protocol import Fence, HeldWindow, Listener, nobody
from tidemark.errors import (
    EXIT_DONE,
    LedgerContradiction,
    TidemarkError,
)
from tidemark.ledger.records import INGEST, Record, Window
from tidemark.runs import processing
from tidemark.runs.live.open_stream import OpenStream, open_stream
from tidemark.runs.live.own_output import check_own_output
from tidemark.runs.windows import lanes
from tidemark.schemes.kinds import SchemeWithSchemas
from tidemark.sinks.mounts import FolderMarks
from tidemark.spark.jobs.window_work import SparkWork
from tidemark.spark.rows.one_pass import takes_one_pass
from tidemark.spark.rows.pipeline import check_rows
from tidemark.spark.runtime.failures import translate
from tidemark.spark.runtime.session import stream_session
from tidemark.spark.sinks import Sink, make_sinks
from tidemark.spark.sinks.dead_letters import Writer, dead_letters_writer

log = logging.getLogger(__name__)


def main(arguments: list[str], on_step: Listener = nobody) -> int:
    """The job as a program: process the pinned window that the arguments name. Returns the exit code."""
    parser = argparse.ArgumentParser(prog="process_window")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--lane", required=True)
    parser.add_argument("--seq", type=int, help="the number of the pinned window; without it, the next one is pinned")
    parser.add_argument("--run", required=True, help="who asks; a retry gives the same name as its first try")
    parser.add_argument("--take-over", action="store_true", help="take the window even if its holder seems alive")
    parser.add_argument("--then", default="", help="a lane of the same run that is processed after this one")
    options = parser.parse_args(arguments)
    opened, how = open_stream(options.stream_file), {"take_over": options.take_over, "on_step": on_step}
    for lane, seq in ((options.lane, options.seq), (options.then, None)):
        if lane:
            _process_lane(opened, lane, seq, options.run, **how)
    return EXIT_DONE


def _process_lane(opened: OpenStream, lane: str, seq: int | None, run: str, **how: Any) -> None:
    if seq is None:
        pending = lanes.plan_lane(opened, lane, run)
        if pending is None:
            lanes.finish(opened, lane)
            return
        seq = pending.window.seq
    process_windows(opened, lane, seq, run, **how)


def process_windows(
    opened: OpenStream,
    lane: str,
    seq: int,
    run: str,
    *,
    take_over: bool = False,
    on_step: Listener = nobody,
    wait: Callable[[float], None] = time.sleep,
) -> list[Record]:
    """`runs.processing.process_windows` with Spark."""
    return processing.process_windows(_Ready(opened, lane), seq, run, take_over=take_over, on_step=on_step, wait=wait)


class _Ready:
    """The resources of a lane's windows besides the ledger, made ready with the first of them that reads anything."""

    def __init__(self, opened: OpenStream, lane: str) -> None:
        self.opened = opened
        self.lane = lane
        self._made: tuple[SparkSession, list[Sink], Writer, FolderMarks] | None = None

    def work(self, seq: int, window: Window | None, *, longer: bool) -> SparkWork:
        """The work on a window. A lane writes the same sinks in all its windows, and its stream file stays as it was read."""
        self._made = self._made or self._make_ready(seq, window)
        spark, sinks, dead_letters, mounts = self._made
        return SparkWork(spark, self.opened, sinks, dead_letters, self.lane, mounts, longer=longer)

    def hold(self, work: processing.WindowWork, taken: HeldWindow) -> AbstractContextManager[Fence]:
        return holding(self.opened.ledger, work.progress, taken)

    def translate(self, problem: Exception) -> TidemarkError | None:
        return translate(problem)

    def _make_ready(self, seq: int, window: Window | None) -> tuple[SparkSession, list[Sink], Writer, FolderMarks]:
        opened, name = self.opened, self.opened.ledger.stream
        spark = stream_session(f"tidemark {name}/{self.lane} {seq}", opened)
        sinks = make_sinks(opened)
        dead_letters = dead_letters_writer(opened)
        ledger = _ledger_id(opened)
        writes = {one.name for one in sinks if window is None or window.counts_for(one.name)}
        letters = [opened.stream.dead_letters] if window is None or window.counts_for(None) else []
        places = (*(one for one in opened.stream.sinks if one.name in writes), *letters)
        mounts = FolderMarks(opened.ledger, opened.connections, places)
        check_own_output(opened)
        with mounts.preparing():
            for sink in sinks:
                if sink.name in writes:
                    sink.prepare(name, ledger)
            if letters:
                dead_letters.prepare(name, ledger)
        if not _checked_before(opened):
            check_rows(spark, opened.stream)
        return spark, sinks, dead_letters, mounts


def _checked_before(opened: OpenStream) -> bool:
    """Whether the same code has committed a window with the same stream file, which says all of the stream."""
    stored = opened.ledger.head(INGEST)
    last = stored.head.last.attempt if stored is not None and stored.head.last is not None else None
    same = last is not None and (last.stream_digest, last.code_version) == (opened.file.digest, lanes.code_version())
    return same and takes_one_pass(opened.stream) and not isinstance(opened.stream.scheme, SchemeWithSchemas)


def _ledger_id(opened: OpenStream) -> str:
    versioned = opened.ledger.register()
    if versioned is None:
        raise LedgerContradiction(f"{opened.ledger.stream} has no register, although a window of it was pinned")
    return versioned[1].ledger
