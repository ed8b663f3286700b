"""The newest value of each key in HBase: keys, versions and cells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.errors import ProcessingFailed, TooLarge
from tidemark.offsets.ranges import TopicPartition
from tidemark.sinks.hbase.keyed_rows import encode_cell, fields_of, mark_of, salt_range
from tidemark.sinks.hbase.packed import pack, unpack
from tidemark.sinks.hbase.rows import Mark, Place, split_keys
from tidemark.sinks.latest.rows import Version, place_of, qualifier, row_key, topic_of

VERSIONS = st.builds(Version, st.integers(1, 126), st.integers(0, 2**42 - 1), st.integers(0, 2**14 - 1))


@given(VERSIONS, VERSIONS)
def test_versions_sort_as_what_they_say(one: Version, other: Version) -> None:
    assert (one < other) == (one.encode() < other.encode())
    assert Version.decode(one.encode()) == one
    # What HBase takes as a timestamp; the largest means 'now'.
    assert 0 <= one.encode() < 2**63 - 1


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (Version(127, 0, 0), "order epoch 127 .* up to 126"),
        (Version(0, 0, 0), "order epoch 0"),
        (Version(1, 2**42, 0), "offset 4398046511104 .* up to 4398046511103"),
        (Version(1, 0, 2**14), "ordinal 16384 .* up to 16383"),
    ],
)
def test_a_number_that_does_not_fit_is_refused(version: Version, said: str) -> None:
    with pytest.raises(TooLarge, match=said):
        version.encode()


def test_a_key_to_the_byte() -> None:
    body = b"\x06orders" + b"\x01\x00\x00\x00\x01a" + b"\x00" + b"\x01\x00\x00\x00\x00"
    assert row_key("orders", [b"a", None, b""])[1:] == body
    assert topic_of(row_key("orders", [b"a"])) == "orders"
    assert qualifier(TopicPartition("orders", 3, 2), 1) == b"\x00\x02\x00\x00\x00\x03\x00\x00\x00\x01"
    assert Version(1, 5, 2).encode() == (1 << 56) + (5 << 14) + 2


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
    assert place_of("orders", qualifier(at, 1), Version(1, 5, 2)) == Place(at, 5, 1)
    assert pack([("host", b"a.example"), ("none", None)]) == b"4:host9:a.example"


@pytest.mark.parametrize("packed", [b"x", b"4:host", b"4:host9:short", b"-1:a1:b"])
def test_what_is_not_packed_is_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match=r"not packed|invalid literal|not found"):
        unpack(packed)


def test_regions_have_as_many_salts_each() -> None:
    assert split_keys(1) == []
    assert split_keys(4) == [b"\x04", b"\x08", b"\x0c"]
