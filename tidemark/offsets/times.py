"""Times as people write them, ISO 8601 with a zone (a number is never taken for one), and spans as they read them."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

from tidemark.errors import WrongUse

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar repeats after 400 years.
_CYCLE_MS = 146_097 * 86_400_000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))


def read_time(text: str) -> datetime:
    """The time that a text names. Raises WrongUse for a time without a zone. For a number, the error gives both readings."""
    with suppress(ValueError):
        raise WrongUse(two_readings(float(text)))
    try:
        time = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise WrongUse(f"{text!r} is not a time; expected one with its zone, like 2026-11-21T07:00:00Z") from None
    if time.tzinfo is None:
        raise WrongUse(f"{text!r} has no zone; expected a time like {text}Z or {text}+08:00")
    return time


def milliseconds(time: datetime) -> int:
    """Milliseconds since 1970, rounded up: Kafka's timestamps have no smaller parts."""
    return -((_EPOCH - time) // timedelta(milliseconds=1))


def in_utc(at: int) -> str:
    """A time in milliseconds since 1970 as people read it, to the second. Years beyond 9999 have a sign, as in ISO 8601."""
    return _written(at, " ") + "Z"


def in_iso(at: int) -> str:
    """A time in milliseconds since 1970 as other programs read it: ISO 8601 in UTC, with its microseconds where it has any."""
    return f"{_written(at, 'T')}{f'.{at % 1000:03}000' if at % 1000 else ''}Z"


def _written(at: int, between: str) -> str:
    """A time to the second. Messages may say any number of 64 bits, and a `datetime` ends with the year 9999."""
    cycles, rest = divmod(at, _CYCLE_MS)
    moment = _EPOCH + timedelta(milliseconds=rest)
    year = moment.year + 400 * cycles
    return f"{f'{year:04}' if 0 <= year <= 9999 else f'{year:+05}'}-{moment:%m-%d}{between}{moment:%H:%M:%S}"


def two_readings(number: float) -> str:
    """The message for a number where a time is expected: what it would be in seconds, and in milliseconds."""
    readings = []
    for unit, divisor in (("seconds", 1), ("milliseconds", 1000)):
        with suppress(ValueError, OverflowError, OSError):
            readings.append(f"{datetime.fromtimestamp(number / divisor, UTC):%Y-%m-%dT%H:%M:%SZ} if it is {unit}")
    return f"a number is not taken as a time: {' and '.join(readings) or 'it is not a time'}; write the time itself"


def in_words(milliseconds: int) -> str:
    """The two largest units that a span has: `3 d 4 h`, `20 min`, `0 s`. Rounded down; less than nothing is nothing."""
    parts: list[str] = []
    left = max(0, milliseconds)
    for name, size in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {name}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part) or "0 s"
