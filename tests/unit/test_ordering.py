"""Which message of a key is the newest one, when partitions are added and topics recreated."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemark.ledger.incarnations import Change, Topics, accepted, learned, newest
from tidemark.ledger.ordering import PRODUCERS_LOOK_MS, Epochs, noted
from tidemark.ledger.records import RaisedOrder, TopicChange, TopicIncarnation
from tidemark.offsets.ranges import TopicPartition

LEARNED: Topics = learned({}, {"logs": "a"}, 1)


def at(partition: int, incarnation: int = 1) -> TopicPartition:
    return TopicPartition("logs", partition, incarnation)


def ends(*offsets: int) -> dict[TopicPartition, int]:
    return {at(partition): offset for partition, offset in enumerate(offsets)}


FIRST = noted(LEARNED, ends(1000, 70), 5)


def order(topics: Topics, partition: int, offset: int, incarnation: int = 1) -> tuple[int, int]:
    return Epochs(topics).of(at(partition, incarnation), offset), offset


def test_what_is_known_is_not_noted_again() -> None:
    assert newest(FIRST, "logs").partitions == 2
    assert newest(FIRST, "logs").raised == ()
    assert noted(FIRST, ends(1200, 90), PRODUCERS_LOOK_MS * 9) is FIRST
    assert order(FIRST, 0, 10**12) == (1, 10**12)


def test_a_key_that_moves_to_an_added_partition_is_newer_there() -> None:
    added = noted(FIRST, ends(1000, 70, 4), 100)
    # Everything in the added partition, also what lay there before anybody looked.
    assert order(added, 2, 0) > order(added, 0, 999)
    # A key that stays is in the order of its offsets.
    assert order(added, 0, 999) < order(added, 0, 1000) < order(added, 0, 5000)
    # One that moved between older partitions is newer above the line.
    assert order(added, 1, 70) > order(added, 0, 999)
    # A producer that has not noticed yet writes to the older partition: that is below the added one too.
    assert order(added, 2, 0) > order(added, 0, 1003)


def test_the_older_partitions_follow_when_all_producers_have_noticed() -> None:
    added = noted(FIRST, ends(1000, 70, 4), 100)
    assert noted(added, ends(1003, 80, 9), 100 + PRODUCERS_LOOK_MS - 1) is added
    settled = noted(added, ends(1010, 90, 20), 100 + PRODUCERS_LOOK_MS)
    assert noted(settled, ends(2000, 200, 50), PRODUCERS_LOOK_MS * 9) is settled
    # Of what was read before, nothing has changed.
    for partition, until in enumerate((1010, 90, 20)):
        for offset in range(until):
            assert order(settled, partition, offset) == order(added, partition, offset)
    assert order(settled, 0, 1009) < order(settled, 1, 90)
    assert order(settled, 2, 19) < order(settled, 2, 20)
    assert order(settled, 2, 0)[0] == order(settled, 0, 1010)[0]


def test_partitions_are_added_again_at_once() -> None:
    topics = noted(noted(FIRST, ends(1000, 70, 4), 100), ends(1005, 75, 30, 0, 2), 101)
    assert [one.later is None for one in newest(topics, "logs").raised] == [False, True]
    assert order(topics, 4, 0) > order(topics, 2, 29)
    assert order(topics, 4, 0) > order(topics, 2, 40)
    assert order(topics, 0, 999) < order(topics, 0, 1001) < order(topics, 0, 1005)


def test_partitions_that_were_added_before_a_cut_was_seen_are_noted() -> None:
    change = Change(TopicChange.TRUNCATED, "logs", "a", 1, "accept", ((0, 900), (1, 70)))
    cut = accepted(FIRST, change, "run", 200)
    ends_now = {at(0, 2): 905, at(1, 2): 70, at(2, 2): 4}
    topics = noted(cut, ends_now, 200)
    # A key has moved to the added partition: its message there is newer, at whatever offset.
    assert order(topics, 2, 0, incarnation=2) > order(topics, 0, 904, incarnation=2)


def test_partitions_that_producers_may_not_know_yet_when_a_log_is_cut() -> None:
    """A key is still written to its older partition, and moves when its producer has noticed, behind the cut."""
    added = noted(FIRST, ends(1000, 70, 4), 100)
    change = Change(TopicChange.TRUNCATED, "logs", "a", 1, "accept", ((0, 900), (1, 70), (2, 4)))
    cut = noted(accepted(added, change, "run", 200), {at(0, 2): 910, at(1, 2): 75, at(2, 2): 5}, 200)
    assert order(cut, 2, 0, incarnation=2) > order(cut, 0, 909, incarnation=2) > order(cut, 2, 10**6)
    settled = noted(cut, {at(0, 2): 920, at(1, 2): 75, at(2, 2): 9}, 100 + PRODUCERS_LOOK_MS)
    assert order(settled, 0, 920, incarnation=2)[0] == order(settled, 2, 5, incarnation=2)[0]


def test_a_partition_that_kafka_did_not_have_when_the_log_was_cut_may_rise_from_its_beginning() -> None:
    added = noted(FIRST, ends(1000, 70, 4), 100)
    change = Change(TopicChange.TRUNCATED, "logs", "a", 1, "accept", ((0, 900),))
    (rising,) = newest(accepted(added, change, "run", 200), "logs").raised
    assert rising.ends == ((0, 900), (1, 0))


def test_a_recreated_topic_is_newer_than_all_before() -> None:
    added = noted(FIRST, ends(1000, 70, 4), 100)
    change = Change(TopicChange.RECREATED, "logs", "b", 1, "accept")
    topics = noted(accepted(added, change, "run", 200), {at(0, 2): 3}, 200)
    assert order(topics, 0, 0, incarnation=2) > order(topics, 2, 10**6)
    # The number itself: rows keep it, and it is compared with that of rows which are written later.
    assert order(topics, 0, 0, incarnation=2) == (4, 0)
    assert (newest(topics, "logs").partitions, newest(topics, "logs").raised) == (1, ())
    # What the topic was before stays as it was.
    assert [order(topics, 0, offset) for offset in (0, 1000)] == [order(added, 0, offset) for offset in (0, 1000)]
    # Ends of an incarnation that the ledger does not know are not noted.
    assert noted(added, {at(0, 2): 3}, 300) is added


def test_many_messages_have_the_epochs_that_each_has() -> None:
    """Of topics, incarnations and partitions among each other; the highest is that of no message above it."""
    added = RaisedOrder(at=1, ends=((0, 5), (1, 7)), later=((0, 9),))
    topics = {
        "logs": (
            TopicIncarnation(topic_id="a", incarnation=1, since=1, partitions=3, raised=(added,)),
            TopicIncarnation(topic_id="b", incarnation=2, since=2),
        ),
        "other": (TopicIncarnation(topic_id="c", incarnation=1, since=1),),
    }
    epochs = Epochs(topics)
    messages = [
        (topic, incarnation, partition, offset)
        for offset in (0, 5, 7, 9)
        for partition in (0, 1, 2)
        for topic, incarnation in (("logs", 1), ("other", 1), ("logs", 2))
    ]
    each = [epochs.of(TopicPartition(topic, partition, of), offset) for topic, of, partition, offset in messages]
    arrays = [np.array(values) for values in zip(*messages, strict=True)]
    assert epochs.of_all(*arrays).tolist() == each
    assert epochs.highest == max(each) == 4
    assert Epochs({}).highest == 0
    # A partition that was gone when all producers had noticed is as far as it can be from its beginning on.
    assert epochs.of(at(1), 6) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 400_000)), max_size=12))
def test_a_message_keeps_its_epoch_and_a_partition_its_order(steps: list[tuple[int, int, int]]) -> None:
    """Whenever partitions are added and logs grow: what lies below the ends keeps its epoch, and epochs rise with offsets."""
    topics, logs, now = noted(LEARNED, ends(3), 0), [3], 0
    known: dict[tuple[int, int], int] = {}
    for added, grown, passed in steps:
        now += passed
        logs = [end + grown for end in logs] + [grown] * added
        topics = noted(topics, ends(*logs), now)
        epochs = Epochs(topics)
        for partition, end in enumerate(logs):
            found = [epochs.of(at(partition), offset) for offset in range(end + 1)]
            assert found == sorted(found)
            for offset in range(end):
                assert known.setdefault((partition, offset), found[offset]) == found[offset]
