"""Aggregates: states that merge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.aggregates.states import Aggregate, Function, merged

AT = TopicPartition("logs", 0)


def of(function: Function, kind: str) -> Aggregate:
    return Aggregate("x", function, None if function == "count" else "field", kind)


@pytest.mark.parametrize(
    ("function", "kind", "states", "total"),
    [
        ("count", "integer", [b"3", b"4"], b"7"),
        # More than 64 bits.
        ("sum", "integer", [b"9223372036854775807", b"9223372036854775807", b"-1"], b"18446744073709551613"),
        ("sum", "double", [b"0.5", b"1.0E10"], b"1.00000000005E10"),
        ("sum", "double", [b"NaN", b"1.0"], b"NaN"),
        ("sum", "double", [b"Infinity", b"1.0"], b"Infinity"),
        # Which of them comes first is chance.
        ("max", "double", [b"-0.0", b"0.0"], b"0.0"),
        ("max", "double", [b"0.0", b"-0.0"], b"0.0"),
        ("min", "double", [b"-0.0"], b"0.0"),
        ("min", "integer", [b"10", b"9", b"-3"], b"-3"),
        ("max", "integer", [b"10", b"9"], b"10"),
        # As Spark: NaN is larger than all numbers.
        ("min", "double", [b"NaN", b"Infinity", b"2.0"], b"2.0"),
        ("max", "double", [b"1.0", b"NaN", b"Infinity"], b"NaN"),
        ("max", "string", [b"z", "é".encode()], "é".encode()),
        ("max", "timestamp", [b"2026-11-21 07:10:00", b"2026-11-21 07:10:00.5"], b"2026-11-21 07:10:00.5"),
        ("max", "timestamp", [b"2026-11-21 07:10:00.45", b"2026-11-21 07:10:00.5"], b"2026-11-21 07:10:00.5"),
        ("max", "timestamp", [b"+10000-01-01 00:00:00", b"9999-12-31 23:59:59"], b"+10000-01-01 00:00:00"),
        ("min", "timestamp", [b"-0044-03-15 00:00:00", b"0001-01-01 00:00:00"], b"-0044-03-15 00:00:00"),
        ("sum", "integer", [], None),
    ],
)  # fmt: skip
def test_states_merge(function: Function, kind: str, states: list[bytes], total: bytes | None) -> None:
    assert of(function, kind).merged(states) == total


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), min_size=1))
def test_the_total_of_contributions_is_that_of_the_rows(windows: list[list[int]]) -> None:
    aggregates = [
        Aggregate(name, name, None if name == "count" else "f", "integer") for name in ("count", "sum", "max")
    ]  # type: ignore[arg-type]
    states = [
        {"count": b"%d" % len(rows), "sum": b"%d" % sum(rows), "max": b"%d" % max(rows)} for rows in windows
    ]  # fmt: skip
    rows = [row for window in windows for row in window]
    assert merged(aggregates, states) == {
        "count": b"%d" % len(rows),
        "sum": b"%d" % sum(rows),
        "max": b"%d" % max(rows),
    }


def test_nulls_are_passed_over() -> None:
    aggregates = [of("max", "integer")]
    assert merged(aggregates, [{}, {"x": b"3"}, {}]) == {"x": b"3"}
    assert merged(aggregates, [{}, {}]) == {}
