"""The rate of a replay or backfill: how large its windows are, and how long it waits between them."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.ledger.records import LaneKind
from tidemark.runs.windows import ingest, lanes, pacing
from tidemark.runs.windows.pacing import USUAL_RECORDS, WINDOW_SECONDS, most_records, seconds_to_wait

RATES = st.integers(1, 10**7)


@given(rate=RATES, windows=st.lists(st.tuples(st.integers(0, 10**9), st.floats(0, 10**4)), min_size=1))
def test_no_beginning_of_a_job_is_faster_than_its_rate(rate: int, windows: list[tuple[int, float]]) -> None:
    """At the time when a window begins, the windows before it have taken no more than the rate allows."""
    read = accumulate(number for number, _ in windows)
    times = accumulate(seconds + seconds_to_wait(number, seconds, rate) for number, seconds in windows)
    for number, time in zip(read, times, strict=True):
        assert number <= rate * time * (1 + 1e-9) + 1e-6


@given(rate=RATES, number=st.integers(0, 10**9), seconds=st.floats(0, 10**6))
def test_a_wait_is_no_longer_than_needed(rate: int, number: int, seconds: float) -> None:
    waited = seconds_to_wait(number, seconds, rate)
    assert waited == 0 if number <= rate * seconds else waited == number / rate - seconds
    assert seconds_to_wait(number, seconds, None) == 0


@given(rate=RATES, number=st.integers(0, 10**9), back=st.floats(0, 10**9))
def test_a_clock_that_is_set_back_lets_no_window_wait_for_it(rate: int, number: int, back: float) -> None:
    assert seconds_to_wait(number, -back, rate) == number / rate


@given(rate=st.one_of(st.none(), RATES), most=st.one_of(st.none(), st.integers(1, 10**9)))
def test_a_window_has_a_minute_of_the_rate_or_max_records(rate: int | None, most: int | None) -> None:
    found = most_records(most, rate)
    assert found <= (USUAL_RECORDS if most is None else most)
    assert rate is None or found <= rate * WINDOW_SECONDS
    assert found in (USUAL_RECORDS if most is None else most, rate and rate * WINDOW_SECONDS)


@pytest.mark.parametrize(
    ("more", "expected"), [("", [(0, 60), (60, 100)]), ("  max_records: 70\n", [(0, 60), (60, 100)])]
)
def test_a_replay_takes_a_minute_of_its_rate_at_a_time_and_the_ingest_takes_all(
    tmp_path: Path, more: str, expected: list[tuple[int, int]]
) -> None:
    made = StreamInMemory(tmp_path, text=TEXT)
    made.ends((0, 100))
    made.ingest()
    limited = StreamInMemory(tmp_path, made.kafka, f"{TEXT}limits:\n  max_records_per_second: 1\n{more}")
    limited.store.values.update(made.store.values)
    lane = claim_lane(limited.opened, LaneKind.REPLAY, "run", offsets((0, 0, 100)), "bug 17")
    read = []
    while (pending := lanes.plan_lane(limited.opened, lane, "run")) is not None:
        read += [(one.start, one.until) for one in pending.window.ranges]
        limited.process(lane, "run")
    assert read == expected
    limited.ends((0, 170))
    if not more:
        pinned = ingest.plan_ingest(limited.opened, "run")
        assert pinned is not None
        assert [(one.start, one.until) for one in pinned.window.ranges] == [(100, 170)]


def test_a_replay_is_bounded_also_where_the_stream_file_does_not_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = StreamInMemory(tmp_path, text=TEXT)
    made.ends((0, 100))
    made.ingest()
    monkeypatch.setattr(pacing, "USUAL_RECORDS", 60)
    lane = claim_lane(made.opened, LaneKind.REPLAY, "run", offsets((0, 0, 100)), "bug 17")
    read = []
    while (pending := lanes.plan_lane(made.opened, lane, "run")) is not None:
        read.append(pending.window.hull().count())
        made.process(lane, "run")
    assert read == [60, 40]
