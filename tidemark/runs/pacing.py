"""How fast a replay or backfill goes, so that it leaves Kafka, Spark and the sinks to others. Pure.

A window is read as fast as Spark can. What bounds the rate are small windows, and waits between them: on average over a job,
no more offsets a second than the limit, and never more at a stretch than a window has.
"""

from __future__ import annotations

# Short enough that a burst at full speed is small, long enough that Spark's start of each window matters little.
WINDOW_SECONDS = 60


def most_records(max_records: int | None, rate: int | None) -> int | None:
    """The most offsets of one window: `max_records`, or a minute of a rate in offsets a second. None: no limit."""
    return min((limit for limit in (max_records, rate and rate * WINDOW_SECONDS) if limit is not None), default=None)


def seconds_to_wait(offsets: int, seconds: float, rate: int | None) -> float:
    """How long to wait after a window of so many offsets that took so many seconds, before the next one begins."""
    return max(0.0, offsets / rate - seconds) if rate is not None else 0.0
