"""The hashes' test vectors. They were computed with Spark's `xxhash64` and must never change."""

from __future__ import annotations

import math
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.offsets.hashing import Value, content_hash, coordinate_hash, offset_hash, row_hash, source_hash, unsigned
from tidemark.offsets.hashing_arrays import offset_hashes, row_hashes
from tidemark.offsets.ranges import TopicPartition

AT = TopicPartition("cdn-logs", 3, 1)
# (topic, incarnation, partition, offset), coordinate hash, row hash at index 0
VECTORS = [
    (("cdn-logs", 1, 3, 91234), 6105829429899021353, 6363819245366706568),
    (("ü", 2, 0, 2**63 - 2), 15057781849568398163, None),
]
# Of rows with six fields at cdn-logs/3, offsets 91234 and after: text, whole number, double, time, boolean, bytes.
CONTENTS: list[tuple[list[Value], int]] = [
    ([b"a", 5, 1.5, 1_795_245_000_250_000, True, b"\xff\x00"], 661439446943286566),
    ([None, -1, -0.0, -1, False, b""], 18148651891808646932),
    ([b"", None, math.nan, None, None, None], 2009120804561410505),
    (["ü".encode(), 2**63 - 1, math.inf, 327_403_382_400_000_000, True, None], 6048258664849198974),
    ([None] * 6, 1518132246220362869),
    ([b"x", 0, 1e-300, -63_549_360_000_000_000, None, b"1"], 13686090244406851586),
]


@pytest.mark.covers("G1")
@pytest.mark.parametrize(("coordinate", "message", "row"), VECTORS)
def test_vectors(coordinate: tuple[str, int, int, int], message: int, row: int | None) -> None:
    topic, incarnation, partition, offset = coordinate
    found = coordinate_hash(TopicPartition(topic, partition, incarnation), offset)
    assert found == message
    if row is not None:
        assert row_hash(found, 0) == row


@pytest.mark.covers("N6")
@pytest.mark.parametrize("number", range(len(CONTENTS)))
def test_contents_are_digested_by_their_types(number: int) -> None:
    values, digest = CONTENTS[number]
    assert content_hash(row_hash(coordinate_hash(AT, 91234 + number), 0), values) == digest


def test_contents_that_differ_have_different_digests() -> None:
    row = row_hash(coordinate_hash(AT, 91234), 0)
    columns: list[list[Value]] = [[b"a", None], [None, b"a"], [b"", b"a"], [b"a", b""], [b"a"], [b"aa"], [b"a", b"a"]]
    columns += [[], [None], [None, None], [b""], [0], [False], [1], [True], [1.0], [b"1"]]
    # The nulls of more than 64 columns.
    columns += [[None] * 64, [None] * 65, [*[None] * 64, 0], [0, *[None] * 64]]
    digests = [content_hash(row, one) for one in columns]
    for (one, left), (other, right) in combinations(zip(columns, digests, strict=True), 2):
        assert left != right, (one, other)


def test_doubles_that_are_equal_have_one_digest() -> None:
    row = row_hash(coordinate_hash(AT, 91234), 0)
    assert content_hash(row, [0.0]) == content_hash(row, [-0.0])
    assert content_hash(row, [math.nan]) == content_hash(row, [-math.nan])


def test_of_a_message_as_it_was_read_null_and_empty_are_told_apart() -> None:
    at = coordinate_hash(AT, 91234)
    # Spark's.
    assert source_hash(at, b"key", b"value", [("a", b"x"), ("b", None)]) == 3506720915126678624
    messages = [(key, value) for key in (None, b"", b"a") for value in (None, b"", b"a")]
    assert len({source_hash(at, *message) for message in messages}) == len(messages)
    # Nor is a header's value taken for the name of the next one.
    parts = ["a", "b", "", "\uffff"]
    values = [None, *(one.encode() for one in parts), b"\xff\xff\xff\xff"]
    single = [(name, value) for name in parts for value in values]
    headers = [(), *((one,) for one in single), *product(single, repeat=2)]
    assert len({source_hash(at, b"key", b"value", some) for some in headers}) == len(headers)


def test_spark_shows_hashes_signed() -> None:
    assert unsigned(-1) == 2**64 - 1
    assert unsigned(5) == 5


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)),
        min_size=1,
        max_size=50,
    )
)
def test_many_at_once_have_the_same_hashes(rows: list[tuple[int, int, int]]) -> None:
    seeds, offsets, indexes = zip(*rows, strict=True)
    messages = offset_hashes(np.array(seeds, dtype=np.uint64), np.array(offsets, dtype=np.int64))
    assert messages.tolist() == [offset_hash(seed, offset) for seed, offset, _ in rows]
    found = row_hashes(messages, np.array(indexes, dtype=np.int32))
    assert found.tolist() == [row_hash(int(one), index) for one, index in zip(messages, indexes, strict=True)]
