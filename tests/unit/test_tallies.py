"""The arithmetic that a commit depends on."""

from __future__ import annotations

from functools import reduce
from operator import xor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tidemark.errors import VerificationFailed
from tidemark.offsets.blocks import BlockTally
from tidemark.offsets.hashing import content_hash, coordinate_hash, row_hash
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.tallies import (
    NOTHING,
    Acknowledged,
    Count,
    PartitionTally,
    after,
    check_once,
    check_read,
    sum_tallies,
    verify,
)

AT = TopicPartition("logs", 0)


def tally(**counts: Any) -> PartitionTally:
    return PartitionTally(topic="logs", incarnation=1, partition=0, **counts)


CONTENT = "00000000000000ff"
STORED, DEAD, SKIPPED = Count.of(3, 0b1011), Count.of(1, 0b0100), Count.of(2, 0b110000)
GOOD = tally(
    read=STORED + DEAD + SKIPPED, stored=STORED, skipped=SKIPPED, invalid=DEAD, rows=Count.of(3, 77), content=CONTENT
)
HELD = {AT: Acknowledged(STORED, Count.of(3, 77), CONTENT)}
DEAD_LETTERS = {AT: Acknowledged(DEAD, DEAD, "7" * 16)}


@pytest.mark.covers("G1")
def test_what_was_read_was_stored_skipped_or_a_dead_letter() -> None:
    verify([GOOD], {"table": HELD, "files": HELD}, DEAD_LETTERS)


@pytest.mark.covers("G1", "E46")
@pytest.mark.parametrize(
    ("held", "dead_letters", "said"),
    [
        ({}, DEAD_LETTERS, "messages to store: 3, acknowledged by sink files: 0"),
        (
            {AT: Acknowledged(Count.of(2, 0b1001), Count.of(3, 77), CONTENT)},
            DEAD_LETTERS,
            "3, acknowledged by sink files: 2",
        ),
        (
            {AT: Acknowledged(Count.of(3, 0b1111), Count.of(3, 77), CONTENT)},
            DEAD_LETTERS,
            "store: 3, .* sink files: 3, but not the same ones",
        ),
        (
            {AT: Acknowledged(STORED, Count.of(4, 77), CONTENT)},
            DEAD_LETTERS,
            "rows to store: 3, acknowledged by sink files: 4",
        ),
        (
            {AT: Acknowledged(STORED, Count.of(3, 77), "f" * 16)},
            DEAD_LETTERS,
            "acknowledged by sink files have other contents",
        ),
        (HELD, {}, "invalid or failed: 1, acknowledged by the dead letters: 0"),
    ],
)
def test_a_commit_is_refused_when_a_sink_holds_something_else(
    held: dict[TopicPartition, Acknowledged], dead_letters: dict[TopicPartition, Acknowledged], said: str
) -> None:
    with pytest.raises(VerificationFailed, match=said):
        verify([GOOD], {"table": HELD, "files": held}, dead_letters)


@pytest.mark.covers("G1")
def test_other_contents_are_refused_with_a_reason() -> None:
    other = {AT: Acknowledged(STORED, Count.of(3, 77), "f" * 16)}
    with pytest.raises(VerificationFailed) as refused:
        verify([GOOD], {"table": HELD, "files": other}, DEAD_LETTERS)
    assert str(refused.value) == (
        "logs/0: rows to store and those acknowledged by sink files have other contents (digests 00000000000000ff and "
        "ffffffffffffffff). Spark computed them more than once, for example after it lost an executor, and they came out "
        "differently"
    )


@pytest.mark.covers("G1")
def test_a_message_without_an_outcome_is_seen() -> None:
    lost = tally(read=STORED + DEAD, stored=STORED, rows=Count.of(3, 77), content=CONTENT)
    with pytest.raises(VerificationFailed, match="read: 4, given an outcome: 3"):
        verify([lost], {"table": HELD}, {})


@pytest.mark.covers("A22")
def test_an_acknowledgement_for_a_partition_that_was_not_read_is_refused() -> None:
    elsewhere = {TopicPartition("logs", 9): Acknowledged(STORED, STORED, CONTENT)}
    with pytest.raises(VerificationFailed, match="logs/9, of which nothing was read"):
        verify([GOOD], {"table": {**HELD, **elsewhere}}, DEAD_LETTERS)


@pytest.mark.covers("A22")
@pytest.mark.parametrize("who", ["the sink", "the dead letters"])
def test_an_acknowledgement_of_nothing_is_refused_where_nothing_was_read(who: str) -> None:
    elsewhere = {TopicPartition("logs", 9): Acknowledged(DEAD, DEAD, CONTENT)}
    held, dead_letters = (
        ({**HELD, **elsewhere}, DEAD_LETTERS) if who == "the sink" else (HELD, {**DEAD_LETTERS, **elsewhere})
    )
    name = "table" if who == "the sink" else "dead letters"
    with pytest.raises(VerificationFailed, match=f"{name} acknowledged logs/9, of which nothing was read"):
        verify([GOOD], {"table": held}, dead_letters)


acks = st.integers(0, 2**64 - 1)
counts = st.builds(Count.of, st.integers(0, 1000), acks)
digests = acks.map(lambda number: f"{number:016x}")
perhaps = st.none() | st.integers(0, 1000)
tallies = st.builds(
    tally,
    **dict.fromkeys(("read", "stored", "skipped", "invalid", "failed", "rows"), counts),
    content=digests,
    source=digests,
    bytes=st.integers(0, 1000),
    **dict.fromkeys(("first", "last", "first_timestamp", "last_timestamp"), perhaps),
)


@given(tallies, tallies)
def test_what_was_counted_apart_is_counted_together(one: PartitionTally, other: PartitionTally) -> None:
    both = sum_tallies(one, other)
    for name in ("read", "stored", "skipped", "invalid", "failed", "rows"):
        a, b, sum_ = (getattr(found, name) for found in (one, other, both))
        assert sum_ == Count(a.number + b.number, f"{int(a.ack, 16) ^ int(b.ack, 16):016x}")
    assert both.content == f"{int(one.content, 16) ^ int(other.content, 16):016x}"
    assert both.source == f"{int(one.source, 16) ^ int(other.source, 16):016x}"
    for pick, names in ((min, ("first", "first_timestamp")), (max, ("last", "last_timestamp"))):
        for name in names:
            known = [getattr(found, name) for found in (one, other) if getattr(found, name) is not None]
            assert getattr(both, name) == (pick(known) if known else None)
    assert (both.bytes, both.at) == (one.bytes + other.bytes, one.at)
    assert sum_tallies(other, one) == both


@given(tallies, tallies)
def test_what_became_of_messages_is_put_to_how_they_were_read(read: PartitionTally, became: PartitionTally) -> None:
    (found,) = after([read], [became])
    names = ("stored", "skipped", "invalid", "failed", "rows", "content")
    assert found == structs.replace(read, **{name: getattr(became, name) for name in names})
    # What came from nowhere, or got lost, stays for the verification to find.
    elsewhere = structs.replace(became, partition=1)
    assert after([read], [elsewhere]) == (read, elsewhere)


@given(tallies)
def test_a_block_counts_all_dead_letters_together(one: PartitionTally) -> None:
    block = BlockTally.of(7, one)
    assert (block.block, block.stored, block.rows, block.content) == (7, one.stored, one.rows, one.content)
    assert block.dead_letters == one.invalid + one.failed


def test_nothing_is_no_message_and_no_bits() -> None:
    assert NOTHING + STORED == STORED
    assert Count.of(0, 0) == NOTHING


def test_equal_messages_counted_in_any_order_give_the_same_ack() -> None:
    one, two = Count.of(1, 5), Count.of(1, 9)
    assert one + two == two + one == Count.of(2, 5 ^ 9)


texts = st.lists(st.binary(max_size=3), min_size=1, max_size=6)


def digest(contents: list[bytes]) -> str:
    """The XOR of the digests of rows with these contents, a row at each offset."""
    rows = (row_hash(coordinate_hash(AT, offset), 0) for offset in range(len(contents)))
    found = [content_hash(row, [text]) for row, text in zip(rows, contents, strict=True)]
    return f"{reduce(xor, found):016x}"


@given(texts, st.data())
def test_rows_that_came_out_otherwise_are_refused(computed: list[bytes], data: st.DataObject) -> None:
    """Also where they are the same contents at other offsets."""
    again = data.draw(st.permutations(computed) | st.just([text + b"!" for text in computed]))
    counted = Count(len(computed))
    found = tally(read=counted, stored=counted, rows=counted, content=digest(computed))
    held = {AT: Acknowledged(counted, counted, digest(again))}
    if again == computed:
        verify([found], {"table": held}, {})
    else:
        with pytest.raises(VerificationFailed, match="sink table have other contents"):
            verify([found], {"table": held}, {})


WANTED = RangeSet([OffsetRange(AT, 5, 8), OffsetRange(AT, 20, 22)])


@pytest.mark.covers("G1", "A22")
@pytest.mark.parametrize(
    ("number", "first", "last", "wanted", "said"),
    [
        (6, 5, 21, WANTED, "6 messages were read at 5 offsets"),
        (2, 4, 21, WANTED, r"offsets 4 to 21 were read, of logs/0@5-22"),
        (2, 5, 22, WANTED, r"offsets 5 to 22 were read, of logs/0@5-22"),
        (2, None, None, WANTED, "offsets None to None were read"),
        (1, 5, 5, RangeSet([OffsetRange(TopicPartition("logs", 1), 5, 8)]), "1 message was read, and none is wanted"),
    ],
    ids=["too many", "before", "after", "nowhere", "elsewhere"],
)
def test_more_than_was_wanted_is_refused(
    number: int, first: int | None, last: int | None, wanted: RangeSet, said: str
) -> None:
    nothing = PartitionTally(topic="logs", incarnation=1, partition=2)
    with pytest.raises(VerificationFailed, match=f"logs/0: {said}"):
        check_read([nothing, tally(read=Count(number), first=first, last=last)], wanted)


@given(st.sets(st.sampled_from([5, 6, 7, 20, 21])))
def test_any_of_the_wanted_offsets_may_have_been_read(read: set[int]) -> None:
    check_read([tally(read=Count(len(read)), first=min(read, default=None), last=max(read, default=None))], WANTED)


@pytest.mark.covers("G1")
def test_what_came_twice_is_refused() -> None:
    check_once([(AT, 0)], "messages")
    with pytest.raises(VerificationFailed, match="logs/1: 3 messages came more than once"):
        check_once([(AT, 0), (TopicPartition("logs", 1), 3)], "messages")
