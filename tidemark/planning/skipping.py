"""Moving the ingest forward over offsets that it will not read, on somebody's word. Nothing moves it back."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from datetime import datetime

from tidemark import protocol, runs
from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.records import INGEST, Attempt, Guarantee, Head, Receipt, Record, Window
from tidemark.planning import planner, starting
from tidemark.planning.conditions import request
from tidemark.planning.discovery import known_to_ingest, topics_now
from tidemark.planning.inputs import Known
from tidemark.protocol import Fence, Listener
from tidemark.ranges import RangeSet, TopicPartition
from tidemark.streams.opened import OpenStream
from tidemark.times import milliseconds

# "latest", a time, or an offset for each (topic, partition).
Target = str | datetime | Mapping[tuple[str, int], int]


class NothingToRead:
    """The work on a window whose ranges are empty: its positions move, and nothing is written but the ledger."""

    def __init__(self, now: int) -> None:
        self._now = now

    def read(self, window: Window, covers: RangeSet, fence: Fence) -> None:
        if covers:
            raise ValueError(f"window {window.seq} has offsets to read: {covers!r}")

    def store(self, attempt: Attempt, fence: Fence, on_step: Listener) -> None: ...

    def verify(self) -> Receipt:
        return Receipt(tallies=(), sinks=(), dead_letters=None, started_at=self._now, finished_at=self._now)


class _NoFence:
    def check(self) -> None: ...


def skip(opened: OpenStream, to: Target, reason: str, run: str, *, write: bool) -> Window:
    """The window that jumps from the ingest's positions to `to`; committed with `write`, otherwise only shown.

    Raises WrongUse when a position would fall or there is nothing to skip, Conflict while a window is pending.
    """
    if not reason.strip():
        raise WrongUse("a skip needs a reason; it stays in the ledger")
    if opened.stream.guarantee == Guarantee.NONE.value:
        raise WrongUse(f"{opened.book.stream} keeps no positions (guarantee: none): there is nothing to move")
    found = opened.book.head(INGEST)
    if found is None:
        raise WrongUse(f"{opened.book.stream} has no positions yet: name where it begins as `start` in the stream file")
    if found.head.pending is not None:
        raise Conflict(
            f"window {found.head.pending.window.seq} of {opened.book.stream} is pending: let it finish, or abandon it first"
        )

    def plan(head: Head) -> Window:
        asked = request(opened, run, topics_now(opened), reason)
        known = known_to_ingest(opened, asked, head, learn=write)
        return planner.skipping(head, known, asked, _offsets(opened, known, to))

    if not write:
        return plan(found.head)
    pending = protocol.pin(opened.book, opened.sweeper, INGEST, plan)
    if pending is None or pending.window.run != run:
        raise Conflict(f"another run of {opened.book.stream} has pinned a window meanwhile; nothing was skipped")
    return _commit(opened, pending.window.seq, run).window


def _commit(opened: OpenStream, seq: int, run: str) -> Record:
    return protocol.process(
        opened.book,
        opened.sweeper,
        NothingToRead(opened.book.clock()),
        lambda taken: nullcontext(_NoFence()),
        INGEST,
        seq,
        runs.this_run(opened, run),
    )


def _offsets(opened: OpenStream, known: Known, to: Target) -> dict[TopicPartition, int]:
    """The offset that each partition goes to; partitions that are not named stay where they are."""
    logs = known.to_read()
    if to == "latest":
        return {at: log.end for at, log in logs.items()}
    if isinstance(to, datetime):
        found = opened.log.first_at_or_after(known.logs, milliseconds(to), opened.stream.source.isolation)
        times = starting.offsets_at_time(known, found, to.isoformat(), "end")
        return {at: times[at.topic, at.partition] for at in logs}
    if isinstance(to, str):
        raise WrongUse(f"{to!r}: expected latest, a time, or offsets")
    by_name = {(at.topic, at.partition): at for at in logs}
    for topic, partition in to:
        if (topic, partition) not in by_name:
            raise WrongUse(f"{topic}/{partition} is not among the partitions that {opened.book.stream} reads")
    return {by_name[name]: offset for name, offset in to.items()}
