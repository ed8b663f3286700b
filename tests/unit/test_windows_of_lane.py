"""The windows of a lane, a page at a time: the same number of reads, however many there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.streams_in_memory import TEXT, StreamInMemory
from tidemark.ledger.records import INGEST
from tidemark.ledger.stores.contract import Key
from tidemark.views.windows_of_lane import WindowsOfLane, windows_of_lane


def made_of(folder: Path, windows: int) -> StreamInMemory:
    made = StreamInMemory(folder, text=f"{TEXT}limits: {{max_records: 10}}\n")
    made.ends((0, 10 * windows))
    for number in range(windows):
        made.ingest(f"run {number}")
    return made


def found(made: StreamInMemory, **asked: int) -> WindowsOfLane:
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
def test_a_lane_that_there_is_not_has_no_windows(tmp_path: Path) -> None:
    assert windows_of_lane(made_of(tmp_path, 1).opened, "zzz") is None
