"""A hole is one thing everywhere: in an audit, `ledger coverage`, a backfill of the holes, the status, and on the page."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.claiming import claim_lane
from tests.support.counting import CountingStore
from tests.support.streams_in_memory import TEXT, LookedAt, StreamInMemory, at, offsets
from tidemark.audit.coverage import PartitionCoverage, coverage
from tidemark.audit.levels import Level
from tidemark.clients.kafka.slots import Slot
from tidemark.errors import WrongUse
from tidemark.ledger.holes import Ingest, UnreadOffsets, holes
from tidemark.ledger.ledger import Committed, head_key, record_key
from tidemark.ledger.records import Guarantee, LaneKind, Record
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs import auditing
from tidemark.runs.requests.forms import BackfillRequest
from tidemark.runs.requests.plan import plan_request
from tidemark.runs.windows import lanes
from tidemark.views.coverage.bars import BarQuery, coverage_bars
from tidemark.views.coverage.window_index import KnownHoles, WindowIndex
from tidemark.views.messages.fates import Fate, OffsetFacts, fate
from tidemark.views.overview import overview

LATER = TEXT.replace("start: earliest", "start: {offsets: {orders/0: 20, orders/1: 0}}")


def said(made: StreamInMemory) -> dict[str, object]:
    """What each place says of holes: as ranges, or as texts."""
    ledger = made.opened.ledger
    index = WindowIndex()
    index.refresh(ledger)
    bars = coverage_bars(made.opened, index, BarQuery(width=1000)).bars
    report = auditing.audit_without_spark(made.opened, "audit", Level.LEDGER)
    ingest = Ingest.seen(ledger.view())
    try:
        wanted = plan_request(made.opened, BackfillRequest(reason="bug 17", holes=True)).ranges
    except WrongUse:
        wanted = RangeSet()
    found = holes(ledger.committed(), ingest)
    return {
        "definition": [str(one) for one in found],
        "page": [
            f"{bar.partition}@{one.start}-{one.until}" for bar in bars for one in bar.blocks if one.state == "hole"
        ],
        "index": [str(one) for one in index.unread().holes],
        "beside": [str(one) for one in beside(made)],
        "coverage": [str(part) for one in coverage(ledger.committed(), ingest) for part in one.holes],
        "audit": [text for one in report.coverage for text in one.holes],
        "backfill": [str(one) for one in wanted],
        "status": overview(made.opened, UnreadOffsets.seen(ledger.view())).holes,
    }


def beside(made: StreamInMemory) -> RangeSet:
    """As the page looks for holes: by what is covered alone."""
    known = KnownHoles()
    known.refresh(made.opened.ledger)
    return known.unread().holes


def backfill(made: StreamInMemory, wanted: RangeSet, run: str = "some of it") -> None:
    lane = claim_lane(made.opened, LaneKind.BACKFILL, run, wanted, "bug 17")
    while lanes.plan_lane(made.opened, lane, run) is not None:
        made.process(lane, run)
    lanes.finish(made.opened, lane)


@pytest.fixture
def made(tmp_path: Path) -> StreamInMemory:
    """The ingest begins at 20 in the first partition, and a backfill has read [5, 10) of what lies before."""
    made = StreamInMemory(tmp_path, kafka=LookedAt(), text=LATER)
    for end in (30, 40, 50):
        made.ends((0, end), (0, 10))
        made.ingest(f"run {end}")
    backfill(made, offsets((0, 5, 10)))
    return made


def lose_a_window(made: StreamInMemory) -> None:
    """As in a ledger that is damaged: the second window is gone, and nothing else has read its offsets."""
    del made.store.values[record_key("ingest", 2)]
    assert head_key("ingest") in made.store.values


@pytest.mark.covers("N2")
def test_what_nobody_has_asked_for_is_no_hole(made: StreamInMemory) -> None:
    assert set(map(str, said(made).values())) == {"[]"}
    ledger = made.opened.ledger
    before = [one.before for one in coverage(ledger.committed(), Ingest.seen(ledger.view()))]
    # Between the backfill and the ingest. Below it nobody has read anything.
    assert before == [offsets((0, 10, 20)), RangeSet()]
    index = WindowIndex()
    index.refresh(ledger)
    bar = coverage_bars(made.opened, index, BarQuery(width=1000)).bars[0]
    states = [(one.state, one.start, one.until) for one in bar.blocks]
    assert [one for one in states if one[0] != "ingest"] == [
        ("before", 0, 5),
        ("backfill", 5, 10),
        ("before", 10, 20),
    ]
    # It is no gap either, by which the page chooses partitions.
    assert coverage_bars(made.opened, index, BarQuery(width=1000, gaps=True)).bars == []
    asked_for = Ingest.seen(ledger.view()).asked_for(at(0))
    assert fate(12, OffsetFacts(Slot.MESSAGE, asked_for=(asked_for.start, asked_for.until))) == Fate.BEFORE


@pytest.mark.covers("N2")
def test_a_real_hole_is_one_everywhere(made: StreamInMemory) -> None:
    lose_a_window(made)
    found = said(made)
    assert set(map(str, found.values())) == {"['orders/0@30-40']"}, found
    asked_for = Ingest.seen(made.opened.ledger.view()).asked_for(at(0))
    assert fate(35, OffsetFacts(Slot.MESSAGE, asked_for=(asked_for.start, asked_for.until))) == Fate.HOLE


def test_a_partition_that_was_added_later(made: StreamInMemory) -> None:
    """It begins with its first window, and what Kafka had deleted before is no hole."""
    made.ends((0, 50), (0, 10), (7, 12))
    made.ingest("run 60")
    assert set(map(str, said(made).values())) == {"[]"}


def test_the_page_has_not_looked(made: StreamInMemory) -> None:
    assert overview(made.opened).holes is None


def test_a_stream_without_positions_has_no_holes_anywhere(tmp_path: Path) -> None:
    """Each of its runs begins where `start` says: what Kafka had deleted by then was never to be read."""
    text = TEXT.replace("scheme:", "guarantee: none\nscheme:", 1)
    made = StreamInMemory(tmp_path, kafka=LookedAt(), text=text)
    for start, end in ((0, 10), (15, 20)):
        made.ends((start, end))
        made.ingest(f"run {end}")
    assert made.opened.ledger.authority().covered() == offsets((0, 0, 10), (0, 15, 20))
    assert set(map(str, said(made).values())) == {"[]"}


@pytest.mark.covers("N2")
def test_holes_are_followed_from_window_to_window(made: StreamInMemory) -> None:
    """The history is read once, and a hole is gone once a backfill has read it."""
    lose_a_window(made)
    known, ledger = KnownHoles(), made.opened.ledger
    known.refresh(ledger)
    assert known.unread().holes == offsets((0, 30, 40))
    made.ends((0, 70), (0, 10))
    made.ingest("run 70")
    ledger.store = counting = CountingStore(ledger.store)  # type: ignore[assignment]
    known.refresh(ledger)
    assert (known.unread().holes, counting.reads) == (offsets((0, 30, 40)), 2)
    backfill(made, offsets((0, 30, 40)), "the rest")
    known.refresh(ledger)
    assert known.unread().holes == RangeSet()


@pytest.mark.parametrize("read_again", ["once", "twice"])
def test_coverage_looks_at_each_range_a_few_times_however_many_lanes_there_are(
    monkeypatch: pytest.MonkeyPatch, read_again: str
) -> None:
    """A stream may have thousands of replays, each of a hundred records here and there."""
    looked = 0
    pairs_of = RangeSet.of

    def counted(ranges: RangeSet, partition: TopicPartition) -> tuple[tuple[int, int], ...]:
        nonlocal looked
        found = pairs_of(ranges, partition)
        looked += len(found)
        return found

    monkeypatch.setattr(RangeSet, "of", counted)

    def covered_by(lanes: int) -> tuple[list[PartitionCoverage], int]:
        """`lanes` replays of ten records; of each record once, or once more by the next lane."""
        nonlocal looked
        step = 10 if read_again == "once" else 5
        made = {
            f"replay-{lane:04}": RangeSet(
                OffsetRange(at(0), 2 * one, 2 * one + 1) for one in range(lane * step, lane * step + 10)
            )
            for lane in range(lanes)
        }
        whole = RangeSet([OffsetRange(at(0), 0, 100_000)])
        windows = [committed(lane, covers) for lane, covers in {"ingest": whole, **made}.items()]
        looked = 0
        return coverage(windows, Ingest({}, {at(0): 100_000})), looked

    (found,), few = covered_by(10)
    assert [*found.lanes] == ["ingest", *(f"replay-{lane:04}" for lane in range(10))]
    assert found.again.count() == (100 if read_again == "once" else 55)
    (found,), many = covered_by(100)
    assert (found.holes, found.before, found.again.count()) == (
        RangeSet(),
        RangeSet(),
        1_000 if read_again == "once" else 505,
    )
    assert many < 15 * few


def committed(lane: str, covers: RangeSet) -> Committed:
    window = SimpleNamespace(gaps=(), guarantee=Guarantee.AT_LEAST_ONCE, ranges=())
    return Committed(cast(Record, SimpleNamespace(lane=lane, window=window, kind=LaneKind.REPLAY)), covers)
