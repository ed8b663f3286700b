"""The error budget of a window: how many invalid messages are too many."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.commit.error_budget import BudgetUse, ErrorBudget, FrequentReason, spent, too_many
from tidemark.errors import EXIT_FAILED
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import TopicPartition
from tidemark.offsets.tallies import Count, PartitionTally

numbers = st.integers(0, 10**12)
# As people write shares in a file: decimal digits.
shares = st.decimals(0, 1, places=4)


@given(numbers, numbers, st.none() | numbers, st.none() | shares)
def test_a_budget_is_exceeded_by_more_than_it_allows(
    invalid: int, valid: int, number: int | None, share: Decimal | None
) -> None:
    read = invalid + valid
    by_number = number is not None and invalid > number
    by_share = share is not None and invalid > share * read
    budget = ErrorBudget(number, None if share is None else float(share))
    assert BudgetUse(invalid, read).exceeds(budget) == (by_number or by_share)


@given(st.integers(1, 10**6), st.decimals(0, "0.9999", places=4))
def test_exactly_the_share_is_within_the_budget(times: int, share: Decimal) -> None:
    read = 10_000 * times
    invalid = int(share * read)
    budget = ErrorBudget(share=float(share))
    assert not BudgetUse(invalid, read).exceeds(budget)
    assert BudgetUse(invalid + 1, read).exceeds(budget)


def test_the_share_of_an_empty_window_is_zero() -> None:
    assert spent(()) == BudgetUse(0, 0)
    assert BudgetUse(0, 0).share == 0
    assert not BudgetUse(0, 0).exceeds(ErrorBudget(0, 0.0))


@given(st.lists(st.tuples(*[st.integers(0, 100)] * 3), max_size=8))
def test_partitions_are_counted_together(counts: list[tuple[int, int, int]]) -> None:
    tallies = [
        PartitionTally(
            topic="logs",
            incarnation=1,
            partition=number,
            read=Count(invalid + valid + failed),
            stored=Count(valid),
            invalid=Count(invalid),
            failed=Count(failed),
        )
        for number, (invalid, valid, failed) in enumerate(counts)
    ]
    used = spent(tallies)
    invalid, failed = sum(one for one, _, _ in counts), sum(one for _, _, one in counts)
    assert used == BudgetUse(invalid, sum(map(sum, counts)), failed)
    assert 0 <= used.share <= 1


def reasons(count: int, number: int = 3) -> list[FrequentReason]:
    return [
        FrequentReason(f"reason {one}", number, Coordinate(TopicPartition("logs", one), 10 * one))
        for one in range(count)
    ]


def test_what_is_said_names_counts_limits_reasons_and_where_to_look() -> None:
    said = too_many("window 4 of orders/ingest", BudgetUse(17, 100), ErrorBudget(16, 0.1), reasons(5))
    assert said.exit_code == EXIT_FAILED
    assert not said.retriable
    assert "17 of the 100 messages of window 4 of orders/ingest are invalid (share 0.17)" in str(said)
    assert "limits.max_invalid allows number 16, share 0.1." in str(said)
    assert "3 x 'reason 0', such as logs/0@0; 3 x 'reason 1', such as logs/1@10; " in str(said)
    assert "such as logs/4@40; 2 with other reasons. Correct the stream file" in str(said)


@pytest.mark.parametrize("count", [1, 5])
def test_reasons_that_are_all_there_leave_no_others(count: int) -> None:
    said = str(too_many("window 1 of a/ingest", BudgetUse(3 * count, 100), ErrorBudget(number=0), reasons(count)))
    assert "other reasons" not in said
    assert "allows number 0." in said


def test_a_reason_of_several_lines_is_said_in_one() -> None:
    broken = FrequentReason("first\n\tsecond", 1, Coordinate(TopicPartition("logs", 0), 0))
    said = str(too_many("window 1 of a/ingest", BudgetUse(1, 1), ErrorBudget(number=0), [broken]))
    assert "'first second'" in said
    assert len(said.splitlines()) == 1


def test_what_failed_is_spent_like_what_is_invalid() -> None:
    used = BudgetUse(invalid=1, read=10, failed=2)
    assert (used.dead_letters, used.share) == (3, 0.3)
    assert used.exceeds(ErrorBudget(number=2))
    assert not used.exceeds(ErrorBudget(number=3, share=0.3))
    said = str(too_many("window 1", used, ErrorBudget(number=2), []))
    assert "3 of the 10 messages of window 1 are invalid or failed (2 failed)" in said
