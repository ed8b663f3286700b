"""Times as people write them: ISO 8601 with a zone. A number is never taken for one."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from tidemark.errors import WrongUse

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_time(text: str) -> datetime:
    """The time that a text names. Raises WrongUse for one without a zone, and for a number, with both its readings."""
    with suppress(ValueError):
        raise WrongUse(two_readings(float(text)))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUse(f"{text!r} is not a time; expected one with its zone, like 2026-11-21T07:00:00Z") from None
    if time.tzinfo is None:
        raise WrongUse(f"{text!r} has no zone; expected a time like {text}Z or {text}+08:00")
    return time


def milliseconds(time: datetime) -> int:
    """Milliseconds since 1970, the first at or after the time: Kafka's timestamps have no smaller parts."""
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def two_readings(number: float) -> str:
    """What to say of a number where a time is expected: what it would be in seconds, and in milliseconds."""
    readings = []
    for unit, divisor in (("seconds", 1), ("milliseconds", 1000)):
        with suppress(ValueError, OverflowError, OSError):
            readings.append(f"{datetime.fromtimestamp(number / divisor, UTC):%Y-%m-%dT%H:%M:%SZ} if it is {unit}")
    return f"a number is not taken as a time: {' and '.join(readings) or 'it is none'}; write the time itself"
