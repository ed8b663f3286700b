"""The windows of a backfill, and their rate: over a Kafka and a ledger in memory."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.claiming import claim_lane
from tests.support.streams_in_memory import TEXT, StreamInMemory, offsets
from tidemark.cli import lanes_of_runs, stream_lookup
from tidemark.cli.commands import replay
from tidemark.errors import AnotherRequest, WrongUse
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import Head, LaneKind, Record
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import steering
from tidemark.runs.windows import ingest, lanes
from tidemark.runs.windows.pacing import WINDOW_SECONDS

RUN = "orders__backfill/manual__1"
LATER = TEXT.replace("start: earliest", "start: latest")


def limited(folder: Path, most: int, *logs: tuple[int, int]) -> StreamInMemory:
    """A stream that has read nothing of some logs, in windows of at most so many offsets."""
    made = StreamInMemory(folder, text=f"{LATER}limits:\n  max_records: {most}\n")
    made.ends(*logs)
    ingest.plan_ingest(made.opened, "the first")
    return made


def with_limits(made: StreamInMemory, limits: str) -> StreamInMemory:
    """Another process on the same ledger and the same Kafka, with other limits in its stream file."""
    return StreamInMemory(made.folder, made.kafka, f"{LATER}limits: {{{limits}}}\n", made.store)


def backfill(made: StreamInMemory, chosen: RangeSet, **more: Any) -> str:
    return claim_lane(made.opened, LaneKind.BACKFILL, RUN, chosen, "a test", **more)


def pinned(made: StreamInMemory, lane: str) -> list[tuple[int, int]]:
    pending = lanes.plan_lane(made.opened, lane, RUN)
    return [(one.start, one.until) for one in pending.window.ranges] if pending else []


def head_of(made: StreamInMemory, lane: str) -> Head:
    found = made.opened.ledger.head(lane)
    assert found is not None
    return found.head


def to_the_end(made: StreamInMemory, lane: str) -> list[Record]:
    records = []
    while lanes.plan_lane(made.opened, lane, RUN) is not None:
        records.append(made.process(lane, RUN))
    lanes.finish(made.opened, lane)
    return records


SELECTIONS = st.lists(
    st.builds(
        lambda number, start, length: (number, start, start + length), st.integers(0, 2), *[st.integers(0, 40)] * 2
    ),
    min_size=1,
).map(lambda found: offsets(*found))


@pytest.mark.slow
@pytest.mark.covers("N23")
@given(chosen=SELECTIONS.filter(bool), most=st.integers(1, 30))
@example(chosen=offsets((0, 0, 100)), most=100)
@settings(max_examples=60, deadline=None)
def test_windows_are_bounded_and_read_each_offset_once(chosen: RangeSet, most: int) -> None:
    with TemporaryDirectory() as folder:
        made = limited(Path(folder), most, *[(0, 100)] * 3)
        lane = backfill(made, chosen)
        read = RangeSet()
        reached: dict[Any, tuple[int, int]] = {}
        for record in to_the_end(made, lane):
            covers = made.opened.ledger.covers(record.window)
            # A partition gets one offset at least, however small its part of the limit is.
            assert 0 < covers.count() < most + len(covers.partitions)
            assert not covers & read
            for one in covers.hull():
                if (before := reached.get(one.partition)) is not None:
                    assert before[1] <= one.start
                reached[one.partition] = (one.start, one.until)
            read |= covers
        assert read == chosen
        assert verify(made.opened.ledger) == []


# The rate of a run


@pytest.mark.covers("N25")
def test_the_rate_of_a_run_overrides_the_files_and_is_kept_with_its_lane(tmp_path: Path) -> None:
    made = with_limits(limited(tmp_path, 10_000, (0, 1_000)), "max_records_per_second: 3")
    lane = backfill(made, offsets((0, 0, 1_000)), rate=2)
    assert (lanes.rate_of(made.opened, lane), lanes.rate_of(made.opened, "ingest")) == (2, None)
    assert pinned(made, lane) == [(0, 2 * WINDOW_SECONDS)]
    steering.cancel(made.opened, lane, "another way")
    assert all_lanes(made.opened.ledger)[lane].rate == 2
    lane = claim_lane(made.opened, LaneKind.BACKFILL, "again", offsets((0, 500, 1_000)), "a test")
    assert (lanes.rate_of(made.opened, lane), pinned(made, lane)) == (3, [(500, 500 + 3 * WINDOW_SECONDS)])
    steering.cancel(made.opened, lane, "another way")
    # Faster than the file says too.
    lane = claim_lane(made.opened, LaneKind.BACKFILL, "fast", offsets((0, 0, 900)), "a test", rate=10)
    assert pinned(made, lane) == [(0, 10 * WINDOW_SECONDS)]


@pytest.mark.covers("N25")
def test_a_command_keeps_its_rate_for_those_who_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = limited(tmp_path, 100, (0, 1_000))
    monkeypatch.setattr(stream_lookup, "opened", lambda stream: made.opened)
    # No Spark here: the lane is opened, and its first window pinned.
    monkeypatch.setattr(lanes_of_runs, "process", lambda *_, **__: None)

    def run(**options: Any) -> None:
        replay.backfill("orders", yes=True, ranges=["orders/0@0-900"], reason="bug 17", run_name=RUN, **options)

    for options, said in (({"rate": 0}, "rate: expected a number of at least 1"),):
        with pytest.raises(WrongUse, match=said):
            run(**options)
    run(rate=1)
    lane = lanes.lane_name(LaneKind.BACKFILL, RUN)
    entry = all_lanes(made.opened.ledger)[lane]
    assert (entry.rate, pinned(made, lane)) == (1, [(0, 60)])
    made.process(lane, RUN)
    # Who goes on names the run alone: the same offsets at no rate would be another request.
    with pytest.raises(AnotherRequest, match="rate was 1, and is left empty"):
        run()
    replay.backfill("orders", yes=True, run_name=RUN)
    assert "its offsets, at its rate" in capsys.readouterr().err
    assert pinned(made, lane) == [(60, 120)]
