"""A backfill or replay of the newest offsets first: over a Kafka and a ledger in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from tests.support.claiming import claim_lane
from tests.support.compactions import committed
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.cli import finding, selected
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.errors import AnotherRequest, Conflict, LedgerContradiction, OffsetsOutOfRange, WrongUse
from tidemark.ledger.book import head_key
from tidemark.ledger.closed import all_lanes
from tidemark.ledger.codec import encode
from tidemark.ledger.lookup import look_up
from tidemark.ledger.records import Head, LaneKind, Record
from tidemark.ledger.register import open_lane
from tidemark.ledger.verifying import verify
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.order import Order
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs import lanes, steering
from tidemark.runs.pacing import WINDOW_SECONDS
from tidemark.sinks.first_reads import FirstWindows
from tidemark_spark.jobs.audit import _beyond

RUN = "orders__backfill/manual__1"
LATER = TEXT.replace("start: earliest", "start: latest")


def limited(folder: Path, most: int, *logs: tuple[int, int]) -> StreamInMemory:
    """A stream that has read nothing of some logs, in windows of at most so many offsets."""
    made = StreamInMemory(folder, text=f"{LATER}limits:\n  max_records: {most}\n")
    made.ends(*logs)
    lanes.plan_ingest(made.opened, "the first")
    return made


def with_limits(made: StreamInMemory, limits: str) -> StreamInMemory:
    """Another process on the same ledger and the same Kafka, with other limits in its stream file."""
    return StreamInMemory(made.folder, made.kafka, f"{LATER}limits: {{{limits}}}\n", made.store)


def backfill(made: StreamInMemory, chosen: RangeSet, order: Order = Order.NEWEST, **more: Any) -> str:
    return claim_lane(made.opened, LaneKind.BACKFILL, RUN, chosen, "a test", order=order, **more)


def pinned(made: StreamInMemory, lane: str) -> list[tuple[int, int]]:
    pending = lanes.plan_lane(made.opened, lane, RUN)
    return [(one.start, one.until) for one in pending.window.ranges] if pending else []


def head_of(made: StreamInMemory, lane: str) -> Head:
    found = made.opened.book.head(lane)
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


@pytest.mark.covers("N23")
@given(chosen=SELECTIONS.filter(bool), most=st.integers(1, 30), order=st.sampled_from(Order))
@example(chosen=offsets((0, 0, 100)), most=100, order=Order.NEWEST)
@settings(max_examples=60, deadline=None)
def test_in_either_order_windows_are_bounded_and_read_each_offset_once(
    chosen: RangeSet, most: int, order: Order
) -> None:
    with TemporaryDirectory() as folder:
        made = limited(Path(folder), most, *[(0, 100)] * 3)
        lane = backfill(made, chosen, order)
        read = RangeSet()
        reached: dict[Any, tuple[int, int]] = {}
        for record in to_the_end(made, lane):
            covers = made.opened.book.covers(record.window)
            # At least one offset of each partition.
            assert 0 < covers.count() <= max(most, len(covers.partitions))
            assert not covers & read
            for one in covers.hull():
                if (before := reached.get(one.partition)) is not None:
                    assert one.until <= before[0] if order == Order.NEWEST else before[1] <= one.start
                reached[one.partition] = (one.start, one.until)
            read |= covers
        assert read == chosen
        assert verify(made.opened.book) == []


@pytest.mark.covers("N23")
def test_the_order_is_kept_in_the_ledger_and_another_process_goes_on_in_it(tmp_path: Path) -> None:
    made = limited(tmp_path, 4, (0, 10))
    lane = backfill(made, offsets((0, 0, 10)))
    assert pinned(made, lane) == [(6, 10)]
    # The first process dies; the second one reads what is pinned, whatever its file says.
    other = with_limits(made, "max_records: 3")
    assert pinned(other, lane) == [(6, 10)]
    other.process(lane, RUN)
    assert (pinned(other, lane), head_of(other, lane).offsets()) == ([(3, 6)], {at(0): 6})
    other.process(lane, RUN)
    with pytest.raises(Conflict, match="begun with another request: order was newest, and is oldest"):
        backfill(other, offsets((0, 0, 10)), Order.OLDEST)
    cancelled = steering.cancel(other.opened, lane, "enough")
    assert (cancelled.windows, cancelled.left) == (2, offsets((0, 0, 3)))


def test_windows_of_several_partitions_go_down_in_each(tmp_path: Path) -> None:
    """Two thirds of what is left lie in the first partition, with a hole."""
    made = limited(tmp_path, 6, (0, 50), (0, 50))
    lane = backfill(made, offsets((0, 10, 13), (0, 20, 25), (1, 3, 7)))
    assert pinned(made, lane) == [(21, 25), (5, 7)]
    made.process(lane, RUN)
    assert pinned(made, lane) == [(10, 21), (3, 5)]
    assert made.opened.book.covers(head_of(made, lane).pending.window) == offsets((0, 10, 13), (0, 20, 21), (1, 3, 5))  # type: ignore[union-attr]


def test_what_kafka_deletes_below_is_met_when_the_windows_come_to_it(tmp_path: Path) -> None:
    made = limited(tmp_path, 4, (0, 12))
    lane = backfill(made, offsets((0, 0, 12)))
    made.ends((5, 12))
    assert pinned(made, lane) == [(8, 12)]
    made.process(lane, RUN)
    with pytest.raises(
        OffsetsOutOfRange, match=r"orders/0 \[4, 5\) is no longer in Kafka.*To free it: tidemark cancel"
    ):
        lanes.plan_lane(made.opened, lane, RUN)


def test_a_lane_with_the_newest_first_is_found_by_its_offsets(tmp_path: Path) -> None:
    """While it is open and has read a part, and when it is closed."""
    made = limited(tmp_path, 3, (0, 40))
    lane = backfill(made, offsets((0, 0, 12), (0, 20, 24)))

    def found() -> list[int]:
        places = [Coordinate(at(0), offset) for offset in (0, 5, 11, 15, 20, 23, 30)]
        return [sum(one.seq for one in look_up(made.opened.book, place).windows) for place in places]

    assert found() == [0] * 7
    for _ in range(2):
        lanes.plan_lane(made.opened, lane, RUN)
        made.process(lane, RUN)
    assert found() == [0, 0, 2, 0, 2, 1, 0]
    to_the_end(made, lane)
    assert found() == [6, 4, 2, 0, 2, 1, 0]


def test_a_smaller_window_after_one_that_was_given_up_writes_with_higher_ordinals(tmp_path: Path) -> None:
    made = limited(tmp_path, 4, (0, 20))
    lane = backfill(made, offsets((0, 0, 20)))
    book = made.opened.book

    def taken() -> int:
        pending = lanes.plan_lane(made.opened, lane, RUN)
        assert pending is not None
        return protocol.take(book, lane, pending.window.seq, Run(RUN, "v1", "d")).attempt.ordinal

    def given_up() -> dict[Any, int]:
        protocol.abandon(book, lane, "a test", take_over=True)
        return {one.at: one.offset for one in head_of(made, lane).abandoned.until}  # type: ignore[union-attr]

    first = taken()
    assert given_up() == {at(0): 16}
    made = with_limits(made, "max_records: 2")
    second = taken()
    # The larger one of the two counts, and an audit looks there for what the attempts have left.
    assert given_up() == {at(0): 16}
    assert RangeSet(_beyond(head_of(made, lane))) == offsets((0, 16, 20))
    ordinals = []
    for _ in range(3):
        ordinals.append(taken())
        made.process(lane, RUN)
    # [18, 20) and [16, 18) were given up, [14, 16) was not.
    assert first < second < min(ordinals[:2])
    assert ordinals[2] == head_of(made, lane).last.attempt.ordinal - 1  # type: ignore[union-attr]


def test_a_replay_of_whole_windows_divides_none_from_the_newest_down() -> None:
    windows = [committed("/lake", number + 1, range(10 * number, 10 * number + 10)) for number in range(5)]
    at_once = partial(FirstWindows(windows).closed, because="sums are made of whole windows", order=Order.NEWEST)
    partition = windows[0].covers.partitions[0]

    def ranges(*found: tuple[int, int]) -> RangeSet:
        return RangeSet(OffsetRange(partition, *one) for one in found)

    left = ranges((10, 40))
    assert at_once(ranges((28, 40)), left) == ranges((20, 40))
    assert at_once(ranges((12, 14)), left) == left
    with pytest.raises(WrongUse, match="sums are made of whole windows"):
        at_once(ranges((12, 14)), ranges((11, 20)))


def test_a_head_that_contradicts_its_order_is_refused(tmp_path: Path) -> None:
    made = limited(tmp_path, 4, (0, 20))
    lane = backfill(made, offsets((0, 0, 20)))
    lanes.plan_lane(made.opened, lane, RUN)
    head = head_of(made, lane)

    def damaged(start: int, until: int, **more: Any) -> None:
        assert head.pending is not None
        window = head.pending.window
        ranges = (structs.replace(window.ranges[0], start=start, until=until),)
        pending = structs.replace(head.pending, window=structs.replace(window, ranges=ranges))
        made.store.values[head_key(lane)] = encode(structs.replace(head, pending=pending, **more))
        lanes.plan_lane(made.opened, lane, RUN)

    with pytest.raises(LedgerContradiction, match=r"reads orders/0 up to 21, and the lane has come down to 20"):
        damaged(16, 21)
    with pytest.raises(LedgerContradiction, match=r"leaves out orders/0 \[19, 20\), which the lane has selected"):
        damaged(16, 19)
    with pytest.raises(LedgerContradiction, match="reads the newest first, and has no selection"):
        damaged(16, 20, kind=LaneKind.INGEST)


def test_only_a_selection_has_a_newest_offset(tmp_path: Path) -> None:
    made = limited(tmp_path, 4, (0, 20))
    open_it: Callable[..., Any] = partial(
        open_lane, made.opened.book, "backfill-1", LaneKind.BACKFILL, run=RUN, order=Order.NEWEST, start=()
    )
    with pytest.raises(WrongUse, match="cannot read the newest first"):
        open_it(selection=made.opened.book.store_selection(offsets((0, 0, 5))))


# The rate of a run


@pytest.mark.covers("N25")
def test_the_rate_of_a_run_overrides_the_files_and_is_kept_with_its_lane(tmp_path: Path) -> None:
    made = with_limits(limited(tmp_path, 10_000, (0, 1_000)), "max_records_per_second: 3")
    lane = backfill(made, offsets((0, 0, 1_000)), Order.OLDEST, rate=2)
    assert (lanes.rate_of(made.opened, lane), lanes.rate_of(made.opened, "ingest")) == (2, None)
    assert pinned(made, lane) == [(0, 2 * WINDOW_SECONDS)]
    steering.cancel(made.opened, lane, "another way")
    assert all_lanes(made.opened.book)[lane].rate == 2
    lane = claim_lane(made.opened, LaneKind.BACKFILL, "again", offsets((0, 500, 1_000)), "a test")
    assert (lanes.rate_of(made.opened, lane), pinned(made, lane)) == (3, [(500, 500 + 3 * WINDOW_SECONDS)])
    steering.cancel(made.opened, lane, "another way")
    # Faster than the file says too.
    lane = claim_lane(made.opened, LaneKind.BACKFILL, "fast", offsets((0, 0, 900)), "a test", rate=10)
    assert pinned(made, lane) == [(0, 10 * WINDOW_SECONDS)]


@pytest.mark.covers("N23", "N25")
def test_a_command_keeps_its_order_and_rate_for_those_who_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = limited(tmp_path, 100, (0, 1_000))
    monkeypatch.setattr(finding, "opened", lambda stream: made.opened)
    # No Spark here: the lane is opened, and its first window pinned.
    monkeypatch.setattr(selected, "process", lambda *_, **__: None)

    def run(**options: Any) -> None:
        selected.backfill("orders", ranges=["orders/0@0-900"], reason="bug 17", run_name=RUN, **options)

    for options, said in (
        ({"order": "newst"}, "order: expected 'oldest' or 'newest'"),
        ({"rate": 0}, "rate: expected a number of at least 1"),
    ):
        with pytest.raises(WrongUse, match=said):
            run(**options)
    run(order="newest", rate=1)
    lane = lanes.lane_name(LaneKind.BACKFILL, RUN)
    entry = all_lanes(made.opened.book)[lane]
    assert (entry.order, entry.rate, pinned(made, lane)) == (Order.NEWEST, 1, [(840, 900)])
    made.process(lane, RUN)
    # Who goes on names the run alone: the same offsets at no rate would be another request.
    with pytest.raises(AnotherRequest, match="order was newest, and is left empty; rate was 1, and is left empty"):
        run()
    selected.backfill("orders", run_name=RUN)
    assert "its offsets, in its order, at its rate" in capsys.readouterr().err
    assert pinned(made, lane) == [(780, 840)]
