"""A field's value from the text that HBase stores for it: what digests are computed from."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from tidemark.functions.types import FieldType
from tidemark.offsets.hashing import Value
from tidemark.sinks.time_texts import time_text

_DOUBLE = re.compile(rb"-?\d+\.\d+(E-?\d+)?|NaN|-?Infinity")
_TIME = re.compile(r"([+-]?\d{4,})-(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?")
_BOOLEANS = {b"true": True, b"false": False}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar repeats after so many years.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097
_MICROSECONDS = 1_000_000


def value_of(kind: FieldType, stored: bytes | None) -> Value:
    """The value of a stored text in Spark's form for its type. A text that Spark does not write is its own bytes.

    So a stored value that was damaged has another digest, even where it could be read as the same number.
    """
    if stored is None or kind in ("string", "binary"):
        return stored
    if kind == "boolean":
        return _BOOLEANS.get(stored, stored)
    if kind == "double":
        return float(stored) if _DOUBLE.fullmatch(stored) else stored
    try:
        found = int(stored) if kind == "integer" else _microseconds(stored.decode())
    except ValueError:
        return stored
    return found if _is_text_of(found, kind, stored) else stored


def _is_text_of(found: int, kind: FieldType, stored: bytes) -> bool:
    return stored == (b"%d" % found if kind == "integer" else time_text(found).encode()) and -(2**63) <= found < 2**63


def _microseconds(text: str) -> int:
    """Since 1970; also of times that Python's dates cannot hold. Raises ValueError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"not a time of Spark: {text!r}")
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    cycles, within = divmod(year - 1970, _CYCLE_YEARS)
    at = datetime(1970 + within, month, day, hour, minute, second, tzinfo=UTC) - _EPOCH
    seconds = (cycles * _CYCLE_DAYS + at.days) * 86_400 + at.seconds
    return seconds * _MICROSECONDS + int((found.group(7) or "").ljust(6, "0"))
