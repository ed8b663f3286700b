"""Stored selections: in one value or in pieces, what is stored is what is found, or nothing is found."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.counting import CountingStore
from tests.support.memory import FAULTS, MemoryStore
from tests.support.range_strategies import offsets, range_sets
from tidemark.errors import LedgerContradiction, LedgerUnreadable, TooLarge
from tidemark.ledger import selections
from tidemark.ledger.codec import encode
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import Selection, SelectionRef
from tidemark.ledger.selections import selection_ref
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

LOGS, CLICKS = TopicPartition("logs", 0), TopicPartition("clicks", 3, 2)


def scattered(number: int, at: TopicPartition = LOGS) -> RangeSet:
    return RangeSet(OffsetRange(at, 3 * one, 3 * one + 1) for one in range(number))


MANY = scattered(500) | scattered(40, CLICKS)


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections, "PIECE_BYTES", 400)


def value_of(store: MemoryStore, ref: SelectionRef) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(store.values["selection", ref.digest])
    return found


@given(range_sets, st.integers(60, 400), range_sets)
def test_what_is_stored_is_found_whatever_its_size(ranges: RangeSet, most: int, asked: RangeSet) -> None:
    parts = list(selections.split_selection(ranges, most))
    assert all(len(encode(part)) <= most or len(list(part.as_ranges())) == 1 for part in parts)
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(selections, "PIECE_BYTES", most)
        ref = Ledger(store, "s").store_selection(ranges)
    assert ref == selection_ref(ranges)
    assert Ledger(store, "s").selection(ref) == ranges
    for partition, offset in offsets(ranges | asked):
        held = Ledger(store, "s").holding([ref], Coordinate(partition, offset))
        assert held == ({ref.digest} if (partition, offset) in offsets(ranges) else set())


def test_a_large_selection_is_stored_in_pieces_of_the_same_offsets() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    assert all(len(value) <= 400 for key, value in store.values.items() if key != ("selection", ref.digest))
    index = value_of(store, ref)
    assert index["partitions"] == []
    begins = [tuple(piece[:4]) for piece in index["pieces"]]
    assert begins[0] == ("clicks", 2, 3, 0)
    assert begins == sorted(begins)
    # Each piece is a selection by itself.
    held = [Ledger(store, "s").find_selection(piece[4]) for piece in index["pieces"]]
    assert sum(one.count() for one in held if one) == ref.offsets == 540
    small = Ledger(store, "s").store_selection(scattered(3))
    assert (value_of(store, small)["pieces"], len(index["pieces"])) == ([], len(store.values) - 2)


def test_no_larger_piece_is_made_than_the_store_holds() -> None:
    store = MemoryStore(max_value_bytes=300)
    ref = Ledger(store, "s").store_selection(scattered(50))
    assert len(value_of(store, ref)["pieces"]) > 1
    assert max(map(len, store.values.values())) <= 300


@pytest.mark.parametrize("writes", range(13))
def test_a_process_that_dies_between_two_pieces_leaves_no_selection(writes: int) -> None:
    store = MemoryStore()
    ranges = scattered(400)
    ref = selection_ref(ranges)

    class Died(BaseException):
        pass

    def dies(key: object) -> None:
        if store.swaps == writes:
            raise Died

    store.before_swap = dies
    with pytest.raises(Died):
        Ledger(store, "s").store_selection(ranges)
    assert len(store.values) == writes
    assert Ledger(store, "s").find_selection(ref.digest) is None
    store.before_swap = lambda key: None
    assert Ledger(store, "s").store_selection(ranges) == ref
    assert Ledger(store, "s").selection(ref) == ranges


@pytest.mark.parametrize("fault", FAULTS)
def test_lost_answers_lose_no_piece(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.ledger.stores.doubt._PAUSE_SECONDS", 0.0)
    store = MemoryStore()
    store.faults = [fault] * 3
    ref = Ledger(store, "s").store_selection(MANY)
    assert Ledger(store, "s").selection(ref) == MANY


def test_what_is_stored_already_is_not_written_again() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    before = store.swaps
    assert Ledger(store, "s").store_selection(MANY) == ref
    assert store.swaps == before


@pytest.mark.covers("F19")
def test_a_missing_piece_is_named() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    piece = value_of(store, ref)["pieces"][2]
    del store.values["selection", piece[4]]
    with pytest.raises(
        LedgerContradiction, match=f"s/selection/{piece[4]} is missing, a piece of s/selection/{ref.digest}"
    ):
        Ledger(store, "s").selection(ref)
    place = Coordinate(TopicPartition(piece[0], piece[2], piece[1]), piece[3])
    with pytest.raises(LedgerContradiction, match=f"{piece[4]} is missing"):
        Ledger(store, "s").holding([ref], place)


@pytest.mark.covers("F19")
def test_a_changed_piece_is_named() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    piece = value_of(store, ref)["pieces"][-1]
    key = ("selection", piece[4])
    store.values[key] = store.values[key].replace(b",1498]", b",1499]")
    with pytest.raises(LedgerUnreadable, match=f"s/selection/{piece[4]} does not hold what its name says"):
        Ledger(store, "s").selection(ref)


@pytest.mark.covers("F19")
def test_an_index_that_leaves_out_a_piece_is_refused() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    index = value_of(store, ref)
    del index["pieces"][1]
    store.values["selection", ref.digest] = json.dumps(index).encode()
    with pytest.raises(LedgerUnreadable, match=f"s/selection/{ref.digest} does not hold what its name says"):
        Ledger(store, "s").selection(ref)


def test_a_piece_that_is_an_index_itself_is_refused() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    first = value_of(store, ref)["pieces"][0][4]
    store.values["selection", first] = store.values["selection", ref.digest]
    with pytest.raises(LedgerContradiction, match=f"{first} is missing, a piece of"):
        Ledger(store, "s").selection(ref)


def test_one_offset_of_a_large_selection_is_found_in_its_piece_alone() -> None:
    store = MemoryStore()
    ref = Ledger(store, "s").store_selection(MANY)
    counting = CountingStore(store)
    assert Ledger(counting, "s").holding([ref], Coordinate(LOGS, 3 * 250)) == {ref.digest}
    assert (counting.reads, counting.values) == (2, 2)
    counting = CountingStore(store)
    assert Ledger(counting, "s").holding([ref], Coordinate(TopicPartition("a", 0), 7)) == set()
    assert (counting.reads, counting.values) == (1, 1)


def test_many_selections_are_asked_in_few_reads() -> None:
    store = MemoryStore()
    refs = [Ledger(store, "s").store_selection(scattered(100 + number)) for number in range(70)]
    counting = CountingStore(store)
    held = Ledger(counting, "s").holding(refs, Coordinate(LOGS, 3 * 120))
    assert held == {ref.digest for ref in refs if ref.offsets > 120}
    assert counting.reads <= 4


def test_a_missing_selection_is_named() -> None:
    ledger = Ledger(MemoryStore(), "s")
    ref = selection_ref(MANY)
    assert ledger.find_selection(ref.digest) is None
    with pytest.raises(LedgerContradiction, match=f"selection/{ref.digest} is missing, and a lane works on it"):
        ledger.holding([ref], Coordinate(LOGS, 3))


def test_a_selection_whose_index_is_too_large_is_refused_before_anything_is_written() -> None:
    store = MemoryStore(max_value_bytes=300)
    with pytest.raises(TooLarge, match=r"a selection of 500 offsets takes \d+ bytes.*ranges instead of records"):
        Ledger(store, "s").store_selection(scattered(500))
    assert not store.values


def test_the_digest_is_of_a_line_for_each_range() -> None:
    """As it was written down: another implementation finds the same name."""
    ranges = RangeSet([OffsetRange(LOGS, 3, 9), OffsetRange(CLICKS, 1, 2)])
    # printf 'clicks#2/3 [1, 2)\nlogs/0 [3, 9)\n' | sha256sum
    assert selection_ref(ranges) == SelectionRef("41057381c14bb91bf1cc2f73c41d1993e6c775d0617ea51eb0a0731490ca5591", 7)
    assert Selection.of(ranges).as_ranges() == ranges
