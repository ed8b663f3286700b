"""What every ledger store promises: the contract that everything else is built on.

`--ledger '{type: mine}'` tries a ledger of a package of one's own: docs/adding-a-ledger.md.
"""

from __future__ import annotations

import threading
import time

import pytest

from tests.support.stores import Stores, new_stream
from tidemark.ledger.stores.contract import LedgerStore, sortable
from tidemark.ledger.stores.kind import SupportsStreamList

pytestmark = pytest.mark.covers("O6")

KEY = ("head", "ingest")


@pytest.fixture
def store(stores: Stores) -> LedgerStore:
    return stores.new()


@pytest.mark.covers("A39")
def test_a_value_is_changed_only_if_it_is_still_the_expected_one(store: LedgerStore) -> None:
    assert store.read(KEY) is None
    assert not store.swap(KEY, b"something", b"first")
    assert store.swap(KEY, None, b"first")
    assert not store.swap(KEY, None, b"again")
    assert not store.swap(KEY, b"First", b"second")
    assert store.swap(KEY, b"first", b"second")
    # Also one that leaves it as it is: some databases count no row then.
    assert store.swap(KEY, b"second", b"second")
    assert store.read(KEY) == b"second"
    store.put(KEY, b"second")
    assert not store.swap(KEY, b"second ", b"third")


def test_the_server_has_a_clock(store: LedgerStore) -> None:
    """A stamp of the server's own, of every question anew: that of the machine that asks would tell nothing."""
    before = time.time_ns() // 1_000_000
    first = store.time()
    second = store.time()
    after = time.time_ns() // 1_000_000
    assert first is not None
    assert second is not None
    # Server and test are one machine here.
    assert before - 1 <= first <= second <= after + 1


def test_four_threads_increment_one_value(store: LedgerStore) -> None:
    assert store.swap(KEY, None, b"0")

    def increment() -> None:
        left = 25
        while left:
            before = store.read(KEY)
            assert before is not None
            left -= store.swap(KEY, before, str(int(before) + 1).encode())

    threads = [threading.Thread(target=increment) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert store.read(KEY) == b"100"


def test_keys_are_scanned_in_their_order_and_streams_do_not_mix(stores: Stores) -> None:
    stream = new_stream()
    store, other = stores.make(stream), stores.make(f"{stream}_b")
    numbers = (10_000, 1_001, 999, 10, 9, 2)
    for number in numbers:
        store.put(("history", "ingest", sortable(number)), str(number).encode())
    store.put(("history", "ingest-2", sortable(1)), b"another lane")
    other.put(("history", "ingest", sortable(5)), b"another stream")
    found = list(store.scan(("history", "ingest")))
    assert [key for key, _ in found] == [("history", "ingest", sortable(number)) for number in sorted(numbers)]
    assert [int(value) for _, value in found] == sorted(numbers)
    assert len(list(store.scan(("history",)))) == len(numbers) + 1
    assert [int(value) for _, value in store.newest(("history", "ingest"), 3)] == [10_000, 1_001, 999]
    # Also where the numbers stand between words.
    for day, number in (("2026-11-23", 7_999), ("2026-11-24", 8_000), ("2026-11-24", 9_000)):
        store.put(("audits", day, sortable(number), "run"), str(number).encode())
    assert [int(value) for _, value in store.newest(("audits",), 2)] == [9_000, 8_000]
    assert [key[-1] for key, _ in store.newest(("audits",), 5)] == ["run"] * 3
    assert list(store.scan(("history", "nowhere"))) == []


def test_several_values_are_read_at_once(store: LedgerStore) -> None:
    keys = [("history", "ingest", sortable(number)) for number in (999, 1_000, 1, 10_000)]
    for key in keys[:3]:
        store.put(key, key[-1].encode())
    assert store.swap(KEY, None, b"head")
    nowhere = ("history", "another", sortable(1))
    # In the order of the question; also where a value, or all below a name, is not there.
    assert store.read_several([*keys, KEY, nowhere, ("history", "ingest")]) == [
        *(key[-1].encode() for key in keys[:3]),
        None,
        b"head",
        None,
        None,
    ]
    assert store.read_several([]) == []


def test_a_word_may_hold_what_the_names_of_runs_hold(store: LedgerStore) -> None:
    words = ("cdn__audit/scheduled__2026-11-21T12:00:00+00:00", "a b%2Fé", "..", "0123")
    for number, word in enumerate(words):
        store.put(("report", word), str(number).encode())
    assert [store.read(("report", word)) for word in words] == [b"0", b"1", b"2", b"3"]


def test_a_ledger_that_is_not_there_is_empty(stores: Stores) -> None:
    nowhere = stores.make(new_stream())
    assert nowhere.read(KEY) is None
    assert list(nowhere.scan(("history",))) == []
    assert nowhere.newest(("history",), 5) == []
    assert nowhere.read_several([KEY, ("register",)]) == [None, None]


def test_the_largest_value_survives(store: LedgerStore) -> None:
    value = b"x" * store.max_value_bytes
    assert store.swap(KEY, None, value)
    assert store.read(KEY) == value


@pytest.mark.parametrize("record", [b"{}", b"longer than the head was"])
def test_a_commit_changes_the_head_once(store: LedgerStore, record: bytes) -> None:
    history, offsets = ("history", "ingest", sortable(1)), {"logs": {0: 10}}
    assert store.swap(KEY, None, b"pinned")
    assert not store.commit(KEY, b"another", b"committed", history, record, offsets)
    assert store.read(history) is None
    assert store.commit(KEY, b"pinned", b"committed", history, record, offsets)
    assert store.read(KEY) == b"committed"
    assert store.read(history) == (record if store.commits_records else None)
    assert not store.commit(KEY, b"pinned", b"committed", history, record, offsets)


@pytest.mark.covers("Q27")
def test_the_other_streams_of_a_ledger_are_known(stores: Stores) -> None:
    stream = new_stream()
    store = stores.make(stream)
    if not isinstance(store, SupportsStreamList):
        # Optional: docs/adding-a-ledger.md.
        assert stores.kind not in ("hbase", "zookeeper", "sql")
        return
    store.prepare()
    names = [stream, f"{stream}0", f"{stream}_b"]
    for name in names:
        stores.make(name).put(KEY, name.encode())
    found = store.streams()
    assert sorted(found) == found
    assert [name for name in found if name.startswith(stream)] == names
    assert [store.of_stream(name).read(KEY) for name in names] == [name.encode() for name in names]
