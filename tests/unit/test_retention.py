"""When retention deletes the next unread offset, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidemark.clients.kafka.retention import (
    Forecast,
    PartitionSnapshot,
    Reason,
    RetentionSettings,
    RetentionState,
    SeenPartition,
    alarm,
    forecast,
    forecast_cell,
)
from tidemark.offsets.times import in_words

HOUR = 3_600_000
NOW = PartitionSnapshot(at=1_000 * HOUR, start=100, end=300, position=200)
FOREVER = RetentionSettings(None, None)
SEEN = SeenPartition(NOW, settings=FOREVER)


def ahead(seen: SeenPartition, warn_hours: int = 24) -> Forecast:
    return forecast(seen, warn_hours * HOUR)


def earlier(hours: int, start: int, end: int, position: int) -> PartitionSnapshot:
    return PartitionSnapshot(NOW.at - hours * HOUR, start, end, position)


def test_a_topic_that_keeps_everything_is_safe() -> None:
    assert ahead(SEEN) == Forecast(RetentionState.SAFE)


def test_by_time_it_is_not_before_the_message_at_the_position_is_too_old() -> None:
    week = replace(SEEN, settings=RetentionSettings(168 * HOUR, None))
    assert ahead(replace(week, timestamp=NOW.at - 100 * HOUR)) == Forecast(RetentionState.SAFE, 68 * HOUR, Reason.TIME)
    assert ahead(replace(week, timestamp=NOW.at - 144 * HOUR)) == Forecast(
        RetentionState.WARNING, 24 * HOUR, Reason.TIME
    )
    assert ahead(replace(week, timestamp=NOW.at - 143 * HOUR)) == Forecast(RetentionState.SAFE, 25 * HOUR, Reason.TIME)
    # Too old already: at any moment.
    assert ahead(replace(week, timestamp=NOW.at - 400 * HOUR)) == Forecast(RetentionState.WARNING, 0, Reason.TIME)
    assert ahead(replace(week, timestamp=NOW.at - 144 * HOUR), warn_hours=23).state == RetentionState.SAFE


def test_by_size_it_is_not_before_as_much_as_is_kept_lies_from_the_position_on() -> None:
    """200 offsets of 10 bytes; 100 of them are unread."""
    kept = replace(SEEN, settings=RetentionSettings(None, 1_500), size=2_000)
    # 5 offsets an hour come, and 50 more fit.
    assert ahead(replace(kept, before=earlier(4, 100, 280, 200))) == Forecast(
        RetentionState.WARNING, 10 * HOUR, Reason.SIZE
    )
    assert ahead(replace(kept, before=earlier(40, 100, 280, 200))) == Forecast(
        RetentionState.SAFE, 100 * HOUR, Reason.SIZE
    )
    # Nothing comes any more: nothing is deleted by size.
    assert ahead(replace(kept, before=earlier(4, 100, 300, 200))) == Forecast(RetentionState.SAFE)
    assert ahead(replace(kept, settings=RetentionSettings(None, 1_000))) == Forecast(
        RetentionState.WARNING, 0, Reason.SIZE
    )


def test_by_movement_it_is_when_the_log_start_reaches_the_position() -> None:
    """100 offsets between them, and the log start gains 10 an hour."""
    assert ahead(replace(SEEN, before=earlier(4, 60, 290, 200))) == Forecast(
        RetentionState.WARNING, 10 * HOUR, Reason.MOVEMENT
    )
    assert ahead(replace(SEEN, before=earlier(4, 50, 290, 190))) == Forecast(
        RetentionState.WARNING, 10 * HOUR, Reason.MOVEMENT
    )
    # As fast as the other, or slower: never.
    assert ahead(replace(SEEN, before=earlier(4, 60, 290, 160))) == Forecast(RetentionState.SAFE)
    assert ahead(replace(SEEN, before=earlier(4, 90, 290, 120))) == Forecast(RetentionState.SAFE)


def test_the_soonest_is_the_forecast() -> None:
    both = replace(SEEN, settings=RetentionSettings(168 * HOUR, None), timestamp=NOW.at - 150 * HOUR)
    assert ahead(both).reason == Reason.TIME
    assert ahead(replace(both, before=earlier(4, 60, 290, 200))) == Forecast(
        RetentionState.WARNING, 10 * HOUR, Reason.MOVEMENT
    )


def test_what_cannot_be_told_is_unknown_and_never_safe() -> None:
    assert ahead(SeenPartition(NOW)) == Forecast(RetentionState.UNKNOWN, None, Reason.TIME)
    assert ahead(replace(SEEN, settings=RetentionSettings(HOUR, None))) == Forecast(
        RetentionState.UNKNOWN, None, Reason.TIME
    )
    assert ahead(replace(SEEN, settings=RetentionSettings(None, 10_000), size=2_000)).reason == Reason.SIZE
    # A log start that stood still so far says nothing of what will come.
    assert ahead(SeenPartition(NOW, before=earlier(4, 100, 290, 190))).state == RetentionState.UNKNOWN
    assert ahead(SeenPartition(NOW, before=earlier(4, 60, 290, 200))).state == RetentionState.WARNING
    # A log that ends below the position was truncated.
    assert ahead(replace(SEEN, now=replace(NOW, end=199))).state == RetentionState.UNKNOWN


def test_what_is_deleted_already_is_lost_and_named() -> None:
    now = replace(NOW, start=205)
    assert ahead(replace(SEEN, now=now)) == Forecast(RetentionState.LOST, 0)
    assert (
        alarm("logs/0", now, Forecast(RetentionState.LOST, 0))
        == "logs/0@200-205: Kafka has deleted it before it was read"
    )


def test_an_alarm_says_what_may_happen_and_when() -> None:
    soon = Forecast(RetentionState.WARNING, 10 * HOUR, Reason.TIME)
    assert alarm("logs/0", NOW, soon) == (
        "logs/0: retention.ms may delete offset 200, the next unread one, in 10 h, not before"
    )
    assert "retention.bytes may delete" in str(alarm("logs/0", NOW, replace(soon, reason=Reason.SIZE)))
    assert "reaches offset 200, the next unread one, in 10 h" in str(
        alarm("logs/0", NOW, replace(soon, reason=Reason.MOVEMENT))
    )
    assert alarm("logs/0", NOW, Forecast(RetentionState.SAFE, 100 * HOUR, Reason.TIME)) is None


def test_a_forecast_in_a_table() -> None:
    assert forecast_cell(Forecast(RetentionState.WARNING, 10 * HOUR, Reason.TIME)) == "warning: 10 h (time)"
    assert forecast_cell(Forecast(RetentionState.LOST, 0)) == "lost"
    assert forecast_cell(Forecast(RetentionState.SAFE)) == "safe"
    assert forecast_cell(Forecast(RetentionState.UNKNOWN, None, Reason.SIZE)) == "unknown"


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [(0, "0 s"), (999, "0 s"), (61_000, "1 min 1 s"), (3 * HOUR + 59_000, "3 h"), (76 * HOUR, "3 d 4 h"), (-5, "0 s")],
)
def test_a_span_in_words(milliseconds: int, said: str) -> None:
    assert in_words(milliseconds) == said


OFFSETS = st.integers(0, 10_000)


@st.composite
def seen_partitions(draw: st.DrawFn) -> SeenPartition:
    start, position, end = sorted(draw(st.tuples(OFFSETS, OFFSETS, OFFSETS)))
    now = PartitionSnapshot(draw(st.integers(1_000, 10**7)), start, end, position)
    earlier_start, earlier_position, earlier_end = sorted(draw(st.tuples(OFFSETS, OFFSETS, OFFSETS)))
    before = PartitionSnapshot(draw(st.integers(0, 10**7)), earlier_start, earlier_end, earlier_position)
    numbers = st.none() | st.integers(0, 10**7)
    return SeenPartition(
        now,
        draw(st.none() | st.just(before)),
        draw(st.none() | st.builds(RetentionSettings, numbers, numbers)),
        draw(numbers),
        draw(numbers),
    )


@given(seen_partitions(), st.integers(0, 10**7))
def test_a_forecast_is_never_negative_and_a_warning_always_says_when_and_why(seen: SeenPartition, warn_ms: int) -> None:
    found = forecast(seen, warn_ms)
    assert found.in_ms is None or found.in_ms >= 0
    if found.state == RetentionState.WARNING:
        assert found.in_ms is not None
        assert found.in_ms <= warn_ms
        assert found.reason is not None
    elif found.state == RetentionState.SAFE and found.in_ms is not None:
        assert found.in_ms >= warn_ms


@given(seen_partitions(), st.integers(0, 10**7))
def test_a_position_at_the_end_of_the_log_is_safe(seen: SeenPartition, warn_ms: int) -> None:
    at_end = replace(seen, now=replace(seen.now, position=seen.now.end))
    assert forecast(at_end, warn_ms) == Forecast(RetentionState.SAFE)


@given(seen_partitions(), st.integers(1, 10_000))
def test_a_faster_log_start_never_lengthens_the_forecast(seen: SeenPartition, faster: int) -> None:
    assume(seen.before is not None)
    assert seen.before is not None
    slower = forecast(seen, 10**12).in_ms
    quick = forecast(replace(seen, before=replace(seen.before, start=seen.before.start - faster)), 10**12).in_ms
    assert slower is None or (quick is not None and quick <= slower)


@given(seen_partitions(), st.integers(0, 10**6), st.integers(0, 10**7))
def test_an_older_message_is_never_safer(seen: SeenPartition, older: int, warn_ms: int) -> None:
    assume(seen.timestamp is not None)
    assert seen.timestamp is not None
    young, old = forecast(seen, warn_ms), forecast(replace(seen, timestamp=seen.timestamp - older), warn_ms)
    assert young.state != RetentionState.WARNING or old.state == RetentionState.WARNING
