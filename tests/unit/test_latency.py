"""The latency alarm: raised by several late windows in a row, cleared by the first one in time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.streams_in_memory import StreamInMemory
from tidemark.ledger.records import Record
from tidemark.offsets.tallies import PartitionTally
from tidemark.views.latency import Latency, latencies, latency_shown, raised

MINUTE = 60_000


@pytest.mark.covers("A52")
def test_three_late_windows_raise_the_alarm_and_one_in_time_clears_it() -> None:
    seen: list[int] = []
    alarms = []
    for minutes in (6, 7, 10, 5):
        seen.append(minutes * MINUTE)
        alarms.append(latency_shown(seen, 5, 3).alarm)
    assert alarms == [False, False, True, False]
    assert latency_shown(seen[:3], 5, 3).sentence == (
        "the last 3 windows were late: 6 min, 7 min, 10 min; the limit is 5 min"
    )


def test_without_a_limit_there_is_no_alarm() -> None:
    assert latency_shown([9 * MINUTE] * 5, None, 3) == Latency(
        last_ms=9 * MINUTE, limit_ms=None, alarm=None, sentence=None
    )
    assert latency_shown([], 5, 3) == Latency(None, 5 * MINUTE, alarm=False, sentence=None)


@given(st.lists(st.integers(0, 9)), st.integers(0, 9), st.integers(1, 5))
def test_the_alarm_is_raised_when_none_of_the_last_windows_was_in_time(
    seen: list[int], limit: int, windows: int
) -> None:
    expected = len(seen) >= windows and all(one > limit for one in seen[len(seen) - windows :])
    assert raised(seen, limit, windows) == expected


def tallied(record: Record, *first_timestamps: int | None) -> Record:
    tallies = tuple(
        PartitionTally(topic="orders", incarnation=1, partition=number, first_timestamp=at)
        for number, at in enumerate(first_timestamps)
    )
    assert record.receipt is not None
    return structs.replace(record, receipt=structs.replace(record.receipt, tallies=tallies))


def test_a_windows_latency_is_that_of_its_oldest_message(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path)
    records = []
    for number in range(1, 5):
        made.ends((0, 10 * number))
        made.now = number * 100 * MINUTE
        record = made.ingest(f"run {number}")
        assert record is not None
        records.append(record)
    first, second, third, fourth = records
    found = [
        tallied(fourth, fourth.committed_at + 5),
        tallied(first, first.committed_at - 7, None, first.committed_at - 90),
        tallied(second, second.committed_at - 3),
        # Nothing in it has a timestamp.
        tallied(third, None),
    ]
    assert latencies(found) == [90, 3, 0]
