"""Exactly where a plan stops, and what it names when a policy lets it go on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.compactions import committed
from tests.support.plans import REQUEST, TOPIC, at, found, gaps, head, kafka, read, request
from tidemark.clients.kafka.topics import PartitionLog, TopicLog
from tidemark.errors import (
    LogTruncated,
    OffsetsOutOfRange,
    PartitionsChanged,
    TidemarkError,
    TopicGone,
    TopicRecreated,
    WrongUse,
)
from tidemark.ledger.records import Guarantee, LaneKind, Pending, SelectionRef, positions
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.planning.checking import reached
from tidemark.planning.inputs import KafkaState, Policies
from tidemark.planning.planner import limit_of, next_selected, next_window, share, skipping


def selected(*ranges: tuple[int, int], kind: LaneKind = LaneKind.REPLAY, **asked: Any) -> Any:
    selection = RangeSet(OffsetRange(at(0), start, until) for start, until in ranges)
    lane = structs.replace(head(p0=ranges[0][0]), kind=kind, lane=f"{kind.value}-1")
    known = asked.pop("known", kafka((0, 50)))
    return next_selected(lane, known, replace(REQUEST, **asked), selection, SelectionRef("d", selection.count()))


@pytest.mark.covers("E19")
@pytest.mark.parametrize(
    ("position", "start", "stops"), [(5, 5, False), (5, 6, True), (5, 100, True), (0, 0, False), (0, 1, True)]
)
def test_a_position_below_the_log_start_stops_the_plan(position: int, start: int, stops: bool) -> None:
    known = kafka((start, 200))
    for asked in (REQUEST, replace(REQUEST, max_behind=10)):
        if stops:
            # `max_behind` alone passes over nothing that Kafka has lost.
            said = rf"logs/0@{position}-{start} is no longer in Kafka: the log now begins at {start}"
            with pytest.raises(OffsetsOutOfRange, match=said):
                next_window(head(p0=position), known, asked)
        else:
            assert next_window(head(p0=position), known, asked) is not None


def test_of_a_selection_only_what_was_wanted_is_named_as_lost() -> None:
    with pytest.raises(OffsetsOutOfRange, match=r"logs/0@5-8 is no longer in Kafka: the log now begins at 20"):
        selected((5, 8), known=kafka((20, 50)))
    with pytest.raises(OffsetsOutOfRange, match=r"logs/0@5-7 is no longer"):
        selected((5, 8), known=kafka((7, 50)))
    assert selected((5, 8), known=kafka((5, 8))) is not None


def test_a_selection_above_the_end_of_its_log_stops_the_plan() -> None:
    with pytest.raises(LogTruncated, match="logs/0 ends at 7, below 8"):
        selected((5, 8), known=kafka((0, 7)))


@pytest.mark.covers("E21")
@pytest.mark.parametrize(("end", "stops"), [(4, True), (7, True), (8, False), (9, False)])
def test_a_selection_over_a_cut_stops_the_plan(end: int, stops: bool) -> None:
    known = replace(kafka((0, 50)), epoch_ends={at(0): end})
    if stops:
        with pytest.raises(LogTruncated, match=rf"logs/0@{end}-8 is not what was read: the log was cut at {end}"):
            selected((2, 8), known=known)
    else:
        assert read(selected((2, 8), known=known)) == {0: (2, 8)}


@pytest.mark.covers("E21")
@pytest.mark.parametrize(("end", "stops"), [(4, True), (5, False)])
def test_a_position_above_a_cut_stops_the_plan(end: int, stops: bool) -> None:
    known = replace(kafka((0, 50)), epoch_ends={at(0): end})
    asks = (
        lambda: next_window(head(p0=5), known, REQUEST),
        lambda: skipping(head(p0=5), known, replace(REQUEST, reason="r"), {at(0): 9}),
    )
    for ask in asks:
        if stops:
            with pytest.raises(LogTruncated, match=r"logs/0@4-5 is not what was read"):
                ask()
        else:
            assert ask() is not None


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_only_the_ingest_has_another_guarantee(guarantee: Guarantee) -> None:
    assert next_window(head(p0=5), kafka((0, 9)), replace(REQUEST, guarantee=guarantee)).guarantee == guarantee
    for kind in (LaneKind.REPLAY, LaneKind.BACKFILL):
        assert selected((5, 8), kind=kind, guarantee=guarantee).guarantee == Guarantee.AT_LEAST_ONCE
    jump = skipping(head(p0=5), kafka((0, 9)), replace(REQUEST, reason="r", guarantee=guarantee), {at(0): 7})
    assert jump.guarantee == Guarantee.AT_LEAST_ONCE


def test_a_window_says_what_it_was_planned_from() -> None:
    lane = structs.replace(head(p0=5), seq=6)
    known = kafka((2, 9), (0, 4))
    window = next_window(lane, known, replace(REQUEST, reason="why", max_records=3))
    assert window is not None
    assert (window.seq, window.isolation, window.pinned_at, window.run) == (7, "read_committed", 1, "r")
    assert (window.reason, window.topic_ids, window.selection, window.gaps) == ("why", {TOPIC: "id"}, None, ())
    # How far the run goes, whatever one window takes.
    assert window.goal == positions({at(0): 9, at(1): 4})
    assert [(one.log_start, one.log_end, one.leader_epoch) for one in window.ranges] == [(2, 9, 0), (0, 4, 0)]
    again = selected((5, 8))
    assert (again.goal, again.gaps, again.seq) == ((), (), 1)


def test_a_lane_with_a_pending_window_plans_none() -> None:
    window = next_window(head(p0=5), kafka((0, 9)), REQUEST)
    assert window is not None
    busy = structs.replace(head(p0=5), pending=Pending(window=window, token="t", previous=None))
    with pytest.raises(WrongUse, match="s/ingest has a pending window"):
        next_window(busy, kafka((0, 9)), REQUEST)


def test_a_goal_below_the_position_or_above_the_end() -> None:
    assert next_window(head(p0=5), kafka((0, 9)), REQUEST, {at(0): 3}) is None
    assert read(next_window(head(p0=5), kafka((0, 9)), REQUEST, {at(0): 30})) == {0: (5, 9)}
    # A partition that the goal does not name came later: it waits for the next run.
    assert read(next_window(head(p0=5, p1=0), kafka((0, 9), (0, 9)), REQUEST, {at(0): 7})) == {0: (5, 7), 1: (0, 0)}


@given(
    st.integers(0, 20),
    st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted),
    st.sampled_from(["fail", "earliest", "latest"]),
    st.none() | st.integers(1, 15),
    st.booleans(),
)
def test_every_offset_up_to_the_end_is_read_or_named_once(
    position: int, log: list[int], policy: str, max_behind: int | None, begins: bool
) -> None:
    """Lost is what Kafka no longer has, skipped what a policy passes over; nothing else is left out."""
    start, end = log
    asked = replace(REQUEST, policies=Policies(on_out_of_range=policy), max_behind=max_behind)
    goal = None if begins else {at(0): end}
    if position > end:
        with pytest.raises(LogTruncated):
            next_window(head(p0=position), kafka((start, end)), asked, goal)
        return
    if position < start and policy == "fail":
        with pytest.raises(OffsetsOutOfRange):
            next_window(head(p0=position), kafka((start, end)), asked, goal)
        return
    window = next_window(head(p0=position), kafka((start, end)), asked, goal)
    if window is None:
        assert position == end
        return
    named = [
        *((kind, offset) for kind, _, first, until in gaps(window) for offset in range(first, until)),
        *(("read", offset) for offset in range(*read(window)[0])),
    ]
    assert [offset for _, offset in named] == list(range(position, end))
    kinds = {offset: kind for kind, offset in named}
    for offset in range(position, end):
        far = begins and max_behind is not None and offset < end - max_behind
        if offset < start:
            assert kinds[offset] == "lost"
        elif policy == "latest" and position < start:
            assert kinds[offset] == "skipped"
        else:
            assert kinds[offset] == ("skipped" if far else "read")


@given(st.integers(0, 20), st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), st.integers(0, 25))
def test_a_skip_names_every_offset_that_it_passes(position: int, log: list[int], target: int) -> None:
    start, end = log
    asked = replace(REQUEST, reason="noise")
    ask = (head(p0=position), kafka((start, end)), asked, {at(0): target})
    if target < position or target > end or target == position:
        with pytest.raises(WrongUse):
            skipping(*ask)
        return
    window = skipping(*ask)
    named = [(kind, offset) for kind, _, first, until in gaps(window) for offset in range(first, until)]
    assert named == [("lost" if offset < start else "skipped", offset) for offset in range(position, target)]
    assert read(window) == {0: (target, target)}
    assert {gap.policy for gap in window.gaps} == {"ledger skip: noise"}


def test_topics_that_are_not_what_they_were() -> None:
    other = KafkaState({TOPIC: TopicLog("new", {0: PartitionLog(0, 9, 0)})}, {})
    asks: dict[str, Any] = {
        "ingest": lambda known: next_window(head(p0=5), known, REQUEST),
        "skip": lambda known: skipping(head(p0=5), known, replace(REQUEST, reason="r"), {}),
        "selection": lambda known: selected((5, 8), known=known),
    }
    for ask in asks.values():
        with pytest.raises(TopicRecreated, match="topic logs has id new"):
            ask(other)
        with pytest.raises(TopicGone, match="topic logs no longer exists"):
            ask(KafkaState({}, {}))
    with pytest.raises(PartitionsChanged, match=r"logs/0@5-8 cannot be read"):
        selected((5, 8), known=KafkaState({TOPIC: TopicLog("id", {1: PartitionLog(0, 9, 0)})}, {TOPIC: 1}))


def test_an_accepted_topic_follows_the_newest_incarnation_that_was_read() -> None:
    two = at(0)._replace(incarnation=2)
    lane = structs.replace(head(), positions=positions({at(0): 5, two: 3, at(1): 5}))
    recreated = kafka((0, 9), (0, 9), topic_id="new", known_as=None)
    assert found(lane, recreated, request(on_recreated="accept")) == [("recreated", TOPIC, 2, ())]
    # One that was never read follows the first.
    assert found(head(), recreated, request(on_recreated="accept")) == [("recreated", TOPIC, 1, ())]


@pytest.mark.parametrize(
    ("end", "epoch_end", "starts"),
    [(9, None, None), (10, None, None), (8, None, 8), (20, 9, None), (20, 10, None), (20, 8, 8), (7, 8, 7)],
)
def test_a_log_is_cut_only_below_the_position(end: int, epoch_end: int | None, starts: int | None) -> None:
    known = replace(kafka((0, end)), epoch_ends={} if epoch_end is None else {at(0): epoch_end})
    accepted = found(head(p0=9), known, request(on_truncated="accept"))
    assert accepted == ([] if starts is None else [("truncated", TOPIC, 1, ((0, starts),))])
    assert found(head(p0=9), known, REQUEST) == []


def test_where_no_positions_are_kept_any_more_the_last_window_says_how_far_it_was_read() -> None:
    record = committed("", 1, range(5, 9)).record
    for guarantee, reads_up_to in (
        (Guarantee.NONE, {at(0): 9, at(1): 4}),
        (Guarantee.AT_LEAST_ONCE, {at(0): 5, at(1): 4}),
    ):
        window = structs.replace(record.window, guarantee=guarantee)
        last = structs.replace(record, window=window)
        assert reached(structs.replace(head(p0=5, p1=4), last=last)) == reads_up_to


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_a_chosen_partition_that_is_not_there_is_named_with_those_that_are(partitions: int) -> None:
    known = replace(kafka(*[(0, 9)] * partitions), chosen={TOPIC: (0, 7)})
    there = "only 0" if partitions == 1 else f"0 to {partitions - 1}"
    with pytest.raises(WrongUse, match=f"logs/7 does not exist; there are {there}"):
        next_window(head(p0=1), known, REQUEST)


def test_a_limit_is_reached_exactly() -> None:
    ranges = {at(0): (0, 10), at(1): (5, 5)}
    assert share(ranges, 10) == ranges
    assert share(ranges, None) == ranges
    assert share(ranges, 9) == {at(0): (0, 9), at(1): (5, 5)}
    assert limit_of(ranges, REQUEST) is None
    assert limit_of(ranges, replace(REQUEST, max_records=4)) == 4
    sized = replace(REQUEST, max_bytes=100, bytes_per_offset={at(0): 10})
    assert limit_of(ranges, sized) is None
    assert limit_of(ranges, replace(sized, max_bytes=99)) == 9
    assert limit_of(ranges, replace(sized, max_bytes=99, max_records=2)) == 2


def test_every_refusal_has_the_exit_code_of_its_kind() -> None:
    codes = {LogTruncated: 4, OffsetsOutOfRange: 4, TopicGone: 4, TopicRecreated: 4, PartitionsChanged: 4, WrongUse: 2}
    for kind, code in codes.items():
        assert issubclass(kind, TidemarkError)
        assert kind("x").exit_code == code
