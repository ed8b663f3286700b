"""The windows of a lane, a page at a time: the same number of reads, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, offsets
from tidemark.ledger.records import INGEST, LaneKind
from tidemark.ledger.stores.contract import Key
from tidemark.runs.windows import lanes
from tidemark.views import windows_of_lane as windows_of_lane_module
from tidemark.views.overview import overview
from tidemark.views.windows_of_lane import WindowFilter, WindowsOfLane, windows_of_lane


def made_of(folder: Path, windows: int) -> StreamInMemory:
    made = StreamInMemory(folder, LookedAt(), text=f"{TEXT}limits: {{max_records: 10}}\n")
    made.ends((0, 10 * windows))
    for number in range(windows):
        made.ingest(f"run {number}")
    return made


def found(made: StreamInMemory, **asked: Any) -> WindowsOfLane:
    shown = windows_of_lane(made.opened, INGEST, **asked)
    assert shown is not None
    return shown


def reads_of(made: StreamInMemory, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many values each read of several asks for, from now on."""
    read: list[int] = []
    several = made.store.read_several

    def noted(keys: Sequence[Key]) -> list[bytes | None]:
        read.append(len(keys))
        return several(keys)

    monkeypatch.setattr(made.store, "read_several", noted)
    return read


@pytest.mark.covers("U23")
@pytest.mark.parametrize("windows", [30, 300])
def test_a_page_reads_what_it_shows_however_many_windows_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    made = made_of(tmp_path, windows)
    read = reads_of(made, monkeypatch)
    newest = found(made, count=10)
    assert [one.seq for one in newest.windows] == list(range(windows, windows - 10, -1))
    assert (newest.of, newest.below) == (windows, windows + 1)
    assert sum(read) <= 10
    older = found(made, below=newest.windows[-1].seq, count=10)
    assert [one.seq for one in older.windows] == list(range(windows - 10, windows - 20, -1))
    assert (older.windows[0].lane, older.windows[0].state) == (INGEST, "committed")
    first = found(made, below=3, count=10)
    assert ([one.seq for one in first.windows], first.below) == ([2, 1], 3)
    assert found(made, below=1).windows == []
    assert [one.seq for one in found(made, below=10**9, count=1).windows] == [windows]


@pytest.mark.covers("U23")
def test_windows_before_a_time_are_found_by_halving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = made_of(tmp_path, 200)
    times = [one.at for one in reversed(found(made, count=100).windows)]
    read = reads_of(made, monkeypatch)
    middle = times[50]
    shown = found(made, until=middle, count=5)
    assert all(one.at < middle for one in shown.windows)
    assert len(read) < 12
    assert found(made, until=0).windows == []
    assert found(made, until=times[-1] + 1, count=1).windows[0].seq == 200


@pytest.mark.covers("U23")
def test_windows_of_a_run_are_looked_for_a_bounded_number_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windows_of_lane_module, "MAX_LOOKED", 200)
    made = made_of(tmp_path, 300)

    def of_run(run: str, **asked: Any) -> WindowsOfLane:
        shown = windows_of_lane(made.opened, INGEST, WindowFilter(run), **asked)
        assert shown is not None
        return shown

    # Ten, and those down to 201 were looked at too.
    shown = of_run("run 29", count=10)
    assert ([one.seq for one in shown.windows], shown.looked_down_to) == (list(range(300, 290, -1)), 201)
    assert [one.seq for one in of_run("run 29", count=3).windows] == [300, 299, 298]
    assert of_run("run 29", count=3).looked_down_to == 298
    none = of_run("run 0")
    assert (none.windows, none.below, none.looked_down_to, none.of) == ([], 301, 101, 300)
    first = of_run("run 0", below=none.looked_down_to)
    assert ([one.seq for one in first.windows], first.looked_down_to) == ([1], 1)
    read = reads_of(made, monkeypatch)
    of_run("no such run")
    assert sum(read) <= 200
    assert windows_of_lane(made.opened, INGEST, WindowFilter(holding="dead letters")).windows == []  # type: ignore[union-attr]


@pytest.mark.covers("U23")
def test_a_lane_that_there_is_not_has_no_windows(tmp_path: Path) -> None:
    assert windows_of_lane(made_of(tmp_path, 1).opened, "zzz") is None


@pytest.mark.covers("U23")
@pytest.mark.parametrize("windows", [30, 300])
def test_a_window_of_which_nothing_counts_any_more_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: int
) -> None:
    """In the list of its lane and in that of the newest windows, and without reading the others."""
    made = made_of(tmp_path, windows)
    made.now += 60_000
    lane = claim_lane(made.opened, LaneKind.REPLAY, "again", offsets((0, 0, 25)), "a test")
    for _ in range(3):
        assert lanes.plan_lane(made.opened, lane, "again") is not None
        made.process(lane, "again")
    lanes.finish(made.opened, lane)
    made.erase(offsets((0, 10 * windows - 30, 10 * windows - 10), (0, 0, 10)))
    read = reads_of(made, monkeypatch)
    first = found(made, below=5, count=10).windows
    # Of the third, a replay has read half.
    assert [(one.seq, one.fate) for one in first] == [(4, None), (3, None), (2, "replaced"), (1, "erased")]
    assert sum(read) <= 64
    newest = [(one.seq, one.fate) for one in found(made, count=4).windows]
    assert newest == [(windows, None), (windows - 1, "erased"), (windows - 2, "erased"), (windows - 3, None)]
    shown = {(one.lane, one.seq): one.fate for one in overview(made.opened).windows}
    assert shown[INGEST, windows - 1] == "erased"
    assert shown[INGEST, windows] is None
    assert {shown[lane, number] for number in (2, 3)} == {None}
    assert shown[lane, 1] == "erased"
