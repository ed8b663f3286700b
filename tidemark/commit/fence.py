"""Fencing and heartbeats: what an attempt does while it works."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from tidemark.commit.protocol import Fence, HeldWindow
from tidemark.errors import Fenced, TidemarkError
from tidemark.ledger.erasures import erasures_since
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Guarantee, Heartbeat, Window
from tidemark.ledger.retirement import retirement

log = logging.getLogger(__name__)

# A paused attempt that wakes up writes for at most this long before it finds itself fenced. Those rows never count.
FENCE_SECONDS = 3.0
# Short enough for a bar that moves, of windows that take seconds. And far below the lease (`protocol.LEASE_MS`): a living
# attempt does not look dead after some lost heartbeats.
BEAT_SECONDS = 1.0


class HeadFence:
    """The fence of one attempt: does the head still hold its generation? Spark sends copies to its workers."""

    def __init__(self, ledger: Ledger, lane: str, generation: int, *, committed: Window | None = None) -> None:
        """`committed`: the window, if it was committed before it is read (`at_most_once`): no other attempt can take it."""
        self._committed = committed
        # How many lanes were closed at the last look: an erasure is a lane, and is open or closed.
        self._closed = -1
        self._ledger = ledger
        self._lane = lane
        self._generation = generation
        self._looked: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the time of the last look, because a worker has another clock. A copy therefore looks at once."""
        return {**self.__dict__, "_looked": None}

    def check(self) -> None:
        """Look at the head now. Raises Fenced when another attempt has taken or committed the window.

        Of a window that was committed before: when some of it is erased.
        """
        if self._committed is not None:
            self._check_not_erased(self._committed)
            self._looked = time.monotonic()
            return
        stored = self._ledger.head(self._lane)
        pending = stored.head.pending if stored else None
        holder = pending.attempt if pending else None
        if holder is None or holder.generation != self._generation:
            last = stored.head.last if stored else None
            if holder is not None:
                now = f"run {holder.run} holds it (generation {holder.generation})"
            elif last is not None and last.attempt.generation > self._generation:
                now = f"run {last.attempt.run} has committed it (generation {last.attempt.generation})"
            else:
                now = self._retired() or "it was abandoned"
            raise Fenced(
                f"generation {self._generation} no longer holds the window of {self._ledger.stream}/{self._lane}: {now}. "
                "This attempt stops, and nothing that it wrote counts."
            )
        self._looked = time.monotonic()

    def _retired(self) -> str | None:
        register = self._ledger.register()
        return retirement(register[1]) if register is not None else None

    def _check_not_erased(self, window: Window) -> None:
        register = self._ledger.register()
        if register is None:
            return
        if (retired := retirement(register[1])) is not None:
            # In the ledger that replaces it, an erasure may have taken what the window covers.
            raise Fenced(f"window {self._lane}/{window.seq} of {self._ledger.stream} is written no further: {retired}")
        covers = self._ledger.covers(window)
        erasing = ((lane, entry.erases) for lane, entry in register[1].lanes.items() if entry.erases is not None)
        by = next((lane for lane, erasure in erasing if self._ledger.selection(erasure.selection) & covers), None)
        if by is None and register[1].closed != self._closed:
            since = erasures_since(self._ledger, covers, self._generation)
            by = since[0].record.lane if since else None
        self._closed = register[1].closed
        if by is not None:
            raise Fenced(
                f"{by} erases messages of window {self._lane}/{window.seq} of {self._ledger.stream}, whose attempt gave no "
                "sign of life. This attempt stops, and what it has written of them is removed."
            )

    def check_now_and_then(self) -> None:
        """As `check`, if this copy last looked more than FENCE_SECONDS ago. Callers use it between two batches."""
        if self._looked is None or time.monotonic() - self._looked > FENCE_SECONDS:
            self.check()


class NoFence:
    """The fence of work that writes nothing outside the ledger."""

    def check(self) -> None: ...


def unwatched(_: HeldWindow) -> AbstractContextManager[Fence]:
    """Hold a window as `holding` does, but without heartbeats and without a fence to look at."""
    return nullcontext(NoFence())


Progress = Callable[[], tuple[str, dict[str, int]]]


def beat(ledger: Ledger, progress: Progress, taken: HeldWindow) -> None:
    """Write one heartbeat of an attempt: the step that it is at, and the messages done per partition.

    One that cannot be written is logged and left out: correctness does not depend on it.
    """
    lane, attempt = taken.stored.head.lane, taken.attempt
    step, done = progress()
    sign = Heartbeat(generation=attempt.generation, run=attempt.run, at=ledger.clock(), step=step, done=done)
    try:
        ledger.beat(lane, sign)
    except TidemarkError as problem:
        log.warning("no heartbeat for %s/%s: %s", ledger.stream, lane, problem)


def fence_of(ledger: Ledger, taken: HeldWindow) -> HeadFence:
    """The fence of the attempt that has taken a window."""
    window = taken.pending.window
    committed = window if window.guarantee == Guarantee.AT_MAX_ONCE else None
    return HeadFence(ledger, taken.stored.head.lane, taken.attempt.generation, committed=committed)


@contextmanager
def holding(ledger: Ledger, progress: Progress, taken: HeldWindow) -> Iterator[HeadFence]:
    """Write heartbeats next to the head while the block runs, from a thread; see `beat`."""
    over = threading.Event()

    def go_on() -> None:
        beat(ledger, progress, taken)
        while not over.wait(BEAT_SECONDS):
            beat(ledger, progress, taken)

    thread = threading.Thread(target=go_on, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield fence_of(ledger, taken)
    finally:
        over.set()
        thread.join(BEAT_SECONDS)
