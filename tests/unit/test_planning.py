"""Which offsets come next: the planner's rules, as values in and values out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.plans import REQUEST, TOPIC, at, found, gaps, head, kafka, read, request
from tidemark.errors import (
    LogTruncated,
    OffsetsOutOfRange,
    PartitionsChanged,
    TopicGone,
    TopicRecreated,
    TopicUnknown,
    WrongUse,
)
from tidemark.ledger.records import LaneKind, SelectionRef, positions
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.planning.checking import changes
from tidemark.planning.inputs import KafkaState, Policies
from tidemark.planning.planner import limit_of, next_selected, next_window, offsets_within, share
from tidemark.planning.starting import offsets_at_time, shifted, start_positions
from tidemark.runs.requests.selecting import between


@pytest.mark.covers("E29")
def test_from_the_positions_to_the_ends() -> None:
    window = next_window(head(p0=5, p1=7), kafka((0, 9), (0, 7)), REQUEST)
    # The partition without anything new is listed all the same: it keeps its position.
    assert read(window) == {0: (5, 9), 1: (7, 7)}


@pytest.mark.covers("A19")
def test_nothing_new_is_no_window() -> None:
    assert next_window(head(p0=9, p1=0), kafka((0, 9), (0, 0)), REQUEST) is None


@pytest.mark.covers("O2", "E32")
def test_a_new_partition_begins_at_its_log_start() -> None:
    window = next_window(head(p0=9), kafka((0, 9), (3, 8)), REQUEST)
    assert read(window) == {0: (9, 9), 1: (3, 8)}


@pytest.mark.covers("O2", "A20", "E32")
def test_a_new_lane_begins_at_the_log_starts_or_at_the_ends() -> None:
    known = kafka((4, 9), (0, 0))
    assert {one.at: one.offset for one in start_positions(known, (TOPIC,), "earliest")} == {at(0): 4, at(1): 0}
    assert {one.at: one.offset for one in start_positions(known, (TOPIC,), "latest")} == {at(0): 9, at(1): 0}


@pytest.mark.covers("E32")
def test_offset_0_is_a_position_like_any_other() -> None:
    assert read(next_window(head(p0=0), kafka((0, 8)), REQUEST)) == {0: (0, 8)}
    # A partition without a position begins at the log start, as above; this one has a position.
    with pytest.raises(OffsetsOutOfRange, match=r"logs/0@0-3"):
        next_window(head(p0=0), kafka((3, 8)), REQUEST)


@pytest.mark.covers("E19")
def test_offsets_that_kafka_has_removed_stop_the_plan_and_are_named() -> None:
    said = r"logs/0@5-9 is no longer in Kafka: the log now begins at 9"
    with pytest.raises(OffsetsOutOfRange, match=said) as caught:
        next_window(head(p0=5), kafka((9, 10)), REQUEST)
    assert caught.value.exit_code == 4


@pytest.mark.covers("A49", "A26")
def test_a_log_that_ends_below_the_position_stops_the_plan() -> None:
    with pytest.raises(LogTruncated, match="logs/0 ends at 1, below 3") as caught:
        next_window(head(p0=3), kafka((0, 1)), REQUEST)
    assert caught.value.exit_code == 4


@pytest.mark.covers("A04")
def test_out_of_range_goes_on_at_the_log_start_and_names_what_is_lost() -> None:
    """Position 5, log start 9, end 10."""
    earliest = replace(REQUEST, policies=Policies(on_out_of_range="earliest"))
    window = next_window(head(p0=5), kafka((9, 10)), earliest)
    assert read(window) == {0: (9, 10)}
    assert gaps(window) == [("lost", 0, 5, 9)]
    # Also when there is nothing to read behind it: the loss is recorded all the same.
    window = next_window(head(p0=5, p1=2), kafka((9, 9), (0, 2)), earliest)
    assert read(window) == {0: (9, 9), 1: (2, 2)}
    assert gaps(window) == [("lost", 0, 5, 9)]
    with pytest.raises(OffsetsOutOfRange, match=r"logs/0@5-9 is no longer in Kafka.*on_out_of_range"):
        next_window(head(p0=5), kafka((9, 10)), REQUEST)


def test_out_of_range_may_go_on_at_the_end() -> None:
    latest = replace(REQUEST, policies=Policies(on_out_of_range="latest"))
    window = next_window(head(p0=5, p1=1), kafka((9, 12), (0, 4)), latest)
    assert read(window) == {0: (12, 12), 1: (1, 4)}
    assert gaps(window) == [("lost", 0, 5, 9), ("skipped", 0, 9, 12)]


def test_a_log_that_ends_below_the_position_is_truncated_whatever_the_policy() -> None:
    for policy in ("earliest", "latest"):
        with pytest.raises(LogTruncated):
            next_window(
                head(p0=5), kafka((0, 3)), replace(REQUEST, policies=Policies(on_out_of_range=policy), max_behind=1)
            )


@pytest.mark.covers("S4")
def test_what_lies_too_far_behind_is_skipped_and_named() -> None:
    request = replace(REQUEST, max_behind=10)
    window = next_window(head(p0=0, p1=85, p2=90), kafka((0, 100), (0, 100), (0, 100)), request)
    assert read(window) == {0: (90, 100), 1: (90, 100), 2: (90, 100)}
    assert gaps(window) == [("skipped", 0, 0, 90), ("skipped", 1, 85, 90)]
    # Within a run nothing is skipped: it goes on to the end that it saw.
    window = next_window(head(p0=20), kafka((0, 500)), request, {at(0): 100})
    assert (read(window), gaps(window)) == ({0: (20, 100)}, [])
    # Lost and skipped together: each offset is named once.
    both = replace(request, policies=Policies(on_out_of_range="earliest"))
    window = next_window(head(p0=5), kafka((50, 100)), both)
    assert read(window) == {0: (90, 100)}
    assert gaps(window) == [("lost", 0, 5, 50), ("skipped", 0, 50, 90)]


def test_a_start_at_offsets_takes_them_and_a_policy_for_the_others() -> None:
    known = kafka((4, 9), (0, 7))
    given = {(TOPIC, 0): 6}
    assert {one.at: one.offset for one in start_positions(known, (TOPIC,), "earliest", given)} == {at(0): 6, at(1): 0}
    assert {one.at: one.offset for one in start_positions(known, (TOPIC,), "latest", given)} == {at(0): 6, at(1): 7}
    for edge in (4, 9):
        assert start_positions(known, (TOPIC,), "latest", {(TOPIC, 0): edge}) == positions({at(0): edge, at(1): 7})
    for wrong, kind, said in (
        ({(TOPIC, 0): 3}, OffsetsOutOfRange, "logs/0 begins at 4 now, 3 is below it"),
        ({(TOPIC, 0): 10}, WrongUse, "logs/0 ends at 9 now, 10 lies above it"),
        ({(TOPIC, 5): 0}, WrongUse, "logs/5 does not exist"),
    ):
        with pytest.raises(kind, match=said):
            start_positions(known, (TOPIC,), "earliest", wrong)


def test_offsets_are_moved_no_further_than_their_logs_reach() -> None:
    known = kafka((4, 9), (0, 7))
    # The last partition is not there; who asks for it is told when the lane begins.
    given = {(TOPIC, 0): 6, (TOPIC, 1): 3, (TOPIC, 5): 2}
    for shift, first, second in ((2, 8, 5), (-1, 5, 2), (-5, 4, 0), (5, 9, 7)):
        assert shifted(known, given, shift) == {(TOPIC, 0): first, (TOPIC, 1): second, (TOPIC, 5): 2}


def test_a_time_after_the_last_message_is_an_error_or_the_end_and_never_offset_0() -> None:
    known = kafka((4, 9), (2, 7))
    found = {(TOPIC, 0): 6, (TOPIC, 1): None}
    with pytest.raises(
        WrongUse, match="no message at or after 10:00 in logs/1: take an earlier time, or say `if_none: end`"
    ):
        offsets_at_time(known, found, "10:00", "fail")
    assert offsets_at_time(known, found, "10:00", "end") == {(TOPIC, 0): 6, (TOPIC, 1): 7}
    # A message that came after the ends were taken is not jumped to.
    assert offsets_at_time(known, {(TOPIC, 0): 11, (TOPIC, 1): 2}, "10:00", "fail") == {(TOPIC, 0): 9, (TOPIC, 1): 2}


@pytest.mark.covers("E20")
def test_a_recreated_topic_stops_the_plan_even_if_its_offsets_look_valid() -> None:
    with pytest.raises(TopicRecreated, match="topic logs has id new") as caught:
        next_window(head(p0=5), kafka((0, 100), topic_id="new", known_as=None), REQUEST)
    assert caught.value.exit_code == 4


def test_a_topic_that_is_not_there() -> None:
    nothing = KafkaState({}, {})
    with pytest.raises(TopicUnknown, match="topic logs does not exist"):
        start_positions(nothing, (TOPIC,), "earliest")
    with pytest.raises(TopicGone, match="no longer exists"):
        next_window(head(p0=5), nothing, REQUEST)


def test_only_a_policy_accepts_another_topic_and_it_may_be_one_of_that_topic_alone() -> None:
    recreated = kafka((0, 100), topic_id="new", known_as=None)
    assert found(head(p0=5), recreated, REQUEST) == []
    assert found(head(p0=5), recreated, request(on_recreated="accept")) == [("recreated", TOPIC, 1, ())]
    by_topic = replace(REQUEST, by_topic={TOPIC: Policies(on_recreated="accept")})
    assert len(changes(head(p0=5), recreated, by_topic)) == 1
    assert changes(head(p0=5), recreated, replace(by_topic, by_topic={"other": Policies(on_recreated="accept")})) == []
    # Accepted once, there is nothing left to accept.
    assert found(head(p0=5), kafka((0, 100), topic_id="new", known_as=2), request(on_recreated="accept")) == []


def test_a_deleted_topic_that_is_left_is_not_waited_for() -> None:
    gone = KafkaState({}, {})
    assert found(head(p0=5), gone, request(on_deleted="leave")) == [("deleted", TOPIC, 1, ())]
    # A topic that was never read is a mistake whatever the policy.
    assert found(head(), gone, request(on_deleted="leave")) == []
    left = replace(gone, left=frozenset({TOPIC}))
    assert found(head(p0=5), left, request(on_deleted="leave")) == []
    assert next_window(head(p0=5), left, REQUEST) is None


@pytest.mark.covers("E21")
def test_a_log_that_was_cut_is_read_on_from_the_cut() -> None:
    """Partition 0 ends below its position; partition 1 was cut at 4 and has grown over its position again."""
    known = replace(kafka((0, 3), (0, 50), (0, 9)), epoch_ends={at(1): 4, at(2): 9})
    before = head(p0=5, p1=7, p2=8)
    with pytest.raises(LogTruncated, match="logs/0 ends at 3, below 5"):
        next_window(before, known, REQUEST)
    with pytest.raises(LogTruncated, match=r"logs/1@4-7 is not what was read: the log was cut at 4"):
        next_window(head(p1=7), known, REQUEST)
    accept = request(on_truncated="accept")
    assert found(before, known, accept) == [("truncated", TOPIC, 1, ((0, 3), (1, 4), (2, 8)))]
    # The next incarnation begins at the cuts, and where the others were.
    again = [at(partition)._replace(incarnation=2) for partition in range(3)]
    known = replace(known, incarnations={TOPIC: 2}, starts=dict(zip(again, (3, 4, 8), strict=True)), epoch_ends={})
    window = next_window(before, known, accept)
    assert read(window) == {0: (3, 3), 1: (4, 50), 2: (8, 9)}
    assert {one.incarnation for one in window.ranges} == {2} if window else False


def test_what_lies_below_a_cut_is_of_the_incarnation_before() -> None:
    """The messages below the cut were read under the older incarnation: read again they would count twice."""
    again = at(0)._replace(incarnation=2)
    known = replace(kafka((2, 9), known_as=2), starts={again: 4})
    assert offsets_within(known, RangeSet([OffsetRange(again, 0, 100)])) == RangeSet([OffsetRange(again, 4, 9)])
    assert between(known, None, None, since="", if_none="end") == RangeSet([OffsetRange(again, 4, 9)])
    lane = structs.replace(head(), kind=LaneKind.BACKFILL, lane="backfill-1")
    with pytest.raises(PartitionsChanged, match=r"logs#2/0@3-4 cannot be read: the log was cut at 4"):
        next_selected(lane, known, REQUEST, RangeSet([OffsetRange(again, 3, 6)]), SelectionRef("d", 3))
    allowed = next_selected(lane, known, REQUEST, RangeSet([OffsetRange(again, 4, 6)]), SelectionRef("d", 2))
    assert read(allowed) == {0: (4, 6)}


def test_chosen_partitions() -> None:
    known = replace(kafka((0, 5), (0, 6), (0, 7)), chosen={TOPIC: (0, 2)})
    assert {one.at: one.offset for one in start_positions(known, (TOPIC,), "latest")} == {at(0): 5, at(2): 7}
    # One that was read before and is no longer chosen keeps its position.
    assert read(next_window(head(p0=1, p1=2), known, REQUEST)) == {0: (1, 5), 2: (0, 7)}
    with pytest.raises(WrongUse, match=r"source\.partitions: logs/9 does not exist; there are 0 to 2"):
        next_window(head(), replace(known, chosen={TOPIC: (0, 9)}), REQUEST)


def test_a_partition_that_is_gone_stops_the_plan() -> None:
    with pytest.raises(PartitionsChanged, match="logs/1 no longer exists"):
        next_window(head(p0=5, p1=3), kafka((0, 9)), REQUEST)


def test_a_run_goes_no_further_than_the_end_that_it_saw() -> None:
    goal = {at(0): 7}
    assert read(next_window(head(p0=5), kafka((0, 900)), REQUEST, goal)) == {0: (5, 7)}
    assert next_window(head(p0=7), kafka((0, 900)), REQUEST, goal) is None


@pytest.mark.covers("A30")
def test_a_cap_is_shared_in_proportion_to_the_lags() -> None:
    capped = share({at(0): (0, 101), at(1): (0, 11), at(2): (0, 1)}, 10)
    assert {one.partition: until for one, (_, until) in capped.items()} == {0: 8, 1: 1, 2: 1}


@pytest.mark.covers("A30")
def test_fifteen_messages_at_most_five_at_a_time() -> None:
    windows, position = [], 0
    while window := next_window(head(p0=position), kafka((0, 15)), replace(REQUEST, max_records=5)):
        windows.append(read(window)[0])
        position = windows[-1][1]
    assert windows == [(0, 5), (5, 10), (10, 15)]


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=8), st.integers(1, 5_000))
def test_a_cap_starves_nobody(lags: list[int], limit: int) -> None:
    capped = share({at(number): (100, 100 + lag) for number, lag in enumerate(lags)}, limit)
    taken = [capped[at(number)][1] - 100 for number in range(len(lags))]
    assert all(0 <= part <= lag for part, lag in zip(taken, lags, strict=True))
    assert all(part > 0 for part, lag in zip(taken, lags, strict=True) if lag)
    # At most one record a partition above the cap, for those that would have got none.
    assert sum(taken) <= limit + len(lags)
    if sum(lags) <= limit:
        assert taken == lags


def limited(
    lags: dict[int, int], max_bytes: int, sizes: dict[int, float], max_records: int | None = None
) -> dict[int, int]:
    """How many records of each partition a window takes."""
    ranges = {at(number): (100, 100 + lag) for number, lag in lags.items()}
    known = {at(number): size for number, size in sizes.items()}
    request = replace(REQUEST, max_records=max_records, max_bytes=max_bytes, bytes_per_offset=known)
    return {one.partition: until - 100 for one, (_, until) in share(ranges, limit_of(ranges, request)).items()}


def test_a_window_is_limited_in_bytes() -> None:
    assert limited({0: 100}, 1_000, {0: 50}) == {0: 20}
    assert limited({0: 100}, 1_000, {0: 0.5}) == {0: 100}
    assert limited({0: 100_000}, 1_000, {0: 0.5}) == {0: 2_000}
    # The same part of each lag, whatever the sizes: 50 and 10 messages are 500 and 500 bytes.
    assert limited({0: 100, 1: 20}, 1_000, {0: 10, 1: 50}) == {0: 50, 1: 10}
    # Messages without keys and values weigh nothing, and take their part all the same.
    assert limited({0: 100}, 1, {0: 0}) == {0: 100}
    assert limited({0: 100, 1: 100}, 1_000, {0: 0, 1: 20}) == {0: 50, 1: 50}
    assert limited({}, 1, {}) == {}


def test_a_message_larger_than_the_limit_passes_by_itself() -> None:
    assert limited({0: 100, 1: 7, 2: 0}, 1_000, {0: 1e15, 1: 3, 2: 5}) == {0: 1, 1: 1, 2: 0}


def test_a_partition_of_which_nothing_is_known_begins_with_few_messages() -> None:
    assert limited({0: 1_000}, 10 * 1024 * 1024, {}) == {0: 10}


def test_of_both_limits_the_tighter_one_holds() -> None:
    assert limited({0: 100}, 1_000, {0: 50}, max_records=5) == {0: 5}
    assert limited({0: 100}, 1_000, {0: 50}, max_records=50) == {0: 20}


def test_a_selection_is_limited_in_bytes_too() -> None:
    selection = RangeSet([OffsetRange(at(0), 5, 6), OffsetRange(at(0), 9, 12)])
    request = replace(REQUEST, max_bytes=30, bytes_per_offset={at(0): 10})
    window = next_selected(head(p0=5), kafka((0, 50)), request, selection, SelectionRef("d", 4))
    assert read(window) == {0: (5, 11)}


@given(st.lists(st.tuples(st.integers(0, 10_000), st.floats(0, 1e9)), min_size=1, max_size=8), st.integers(1, 10**9))
def test_a_limit_in_bytes_starves_nobody(partitions: list[tuple[int, float]], limit: int) -> None:
    lags = {number: lag for number, (lag, _) in enumerate(partitions)}
    sizes = {number: size for number, (_, size) in enumerate(partitions)}
    taken = limited(lags, limit, sizes)
    assert all(0 <= part <= lags[number] for number, part in taken.items())
    assert all(taken[number] > 0 for number, lag in lags.items() if lag)
    # At most one message of each partition above the limit, for those that would have got none.
    size = sum(part * sizes[number] for number, part in taken.items())
    assert size <= (limit + sum(sizes.values())) * 1.000001
    if sum(lag * sizes[number] for number, lag in lags.items()) <= limit:
        assert taken == lags


def test_a_selection_is_read_up_to_its_end() -> None:
    selection = RangeSet([OffsetRange(at(0), 5, 6), OffsetRange(at(0), 9, 12), OffsetRange(at(1), 0, 3)])
    ref = SelectionRef("d", 7)
    lane = head(p0=5, p1=0)
    window = next_selected(lane, kafka((0, 50), (0, 50)), REQUEST, selection, ref)
    assert read(window) == {0: (5, 12), 1: (0, 3)}
    assert window is not None
    assert window.selection == ref
    assert next_selected(head(p0=12, p1=3), kafka((0, 50), (0, 50)), REQUEST, selection, ref) is None


def test_a_cap_is_shared_by_how_much_is_left_of_a_selection_wherever_that_lies() -> None:
    selection = RangeSet([OffsetRange(at(0), 30, 40), OffsetRange(at(1), 0, 5), OffsetRange(at(1), 7, 12)])
    limited = replace(REQUEST, max_records=10)
    window = next_selected(head(), kafka((0, 50), (0, 50)), limited, selection, SelectionRef("d", 20))
    assert read(window) == {0: (30, 35), 1: (0, 5)}


def test_a_selection_below_the_log_start_is_refused_and_named() -> None:
    selection = RangeSet([OffsetRange(at(0), 5, 8)])
    with pytest.raises(OffsetsOutOfRange, match=r"logs/0@5-7"):
        next_selected(head(p0=5), kafka((7, 50)), REQUEST, selection, SelectionRef("d", 3))


def test_a_selection_of_another_incarnation_is_refused() -> None:
    old = TopicPartition(TOPIC, 0, 1)
    with pytest.raises(PartitionsChanged, match="this incarnation of the topic, is gone"):
        next_selected(
            head(), kafka((0, 50), known_as=2), REQUEST, RangeSet([OffsetRange(old, 0, 3)]), SelectionRef("d", 3)
        )


def test_what_kafka_still_holds_of_a_request() -> None:
    wanted = RangeSet([OffsetRange(at(0), 0, 100), OffsetRange(at(7), 0, 5)])
    assert offsets_within(kafka((4, 9)), wanted) == RangeSet([OffsetRange(at(0), 4, 9)])
