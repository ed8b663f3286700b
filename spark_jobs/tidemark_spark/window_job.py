"""The job that processes windows: the one that was pinned, and those after it up to the end that the run saw."""

from __future__ import annotations

import argparse
import logging
from contextlib import closing
from functools import partial
from pathlib import Path

from tidemark import protocol, runs
from tidemark.attempts import holding
from tidemark.errors import EXIT_DONE, AlreadyCommitted, LedgerContradiction, OffsetsOutOfRange, ProcessingFailed
from tidemark.kafka.topics import READ_UNCOMMITTED
from tidemark.ledger.records import Pending, Record
from tidemark.planning.discovery import lost_since_pin
from tidemark.protocol import Listener, Step, nobody
from tidemark.ranges import RangeSet
from tidemark.streams.opened import OpenStream, open_stream
from tidemark_spark.failures import translate
from tidemark_spark.rows import check_rows
from tidemark_spark.session import open_session
from tidemark_spark.sinks import make_sinks
from tidemark_spark.sinks.hbase import HBaseDeadLetters
from tidemark_spark.work import SparkWork

log = logging.getLogger(__name__)

# Spark's times are microseconds in 64 bits. What it says of a message beyond them names neither partition nor offset.
_LARGEST_TIME_MS = (2**63 - 1) // 1000
_TIME_TOO_LARGE = "long overflow"


def main(arguments: list[str], on_step: Listener = nobody) -> int:
    """The job as a program: process the pinned window that the arguments name; gives the exit code."""
    parser = argparse.ArgumentParser(prog="process_window")
    parser.add_argument("--stream-file", type=Path, required=True)
    parser.add_argument("--lane", required=True)
    parser.add_argument("--seq", type=int, required=True, help="the number of the pinned window")
    parser.add_argument("--run", required=True, help="who asks; a retry gives the same name as its first try")
    parser.add_argument("--take-over", action="store_true", help="take the window although its holder seems alive")
    options = parser.parse_args(arguments)
    opened = open_stream(options.stream_file)
    process_windows(opened, options.lane, options.seq, options.run, take_over=options.take_over, on_step=on_step)
    return EXIT_DONE


def process_windows(
    opened: OpenStream, lane: str, seq: int, run: str, *, take_over: bool = False, on_step: Listener = nobody
) -> list[Record]:
    """Process the pending window `seq`, then pin and process what follows, up to the end that the run saw.

    A window that this very run has committed before (the process died between commit and the end) is settled and left.
    """
    committed: list[Record] = []
    following: int | None = seq
    while following is not None:
        try:
            record = process_one(opened, lane, following, run, take_over=take_over, on_step=on_step)
        except AlreadyCommitted:
            record = _committed_by_this_run(opened, lane, following, run)
        committed.append(record)
        goal = record.window.goal if record.window.run == run else ()
        pending = runs.next_window(opened, lane, run, goal)
        following = pending.window.seq if pending else None
    runs.finish(opened, lane)
    return committed


def process_one(
    opened: OpenStream, lane: str, seq: int, run: str, *, take_over: bool = False, on_step: Listener = nobody
) -> Record:
    """Steps 2 to 7 on one pending window."""
    spark = open_session(f"tidemark {opened.book.stream}/{lane} {seq}")
    sinks = make_sinks(opened)
    dead_letters = HBaseDeadLetters(opened.stream.dead_letters, opened.dead_letter_table())
    ledger = _ledger_id(opened)
    for sink in sinks:
        sink.prepare(opened.book.stream, ledger)
    dead_letters.prepare(opened.book.stream, ledger)
    check_rows(spark, opened.stream)
    work = SparkWork(spark, opened, sinks, dead_letters, lane)

    def heard(step: Step) -> None:
        work.progress.step = step.value
        log.info("%s/%s window %s: %s", opened.book.stream, lane, seq, step.value)
        on_step(step)

    with closing(work):
        try:
            return protocol.process(
                opened.book,
                opened.sweeper,
                work,
                partial(holding, opened.book, work.progress),
                lane,
                seq,
                runs.this_run(opened, run),
                take_over=take_over,
                on_step=heard,
            )
        except Exception as problem:
            if isinstance(translate(problem), OffsetsOutOfRange):
                raise _deleted(opened, lane, seq) from problem
            if _TIME_TOO_LARGE in str(problem) and (beyond := _beyond_time(opened, lane)):
                raise ProcessingFailed(beyond) from problem
            raise


def _deleted(opened: OpenStream, lane: str, seq: int) -> OffsetsOutOfRange:
    """What to say when Kafka has deleted messages of a window behind its pin: exactly which."""
    pending = _pending(opened, lane)
    lost = lost_since_pin(opened, pending.window) if pending else RangeSet()
    return OffsetsOutOfRange(
        f"Kafka has deleted {', '.join(map(str, lost)) or 'messages'} since window {seq} of {opened.book.stream}/{lane} was "
        "pinned. Nothing was committed. To go on without them, set `on_out_of_range` in the stream file and give the window "
        f"up: tidemark ledger abandon {opened.book.stream} {lane} --reason ..."
    )


def _beyond_time(opened: OpenStream, lane: str) -> str | None:
    """What to say of the first message whose time Spark cannot hold; None when the pending window has none."""
    pending = _pending(opened, lane)
    if pending is None:
        return None
    topics = sorted({one.topic for one in pending.window.ranges})
    logs = opened.log.topics(topics, READ_UNCOMMITTED)
    firsts = opened.log.first_at_or_after(logs, _LARGEST_TIME_MS + 1, READ_UNCOMMITTED)
    for one in pending.window.ranges:
        offset = firsts.get((one.topic, one.partition))
        if offset is not None and one.start <= offset < one.until:
            return (
                f"{one.at}@{offset} has a time that Spark cannot hold: more than {_LARGEST_TIME_MS} ms since 1970, as when a "
                "producer writes nanoseconds where Kafka takes milliseconds. Nothing was committed. To pass it: tidemark "
                f"ledger skip {opened.book.stream} --to {one.at}@{offset + 1} --reason ..., and backfill what lies before it"
            )
    return None


def _pending(opened: OpenStream, lane: str) -> Pending | None:
    found = opened.book.head(lane)
    return found.head.pending if found else None


def _ledger_id(opened: OpenStream) -> str:
    found = opened.book.register()
    if found is None:
        raise LedgerContradiction(f"{opened.book.stream} has no register, although a window of it was pinned")
    return found[1].ledger


def _committed_by_this_run(opened: OpenStream, lane: str, seq: int, run: str) -> Record:
    protocol.settle(opened.book, opened.sweeper, lane)
    found = opened.book.record(lane, seq)
    if found is None or found[1].attempt.run != run:
        raise AlreadyCommitted(f"window {seq} of {opened.book.stream}/{lane} is already committed by another run")
    log.info("%s/%s window %s: committed by an earlier try of this run", opened.book.stream, lane, seq)
    return found[1]
