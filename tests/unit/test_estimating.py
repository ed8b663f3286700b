"""What a plan will be, by the windows before it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.memory import MemoryStore
from tests.support.protocol_world import Sweeps
from tidemark.commit import protocol
from tidemark.commit.protocol import Run
from tidemark.ledger.book import Book
from tidemark.ledger.records import INGEST, Head, LaneKind, Receipt, Record, SinkReceipt, Window, WindowRange, positions
from tidemark.ledger.register import open_lane
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally
from tidemark.planning.estimating import Estimate, estimate, stored_before
from tidemark.runs.estimates import estimated, said
from tidemark.runs.open_stream import OpenStream

AT = TopicPartition("t", 0)
NOWHERE = SinkReceipt(name="s", type="s", place={})


def committed(book: Book, until: int, read: int, stored: int, seconds: float) -> Record:
    """Commit the next window of a stream's only partition."""

    def plan(head: Head) -> Window:
        start = head.offsets()[AT]
        one = WindowRange(topic="t", incarnation=1, partition=0, start=start, until=until, log_start=0, log_end=until)
        return Window(seq=head.seq + 1, ranges=(one,), topic_ids={}, isolation="", pinned_at=0, run="r")

    pending = protocol.pin(book, Sweeps(), INGEST, plan)
    assert pending is not None
    taken = protocol.take(book, INGEST, pending.window.seq, Run("r", "1", "d"))
    tally = PartitionTally(
        topic="t", incarnation=1, partition=0, read=Count(read), stored=Count(stored), bytes=read * 100
    )
    receipt = Receipt(
        tallies=(tally,), sinks=(), dead_letters=NOWHERE, started_at=1_000, finished_at=1_000 + int(seconds * 1000)
    )
    return protocol.commit(book, taken, receipt)


def begun() -> Book:
    book = Book(MemoryStore(), "s")
    open_lane(book, INGEST, LaneKind.INGEST, run="r", start=positions({AT: 0}))
    return book


def test_as_the_windows_before() -> None:
    book = begun()
    assert estimate(1_000, []) is None
    # Two offsets in ten are no records: transactions have left their markers.
    records = [committed(book, 100, 80, 80, 2), committed(book, 200, 80, 80, 6)]
    assert estimate(1_000, records) == Estimate(records=800, bytes=80_000, seconds=40.0)


@pytest.mark.parametrize(("rate", "seconds"), [(None, 40.0), (100, 40.0), (10, 100.0)])
def test_a_rate_makes_it_take_longer(rate: int | None, seconds: float) -> None:
    book = begun()
    protocol.settle(book, Sweeps(), committed(book, 100, 80, 80, 4).lane)
    wanted = RangeSet([OffsetRange(AT, 0, 1_000)])
    found = estimated(cast("OpenStream", SimpleNamespace(book=book)), wanted, rate)
    assert found == {"records": 800, "bytes": 80_000, "between": 0, "seconds": seconds}


def test_scattered_offsets_take_longer() -> None:
    book = begun()
    protocol.settle(book, Sweeps(), committed(book, 100, 80, 80, 4).lane)
    opened = cast("OpenStream", SimpleNamespace(book=book))
    # Two that are near, and a hundred that are not. The windows before had messages of 100 bytes: 0.7 µs for a record.
    near, far = (
        [OffsetRange(AT, at, at + 1) for at in (0, 101)],
        [OffsetRange(AT, at, at + 1) for at in range(10**6, 10**8, 10**6)],
    )
    found, alone = estimated(opened, RangeSet([*near, *far])), estimated(opened, RangeSet([OffsetRange(AT, 0, 101)]))
    assert found is not None
    assert alone is not None
    assert (found["records"], found["between"], alone["between"]) == (alone["records"], 100, 0)
    # As many offsets as one range of 101, at 4 seconds for 100.
    assert alone["seconds"] == round(101 * 0.04, 1)
    assert found["seconds"] == round(101 * 0.04 + 99 * 0.0015 + 100 * 0.7e-6, 1)
    assert said(found).startswith("estimate: 81 records and 100 between them that are only read, ")
    took = {seconds: said({**found, "seconds": seconds}).split(", ")[2] for seconds in (59.9, 60.0, 11223.4)}
    assert took == {
        59.9: "59.9 seconds and the start of Spark",
        60.0: "1 min and the start of Spark",
        11223.4: "3 h 7 min and the start of Spark",
    }


def test_what_is_stored_already() -> None:
    book = begun()
    committed(book, 100, 100, 50, 1)
    committed(book, 200, 100, 100, 1)
    view = book.view()
    assert stored_before(view, RangeSet([OffsetRange(AT, 0, 200)])) == 150
    assert stored_before(view, RangeSet([OffsetRange(AT, 0, 100)])) == 50
    # Half of a window: in proportion. Beyond the windows there is nothing.
    assert stored_before(view, RangeSet([OffsetRange(AT, 150, 300)])) == 50
    assert stored_before(view, RangeSet([OffsetRange(AT, 200, 300)])) == 0
