"""Finding windows in a large ledger on real servers. With more coordinates: tests/unit/test_lookup.py.

Loading a hundred thousand windows takes ZooKeeper a minute or more, so that is left to a full run.
"""

from __future__ import annotations

import random

import pytest

from tests.bulk import STREAM, History, load, unload
from tests.counting import CountingStore
from tests.naive import Scan, named, names
from tests.stores import Stores
from tests.unit.test_lookup import LANES, MOST_READS, newest, places
from tidemark.ledger.book import Book
from tidemark.ledger.lookup import look_up
from tidemark.ledger.verifying import verify


@pytest.mark.parametrize("windows", [3_000, pytest.param(100_000, marks=pytest.mark.full)])
def test_windows_are_found_in_few_reads(stores: Stores, windows: int) -> None:
    store = stores.new()
    values = History(windows, LANES).values
    load(store, values)
    try:
        book = Book(store, STREAM)
        assert verify(book) == []
        scan = Scan(book)
        assert len(scan.records) == windows
        kinds = set()
        for place, _ in zip(places(scan.records, random.Random(8)), range(100), strict=False):
            # The heads and the records of one coordinate are read anew for each: nothing is kept between two questions.
            counting = CountingStore(store)
            found = look_up(Book(counting, STREAM), place)
            assert named(found) == scan.at(place)
            assert counting.reads <= MOST_READS
            kinds |= {one.kind.value for one in found.windows} or {"uncovered"}
        assert kinds == {"ingest", "replay", "backfill", "uncovered"}
        counting = CountingStore(store)
        assert names(newest(Book(counting, STREAM), 50)) == scan.newest(50)
        assert counting.reads <= MOST_READS
        counting = CountingStore(store)
        assert Book(counting, STREAM).head("ingest") is not None
        assert (counting.reads, counting.values) == (1, 1)
    finally:
        unload(store, values)
