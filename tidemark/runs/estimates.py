"""What reading some offsets takes, by the last windows of the ingest."""

from __future__ import annotations

from typing import Any

from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.times import in_words
from tidemark.planning.estimating import estimate
from tidemark.planning.merging import scatter
from tidemark.runs import pacing
from tidemark.runs.conditions import sizes_for
from tidemark.runs.open_stream import OpenStream

# How many windows an estimate uses: enough for a day of hourly runs, and none from last year's code.
_WINDOWS = 24


def estimated(opened: OpenStream, wanted: RangeSet, rate: int | None = None) -> dict[str, Any] | None:
    """What reading some offsets takes, by the ingest's last windows; None before the first window.

    Scattered ones take longer: each range has to be found, and what lies between near ones, `between`, is read too. With a
    `rate` in records a second, it takes the time that the rate asks for, if that is more.
    """
    offsets = wanted.count()
    stored = opened.book.head(INGEST)
    found = estimate(offsets, newest_of_lane(opened.book, INGEST, stored.head if stored else None, _WINDOWS))
    if found is None:
        return None
    between, longer = scatter(wanted, sizes_for(opened, wanted))
    return {
        "records": found.records,
        "bytes": found.bytes,
        "between": between,
        "seconds": round(max(found.seconds + longer, pacing.seconds_to_wait(offsets, 0, rate)), 1),
    }


def said(found: dict[str, Any] | None) -> str:
    """An estimate in a line for people."""
    if found is None:
        return "estimate: unknown, since no window has been read yet"
    between = f" and {found['between']} between them that are only read" if found["between"] else ""
    seconds = found["seconds"]
    took = f"{seconds} seconds" if seconds < 60 else in_words(round(seconds * 1_000))
    return (
        f"estimate: {found['records']} records{between}, {found['bytes']} bytes, {took} "
        "and the start of Spark, by the windows before"
    )
