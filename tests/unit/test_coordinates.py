"""How people write coordinates and ranges."""

from __future__ import annotations

import pytest

from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import parse_coordinates, parse_ranges
from tidemark.offsets.ranges import OffsetRange, TopicPartition


def test_records_one_a_line() -> None:
    text = "logs/3@17\n\n# a comment\nlogs.eu_1,0 , 0   # the first\n"
    found = [(one.partition, one.offset) for one in parse_coordinates(text)]
    assert found == [(TopicPartition("logs", 3), 17), (TopicPartition("logs.eu_1", 0), 0)]


def test_ranges_one_a_line() -> None:
    assert parse_ranges("logs/0@5-9") == [OffsetRange(TopicPartition("logs", 0), 5, 9)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("logs/3@17\nlogs/3@", "line 2: 'logs/3@' is not a coordinate"),
        ("logs/-1@5", "line 1"),
        ("logs/0@-5", "line 1"),
        ("logs 0 5", "line 1"),
        ("lo:gs/0@5", "line 1"),
        ("../0@5", "is not a topic name"),
        ("a" * 250 + "/0@5", "line 1"),
        ("logs/0@9223372036854775807", "beyond Kafka's numbers"),
        ("logs/2147483648@0", "beyond Kafka's numbers"),
        ("logs/0@99999999999999999999", "line 1"),
    ],
)
def test_what_is_no_coordinate_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(WrongUse, match=said):
        parse_coordinates(text)


@pytest.mark.covers("A03")
def test_a_range_from_a_negative_offset_is_refused() -> None:
    with pytest.raises(WrongUse, match="line 1: 'logs/0@-99-5' is not a coordinate") as caught:
        parse_ranges("logs/0@-99-5")
    assert caught.value.exit_code == 2


@pytest.mark.covers("A26")
def test_a_range_that_runs_backwards_is_refused() -> None:
    with pytest.raises(WrongUse, match="from 3 until 1"):
        parse_ranges("logs/0@3-1")
