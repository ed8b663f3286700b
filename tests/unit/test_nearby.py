"""A view as far as some offsets ask for it says of them what the whole ledger says, and reads few windows for that."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest

from tests.support.bulk import STREAM, History, load
from tests.support.counting import CountingStore
from tests.support.memory import MemoryStore
from tidemark.errors import LedgerContradiction
from tidemark.ledger.erasures import erased
from tidemark.ledger.ledger import Ledger, LedgerSnapshot, record_key
from tidemark.ledger.nearby import view_near
from tidemark.ledger.records import INGEST
from tidemark.offsets.ranges import OffsetRange, RangeSet


def ledger_of(windows: int, lanes: int = 30) -> tuple[Ledger, MemoryStore]:
    store = MemoryStore()
    load(store, History(windows, lanes).values)
    return Ledger(store, STREAM), store


def said(view: LedgerSnapshot, within: RangeSet) -> dict[str, Any]:
    """All that a view says of some offsets."""
    return {
        "counts": {part: [*view.authority.within(part)] for part in within},
        "counts in a sink": {part: [*view.of("orders").authority.within(part)] for part in within},
        "erased": erased(view.windows) & within,
        "windows": [
            (window.record.lane, window.record.seq, window.covers & within)
            for window in sorted(view.windows, key=lambda one: one.generation)
            if window.covers & within
        ],
        "ingested": view.ingested,
        "register": view.register,
    }


def some_of(covered: RangeSet, chance: random.Random, parts: int, size: int) -> RangeSet:
    """Ranges here and there, also beside what is covered."""
    intervals = [*covered]
    ranges = []
    for _ in range(parts):
        part = chance.choice(intervals)
        start = max(0, chance.randint(part.start, max(part.start, part.until - 1)) - chance.choice([0, 0, size]))
        ranges.append(OffsetRange(part.partition, start, start + chance.randint(1, size)))
    return RangeSet(ranges)


@pytest.mark.covers("N2")
@pytest.mark.parametrize("seed", range(40))
def test_of_some_offsets_it_says_what_the_whole_ledger_says(seed: int) -> None:
    ledger, _ = ledger_of(400)
    whole, chance = ledger.view(), random.Random(seed)
    within = some_of(whole.authority.covered(), chance, chance.choice([1, 1, 3, 20]), chance.choice([1, 50, 10_000]))
    near = view_near(ledger, within)
    assert said(near, within) == said(whole, within)
    assert all(window.covers & within for window in near.windows)
    assert not ledger.changed_since(near)


def test_all_offsets_are_the_whole_ledger() -> None:
    ledger, _ = ledger_of(400)
    whole = ledger.view()
    within = whole.authority.covered()
    assert said(view_near(ledger, within), within) == said(whole, within)
    assert view_near(ledger, RangeSet()).windows == []
    assert view_near(Ledger(MemoryStore(), STREAM), within).windows == []


def test_one_window_of_many_takes_as_few_reads_as_one_of_few() -> None:
    most = []
    for windows in (1_000, 8_000):
        ledger, store = ledger_of(windows, lanes=10)
        head = ledger.head(INGEST)
        assert head is not None
        record = ledger.record(INGEST, head.head.seq // 2)
        assert record is not None
        within = ledger.covers(record[1].window)
        counting = CountingStore(store)
        near = view_near(Ledger(cast("Any", counting), STREAM), within)
        assert (INGEST, record[1].seq) in {(window.record.lane, window.record.seq) for window in near.windows}
        most.append(counting.values)
    assert most[1] < most[0] + 100, most


def test_a_window_that_was_lost_is_said() -> None:
    ledger, store = ledger_of(400)
    found = ledger.record(INGEST, 100)
    assert found is not None
    del store.values[record_key(INGEST, 100)]
    with pytest.raises(LedgerContradiction, match="is missing, although the lane has committed that window"):
        view_near(ledger, ledger.covers(found[1].window))
