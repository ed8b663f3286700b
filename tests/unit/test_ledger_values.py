"""Stored values: their bytes, what is refused, and what contradicts itself."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.support.memory import MemoryStore
from tidemark.errors import LedgerContradiction, LedgerUnreadable, TooLarge
from tidemark.ledger.codec import decode, encode
from tidemark.ledger.ledger import Ledger, head_key
from tidemark.ledger.limits import check_pending
from tidemark.ledger.records import FORMAT, Head, LaneKind, LaneState, Pending, Register, Window, WindowRange, positions
from tidemark.ledger.stores.contract import Key
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

HEAD = Head(
    stream="s",
    lane="ingest",
    kind=LaneKind.INGEST,
    state=LaneState.OPEN,
    token="t",
    seq=0,
    positions=positions({TopicPartition("logs", 10): 5, TopicPartition("logs", 9): 2**63 - 1}),
)


def window(seq: int, partitions: int = 1) -> Window:
    ranges = tuple(
        WindowRange(topic="logs", incarnation=1, partition=number, start=0, until=5, log_start=0, log_end=5)
        for number in range(partitions)
    )
    return Window(seq=seq, ranges=ranges, topic_ids={"logs": "i"}, isolation="read_committed", pinned_at=1, run="r")


@pytest.mark.covers("Q22")
def test_a_value_survives_the_trip_and_has_one_byte_form() -> None:
    stored = encode(HEAD)
    assert isinstance(json.loads(stored), dict)
    assert decode(stored, Head, "here") == HEAD
    assert encode(decode(stored, Head, "here")) == stored


@pytest.mark.covers("A37", "F19", "Q22")
@pytest.mark.parametrize(
    "stored",
    [
        b"garbage",
        b"",
        b"[]",
        b"{}",
        b'{"format":"1"}',
        b'{"format":1}',
        encode(HEAD)[:-5],
        encode(HEAD)[:-1] + b',"x":1}',
    ],
)
def test_what_does_not_parse_is_refused_and_shown(stored: bytes) -> None:
    with pytest.raises(LedgerUnreadable, match="s/head/ingest cannot be read") as caught:
        decode(stored, Head, "s/head/ingest")
    assert stored.decode()[:50] in str(caught.value).replace("\\'", "'")
    assert caught.value.exit_code == 7


def test_of_a_field_that_is_not_known_the_error_says_that_a_newer_version_may_have_written_it() -> None:
    """In a rolling upgrade, a backup is the wrong advice."""
    with pytest.raises(
        LedgerUnreadable, match="A newer version of Tidemark may have written it: then use that version"
    ):
        decode(encode(HEAD)[:-1] + b',"quota":3}', Head, "s/head/ingest")
    with pytest.raises(LedgerUnreadable) as caught:
        decode(encode(HEAD)[:-5], Head, "s/head/ingest")
    assert "newer version" not in str(caught.value)


@pytest.mark.covers("O5")
def test_a_newer_format_is_refused() -> None:
    newer = encode(HEAD).replace(b'"format":%d' % FORMAT, b'"format":%d' % (FORMAT + 1))
    said = f"has format {FORMAT + 1}; this version of Tidemark knows formats up to {FORMAT}"
    with pytest.raises(LedgerUnreadable, match=said):
        decode(newer, Head, "s/head/ingest")


@pytest.mark.parametrize(
    ("stored", "said"),
    [
        (encode(HEAD).replace(b'"seq":0', b'"seq":3'), "counts 3 committed windows, and its last one is missing"),
        (encode(HEAD).replace(b'"stream":"s"', b'"stream":"z"'), "stored for s/ingest and says that it is z/ingest"),
    ],
)
def test_a_head_that_contradicts_itself_is_refused_and_left(stored: bytes, said: str) -> None:
    store = MemoryStore()
    store.values[head_key("ingest")] = stored
    with pytest.raises(LedgerContradiction, match=said):
        Ledger(store, "s").head("ingest")
    assert store.values[head_key("ingest")] == stored


@pytest.mark.covers("Q22")
def test_a_head_that_could_become_too_large_is_refused_at_pin() -> None:
    store = MemoryStore(max_value_bytes=20_000)
    check_pending(store, HEAD, Pending(window=window(1, 2), token="t", previous=None))
    with pytest.raises(TooLarge, match="a window over 50 partitions could make the head of s/ingest"):
        check_pending(store, HEAD, Pending(window=window(1, 50), token="t", previous=None))


def test_a_selection_is_found_by_what_it_holds() -> None:
    ledger = Ledger(MemoryStore(), "s")
    ranges = RangeSet([OffsetRange(TopicPartition("logs", 1), 3, 9), OffsetRange(TopicPartition("logs", 0), 1, 2)])
    ref = ledger.store_selection(ranges)
    assert ref.offsets == 7
    assert Ledger(ledger.store, "s").selection(ref) == ranges
    assert ledger.find_selection("0" * 64) is None


@pytest.mark.covers("F19")
def test_a_selection_that_was_changed_is_refused() -> None:
    store = MemoryStore()
    ledger = Ledger(store, "s")
    ref = ledger.store_selection(RangeSet([OffsetRange(TopicPartition("logs", 1), 3, 9)]))
    key = ("selection", ref.digest)
    store.values[key] = store.values[key].replace(b"9", b"8")
    with pytest.raises(LedgerUnreadable, match="does not hold what its name says"):
        Ledger(store, "s").selection(ref)


@pytest.mark.covers("F19")
def test_a_range_that_ends_before_it_starts_is_unreadable() -> None:
    store = MemoryStore()
    ledger = Ledger(store, "s")
    ref = ledger.store_selection(RangeSet([OffsetRange(TopicPartition("logs", 1), 3, 9)]))
    key = ("selection", ref.digest)
    store.values[key] = store.values[key].replace(b"3,9", b"9,3")
    with pytest.raises(LedgerUnreadable, match="from 9 until 3 is not a range of offsets") as caught:
        Ledger(store, "s").selection(ref)
    assert caught.value.exit_code == 7
    stored = encode(Pending(window=window(1), token="t", previous=None))
    backwards = stored.replace(b'"from":0,"until":5', b'"from":5,"until":0')
    assert backwards != stored
    with pytest.raises(LedgerUnreadable, match="from 5 until 0 is not a range of offsets"):
        decode(encode(HEAD).replace(b'"pending":null', b'"pending":' + backwards), Head, "s/head/ingest")


@pytest.mark.covers("E44")
def test_a_lost_register_is_not_begun_anew() -> None:
    from tidemark.ledger.register import draw_generation

    store = MemoryStore()
    store.values[head_key("ingest")] = encode(HEAD)
    with pytest.raises(LedgerContradiction, match="s has head/ingest and no register: it was lost"):
        draw_generation(Ledger(store, "s"))
    assert ("register",) not in store.values


def test_two_first_runs_at_once_are_no_lost_register() -> None:
    """Another run makes register and head between this one's look for the register and its look for anything else."""
    from tidemark.ledger.register import open_lane

    class Slow(MemoryStore):
        def scan(self, prefix: Key) -> Iterator[tuple[Key, bytes]]:
            if ("register",) not in self.values:
                first.values = self.values
                open_lane(Ledger(first, "s"), "ingest", LaneKind.INGEST, run="first", start=HEAD.positions)
            return super().scan(prefix)

    first, store = MemoryStore(), Slow()
    stored = open_lane(Ledger(store, "s"), "ingest", LaneKind.INGEST, run="second", start=HEAD.positions)
    assert stored.head.positions == HEAD.positions
    assert decode(store.values["register",], Register, "the register").lanes["ingest"].run == "first"


@pytest.mark.covers("F20")
def test_generations_never_fall_whatever_the_clock_says() -> None:
    from tidemark.errors import ClockBehind
    from tidemark.ledger.register import draw_generation

    now = 1_000_000_000
    store = MemoryStore()
    ledger = Ledger(store, "s", clock=lambda: now)
    first, *_ = draw_generation(ledger)
    now -= 5_000
    second, *_ = draw_generation(ledger)
    assert (first, second) == (1_000_000_000, 1_000_000_001)
    now -= 3_600_000
    with pytest.raises(ClockBehind, match="3605 s ahead of this machine's clock"):
        draw_generation(ledger)
    register = decode(store.values["register",], Register, "register")
    assert register.generation == second


def test_a_value_has_one_form_in_bytes_whatever_order_its_maps_came_in() -> None:
    def window(*topics: str) -> Window:
        ids = {topic: f"id of {topic}" for topic in topics}
        return Window(seq=1, ranges=(), topic_ids=ids, isolation="read_committed", pinned_at=1, run="r")

    assert encode(window("a", "b")) == encode(window("b", "a"))
