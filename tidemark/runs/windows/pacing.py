"""How fast a replay or backfill goes, so that it leaves Kafka, Spark and the sinks to others. Pure.

A window is read as fast as Spark can. What bounds the rate are small windows, and waits between them: on average over a job,
no more offsets a second than the limit, and never more at a stretch than a window has.
"""

from __future__ import annotations

# Short enough that a burst at full speed is small, long enough that Spark's start of each window matters little.
WINDOW_SECONDS = 60


# The most offsets of a window where the stream file does not say: a minute or some of work, which a crash costs at most.
USUAL_RECORDS = 5_000_000


def most_records(max_records: int | None, rate: int | None) -> int:
    """The most offsets of one window: `max_records`, and a minute of a rate in offsets a second."""
    most = USUAL_RECORDS if max_records is None else max_records
    return most if rate is None else min(most, rate * WINDOW_SECONDS)


def seconds_to_wait(offsets: int, seconds: float, rate: int | None) -> float:
    """How long to wait after a window of this many offsets that took this many seconds, before the next one begins.

    A clock that was set back says that it took less than nothing: then no time of it is counted.
    """
    return max(0.0, offsets / rate - max(0.0, seconds)) if rate is not None else 0.0
