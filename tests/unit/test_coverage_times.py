"""The coverage picture by event time: which offsets of an hour are where, against what each offset is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.clients.kafka.topics import TopicLog
from tidemark.errors import Conflict, WrongUse
from tidemark.views.coverage.times import MAX_COLUMNS, CellInTime, TimeRequest, coverage_times, grid_of
from tidemark.views.coverage.window_index import WindowIndex

HOUR = 3_600_000


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StreamInMemory:
    """Six messages an hour from 1970 on: 30 of them, of which an ingest has read 20, and none in the fourth hour.

    The first two were deleted before anybody has read them, and of the next two, too late.
    """
    stream = StreamInMemory(tmp_path, text=f"{TEXT}limits: {{max_records: 10}}\n")
    times = [number * 600_000 + (HOUR if number >= 18 else 0) for number in range(30)]

    def first(logs: Mapping[str, TopicLog], ms: int, isolation: str) -> dict[tuple[str, int], int | None]:
        asked.append(ms)
        return {("orders", 0): next((at for at, time in enumerate(times) if time >= ms), None)}

    monkeypatch.setattr(stream.opened.log, "first_at_or_after", first)
    stream.ends((2, 20))
    stream.ingest()
    stream.ingest()
    stream.ends((4, 30))
    asked.clear()
    return stream


asked: list[int] = []


def cells(made: StreamInMemory, **of: Any) -> list[CellInTime]:
    index = WindowIndex()
    index.refresh(made.opened.ledger)
    (row,) = coverage_times(made.opened, index, grid_of(made.opened, TimeRequest(**of))).rows
    assert row.partition == "orders/0"
    return row.cells


@pytest.mark.covers("U29")
def test_each_hour_has_the_states_of_its_offsets(made: StreamInMemory) -> None:
    found = cells(made, since=0, until=6 * HOUR)
    assert [(one.column, one.start, one.until, one.state, one.states) for one in found] == [
        (0, 0, 6, "expired", {"expired": 2, "ingest": 4}),
        (1, 6, 12, "ingest", {"ingest": 6}),
        (2, 12, 18, "ingest", {"ingest": 6}),
        # The fourth has none.
        (4, 18, 24, "ingest", {"ingest": 2, "unread": 4}),
        (5, 24, 30, "unread", {"unread": 6}),
    ]
    days = cells(made, step="day", since=0, until=24 * HOUR)
    assert [(one.start, one.until, one.states) for one in days] == [(0, 30, {"expired": 2, "ingest": 18, "unread": 10})]
    # Times within a column are its beginning and its end.
    assert cells(made, since=HOUR + 1, until=2 * HOUR - 1) == [CellInTime(0, "ingest", 6, 12, {"ingest": 6})]


@pytest.mark.covers("U29")
def test_where_nothing_lies_kafka_is_not_asked_for_each_hour(made: StreamInMemory) -> None:
    assert [one.column for one in cells(made, since=0, until=150 * HOUR)] == [0, 1, 2, 4, 5]
    assert len(asked) < 30


@pytest.mark.covers("U29")
def test_a_grid_has_bounds(made: StreamInMemory) -> None:
    for since, until in ((0, (MAX_COLUMNS + 1) * HOUR), (5 * HOUR, HOUR)):
        with pytest.raises(WrongUse, match="expected 1 to 192 columns"):
            grid_of(made.opened, TimeRequest(since=since, until=until))
    # Without times, those that the last window has read, unless they lie in the future.
    grid = grid_of(made.opened, TimeRequest())
    assert (grid.until - grid.since, grid.until % HOUR, grid.since >= 0) == (min(48 * HOUR, grid.until), 0, True)


@pytest.mark.covers("U29")
def test_a_topic_that_is_made_anew_meanwhile_has_no_picture(
    made: StreamInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made.opened.log
    before = log.first_at_or_after

    def meanwhile(logs: Mapping[str, TopicLog], ms: int, isolation: str) -> dict[tuple[str, int], int | None]:
        made.kafka.ids["orders"] = "another"  # type: ignore[attr-defined]
        return before(logs, ms, isolation)

    monkeypatch.setattr(log, "first_at_or_after", meanwhile)
    with pytest.raises(Conflict, match="created again"):
        grid_of(made.opened, TimeRequest(since=0, until=HOUR))
