"""Stored texts as values: each value that Spark writes is found again, and no other text is taken for it."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.offsets.hashing import Value
from tidemark.sinks.time_texts import time_text
from tidemark.sinks.values import value_of
from tidemark.types.fields import FieldType

LONGS = st.integers(-(2**63), 2**63 - 1)
# Spark's times have at most six digits of years.
TIMES = st.integers(-62_167_219_200_000_000 * 100, 253_402_300_800_000_000 * 30)


@given(LONGS)
def test_whole_numbers(number: int) -> None:
    assert value_of("integer", str(number).encode()) == number


@given(TIMES)
@example(-1)
@example(0)
@example(253_402_300_800_000_000)
def test_times(microseconds: int) -> None:
    assert value_of("timestamp", time_text(microseconds).encode()) == microseconds


@pytest.mark.parametrize(
    ("kind", "stored", "value"),
    [
        ("string", b"12", b"12"),
        ("binary", b"\xff", b"\xff"),
        ("boolean", b"true", True),
        ("boolean", b"false", False),
        ("double", b"1.0E10", 1e10),
        ("double", b"-4.9E-324", -5e-324),
        ("double", b"-Infinity", -math.inf),
        ("integer", None, None),
    ],
)
def test_other_values(kind: FieldType, stored: bytes | None, value: Value) -> None:
    assert value_of(kind, stored) == value


def test_no_number() -> None:
    found = value_of("double", b"NaN")
    assert isinstance(found, float)
    assert math.isnan(found)


@pytest.mark.parametrize(
    ("kind", "damaged"),
    [
        ("integer", b"007"),
        ("integer", b"+7"),
        ("integer", b" 7"),
        ("integer", b"1_000"),
        ("integer", b"9223372036854775808"),
        ("integer", b""),
        ("integer", b"\xd9\xa7"),
        ("boolean", b"True"),
        ("double", b"1"),
        ("double", b"inf"),
        ("double", b"1.0e10"),
        ("timestamp", b"2026-11-21"),
        ("timestamp", b"2026-11-21T07:10:00"),
        ("timestamp", b"2026-11-21 07:10:00.250"),
        ("timestamp", b"2026-13-21 07:10:00"),
        ("timestamp", b"2026-02-29 07:10:00"),
        ("timestamp", b"\xff"),
    ],
)
def test_what_spark_does_not_write_is_its_own_bytes(kind: FieldType, damaged: bytes) -> None:
    assert value_of(kind, damaged) == damaged
    assert isinstance(value_of(kind, damaged), bytes)
