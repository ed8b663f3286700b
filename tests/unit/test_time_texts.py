"""Times as text: as Spark casts them, over all that 64 bits of microseconds hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.sinks.column_texts import with_texts
from tidemark.sinks.time_texts import time_text


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [
        (0, "1970-01-01 00:00:00"),
        (1, "1970-01-01 00:00:00.000001"),
        (-1, "1969-12-31 23:59:59.999999"),
        (1_795_245_000_500_000, "2026-11-21 07:10:00.5"),
        (253_402_300_799_999_999, "9999-12-31 23:59:59.999999"),
        (253_402_300_800_000_000, "+10000-01-01 00:00:00"),
        (2**63 - 1, "+294247-01-10 04:00:54.775807"),
        (-62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
        (-62_167_219_200_000_001, "-0001-12-31 23:59:59.999999"),
    ],
)
def test_what_spark_writes(microseconds: int, text: str) -> None:
    assert time_text(microseconds) == text


@given(st.datetimes(timezones=st.just(UTC)))
def test_as_python_writes_the_times_that_it_has(at: datetime) -> None:
    since = (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert time_text(since) == at.replace(tzinfo=None).isoformat(" ", "microseconds").rstrip("0").rstrip(".")


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", ["UTC", None])
def test_only_the_times_of_a_table_change(unit: str, zone: str | None) -> None:
    table = pa.table({"id": [1, 2], "at": pa.array([0, None], pa.timestamp(unit, zone)), "text": ["a", None]})
    assert with_texts(table).to_pylist() == [
        {"id": 1, "at": "1970-01-01 00:00:00", "text": "a"},
        {"id": 2, "at": None, "text": None},
    ]
