"""What an attempt does while it works: it looks at its fence, and gives signs of life."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tidemark.errors import Fenced, TidemarkError
from tidemark.ledger.book import Book
from tidemark.ledger.records import Guarantee, Heartbeat
from tidemark.protocol import Taken

log = logging.getLogger(__name__)

# A paused attempt that wakes writes for at most this long before it notices; what it writes meanwhile never counts.
FENCE_SECONDS = 3.0
# A tenth of the lease (`protocol.LEASE_MS`), so that a lost beat or two does not make a living attempt look dead.
BEAT_SECONDS = 3.0


class HeadFence:
    """The fence of one attempt: does the head still hold its generation? Travels to Spark's workers."""

    def __init__(self, book: Book, lane: str, generation: int, *, committed: bool = False) -> None:
        """`committed`: the window was committed before it is read (`at_most_once`), and nobody can take it any more."""
        self._committed = committed
        self._book = book
        self._lane = lane
        self._generation = generation
        self._looked: float | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Without the time of the last look, which on a worker's host would be read by another clock: a copy looks at once."""
        return {**self.__dict__, "_looked": None}

    def check(self) -> None:
        """Look at the head now. Raises Fenced when another attempt has taken or committed the window."""
        if self._committed:
            return
        stored = self._book.head(self._lane)
        pending = stored.head.pending if stored else None
        holder = pending.attempt if pending else None
        if holder is None or holder.generation != self._generation:
            last = stored.head.last if stored else None
            if holder is not None:
                now = f"run {holder.run} holds it (generation {holder.generation})"
            elif last is not None and last.attempt.generation > self._generation:
                now = f"run {last.attempt.run} has committed it (generation {last.attempt.generation})"
            else:
                now = "it was abandoned"
            raise Fenced(
                f"generation {self._generation} no longer holds the window of {self._book.stream}/{self._lane}: {now}. "
                "This attempt stops, and nothing that it wrote counts."
            )
        self._looked = time.monotonic()

    def check_now_and_then(self) -> None:
        """As `check`, if this copy's last look is more than FENCE_SECONDS ago: for between two batches."""
        if self._looked is None or time.monotonic() - self._looked > FENCE_SECONDS:
            self.check()


Progress = Callable[[], tuple[str, dict[str, int]]]


@contextmanager
def holding(book: Book, progress: Progress, taken: Taken) -> Iterator[HeadFence]:
    """Beat beside the head while the block runs, with what `progress` says: the step, and messages done per partition.

    A beat that cannot be written is logged and missed: nothing depends on one.
    """
    lane, attempt = taken.stored.head.lane, taken.attempt
    over = threading.Event()

    def beat() -> None:
        while True:
            step, done = progress()
            sign = Heartbeat(generation=attempt.generation, run=attempt.run, at=book.clock(), step=step, done=done)
            try:
                book.beat(lane, sign)
            except TidemarkError as problem:
                log.warning("no heartbeat for %s/%s: %s", book.stream, lane, problem)
            if over.wait(BEAT_SECONDS):
                return

    thread = threading.Thread(target=beat, name="heartbeats", daemon=True)
    thread.start()
    try:
        committed = taken.pending.window.guarantee == Guarantee.AT_MOST_ONCE
        yield HeadFence(book, lane, attempt.generation, committed=committed)
    finally:
        over.set()
        thread.join(BEAT_SECONDS)
