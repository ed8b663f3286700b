"""What the ledger keeps of the ingest's windows: what they cover together, for whoever asks later."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tests.support.bulk import STREAM, History, load
from tests.support.counting import CountingStore
from tests.support.memory import MemoryStore
from tests.support.protocol_world import World
from tidemark.errors import Unreachable
from tidemark.ledger import covered
from tidemark.ledger.codec import digest
from tidemark.ledger.covered import KEY, history_of, keep_covered, unread_now
from tidemark.ledger.holes import Ingest, UnreadOffsets, holes
from tidemark.ledger.ledger import Ledger, record_key
from tidemark.ledger.records import INGEST
from tidemark.ledger.recovery.verifying import verify
from tidemark.offsets.ranges import RangeSet


def ledger_of(windows: int) -> tuple[Ledger, MemoryStore]:
    """Years of an ingest with gaps and bursts, and lanes of backfills and replays beside it."""
    store = MemoryStore()
    load(store, History(windows, 10).values)
    return Ledger(store, STREAM), store


def keep_at(ledger: Ledger, seq: int) -> None:
    found = ledger.record(INGEST, seq)
    assert found is not None
    keep_covered(ledger, found[1])


def by_windows(ledger: Ledger) -> tuple[RangeSet, dict[str, RangeSet]]:
    """The holes of a stream, and what each lane covers, by its windows alone."""
    view = ledger.view()
    lanes = {window.record.lane for window in view.windows}
    return holes(view.windows, Ingest.seen(view)), {
        lane: RangeSet.union(window.covers for window in view.windows if window.record.lane == lane)
        for lane in sorted(lanes)
    }


def by_what_is_kept(ledger: Ledger) -> tuple[RangeSet, dict[str, RangeSet]]:
    history = history_of(ledger)
    assert history is not None
    assert history.covered.holes(history.ingest) == unread_now(ledger).holes
    return unread_now(ledger).holes, history.lanes


@pytest.mark.covers("N2")
@pytest.mark.parametrize("kept", [None, 64, 256, 299])
def test_what_is_kept_says_what_the_windows_say(kept: int | None) -> None:
    ledger, store = ledger_of(600)
    if kept is not None:
        keep_at(ledger, kept)
        assert store.values[KEY]
    assert by_what_is_kept(ledger) == by_windows(ledger)
    assert verify(ledger) == []


def test_holes_are_known_with_as_few_reads_after_many_windows_as_after_few() -> None:
    """By the size of the answer: what was jumped over is looked for among the lanes that may have read it since."""
    for windows in (500, 3_000):
        _, store = ledger_of(windows)
        counting = CountingStore(store)
        ledger = Ledger(cast("Any", counting), STREAM)
        head = ledger.head(INGEST)
        assert head is not None
        keep_at(ledger, head.head.seq - 10)
        counting.values = 0
        found = unread_now(ledger)
        assert found == UnreadOffsets.seen(ledger.view())
        counting.values = 0
        unread_now(ledger)
        assert found.holes == RangeSet()
        assert counting.values < 20 * (1 + sum(1 for _ in found.lost | found.skipped))


@pytest.mark.covers("N2")
def test_a_value_of_another_history_is_left_alone() -> None:
    """As after a restore: the ledger is behind what is kept, or has had other windows since."""
    ledger, store = ledger_of(600)
    keep_at(ledger, 256)
    kept = store.values[KEY]
    # Fewer windows than the value knows.
    fewer, others = ledger_of(200)
    others.values[KEY] = kept
    assert by_what_is_kept(fewer) == by_windows(fewer)
    # Another window of that number, and no word of it from `verify`: nobody goes by the value.
    more, others = ledger_of(800)
    stored = others.values[record_key(INGEST, 256)]
    others.values[KEY] = kept.replace(digest(stored).encode(), b"0" * 64)
    assert by_what_is_kept(more) == by_windows(more)
    assert verify(more) == []
    # The next one is kept anew, by the windows themselves.
    keep_at(more, 320)
    assert others.values[KEY] != kept
    assert by_what_is_kept(more) == by_windows(more)
    assert verify(more) == []
    # Damaged, or of another stream.
    for damaged in (b"nonsense", b"{}", kept.replace(b'"stream":"bulk"', b'"stream":"other"')):
        others.values[KEY] = damaged
        assert by_what_is_kept(more) == by_windows(more)
        assert verify(more) == []


@pytest.mark.covers("N2")
def test_verify_holds_what_is_kept_to_the_windows() -> None:
    ledger, store = ledger_of(600)
    keep_at(ledger, 256)
    _, lanes = by_windows(ledger)
    first = next(iter(lanes[INGEST]))
    store.values[KEY] = store.values[KEY].replace(b"[[%d," % first.start, b"[[%d," % (first.start + 1))
    (problem,) = verify(ledger)
    assert problem.startswith("lane ingest: its windows up to 256 cover other offsets than covered/ingest says")


def test_every_so_many_windows_it_is_kept_and_no_commit_fails_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covered, "EVERY", 3)
    world = World()
    world.one_window()
    for number in range(2, 8):
        world.process(world.pin())
        assert (KEY in world.store.values) == (number >= 3), number
        assert by_what_is_kept(world.ledger) == by_windows(world.ledger)
    kept, put = world.store.values[KEY], world.store.put

    def away(key: tuple[str, ...], value: bytes) -> None:
        if key == KEY:
            raise Unreachable("the server is away")
        put(key, value)

    monkeypatch.setattr(world.store, "put", away)
    for _ in range(4):
        world.process(world.pin())
    assert (world.head.seq, world.store.values[KEY]) == (11, kept)
    assert by_what_is_kept(world.ledger) == by_windows(world.ledger)


def test_where_one_value_has_no_room_nothing_is_kept() -> None:
    ledger, store = ledger_of(600)
    store.max_value_bytes = 100
    keep_at(ledger, 256)
    assert KEY not in store.values
    assert by_what_is_kept(ledger) == by_windows(ledger)


@pytest.mark.covers("N2")
def test_a_hole_is_found_beside_what_is_kept() -> None:
    """A window that the ledger has lost: those of all lanes are looked at."""
    ledger, store = ledger_of(600)
    keep_at(ledger, 256)
    del store.values[record_key(INGEST, 290)]
    assert unread_now(ledger).holes
    assert unread_now(ledger).holes == by_windows(ledger)[0]
