"""Times of files as the text that Spark writes into HBase; also those that Python's dates cannot hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The calendar repeats after this time, including the days of the week.
_YEARS = 400
_CYCLE = 146_097 * 86_400 * 1_000_000


def with_texts(table: pa.Table) -> pa.Table:
    """The same table with its times as texts, in UTC."""
    for number, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = table.column(number).cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            texts = pa.array([None if at is None else time_text(at) for at in times.to_pylist()], pa.string())
            table = table.set_column(number, field.name, texts)
    return table


def time_text(microseconds: int) -> str:
    """A time since 1970 as Spark writes it.

    Fractions of a second appear only if there are any. Years have four digits, or a sign.
    """
    cycles, rest = divmod(microseconds, _CYCLE)
    at = _EPOCH + timedelta(microseconds=rest)
    year = at.year + cycles * _YEARS
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04}-{at:%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
