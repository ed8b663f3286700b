"""When a message is tried again: the cases of Storm's own tests, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.functions.retries import ExponentialBackoff, NotWaiting, Retries
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition

AT = TopicPartition("logs", 0, 1)
START = 1_795_244_400_000

POLICIES = st.builds(
    ExponentialBackoff,
    initial_delay_ms=st.integers(0, 10_000),
    multiplier=st.floats(1, 10),
    max_delay_ms=st.integers(0, 100_000),
    limit=st.integers(0, 8),
    max_seconds=st.none() | st.floats(0.001, 100),
)


def message(offset: int) -> Coordinate:
    return Coordinate(AT, offset)


@pytest.mark.covers("A10")
@pytest.mark.parametrize(
    ("failures", "waits"),
    [(4, [100, 200, 400, 800]), (6, [100, 200, 400, 800, 1600, 2000])],
)
def test_the_waits_grow_up_to_the_maximum(failures: int, waits: list[int]) -> None:
    retries = Retries(ExponentialBackoff(100, 2.0, 2000, limit=-1, max_seconds=60))
    now, found = START, []
    for _ in range(failures):
        due = retries.failed(message(7), now).due_at
        assert due is not None
        found.append(due - now)
        assert retries.next_to_retry(due - 1) is None
        assert retries.next_to_retry(due) == message(7)
        retries.retry_started(message(7))
        now = due
    assert found == waits


def test_storms_own_defaults_try_again_at_once_and_for_ever() -> None:
    """An initial delay of 0 stays 0, however often a message fails; only the time ends it here."""
    storm = ExponentialBackoff(0, 1.0, 60_000, limit=-1, max_seconds=3)
    retries = Retries(storm)
    for number in range(1, 2001):
        assert retries.failed(message(7), START).due_at == START
        assert retries.failed(message(7), START).number == 2 * number
    assert retries.failed(message(7), START + 3000).due_at == START + 3000
    assert retries.failed(message(7), START + 3001).due_at is None


@pytest.mark.parametrize(("initial", "waits"), [(1, 60_000), (5, 60_000), (0, 0)])
def test_a_wait_beyond_all_numbers_is_the_longest(initial: int, waits: int) -> None:
    assert ExponentialBackoff(initial, 10.0, 60_000, limit=-1, max_seconds=1e9).delay_ms(5_000, 0) == waits


def test_a_retry_that_would_come_after_the_longest_time_is_not_waited_for() -> None:
    policy = ExponentialBackoff(400, limit=-1, max_seconds=1)
    assert policy.delay_ms(1, 600) == 400
    assert policy.delay_ms(1, 601) is None


def test_a_retry_without_a_wait_is_due_at_once_at_any_time() -> None:
    retries = Retries(ExponentialBackoff(0))
    assert retries.failed(message(7), 0).due_at == 0
    assert retries.next_to_retry(0) == message(7)


def test_with_a_limit_of_two_the_third_retry_is_refused() -> None:
    retries = Retries(ExponentialBackoff(limit=2))
    for _ in range(2):
        assert retries.failed(message(7), START).due_at is not None
    last = retries.failed(message(7), START + 5)
    assert (last.number, last.first_at, last.last_at, last.due_at) == (3, START, START + 5, None)
    assert (len(retries), retries.next_due_at()) == (0, None)


def test_with_a_limit_of_zero_nothing_is_tried_again() -> None:
    retries = Retries(ExponentialBackoff(limit=0))
    assert [retries.failed(message(offset), START).due_at for offset in range(4)] == [None] * 4


@pytest.mark.covers("A14")
def test_a_retry_starts_once_and_only_after_a_failure() -> None:
    retries = Retries(ExponentialBackoff(0))
    with pytest.raises(NotWaiting, match=r"logs/0@7"):
        retries.retry_started(message(7))
    assert retries.next_due_at() is None
    retries.failed(message(7), START)
    retries.failed(message(8), START)
    retries.retry_started(message(7))
    with pytest.raises(NotWaiting):
        retries.retry_started(message(7))
    # The other one waits as before, and this one is still known to have failed once.
    assert retries.next_to_retry(START) == message(8)
    assert retries.failed(message(7), START).number == 2


def test_a_message_that_succeeds_begins_anew() -> None:
    retries = Retries(ExponentialBackoff(limit=1))
    retries.failed(message(7), START)
    retries.acked(message(7))
    assert retries.next_due_at() is None
    assert retries.failed(message(7), START + 50).first_at == START + 50


@given(POLICIES, st.lists(st.integers(0, 5_000), max_size=12))
def test_waits_never_shrink_and_end_with_the_limit(policy: ExponentialBackoff, pauses: list[int]) -> None:
    retries, now, before, tries = Retries(policy), START, 0, 1
    for pause in pauses:
        found = retries.failed(message(1), now)
        if found.due_at is None:
            break
        assert before <= found.due_at - now <= policy.max_delay_ms
        before, now, tries = found.due_at - now, found.due_at + pause, tries + 1
        if policy.max_seconds is not None:
            assert found.due_at - START <= policy.max_seconds * 1000
    assert tries <= policy.limit + 1


STEPS = st.lists(
    st.tuples(st.sampled_from(["failed", "acked", "retry"]), st.integers(0, 5), st.integers(0, 300)),
    max_size=60,
)


@given(POLICIES, STEPS)
def test_it_decides_as_a_list_would(policy: ExponentialBackoff, steps: list[tuple[str, int, int]]) -> None:
    """Against the plainest way to keep the same: all failures in a dictionary, and a search at each question."""
    retries, now = Retries(policy), START
    known: dict[int, tuple[int, int]] = {}
    due: dict[int, int] = {}
    for kind, offset, pause in steps:
        now += pause
        if kind == "failed":
            number, first = known.get(offset, (0, now))
            known[offset] = number + 1, first
            delay = policy.delay_ms(number + 1, now - first)
            assert (retries.failed(message(offset), now).due_at is None) == (delay is None)
            due.pop(offset, None)
            if delay is not None:
                due[offset] = now + delay
        elif kind == "acked":
            retries.acked(message(offset))
            known.pop(offset, None)
            due.pop(offset, None)
        elif offset in due:
            retries.retry_started(message(offset))
            del due[offset]
        else:
            with pytest.raises(NotWaiting):
                retries.retry_started(message(offset))
        assert len(retries) == len(due)
        assert retries.next_due_at() == min(due.values(), default=None)
        chosen = retries.next_to_retry(now)
        ready = {one for one, at in due.items() if at <= now}
        assert (chosen is None) == (not ready)
        if chosen is not None:
            assert due[chosen.offset] == min(due.values())
