"""Moving the ingest forward over offsets that it will not read, when a person asks for it. Nothing moves it back."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tidemark.errors import Conflict, WrongUse
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST, Guarantee, Head, Window
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.times import milliseconds
from tidemark.planning import planner, starting
from tidemark.planning.inputs import KafkaState
from tidemark.runs.live.conditions import request
from tidemark.runs.live.kafka_now import known_to_ingest, topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import first_at
from tidemark.runs.windows import lanes, pinning
from tidemark.runs.windows.empty_windows import commit_unread

# "latest", a time, or an offset for each (topic, partition).
Target = str | datetime | Mapping[tuple[str, int], int]


def skip(opened: OpenStream, to: Target, reason: str, run: str, *, write: bool) -> Window:
    """The window that jumps from the ingest's positions to `to`. With `write` it is committed, otherwise only shown.

    `run` names this one skip: by it, the skip finds its own window again, even if another run committed it. Raises
    WrongUse when a position would fall or there is nothing to skip, Conflict while a window is pending.
    """
    head = _movable(opened, reason)

    def plan(head: Head) -> tuple[Window | None, KafkaState]:
        asked = request(opened, run, topics_now(opened), reason)
        known = known_to_ingest(opened, asked, head, learn=write)
        if _applied(opened, run) is not None:
            return None, known
        return planner.skipping(head, known, asked, _offsets(opened, known, to)), known

    if not write:
        shown, _ = plan(head)
        if shown is None:
            raise WrongUse(f"the skip {run} is done already")
        return shown
    pending = pinning.pin(opened, INGEST, plan)
    try:
        if pending is not None and pending.window.run == run:
            return commit_unread(opened, INGEST, pending.window.seq, run).window
    except Conflict:
        # Another run has taken the pinned window. The window reads nothing, so that run commits exactly the same.
        if (done := _applied(opened, run)) is not None:
            return done
        raise
    if (done := _applied(opened, run)) is not None:
        return done
    raise Conflict(f"another run of {opened.ledger.stream} has pinned a window meanwhile; nothing was skipped")


def _movable(opened: OpenStream, reason: str) -> Head:
    """The ingest's head, if it may be moved. Raises WrongUse, and Conflict while a window is pending."""
    if not reason.strip():
        raise WrongUse("a skip needs a reason; it stays in the ledger")
    if opened.stream.guarantee == Guarantee.NONE.value:
        raise WrongUse(f"{opened.ledger.stream} keeps no positions (guarantee: none): there is nothing to move")
    stored = opened.ledger.head(INGEST)
    if stored is None:
        raise WrongUse(
            f"{opened.ledger.stream} has no positions yet: name where it begins as `start` in the stream file"
        )
    if stored.head.pending is not None:
        raise Conflict(
            f"window {stored.head.pending.window.seq} of {opened.ledger.stream} is pending: let it finish, or abandon it first"
        )
    return stored.head


def _applied(opened: OpenStream, run: str) -> Window | None:
    """The window of this skip, if it is committed. The answer to its pin may have been lost, and another run committed it."""
    stored = opened.ledger.head(INGEST)
    newest = newest_of_lane(opened.ledger, INGEST, stored.head if stored else None, lanes.RETRIED_WITHIN)
    return next((record.window for record in newest if record.window.run == run), None)


def _offsets(opened: OpenStream, known: KafkaState, to: Target) -> dict[TopicPartition, int]:
    """The offset that each partition goes to. Partitions that are not named stay where they are."""
    logs = known.to_read()
    if to == "latest":
        return {at: log.end for at, log in logs.items()}
    if isinstance(to, datetime):
        offsets = first_at(opened, known.logs, milliseconds(to))
        times = starting.offsets_at_time(known, offsets, to.isoformat(), "end")
        return {at: times[at.topic, at.partition] for at in logs}
    if isinstance(to, str):
        raise WrongUse(f"{to!r}: expected latest, a time, or offsets")
    by_name = {(at.topic, at.partition): at for at in logs}
    for topic, partition in to:
        if (topic, partition) not in by_name:
            raise WrongUse(f"{topic}/{partition} is not among the partitions that {opened.ledger.stream} reads")
    return {by_name[name]: offset for name, offset in to.items()}
