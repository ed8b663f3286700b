"""A ledger that is lost whole is made again from the rows and dead letters that it has made count."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.memory import MemoryStore
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.ledger.adopting import Found, Left, Results, adopted, newest_attempts
from tidemark.ledger.backup import restore
from tidemark.ledger.book import Book
from tidemark.ledger.lookup import look_up
from tidemark.ledger.rebuilding import rebuild
from tidemark.ledger.records import INGEST, LaneKind, SinkReceipt
from tidemark.ledger.verifying import verify
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.order import Order
from tidemark.offsets.ranges import RangeSet
from tidemark.runs import lanes

TWO = TEXT.replace("dead_letters:", "  - {type: hbase, name: second, table: more}\ndead_letters:") + (
    "limits: {max_records: 7}\n"
)
SINKS = ("hbase", "second")


def read(made: StreamInMemory, lane: str, run: str) -> None:
    while lanes.plan_lane(made.opened, lane, run) is not None:
        made.process(lane, run)
    lanes.finish(made.opened, lane)


def rows(made: StreamInMemory, letters: set[int], nothing: set[int]) -> Iterator[tuple[str | None, Left]]:
    """What counts in the sinks and among the dead letters. Messages of `nothing` were skipped."""
    windows = {one.generation: one.record for one in made.opened.book.committed()}
    for place in (*SINKS, None):
        authority = made.opened.book.authority(place)
        for offset in range(100):
            generation = authority.of(at(0), offset)
            if generation is not None and offset not in nothing and (place is None) == (offset in letters):
                record = windows[generation]
                yield place, Left(at(0), offset, record.lane, record.seq, generation)


def receipt(one: Found) -> tuple[tuple[SinkReceipt, ...], SinkReceipt | None]:
    return tuple(SinkReceipt(name=name, type="hbase", place={}) for name in SINKS if name in one.places), None


def rebuilt(made: StreamInMemory, left: Iterator[tuple[str | None, Left]], until: dict[tuple[str, int], int]) -> Book:
    """The ledger in an empty place, made of what is left alone."""
    empty = Book(MemoryStore(), "orders", clock=made.opened.book.clock)
    known = Results(SINKS, until, {"orders": "id"}, "read_committed", receipt)
    with TemporaryDirectory() as folder:
        found = adopted(empty, newest_attempts(left), known)
        rebuild(found, Path(folder) / "rebuilt", lambda: "the mark of the results", lambda _: False)
        restore(empty, Path(folder) / "rebuilt")
    return empty


@pytest.mark.covers("N13")
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32))
def test_what_counted_counts_again(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    chance = random.Random(seed)
    made = StreamInMemory(tmp_path_factory.mktemp("lost"), text=TWO)
    replays = 0
    for number in range(chance.randint(1, 3)):
        made.ends((0, 10 * (number + 1)))
        while made.ingest(f"run {number}") is not None:
            pass
        for _ in range(chance.randint(0, 2)):
            some = {chance.randrange(10 * (number + 1)) for _ in range(chance.randint(1, 12))}
            replays += 1
            lane = lanes.open_selected(
                made.opened,
                LaneKind.REPLAY,
                f"replay {replays}",
                offsets(*((0, one, one + 1) for one in some)),
                "bug 17",
                order=chance.choice([*Order]),
                sinks=chance.choice([None, ("hbase",)]),
            )
            read(made, lane, f"replay {replays}")
    end = made.positions()[0]
    letters, nothing = ({chance.randrange(end) for _ in range(chance.randint(0, 6))} for _ in range(2))
    kept = [*rows(made, letters - nothing, nothing)]
    if not any(left.lane == INGEST for _, left in kept):
        return
    again = rebuilt(made, iter(chance.sample(kept, len(kept))), {("orders", 0): end})
    assert verify(again) == []
    head = again.head(INGEST)
    assert head is not None
    assert head.head.offsets() == {at(0): end}
    for place, one in kept:
        assert again.authority(place).of(at(0), one.offset) == one.generation
        assert look_up(again, Coordinate(at(0), one.offset)).windows
    register = again.register()
    assert register is not None
    assert (register[1].ledger, {*register[1].lanes}) == ("the mark of the results", {INGEST})
    assert register[1].generation >= max(one.generation for _, one in kept)
    # The ingest has read everything from its first row on.
    first = min(one.offset for _, one in kept if one.lane == INGEST)
    assert not offsets((0, first, end)) - again.authority().covered()


def test_an_attempt_that_was_at_work_is_left_out_where_another_layout_knows_better(tmp_path: Path) -> None:
    made = StreamInMemory(tmp_path, text=TWO)
    made.ends((0, 14))
    while made.ingest() is not None:
        pass
    late = [(name, Left(at(0), offset, INGEST, 3, 5_000_000)) for name in SINKS for offset in range(14, 18)]
    # Of an older attempt at the last window, swept nowhere.
    late += [("hbase", Left(at(0), offset, INGEST, 2, 5)) for offset in (9, 20)]
    left = [*rows(made, set(), set()), *late]
    known = rebuilt(made, iter(left), {("orders", 0): 14})
    guessed = rebuilt(made, iter(left), {})
    for book, end in ((known, 14), (guessed, 18)):
        head = book.head(INGEST)
        assert head is not None
        assert head.head.offsets() == {at(0): end}
        assert book.authority().covered() == offsets((0, 0, end))
        assert verify(book) == []
    assert known.authority("hbase").of(at(0), 9) != 5
    assert guessed.authority("hbase").of(at(0), 16) == 5_000_000


def test_what_gave_no_row_is_read_again_or_was_read(tmp_path: Path) -> None:
    """At the end only another layout knows; a window of which nothing is left keeps its number, and covers nothing."""
    made = StreamInMemory(tmp_path, text=TWO)
    for end in (7, 14, 21):
        made.ends((0, end))
        made.ingest(f"run {end}")
    left = [*rows(made, set(), {*range(7, 14), 20})]
    for until, end in (({("orders", 0): 21}, 21), ({}, 20)):
        book = rebuilt(made, iter(left), until)
        head = book.head(INGEST)
        assert head is not None
        assert (head.head.seq, head.head.offsets()) == (3, {at(0): end})
        assert book.authority().covered() == RangeSet(offsets((0, 0, end)))
        assert [bool(record.window.ranges) for record in book.records_of(INGEST)][:2] == [True, False]
