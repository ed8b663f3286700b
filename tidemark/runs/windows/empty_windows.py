"""Windows whose ranges are empty: a skip, an erasure. They move positions or cover offsets, and need no Spark."""

from __future__ import annotations

from tidemark.commit import protocol
from tidemark.commit.fence import unwatched
from tidemark.commit.protocol import Fence, Listener
from tidemark.errors import StaleLedger
from tidemark.ledger.records import Attempt, Receipt, Record, Window
from tidemark.ledger.register import named_ranges
from tidemark.offsets.ranges import RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import lanes


class NothingToRead:
    """The work on a window whose ranges are empty: it writes only to the ledger."""

    def __init__(self, now: int) -> None:
        self._now = now

    def read(self, window: Window, covers: RangeSet, attempt: Attempt, fence: Fence) -> None:
        """Raises StaleLedger for a window that has offsets to read."""
        if covers:
            raise StaleLedger(
                f"window {window.seq} was given up meanwhile, and another run has pinned {named_ranges(covers)} "
                "under its number. Nothing was skipped or erased: ask again"
            )

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt:
        return Receipt(tallies=(), sinks=(), dead_letters=None, started_at=self._now, finished_at=self._now)


def commit_unread(opened: OpenStream, lane: str, seq: int, run: str, *, take_over: bool = False) -> Record:
    """Commit a pending window that reads nothing. Raises what `protocol.process` raises."""
    work = NothingToRead(opened.ledger.clock())
    this_run = lanes.this_run(opened, run)
    return protocol.process(opened.ledger, opened.sweeper, work, unwatched, lane, seq, this_run, take_over=take_over)
