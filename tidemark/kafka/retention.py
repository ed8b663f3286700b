"""When Kafka will delete the next unread offset of a partition. Pure: what is known comes in as values, a forecast goes out.

Kafka deletes whole segments, the oldest first: by time when the *newest* message of a segment is too old, by size when
what lies behind the segment is enough. So what follows from a topic's settings is the earliest moment, not the moment.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tidemark.durations import in_words


class State(StrEnum):
    """`safe`: not within the time to warn before, or nothing is unread. `warning`: within it. `lost`: it is deleted already.

    `unknown`: a setting could delete it, and when that will be cannot be told.
    """

    SAFE = "safe"
    WARNING = "warning"
    LOST = "lost"
    UNKNOWN = "unknown"


class Reason(StrEnum):
    """What a forecast follows from: `retention.ms`, `retention.bytes`, or how the log start has moved lately."""

    TIME = "time"
    SIZE = "size"
    MOVEMENT = "movement"


@dataclass(frozen=True)
class Settings:
    """How long and how much of a partition a topic keeps, in ms and bytes; None for all of it."""

    time_ms: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class Moment:
    """A partition at a time (ms since 1970): where its log began and ended, and the next offset to read."""

    at: int
    start: int
    end: int
    position: int


@dataclass(frozen=True)
class Seen:
    """What is known of a partition; None for what is not.

    `before` is an earlier moment, `timestamp` that of the first message at or after the position, `size` that of the log.
    """

    now: Moment
    before: Moment | None = None
    settings: Settings | None = None
    timestamp: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class Forecast:
    """`in_ms`: how long from now until the next unread offset is deleted, at the earliest; None for never, or not known."""

    state: State
    in_ms: int | None = None
    reason: Reason | None = None


def forecast(seen: Seen, warn_ms: int) -> Forecast:
    """The soonest that time, size and movement give, compared with the time to warn before."""
    now = seen.now
    if now.position < now.start:
        return Forecast(State.LOST, 0)
    if now.position == now.end:
        return Forecast(State.SAFE)
    if now.position > now.end:
        # The log was truncated, which is the planner's matter.
        return Forecast(State.UNKNOWN)
    estimates = {Reason.TIME: _by_time(seen), Reason.SIZE: _by_size(seen), Reason.MOVEMENT: _by_movement(seen)}
    known = {reason: estimate for reason, estimate in estimates.items() if estimate is not None}
    soonest = min(known, key=lambda reason: known[reason], default=None)
    if soonest is not None and known[soonest] <= warn_ms:
        return Forecast(State.WARNING, math.floor(known[soonest]), soonest)
    for reason in (Reason.TIME, Reason.SIZE):
        if reason not in known:
            return Forecast(State.UNKNOWN, None, reason)
    if soonest is None or known[soonest] == math.inf:
        return Forecast(State.SAFE)
    return Forecast(State.SAFE, math.floor(known[soonest]), soonest)


def in_table(found: Forecast) -> str:
    """A forecast in few words: `safe`, `warning: 9 h 5 min (time)`."""
    if found.state == State.LOST or found.in_ms is None:
        return found.state.value
    return f"{found.state.value}: {in_words(found.in_ms)} ({found.reason})"


def alarm(partition: str, now: Moment, found: Forecast) -> str | None:
    """What to tell people of a partition's forecast; None when there is nothing to do about it."""
    if found.state == State.LOST:
        return f"{partition} [{now.position}, {now.start}): Kafka has deleted it before it was read"
    if found.state != State.WARNING or found.in_ms is None:
        return None
    when = in_words(found.in_ms)
    if found.reason == Reason.MOVEMENT:
        return (
            f"{partition}: the log start gains on the position, and reaches offset {now.position}, the next unread one, "
            f"in {when} if both go on as they have lately"
        )
    setting = "retention.ms" if found.reason == Reason.TIME else "retention.bytes"
    return f"{partition}: {setting} may delete offset {now.position}, the next unread one, in {when}, not before"


def _by_time(seen: Seen) -> float | None:
    """The position's segment is not deleted before the message at the position is too old."""
    if seen.settings is None:
        return None
    if seen.settings.time_ms is None:
        return math.inf
    if seen.timestamp is None:
        return None
    return max(0, seen.timestamp + seen.settings.time_ms - seen.now.at)


def _by_size(seen: Seen) -> float | None:
    """The position's segment is not deleted before as much as the topic keeps lies from the position on."""
    if seen.settings is None:
        return None
    if seen.settings.size_bytes is None:
        return math.inf
    if seen.size is None:
        return None
    now = seen.now
    per_offset = seen.size / (now.end - now.start)
    left = seen.settings.size_bytes - per_offset * (now.end - now.position)
    if left <= 0:
        return 0
    if seen.before is None or seen.before.at >= now.at:
        return None
    growth = per_offset * (now.end - seen.before.end) / (now.at - seen.before.at)
    return left / growth if growth > 0 else math.inf


def _by_movement(seen: Seen) -> float | None:
    """The log start reaches the position when it goes on to gain on it as it has since the earlier moment."""
    now, before = seen.now, seen.before
    if before is None or before.at >= now.at:
        return None
    gained = (now.start - before.start) - (now.position - before.position)
    return (now.position - now.start) * (now.at - before.at) / gained if gained > 0 else math.inf
