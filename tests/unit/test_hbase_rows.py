"""Row keys and marks, to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.sinks.hbase.rows import SALTS, PartitionKeys, parse_key
from tidemark.sinks.stored_rows import Mark, Place

topics = st.text("abc.-_AZ09", min_size=1, max_size=20)
partitions = st.builds(TopicPartition, topics, st.integers(0, 2**31 - 1), st.integers(1, 2**16 - 1))
offsets = st.integers(0, 2**63 - 2)


@given(partitions, offsets, st.integers(0, 2**31 - 1))
def test_a_key_says_where_its_row_is_from(at: TopicPartition, offset: int, index: int) -> None:
    key = PartitionKeys(at).key(offset, index)
    assert parse_key(key) == Place(at, offset, index)
    assert key[0] < SALTS


@pytest.mark.covers("E28")
@given(partitions, st.integers(0, 2**40), st.integers(0, 200_000), offsets)
def test_the_scans_of_a_range_hold_its_keys_and_no_others(
    at: TopicPartition, start: int, length: int, elsewhere: int
) -> None:
    keys = PartitionKeys(at)
    wanted = OffsetRange(at, start, start + length)
    scans = list(keys.scans(wanted))
    # One after the other they give the rows in the order of their offsets.
    firsts = [int.from_bytes(first[-8:], "big") for first, _ in scans]
    assert firsts == sorted(firsts)

    def scanned(key: bytes) -> bool:
        return any(first <= key < stop for first, stop in scans)

    for offset in {start, max(0, start + length - 1), start + length // 2, elsewhere}:
        for index in (0, 2**31 - 1):
            assert scanned(keys.key(offset, index)) == (start <= offset < start + length)
    other = TopicPartition(at.topic + "a", at.partition, at.incarnation)
    assert not scanned(PartitionKeys(other).key(start, 0))


@pytest.mark.covers("E28")
def test_within_a_block_keys_sort_as_offsets_do() -> None:
    keys = PartitionKeys(TopicPartition("logs", 3))
    made = [keys.key(offset, 0) for offset in (9, 10, 99, 100, 65_535)]
    assert made == sorted(made)


@pytest.mark.covers("E28")
def test_a_growing_partition_does_not_always_write_to_the_same_region() -> None:
    keys = PartitionKeys(TopicPartition("logs", 3))
    assert len({keys.key(block << 16, 0)[0] for block in range(64)}) > SALTS // 2


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**63), st.booleans())
def test_a_mark_survives_the_trip(generation: int, digest: int, seq: int, tombstone: bool) -> None:
    mark = Mark(generation, digest, "replay-1", seq, tombstone)
    assert Mark.decode(mark.encode()) == mark


@pytest.mark.parametrize("stored", [b"", b"\x01", b"\x03" + bytes(40), b"\x00" + bytes(40)])
def test_what_is_no_mark_is_refused(stored: bytes) -> None:
    with pytest.raises(ValueError, match="not a mark"):
        Mark.decode(stored)


@pytest.mark.parametrize("key", [b"", b"\x00", b"\xff\xfftidemark-owner", b"\x00\x05logs" + bytes(10)])
def test_what_is_no_key_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match="not a row of this layout"):
        parse_key(key)
