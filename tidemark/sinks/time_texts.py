"""Times and dates as the text that Spark writes into HBase; also those that Python's cannot hold."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar repeats after this time, including the days of the week.
_YEARS, _DAYS = 400, 146_097
_DAY = 86_400 * 1_000_000
_CYCLE = _DAYS * _DAY
_TIME = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def time_text(microseconds: int) -> str:
    """A time since 1970 as Spark writes it.

    Fractions of a second appear only if there are any. Years have four digits, or a sign.
    """
    cycles, rest = divmod(microseconds, _CYCLE)
    at = _EPOCH + timedelta(microseconds=rest)
    year = at.year + cycles * _YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{at:%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")


def date_text(days: int) -> str:
    """A date, as days since 1970, as Spark writes it."""
    return time_text(days * _DAY).partition(" ")[0]


def micros_of(text: str) -> int:
    """The time since 1970 of a text; also of times that Python's dates cannot hold. Raises ValueError."""
    parts = _TIME.fullmatch(text)
    if parts is None:
        raise ValueError(f"not a time of Spark: {text!r}")
    year, month, day, hour, minute, second = map(int, parts.groups()[:6])
    cycles, within = divmod(year - 1970, _YEARS)
    at = datetime(1970 + within, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    seconds = (cycles * _DAYS + at.days) * 86_400 + at.seconds
    return seconds * 1_000_000 + int((parts.group(7) or "").ljust(6, "0"))


def date_of(text: str) -> int:
    """The days since 1970 of a date. Raises ValueError."""
    return micros_of(f"{text} 00:00:00") // _DAY
