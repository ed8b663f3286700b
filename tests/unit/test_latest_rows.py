"""The newest value of each key in HBase: keys, versions and cells."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.hbase import Cluster
from tests.support.latest_in_memory import Counting, InMemory
from tests.support.streams_in_memory import TEXT, StreamInMemory, at, offsets
from tidemark.errors import ProcessingFailed, TooLarge
from tidemark.ledger.lookup import look_up
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.sinks.hbase.keyed_rows import encode_cell, fields_of, mark_of, salt_range
from tidemark.sinks.hbase.latest.rows import ValueVersion, place_of, qualifier, row_key, spans, topic_of
from tidemark.sinks.hbase.latest.table import LatestInHBase
from tidemark.sinks.hbase.netstrings import pack, unpack
from tidemark.sinks.hbase.rows import split_keys
from tidemark.sinks.stored_rows import Mark, Place, StoredRow
from tidemark.views.messages import trace

VERSIONS = st.builds(ValueVersion, st.integers(1, 126), st.integers(0, 2**42 - 1), st.integers(0, 2**14 - 1))


@given(VERSIONS, VERSIONS)
def test_versions_sort_as_what_they_say(one: ValueVersion, other: ValueVersion) -> None:
    assert (one < other) == (one.encode() < other.encode())
    assert ValueVersion.decode(one.encode()) == one
    # What HBase takes as a timestamp; the largest means 'now'.
    assert 0 <= one.encode() < 2**63 - 1


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (ValueVersion(127, 0, 0), "order epoch 127 .* up to 126"),
        (ValueVersion(0, 0, 0), "order epoch 0"),
        (ValueVersion(1, 2**42, 0), "offset 4398046511104 .* up to 4398046511103"),
        (ValueVersion(1, 0, 2**14), "ordinal 16384 .* up to 16383"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(version: ValueVersion, said: str) -> None:
    with pytest.raises(TooLarge, match=said):
        version.encode()


def test_a_key_to_the_byte() -> None:
    body = b"\x06orders" + b"\x01\x00\x00\x00\x01a" + b"\x00" + b"\x01\x00\x00\x00\x00"
    assert row_key("orders", [b"a", None, b""])[1:] == body
    assert topic_of(row_key("orders", [b"a"])) == "orders"
    assert qualifier(TopicPartition("orders", 3, 2), 1) == b"\x00\x02\x00\x00\x00\x03\x00\x00\x00\x01"
    assert ValueVersion(1, 5, 2).encode() == (1 << 56) + (5 << 14) + 2


KEYS = st.tuples(
    st.sampled_from(["a", "a-b", "ab"]), st.lists(st.none() | st.binary(max_size=5), min_size=1, max_size=3)
)


@given(KEYS, KEYS)
def test_different_keys_are_different_rows(
    one: tuple[str, list[bytes | None]], other: tuple[str, list[bytes | None]]
) -> None:
    assert (row_key(*one) == row_key(*other)) == (one == other)
    salt = row_key(*one)[0]
    start, stop = salt_range(salt)
    assert start <= row_key(*one) < stop


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(ProcessingFailed, match="a key of orders takes 16396 bytes, and 16384 is the most"):
        row_key("orders", [b"x" * 16_384])


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.none() | st.binary(max_size=20), max_size=5))
def test_fields_come_back_as_they_were(fields: dict[str, bytes | None]) -> None:
    mark = Mark(7, 9, "replay-1", 3, tombstone=True)
    cell = encode_cell(mark, list(fields.items()))
    assert mark_of(cell) == mark
    assert fields_of(cell) == {name: value for name, value in fields.items() if value is not None}


def test_a_cell_says_where_it_is_from() -> None:
    at = TopicPartition("orders", 3, 2)
    assert place_of("orders", qualifier(at, 1), ValueVersion(1, 5, 2)) == Place(at, 5, 1)
    assert pack([("host", b"a.example"), ("none", None)]) == b"4:host9:a.example"


@pytest.mark.parametrize("packed", [b"x", b"4:host", b"4:host9:short", b"-1:a1:b"])
def test_what_is_not_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"not packed|invalid literal|not found"):
        unpack(packed)


def test_regions_have_as_many_salts_each() -> None:
    assert split_keys(1) == []
    assert split_keys(4) == [b"\x04", b"\x08", b"\x0c"]


@given(st.lists(st.tuples(st.integers(0, 2**42 - 1), st.integers(1, 100)), max_size=30), st.integers(0, 126), VERSIONS)
def test_the_versions_of_some_offsets_are_in_their_spans(
    ranges: list[tuple[int, int]], epochs: int, version: ValueVersion
) -> None:
    found = spans([(start, start + length) for start, length in ranges], epochs)
    assert len(found) <= max(8, epochs + 1)
    assert all(one[1] <= next_[0] for one, next_ in pairwise(found))

    def within(one: ValueVersion) -> bool:
        return any(least <= one.encode() < below for least, below in found)

    for start, length in ranges:
        for offset in (start, min(start + length, 2**42) - 1):
            # Also in an epoch that the ledger does not know.
            assert within(replace(version, offset=offset))
    if len(ranges) < 8 and version.epoch <= epochs == 1:
        near = any(start <= version.offset < start + length for start, length in ranges)
        assert within(version) == near


def filled(messages: int, epochs: int = 1) -> tuple[Cluster, LatestInHBase, Counting]:
    """A table of messages of one partition, a key for every two of them. The upper halves are in the later epochs."""
    cluster = Cluster()
    gateway = InMemory(cluster)
    table = LatestInHBase(gateway, "t")
    at = TopicPartition("orders", 0, 1)
    for offset in range(messages):
        mark = Mark(10 + offset % 3, 0, "ingest", 1, False)
        version = ValueVersion(1 + offset * epochs // messages, offset, 0).encode()
        row = row_key("orders", [b"%d" % (offset // 2)])
        table.write([(row, qualifier(at, 0), version, encode_cell(mark, [("id", b"1")]))])
    return cluster, table, gateway.counted


def left_of(cluster: Cluster) -> set[int]:
    return {ValueVersion.decode(version).offset for _, _, version in cluster.everything("t")}


@pytest.mark.covers("N27")
def test_an_erasure_looks_at_no_more_of_a_larger_table() -> None:
    """Settling waits for it, and all runs of the stream wait for that. It looks at the cells of the offsets alone."""
    looked = []
    wanted = RangeSet.of_intervals([(TopicPartition("orders", 0, 1), ((5, 6), (40, 60)))])
    for messages in (200, 2_000):
        cluster, table, counted = filled(messages)
        counted.calls = counted.rows = 0
        assert table.erase(wanted, 100, epochs=1) == 21
        assert left_of(cluster) == {*range(messages)} - {5, *range(40, 60)}
        looked.append((counted.calls, counted.rows))
    assert looked[0] == looked[1]
    # For each two messages a row, and a scan for each of three spans and sixteen salts.
    assert looked[0] == (3 * 16, 11)


@pytest.mark.covers("E64")
def test_what_came_after_many_erasures_is_looked_for_once() -> None:
    at = TopicPartition("orders", 0, 1)
    cluster, table, counted = filled(2_000)
    # Offset 3 n has generation 10: of an erasure of generation 11, the others are newer.
    erased = [(11, RangeSet.of_intervals([(at, ((60 * one, 60 * one + 3),))])) for one in range(30)]
    counted.calls = counted.rows = 0
    assert table.late(erased, epochs=1) == 30
    assert counted.calls <= 9 * 16
    assert table.late([(100, erased[0][1]), *erased[1:]], epochs=1) == 32
    assert len(left_of(cluster)) == 2_000


def test_an_erasure_finds_every_epoch_and_every_version() -> None:
    """Also those that a restored ledger does not know, and more versions of a cell than a scan gives at once."""
    at = TopicPartition("orders", 0, 1)
    wanted = RangeSet.of_intervals([(at, ((150, 160),))])
    for known in (0, 1, 3):
        cluster, table, _ = filled(300, epochs=3)
        row = row_key("orders", [b"75"])
        mark = Mark(20, 0, "ingest", 1, False)
        more = [ValueVersion(2, 150, ordinal).encode() for ordinal in range(1, 250)]
        table.write([(row, qualifier(at, 0), one, encode_cell(mark, [("id", b"1")])) for one in more])
        newer = encode_cell(Mark(100, 0, "erase-1", 1, False), [("id", b"1")])
        table.write([(row, qualifier(at, 0), ValueVersion(2, 151, 500).encode(), newer)])
        assert table.erase(wanted, 100, epochs=known) == 10 + 249
        # What the erasure itself has written stays.
        assert left_of(cluster) == ({*range(300)} - {*range(150, 160)}) | {151}


LATEST = "  - {type: hbase_latest, name: newest, table: newest, key: [id]}\n"


@pytest.mark.covers("Q27")
def test_the_newest_value_of_a_key_is_none_that_another_stream_has_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages 1 and 3 have the same key. Looked at is message 1, and 3 is erased in another stream."""
    made = StreamInMemory(tmp_path, text=TEXT.replace("dead_letters:", f"{LATEST}dead_letters:"))
    made.ends((0, 5))
    made.ingest()
    (window,) = made.opened.book.committed()
    table = LatestInHBase(InMemory(Cluster()), "newest")
    monkeypatch.setattr("tidemark.sinks.hbase.latest.table.latest_table", lambda *_, **__: table)
    mark = Mark(window.generation, 0, "ingest", 1, False)
    for offset in (1, 3):
        cell = encode_cell(mark, [("id", b"ann"), ("value", b"of %d" % offset)])
        table.write([(row_key("orders", [b"ann"]), qualifier(at(0), 0), ValueVersion(1, offset, 0).encode(), cell)])
    row = StoredRow(Place(at(0), 1, 0), mark, {"id": b"ann"})
    found = look_up(made.opened.book, Coordinate(at(0), 1))

    def newest() -> bytes:
        under_keys, problems = trace._under_keys(made.opened, found, {"hbase": [row]})
        assert problems == {}
        ((_, _, under),) = under_keys
        return under.fields["value"]

    assert newest() == b"of 3"
    other = StreamInMemory(tmp_path, kafka=made.kafka, name="copies")
    other.ingest()
    made.store.beside = {"orders": made.store, "copies": other.store}
    other.erase(offsets((0, 3, 4)))
    assert newest() == b"of 1"
