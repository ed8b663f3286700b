"""When Kafka will delete the next unread offset of a partition. Pure: takes values, and gives a forecast.

Kafka deletes whole segments, the oldest first. By time, it deletes a segment when the segment's *newest* message is too
old. By size, it deletes a segment when the segments after it are large enough. So a topic's settings give the earliest
moment, not the exact one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from tidemark.offsets.times import in_words


class RetentionState(StrEnum):
    """`safe`: no deletion within the warning time, or nothing is unread. `warning`: a deletion within it. `lost`: deleted.

    `unknown`: a setting could delete the offset, but the time cannot be told.
    """

    SAFE = "safe"
    WARNING = "warning"
    LOST = "lost"
    UNKNOWN = "unknown"


class Reason(StrEnum):
    """The source of a forecast: `retention.ms`, `retention.bytes`, or how the log start has moved lately."""

    TIME = "time"
    SIZE = "size"
    MOVEMENT = "movement"


@dataclass(frozen=True)
class RetentionSettings:
    """The time and size of a partition that a topic keeps, in ms and bytes; None without a limit."""

    time_ms: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class PartitionSnapshot:
    """A partition at a time (ms since 1970): where its log began and ended, and the next offset to read."""

    at: int
    start: int
    end: int
    position: int


@dataclass(frozen=True)
class SeenPartition:
    """The known values of a partition; None for unknown ones.

    `before`: an earlier moment. `timestamp`: of the first message at or after the position. `size`: of the log, in bytes.
    """

    now: PartitionSnapshot
    before: PartitionSnapshot | None = None
    settings: RetentionSettings | None = None
    timestamp: int | None = None
    size: int | None = None


@dataclass(frozen=True)
class Forecast:
    """`in_ms` is the least time until the next unread offset is deleted; None if never, or not known."""

    state: RetentionState
    in_ms: int | None = None
    reason: Reason | None = None


def forecast(seen: SeenPartition, warn_ms: int) -> Forecast:
    """The earliest forecast of time, size and movement, compared with the warning time."""
    now = seen.now
    if now.position < now.start:
        return Forecast(RetentionState.LOST, 0)
    if now.position == now.end:
        return Forecast(RetentionState.SAFE)
    if now.position > now.end:
        # The log was truncated; the planner handles that.
        return Forecast(RetentionState.UNKNOWN)
    estimates = {Reason.TIME: _by_time(seen), Reason.SIZE: _by_size(seen), Reason.MOVEMENT: _by_movement(seen)}
    known = {reason: estimate for reason, estimate in estimates.items() if estimate is not None}
    soonest = min(known, key=lambda reason: known[reason], default=None)
    if soonest is not None and known[soonest] <= warn_ms:
        return Forecast(RetentionState.WARNING, math.floor(known[soonest]), soonest)
    for reason in (Reason.TIME, Reason.SIZE):
        if reason not in known:
            return Forecast(RetentionState.UNKNOWN, None, reason)
    if soonest is None or known[soonest] == math.inf:
        return Forecast(RetentionState.SAFE)
    return Forecast(RetentionState.SAFE, math.floor(known[soonest]), soonest)


def forecast_cell(forecast: Forecast) -> str:
    """A forecast in few words: `safe`, `warning: 9 h 5 min (time)`."""
    if forecast.state == RetentionState.LOST or forecast.in_ms is None:
        return forecast.state.value
    return f"{forecast.state.value}: {in_words(forecast.in_ms)} ({forecast.reason})"


def headroom(partition: str, now: PartitionSnapshot, forecast: Forecast) -> str | None:
    """How long the next unread offset is safe, as a sentence; None where no time is known."""
    if forecast.in_ms is None or forecast.state == RetentionState.LOST:
        return None
    return f"{partition}: offset {now.position}, the next unread one, may be deleted in {in_words(forecast.in_ms)}"


def alarm(partition: str, now: PartitionSnapshot, forecast: Forecast) -> str | None:
    """The warning for a partition's forecast; None when there is nothing to do."""
    if forecast.state == RetentionState.LOST:
        return f"{partition}@{now.position}-{now.start}: Kafka has deleted it before it was read"
    if forecast.state != RetentionState.WARNING or forecast.in_ms is None:
        return None
    when = in_words(forecast.in_ms)
    if forecast.reason == Reason.MOVEMENT:
        return (
            f"{partition}: the log start gains on the position, and reaches offset {now.position}, the next unread one, "
            f"in {when} if both go on as they have lately"
        )
    setting = "retention.ms" if forecast.reason == Reason.TIME else "retention.bytes"
    return f"{partition}: {setting} may delete offset {now.position}, the next unread one, in {when}, not before"


def _by_time(seen: SeenPartition) -> float | None:
    """Until the message at the position is too old, Kafka does not delete the position's segment."""
    if seen.settings is None:
        return None
    if seen.settings.time_ms is None:
        return math.inf
    if seen.timestamp is None:
        return None
    return max(0, seen.timestamp + seen.settings.time_ms - seen.now.at)


def _by_size(seen: SeenPartition) -> float | None:
    """Until the log from the position on has the size that the topic keeps, Kafka does not delete the position's segment."""
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


def _by_movement(seen: SeenPartition) -> float | None:
    """When the log start reaches the position, if it goes on gaining as it has since the earlier moment."""
    now, before = seen.now, seen.before
    if before is None or before.at >= now.at:
        return None
    gained = (now.start - before.start) - (now.position - before.position)
    return (now.position - now.start) * (now.at - before.at) / gained if gained > 0 else math.inf
