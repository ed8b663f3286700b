"""How the ledger knows topics again, and what an accepted change makes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.incarnations import (
    Change,
    Topics,
    accepted,
    assign_incarnations,
    learned,
    newest,
    rewritten,
    written,
    written_partition,
)
from tidemark.ledger.records import TopicChange
from tidemark.offsets.coordinates import Coordinate, parse_ranges, parse_records
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

FIRST: Topics = learned({}, {"logs": "a"}, 1)


def change(kind: TopicChange, topic_id: str, after: int, *starts: tuple[int, int]) -> Change:
    return Change(kind, "logs", topic_id, after, "a policy", starts)


def test_a_topic_is_learned_once() -> None:
    assert [(one.topic_id, one.incarnation) for one in FIRST["logs"]] == [("a", 1)]
    # Another id under a known name is not learned: that is for a policy to accept.
    assert learned(FIRST, {"logs": "b"}, 2) is FIRST
    assert sorted(learned(FIRST, {"logs": "b", "more": "c"}, 2)) == ["logs", "more"]


def test_a_recreated_topic_is_the_next_incarnation_and_accepted_once() -> None:
    recreated = change(TopicChange.RECREATED, "b", 1)
    topics = accepted(FIRST, recreated, "run 1", 5)
    last = newest(topics, "logs")
    assert (last.topic_id, last.incarnation, last.since, last.starts) == ("b", 2, 5, ())
    assert last.begun is not None
    assert (last.begun.change, last.begun.policy, last.begun.run) == ("recreated", "a policy", "run 1")
    assert accepted(topics, recreated, "run 2", 6) is topics
    assert topics["logs"][0] == FIRST["logs"][0]


def test_a_log_that_was_cut_is_the_next_incarnation_of_the_same_topic() -> None:
    cut = change(TopicChange.TRUNCATED, "a", 1, (0, 3), (1, 8))
    topics = accepted(FIRST, cut, "run 1", 5)
    last = newest(topics, "logs")
    assert (last.topic_id, last.incarnation, last.starts) == ("a", 2, ((0, 3), (1, 8)))
    assert accepted(topics, cut, "run 2", 6) is topics
    # It may be cut again.
    assert newest(accepted(topics, change(TopicChange.TRUNCATED, "a", 2, (0, 1)), "run 3", 7), "logs").incarnation == 3


def test_a_deleted_topic_is_left_and_may_come_back() -> None:
    gone = change(TopicChange.DELETED, "", 1)
    topics = accepted(FIRST, gone, "run 1", 5)
    assert newest(topics, "logs").left is not None
    assert accepted(topics, gone, "run 2", 6) is topics
    back = newest(accepted(topics, change(TopicChange.RECREATED, "b", 1), "run 3", 7), "logs")
    assert (back.topic_id, back.incarnation, back.left) == ("b", 2, None)


@pytest.mark.covers("Q26")
@given(st.lists(st.integers(0, 9), max_size=3), st.integers(1, 4), st.integers(0, 9))
def test_what_is_written_of_a_message_names_that_message(cuts: list[int], incarnation: int, offset: int) -> None:
    """A page's picked message is erased by what the page has written of it."""
    topics = FIRST
    for number, start in enumerate(cuts, start=1):
        topics = accepted(topics, change(TopicChange.TRUNCATED, "a", number, (0, start)), "run", number)
    at = Coordinate(TopicPartition("logs", 0, min(incarnation, len(cuts) + 1)), offset)
    named = parse_records(written(topics, at))
    assert list(assign_incarnations(topics, named.open) | named.exact) == [at.as_range()]
    if not cuts:
        assert written(topics, at) == f"logs/0@{offset}"


@pytest.mark.covers("Q26")
@given(st.lists(st.integers(0, 9), max_size=3), st.integers(1, 4), st.sets(st.integers(0, 9), min_size=1))
def test_ranges_after_their_partition_name_these_very_offsets(
    cuts: list[int], incarnation: int, offsets: set[int]
) -> None:
    topics = FIRST
    for number, start in enumerate(cuts, start=1):
        topics = accepted(topics, change(TopicChange.TRUNCATED, "a", number, (0, start)), "run", number)
    at = TopicPartition("logs", 0, min(incarnation, len(cuts) + 1))
    ranges = RangeSet(OffsetRange(at, offset, offset + 1) for offset in offsets)
    place = written_partition(topics, ranges)
    named = parse_ranges("\n".join(f"{place}@{one.start}-{one.until}" for one in ranges))
    assert assign_incarnations(topics, named.open) | named.exact == ranges
    if not cuts:
        assert place == "logs/0"


@pytest.mark.covers("Q26")
@pytest.mark.parametrize(
    ("kept", "asked"),
    [
        ("logs/0", "logs#1/0"),
        ("logs#2/0", "logs#2/0"),
        # Below the cut of a log, what names no incarnation is of the first one.
        ("cut/0@4", "cut/0@4"),
        ("cut/0@4-5", "cut/0@4-5"),
        ("cut/0@4-7", "cut#1/0@4-7"),
        ("cut/0@5", "cut#1/0@5"),
        ("cut/0", "cut#1/0"),
        ("block logs/0@1000", "block logs#1/0@1000"),
        # Contributions to keys, which messages bring.
        ("logs/0@12000 host, logs/0@5", "logs#1/0@12000 host, logs/0@5"),
        ("logs/0@5 #x@y\nlogs/0@6", "logs#1/0@5 #x@y\nlogs/0@6"),
        # No offsets, whatever topics are called.
        ("window logs/12", "window logs/12"),
        ("other/0", "other/0"),
        ("other/0@5", "other/0@5"),
        ("logs/0@5-", "logs/0@5-"),
    ],
)
def test_what_a_report_has_kept_names_the_incarnation_that_was_meant(kept: str, asked: str) -> None:
    topics = {
        "logs": accepted(FIRST, change(TopicChange.RECREATED, "b", 1), "run", 1)["logs"],
        "cut": accepted(FIRST, change(TopicChange.TRUNCATED, "a", 1, (0, 5)), "run", 1)["logs"],
    }
    assert rewritten(topics, kept) == asked
