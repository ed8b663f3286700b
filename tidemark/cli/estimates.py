"""Offsets and estimates as the commands show them."""

from __future__ import annotations

from typing import Any

from tidemark.cli.output import error
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.estimating import estimate
from tidemark.runs.open_stream import OpenStream

# How many windows an estimate uses: enough for a day of hourly runs, and none from last year's code.
_WINDOWS = 24


def counted(ranges: RangeSet) -> dict[str, Any]:
    """Offsets for JSON: their number and their ranges."""
    shown = [{"partition": str(one.partition), "from": str(one.start), "until": str(one.until)} for one in ranges]
    return {"offsets": ranges.count(), "ranges": shown}


def estimated(opened: OpenStream, offsets: int) -> dict[str, Any] | None:
    """What reading so many offsets takes, by the ingest's last windows; None before the first window."""
    stored = opened.book.head(INGEST)
    found = estimate(offsets, newest_of_lane(opened.book, INGEST, stored.head if stored else None, _WINDOWS))
    if found is None:
        return None
    return {"records": found.records, "bytes": found.bytes, "seconds": round(found.seconds, 1)}


def show_estimate(found: dict[str, Any] | None) -> None:
    if found is None:
        error("estimate: unknown, since no window has been read yet")
    else:
        error(
            f"estimate: {found['records']} records, {found['bytes']} bytes, {found['seconds']} seconds "
            "and the start of Spark, by the windows before"
        )
