"""How far a job is, as values for a terminal: from the ledger, and from the bars that Spark prints of its stages. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tidemark.ledger.records import Head, Heartbeat, JobProgress, Window
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.reading import Reading

# The lines that fit on a small terminal, above the answer.
MAX_BARS = 16
STARTING = "Spark is starting"

_STAGES = re.compile(r"\[Stage \d+:[^\]]*\]")
_TASKS = re.compile(r"\((\d+) \+ \d+\) / (\d+)")


@dataclass(frozen=True)
class PartitionProgress:
    """A partition of a window: how many offsets the window covers there, and how many messages are done."""

    name: str
    total: int
    done: int = 0


@dataclass(frozen=True)
class ShownJob:
    """The progress of a job: its window (None before there is one), its step, and the progress per partition."""

    step: str = STARTING
    window: str | None = None
    bars: tuple[PartitionProgress, ...] = ()


def bars_of(covers: RangeSet) -> tuple[PartitionProgress, ...]:
    """A bar for each partition of the offsets that a window covers, with nothing done yet."""
    return tuple(
        PartitionProgress(str(at), sum(until - start for start, until in covers.of(at))) for at in covers.partitions
    )


def window_progress(
    head: Head | None, beat: Heartbeat | None, run: str, bars: Sequence[PartitionProgress], since: int
) -> ShownJob:
    """How far a run is with the window of `window_of`. `bars` are that window's, with nothing done yet.

    A sign of life from before `since` (ms since 1970) is of an earlier try of the run.
    """
    window = window_of(head)
    if head is None or window is None:
        return ShownJob()
    name = f"window {window.seq} of {head.stream}/{head.lane}"
    if head.pending is None:
        last = head.last
        mine = last is not None and last.attempt.run == run
        return ShownJob("committed", name, tuple(replace(bar, done=bar.total) for bar in bars)) if mine else ShownJob()
    attempt = head.pending.attempt
    if (
        attempt is None
        or beat is None
        or beat.at < since
        or attempt.run != run
        or beat.generation != attempt.generation
    ):
        return ShownJob(window=name, bars=tuple(bars))
    # Spark counts twice what a task has done twice.
    done = {bar.name: min(bar.total, beat.done.get(bar.name, 0)) for bar in bars}
    return ShownJob(beat.step, name, tuple(replace(bar, done=done[bar.name]) for bar in bars))


def lanes_progress(shown: Sequence[ShownJob]) -> ShownJob:
    """How far a run is whose lanes work at the same time: a bar for the window of each."""
    bars = [
        # Names of lanes differ in their ends, for which a terminal has no room.
        PartitionProgress(
            f"lane {number}: {job.window.partition(' of ')[0]}",
            sum(bar.total for bar in job.bars),
            sum(bar.done for bar in job.bars),
        )
        for number, job in enumerate(shown, start=1)
        if job.window
    ]
    return ShownJob(number_of(len(bars), "lane"), None, tuple(bars)) if bars else ShownJob()


def window_of(head: Head | None) -> Window | None:
    """The window that a lane is at: the pending one, otherwise the last one."""
    if head is None:
        return None
    if head.pending is not None:
        return head.pending.window
    return head.last.window if head.last is not None else None


def reading_progress(step: str, reading: Reading) -> ShownJob:
    """How far this program itself is with reading offsets."""
    return ShownJob(step, None, tuple(PartitionProgress(str(at), total, done) for at, total, done in reading.so_far()))


def job_progress(noted: JobProgress | None, run: str, since: int) -> ShownJob:
    """How far a job is that holds no window. What another run noted, or was noted before `since`, says nothing about it."""
    if noted is None or noted.run != run or noted.at < since:
        return ShownJob()
    # Offsets that are read twice are counted twice.
    bars = (PartitionProgress(name, total, min(total, noted.done.get(name, 0))) for name, total in noted.total)
    return ShownJob(noted.step, None, tuple(bars))


def few(bars: Sequence[PartitionProgress], most: int = MAX_BARS) -> tuple[PartitionProgress, ...]:
    """At most this many bars: the longest ones in their order, and one for all others together."""
    if len(bars) <= most:
        return tuple(bars)
    longest = sorted(range(len(bars)), key=lambda number: -bars[number].total)[: most - 1]
    kept = [bars[number] for number in sorted(longest)]
    others = [bar for number, bar in enumerate(bars) if number not in set(longest)]
    rest = PartitionProgress(f"{len(others)} others", sum(bar.total for bar in others), sum(bar.done for bar in others))
    return (*kept, rest)


def without_stages(line: str) -> tuple[str, tuple[int, int] | None]:
    """A line of Spark's output without the bars of its stages; and how many tasks of these stages are done, of how many.

    Spark writes its bars over each other on one line, as `org.apache.spark.ui.ConsoleProgressBar` does. What follows a bar
    on its line is a line of the log.
    """
    stages = _STAGES.findall(line)
    if not stages:
        return line, None
    counts = [tuple(map(int, counts_)) for stage in stages for counts_ in _TASKS.findall(stage)]
    return _STAGES.sub("", line), (sum(done for done, _ in counts), sum(total for _, total in counts))
