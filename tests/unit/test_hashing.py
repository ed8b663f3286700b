"""The hashes' test vectors. They were computed with Spark's `xxhash64` and must never change."""

from __future__ import annotations

import pytest

from tidemark.offsets.hashing import content_hash, content_text, coordinate_hash, row_hash, source_hash, unsigned
from tidemark.offsets.ranges import TopicPartition

# (topic, incarnation, partition, offset), coordinate hash, row hash at index 0, content hash of the columns "a", null
VECTORS = [
    (("cdn-logs", 1, 3, 91234), 6105829429899021353, 6363819245366706568, 10595914421849491000),
    (("ü", 2, 0, 2**63 - 2), 15057781849568398163, None, None),
]


@pytest.mark.covers("G1")
@pytest.mark.parametrize(("coordinate", "message", "row", "content"), VECTORS)
def test_vectors(coordinate: tuple[str, int, int, int], message: int, row: int | None, content: int | None) -> None:
    topic, incarnation, partition, offset = coordinate
    found = coordinate_hash(TopicPartition(topic, partition, incarnation), offset)
    assert found == message
    if row is not None and content is not None:
        assert row_hash(found, 0) == row
        assert content_hash(row_hash(found, 0), [b"a", None]) == content


def test_bytes_are_digested_as_they_are() -> None:
    row = row_hash(coordinate_hash(TopicPartition("cdn-logs", 3, 1), 91234), 0)
    # Spark's, of two binary columns and a null one.
    assert content_hash(row, [b"\xff\x00", b"", None]) == 6749118715958839657


def test_of_a_message_as_it_was_read_null_and_empty_are_told_apart() -> None:
    at = coordinate_hash(TopicPartition("cdn-logs", 3, 1), 91234)
    # Spark's.
    assert source_hash(at, b"key", b"value", [("a", b"x"), ("b", None)]) == 8673693130131210029
    messages = [(key, value) for key in (None, b"", b"a") for value in (None, b"", b"a")]
    assert len({source_hash(at, *message) for message in messages}) == len(messages)


def test_contents_that_differ_have_different_texts() -> None:
    columns: list[list[bytes | None]] = [[b"a", None], [None, b"a"], [b"", b"a"], [b"a", b""]]
    columns += [[b"-", b"a"], [b"1:a"], [b"a"], [b"1:a-"]]
    texts = [content_text(one) for one in columns]
    assert len(set(texts)) == len(texts)


def test_spark_shows_hashes_signed() -> None:
    assert unsigned(-1) == 2**64 - 1
    assert unsigned(5) == 5
