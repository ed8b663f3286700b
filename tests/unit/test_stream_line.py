"""A stream in one line, and the trend of its last windows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.known_streams import KnownLog, KnownStream, tables
from tests.support.overviews import partition, shown_overview
from tests.support.streams_in_memory import LookedAt, StreamInMemory
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.views.messages.fates import Fate
from tidemark.views.overview import overview
from tidemark.views.stream_line import line_of
from tidemark.views.trend import trend

__all__ = ["tables"]


@pytest.mark.covers("U1")
def test_a_line_adds_up_what_the_partitions_say() -> None:
    far = 2**62
    line = line_of(
        shown_overview(
            partition(lag=far, retention="warning", retention_ms=3_600_000),
            partition(lag=7, retention_ms=7_200_000),
            partition(lag=None, retention=None),
            unread_since=5,
        )
    )
    # Exact beyond 2^53.
    assert (line.lag, line.partitions, line.unread_since) == (far + 7, 3, 5)
    assert (line.retention, line.retention_ms) == ("warning", 3_600_000)
    lost = line_of(shown_overview(partition(retention="lost", retention_ms=0), partition(retention="warning")))
    assert lost.retention == "lost"


@pytest.mark.covers("U1")
def test_a_line_of_a_stream_that_was_never_read() -> None:
    line = line_of(shown_overview(partition(lag=None, retention=None)))
    assert (line.lag, line.retention, line.last_commit, line.dead_letters) == (None, None, None, 0)
    assert line_of(shown_overview()).partitions == 0


@pytest.mark.covers("U1")
def test_a_line_says_what_the_last_windows_of_the_ingest_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a redrive, whose windows write them once more."""
    for name in ("open_transactions", "retention", "timestamps"):
        monkeypatch.setattr(KnownLog, name, getattr(LookedAt, name), raising=False)
    world = KnownStream(tmp_path, [Fate.STORED, Fate.DEAD_LETTER, Fate.DEAD_LETTER])
    for end in (2, 3):
        world.ends((0, end))
        world.ingest(f"run {end}")
    line = line_of(overview(world.opened))
    assert (line.dead_letters, line.windows) == (2, 2)
    assert (line.last_commit.window, line.last_commit.run) == (2, "run 3")
    world.replay("dag/redrive", (1, 3))
    assert line_of(overview(world.opened)) == line


def test_the_trend_of_the_last_windows(tmp_path: Path) -> None:
    orders = StreamInMemory(tmp_path)
    for end in (10, 30, 60):
        orders.ends((0, end), (0, 5))
        orders.ingest()
    head = orders.opened.ledger.head(INGEST)
    assert head is not None
    found = trend(newest_of_lane(orders.opened.ledger, INGEST, head.head, 2))
    assert [(one.window, one.lag, one.dead_letters) for one in found.windows] == [(2, 0, 0), (3, 0, 0)]
    assert all(one.seconds is not None for one in found.windows)
