"""What reading some offsets takes, by the last windows of the ingest."""

from __future__ import annotations

from typing import Any

from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.planning.estimating import estimate
from tidemark.runs import pacing
from tidemark.runs.open_stream import OpenStream

# How many windows an estimate uses: enough for a day of hourly runs, and none from last year's code.
_WINDOWS = 24


def estimated(opened: OpenStream, offsets: int, rate: int | None = None) -> dict[str, Any] | None:
    """What reading so many offsets takes, by the ingest's last windows; None before the first window.

    With a `rate` in records a second, it takes the time that the rate asks for, if that is more.
    """
    stored = opened.book.head(INGEST)
    found = estimate(offsets, newest_of_lane(opened.book, INGEST, stored.head if stored else None, _WINDOWS))
    if found is None:
        return None
    return {
        "records": found.records,
        "bytes": found.bytes,
        "seconds": round(max(found.seconds, pacing.seconds_to_wait(offsets, 0, rate)), 1),
    }


def said(found: dict[str, Any] | None) -> str:
    """An estimate in a line for people."""
    if found is None:
        return "estimate: unknown, since no window has been read yet"
    return (
        f"estimate: {found['records']} records, {found['bytes']} bytes, {found['seconds']} seconds "
        "and the start of Spark, by the windows before"
    )
