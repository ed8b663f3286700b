"""One window: what it covers, what became of its messages, which offsets it passed over, its attempt and its times."""

from __future__ import annotations

from typing import Any

from tidemark.errors import WrongUse
from tidemark.ledger.closed import all_lanes
from tidemark.ledger.records import (
    Attempt,
    Gap,
    GapKind,
    Heartbeat,
    LaneEntry,
    Pending,
    Receipt,
    Record,
    Window,
    WindowRange,
)
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.tallies import PartitionTally
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.summary import messages

COMMITTED = "committed"
_NO_TALLY = PartitionTally(topic="", incarnation=1, partition=0)


def parse_window(said: str) -> tuple[str, int]:
    """A window as people name it, LANE/NUMBER. Raises WrongUse."""
    lane, _, number = said.rpartition("/")
    if not lane or not number.isascii() or not number.isdigit() or len(number) > 19:
        raise WrongUse(f"{said!r} is not a window; expected LANE/NUMBER, for example ingest/17")
    return lane, int(number)


def window_of(opened: OpenStream, lane: str, seq: int) -> dict[str, Any] | None:
    """A committed or pending window as plain values; None when the lane has no such window. Offsets are texts.

    Times are milliseconds since 1970. Raises the ledger's errors.
    """
    book = opened.book
    stored = book.head(lane)
    entry = all_lanes(book).get(lane)
    if stored is not None and stored.head.pending is not None and stored.head.pending.window.seq == seq:
        one, beat = stored.head.pending, book.last_beat(lane)
        return _pending(opened, lane, one, entry, beat if _is_of(beat, one) else None)
    record = stored.head.last if stored is not None and stored.head.seq == seq else None
    if record is None:
        found = book.record(lane, seq)
        record = found[1] if found is not None else None
    return None if record is None else _committed(opened, book.with_receipt(record), entry)


def _committed(opened: OpenStream, record: Record, entry: LaneEntry | None) -> dict[str, Any]:
    receipt = record.receipt
    covers = opened.book.covers(record.window)
    return {
        **_of_window(opened, record.lane, record.window, entry, covers),
        "state": COMMITTED if receipt is not None else "committed, without a receipt",
        "attempt": _attempt(opened, record.attempt),
        "committed_at": record.committed_at,
        "times": _times(record.window, record.attempt, receipt, record.committed_at),
        "messages": {**messages(record), "no_message": covers.count() - messages(record)["read"]} if receipt else None,
        "partitions": [_partition(one, covers, receipt) for one in record.window.ranges if one.start < one.until],
        "sinks": [{"name": one.name, "type": one.type, "place": dict(one.place)} for one in record.places],
        "takes": None,
    }


def _pending(
    opened: OpenStream, lane: str, pending: Pending, entry: LaneEntry | None, beat: Heartbeat | None
) -> dict[str, Any]:
    covers = opened.book.covers(pending.window)
    return {
        **_of_window(opened, lane, pending.window, entry, covers),
        "state": f"pending: {beat.step}" if beat is not None else "pending",
        "attempt": _attempt(opened, pending.attempt) if pending.attempt else None,
        "committed_at": None,
        "times": _times(pending.window, pending.attempt, None, None),
        "messages": None,
        "partitions": [_partition(one, covers, None) for one in pending.window.ranges if one.start < one.until],
        "sinks": [],
        "takes": pending.takes,
    }


def _of_window(
    opened: OpenStream, lane: str, window: Window, entry: LaneEntry | None, covers: RangeSet
) -> dict[str, Any]:
    return {
        "stream": opened.book.stream,
        "window": f"{lane}/{window.seq}",
        "lane": lane,
        "seq": window.seq,
        "run": window.run,
        "reason": window.reason or (entry.reason if entry else None),
        "asked_by": entry.asked_by if entry else None,
        "approved_by": entry.approved_by if entry else None,
        "guarantee": window.guarantee.value,
        "isolation": window.isolation,
        "offsets": str(covers.count()),
        # The sinks that it writes alone; None for all, and the dead letters.
        "only_sinks": None if window.sinks is None else list(window.sinks),
        "selected": None if window.selection is None else str(window.selection.offsets),
        "gaps": [_gap(one) for one in window.gaps],
    }


def _attempt(opened: OpenStream, attempt: Attempt) -> dict[str, Any]:
    return {
        "run": attempt.run,
        "generation": str(attempt.generation),
        "code_version": attempt.code_version,
        "stream_digest": attempt.stream_digest,
        # Whether the stream file is still the one that the attempt worked with.
        "same_file": attempt.stream_digest == opened.file.digest,
    }


def _times(
    window: Window, attempt: Attempt | None, receipt: Receipt | None, committed_at: int | None
) -> list[dict[str, Any]]:
    """The steps with the time at which each ended, and how long it took (ms); None for what is not known."""
    before = receipt is not None and committed_at is not None and committed_at <= receipt.started_at
    ends = [
        ("pinned", window.pinned_at),
        ("taken by the attempt", attempt.taken_at if attempt else None),
        ("begun", receipt.started_at if receipt else None),
        ("read, stored and verified", receipt.finished_at if receipt else None),
    ]
    # With `guarantee: at_most_once`, the commit comes before the work.
    ends.insert(2 if before else 4, ("committed", committed_at))
    steps: list[dict[str, Any]] = []
    last: int | None = None
    for name, at in ends:
        took = None if at is None or last is None else max(0, at - last)
        steps.append({"step": name, "at": at, "took_ms": took})
        last = last if at is None else at
    return steps


def _partition(one: WindowRange, covers: RangeSet, receipt: Receipt | None) -> dict[str, Any]:
    offsets = covers.count(one.at)
    found: dict[str, Any] = {
        "partition": str(one.at),
        "topic": one.topic,
        "number": one.partition,
        "from": str(one.start),
        "until": str(one.until),
        "offsets": str(offsets),
        "log_start": str(one.log_start),
        "log_end": str(one.log_end),
        "leader_epoch": one.leader_epoch,
    }
    if receipt is None:
        return {**found, "tally": None}
    tally = next((tally for tally in receipt.tallies if tally.at == one.at), _NO_TALLY)
    counts = {
        name: str(getattr(tally, name).number) for name in ("read", "stored", "skipped", "invalid", "failed", "rows")
    }
    return {
        **found,
        "tally": {
            **counts,
            "no_message": str(offsets - tally.read.number),
            "bytes": str(tally.bytes),
            "first": None if tally.first is None else str(tally.first),
            "last": None if tally.last is None else str(tally.last),
            "first_timestamp": tally.first_timestamp,
            "last_timestamp": tally.last_timestamp,
            "ack": tally.read.ack,
        },
    }


_WHY = {
    GapKind.LOST: "Kafka no longer had them when the window was pinned, and the policy let the ingest go on behind them",
    GapKind.SKIPPED: "the policy left them out; a backfill can still read what Kafka holds of them",
}


def _gap(gap: Gap) -> dict[str, Any]:
    return {
        "partition": str(gap.as_range().partition),
        "from": str(gap.start),
        "until": str(gap.until),
        "offsets": str(gap.until - gap.start),
        "kind": gap.kind.value,
        "policy": gap.policy,
        "sentence": _WHY[gap.kind],
    }


def _is_of(beat: Heartbeat | None, pending: Pending) -> bool:
    return beat is not None and pending.attempt is not None and beat.generation == pending.attempt.generation
