"""Processing the windows of a lane: the pinned one, and those after it up to the end that the run saw.

Nothing here knows what does the work on a window: `tidemark.spark.jobs.window` does it with Spark.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from functools import partial
from typing import Protocol

from tidemark.clients.kafka.admission import check_admission
from tidemark.commit import protocol
from tidemark.commit.protocol import Fence, HeldWindow, Listener, Step, Work, nobody
from tidemark.errors import (
    AlreadyCommitted,
    AuthenticationFailed,
    Fenced,
    NotAuthorized,
    OffsetsOutOfRange,
    ProcessingFailed,
    TidemarkError,
    WrongUse,
)
from tidemark.ledger.records import Guarantee, Pending, Record, Window
from tidemark.ledger.register import check_not_paused, named_ranges
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import ingest, lanes, pacing
from tidemark.runs.windows.changes_since_pin import lost_since_pin
from tidemark.runs.windows.chosen_sinks import check_still_there

log = logging.getLogger(__name__)


class OnePassImpossible(Exception):
    """Raised when one pass is not enough for a window. What it has written has a generation that never counts."""


class WorkProgress(Protocol):
    """How far the work on a window is: `tidemark.spark.runtime.progress.AttemptProgress` says it of Spark's."""

    step: str

    def __call__(self) -> tuple[str, dict[str, int]]: ...


class WindowWork(Work, Protocol):
    """The work on one window, which says how far it is, and is closed when it has ended."""

    @property
    def progress(self) -> WorkProgress: ...

    def close(self) -> None: ...


class Ready(Protocol):
    """Makes the work on the windows of a lane."""

    @property
    def opened(self) -> OpenStream: ...

    @property
    def lane(self) -> str: ...

    def work(self, seq: int, window: Window | None, *, longer: bool) -> WindowWork: ...

    def hold(self, work: WindowWork, taken: HeldWindow) -> AbstractContextManager[Fence]:
        """Hold the window while the work is done."""
        ...

    def translate(self, problem: Exception) -> TidemarkError | None:
        """The error that a person sees for one of the work; None for an unknown one."""
        ...


def process_windows(
    ready: Ready,
    seq: int,
    run: str,
    *,
    take_over: bool = False,
    on_step: Listener = nobody,
    wait: Callable[[float], None] = time.sleep,
) -> list[Record]:
    """Process the pending window `seq` of a lane, then pin and process what follows, up to the end that the run saw.

    Windows that an earlier try of this run has committed are only settled. `wait` gets the seconds between two windows of a
    replay or backfill with a rate limit.
    """
    opened, lane = ready.opened, ready.lane
    rate = lanes.rate_of(opened, lane)
    committed: list[Record] = []
    following: int | None = seq
    while following is not None:
        check_not_paused(opened.ledger, lane)
        began, taken = opened.ledger.clock(), 0
        try:
            committed.append(_process(ready, following, run, take_over=take_over, on_step=on_step))
            taken = opened.ledger.covers(committed[-1].window).count() if rate is not None else 0
        except AlreadyCommitted:
            committed += _committed_by_this_run(opened, lane, following, run)
        window = committed[-1].window
        goal = window.goal if window.run == run else ()
        pending = ingest.next_window(opened, lane, run, goal)
        following = pending.window.seq if pending else None
        if pending is not None:
            wait(pacing.seconds_to_wait(taken, (opened.ledger.clock() - began) / 1000, rate))
    lanes.finish(opened, lane)
    return committed


def _process(ready: Ready, seq: int, run: str, *, take_over: bool, on_step: Listener) -> Record:
    """Steps 2 to 7 on one pending window; by a second attempt, if a message does not let the first one take one pass."""
    try:
        return _process_one(ready, seq, run, take_over=take_over, on_step=on_step)
    except OnePassImpossible as problem:
        name = f"{ready.opened.ledger.stream}/{ready.lane}"
        log.warning("%s window %s: %s. A new attempt takes the longer way", name, seq, problem)
    return _process_one(ready, seq, run, on_step=on_step, longer=True)


def _process_one(
    ready: Ready,
    seq: int,
    run: str,
    *,
    take_over: bool = False,
    on_step: Listener = nobody,
    longer: bool = False,
) -> Record:
    """One attempt at a pending window. Raises OnePassImpossible, unless it takes the `longer` one."""
    opened, lane = ready.opened, ready.lane
    pending = _pending(opened, lane)
    window = pending.window if pending is not None else None
    if window is not None:
        check_still_there(opened, f"window {seq} of {opened.ledger.stream}/{lane}", window.sinks)
    work = ready.work(seq, window, longer=longer)

    steps: list[Step] = []

    def heard(step: Step) -> None:
        steps.append(step)
        work.progress.step = step.value
        # The work itself says which sink it has stored.
        if step != Step.SINK_STORED:
            log.info("%s/%s window %s: %s", opened.ledger.stream, lane, seq, step.value)
        on_step(step)

    with closing(work):
        try:
            return protocol.process(
                opened.ledger,
                opened.sweeper,
                work,
                partial(ready.hold, work),
                lane,
                seq,
                lanes.this_run(opened, run),
                take_over=take_over,
                on_step=heard,
            )
        except Exception as problem:
            known = _explained(ready, seq, window, problem)
            if known is None:
                raise
            if window is not None and (outcome := _outcome(window, steps)) and not isinstance(known, Fenced):
                known.args = (f"{str(known).removesuffix('.')}. {outcome}",)
            if known is problem:
                raise
            raise known from problem


def _explained(ready: Ready, seq: int, window: Window | None, problem: Exception) -> TidemarkError | None:
    """The error that a person sees, with the window that it is about; None for an unknown one."""
    opened, lane = ready.opened, ready.lane
    known = ready.translate(problem)
    if isinstance(known, OffsetsOutOfRange) and window is not None:
        return _deleted(opened, lane, window)
    if known is not problem and isinstance(known, NotAuthorized | AuthenticationFailed):
        return _not_let(opened, lane, known)
    # Ours of another kind say what they are about.
    failed = isinstance(known, ProcessingFailed) and (type(known) is ProcessingFailed or known is not problem)
    if failed and known is not None and window is not None:
        return type(known)(f"window {seq} of {opened.ledger.stream}/{lane}, {named_ranges(window.hull())}: {known}")
    return known


def _outcome(window: Window, steps: Sequence[Step]) -> str | None:
    """What an attempt that has failed after some steps leaves in the ledger; None where its error says that.

    The work on the data does not know it: with `at_most_once` the commit comes first. Before an attempt has taken its window,
    others may have committed it or given it up.
    """
    if Step.TAKEN not in steps or Step.VERIFIED in steps:
        return None
    if window.guarantee != Guarantee.AT_MAX_ONCE:
        return "Nothing was committed: the window stays pinned, and the next attempt reads the same offsets again."
    if Step.COMMITTED not in steps:
        return None
    return "The window was committed before it was read (at_most_once), and has no receipt: replay its offsets."


def _not_let(opened: OpenStream, lane: str, known: WrongUse) -> WrongUse:
    """Java's error, with the user. First asks again with Python's clients, which raise an error that says more."""
    check_admission(opened.log.endpoint, again=True)
    if isinstance(known, NotAuthorized) and (pending := _pending(opened, lane)):
        # Its error names the topic.
        opened.log.topics(pending.window.topic_ids, pending.window.isolation)
    return type(known)(f"{opened.log.endpoint.principal}: {known}")


def _deleted(opened: OpenStream, lane: str, window: Window) -> OffsetsOutOfRange:
    """The error when Kafka has deleted messages of a window after its pin. It names the exact offsets."""
    lost, stream = lost_since_pin(opened, window), opened.ledger.stream
    deleted = ", ".join(map(str, lost)) or "messages"
    said = f"Kafka has deleted {deleted} since window {window.seq} of {stream}/{lane} was pinned"
    if window.guarantee != Guarantee.AT_MAX_ONCE:
        said += (
            ". To go on without them, set `on_out_of_range` in the stream file and give the window up: "
            f"tidemark ledger abandon {stream} {lane} --reason ..."
        )
    return OffsetsOutOfRange(said)


def _pending(opened: OpenStream, lane: str) -> Pending | None:
    stored = opened.ledger.head(lane)
    return stored.head.pending if stored else None


def _committed_by_this_run(opened: OpenStream, lane: str, seq: int, run: str) -> list[Record]:
    """The window and those after it, committed by an earlier try of this run. Raises AlreadyCommitted."""
    protocol.settle(opened.ledger, opened.sweeper, lane)
    recorded = opened.ledger.record(lane, seq)
    if recorded is None or recorded[1].attempt.run != run:
        raise AlreadyCommitted(f"window {seq} of {opened.ledger.stream}/{lane} is already committed by another run")
    log.info("%s/%s window %s: committed by an earlier try of this run", opened.ledger.stream, lane, seq)
    return [recorded[1], *(record for record in lanes.committed_before(opened, lane, run) if record.seq > seq)]
