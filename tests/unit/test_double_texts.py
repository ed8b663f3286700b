"""Doubles as text: one value has one text, in whichever sink it is stored and whoever reads it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.sinks.double_texts import double_text
from tidemark.sinks.texts import of_file
from tidemark.sinks.values import value_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.5, "1.5"),
        (100.0, "100.0"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (9_999_999.5, "9999999.5"),
        (1e7, "1.0E7"),
        (-12_345_678.0, "-1.2345678E7"),
        (1e16, "1.0E16"),
        (1e23, "1.0E23"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (5e-324, "4.9E-324"),
        (-1e-323, "-9.9E-324"),
        (2e-3, "0.002"),
    ],
)
def test_what_spark_writes(value: float, text: str) -> None:
    assert double_text(value) == text
    row = {"_topic": "t", "_partition": 0, "_incarnation": 1, "_offset": 5, "_index": 0, "amount": value}
    assert of_file(row)["fields"] == {"amount": text}


def test_a_field_that_begins_with_an_underscore_is_shown() -> None:
    """Debezium's `__deleted`, and MongoDB's `_id`: files had them, and `tidemark results` left them out."""
    own = {"_topic": "a", "_partition": 0, "_incarnation": 1, "_offset": 5, "_index": 0, "_digest": 7, "_generation": 9}
    assert of_file({**own, "_id": "o1", "__deleted": "true", "n": None})["fields"] == {"_id": "o1", "__deleted": "true"}


@given(st.floats())
def test_a_text_is_that_of_one_value(value: float) -> None:
    found = value_of("double", double_text(value).encode())
    assert isinstance(found, float)
    assert found == value or (math.isnan(found) and math.isnan(value))
    assert math.isnan(value) or math.copysign(1, found) == math.copysign(1, value)
