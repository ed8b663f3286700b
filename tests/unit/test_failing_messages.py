"""Which messages a computation fails on, by halves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import PySparkException, PythonException

from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.spark.rows.failing_messages import FailureCause, cause_of, failing

PLACES = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
OFFSETS = st.dictionaries(st.sampled_from(PLACES), st.sets(st.integers(0, 40)))


class ErrorOfState(PySparkException):
    def __init__(self, message: str, state: str | None, condition: str | None = None) -> None:
        super().__init__(message)
        self._state, self._condition = state, condition

    def getSqlState(self) -> str | None:  # type: ignore[override]  # noqa: N802
        return self._state

    def getCondition(self) -> str | None:  # noqa: N802
        return self._condition


def ranges(offsets: dict[TopicPartition, set[int]]) -> RangeSet:
    return RangeSet(OffsetRange(at, one, one + 1) for at, them in offsets.items() for one in them)


@pytest.mark.slow
@given(OFFSETS, OFFSETS)
def test_exactly_those_that_fail_are_found(all_offsets: dict[TopicPartition, set[int]], bad: object) -> None:
    everything, wrong = ranges(all_offsets), ranges(bad)  # type: ignore[arg-type]

    def compute(part: RangeSet) -> None:
        for one in part & wrong:
            raise ErrorOfState(f"of {one.partition}@{one.start}\nand a plan", "22012", "DIVIDE_BY_ZERO")

    found = failing(everything, compute)
    assert found == {
        Coordinate(one.partition, offset): FailureCause(
            "DIVIDE_BY_ZERO", f"[DIVIDE_BY_ZERO] of {one.partition}@{offset}"
        )
        for one in everything & wrong
        for offset in range(one.start, one.until)
    }


@pytest.mark.covers("C4")
@pytest.mark.parametrize("count", [16, 1_000, 100_000])
def test_one_message_among_many_is_found_by_log_n_computations(count: int) -> None:
    """Also the second of two that fail only together, in whichever partition."""
    everything = RangeSet(OffsetRange(at, 0, count) for at in PLACES)
    places = [(PLACES[0], 3), (PLACES[2], count // 2)]
    for wrong in (places[1:], places):
        tried: list[int] = []

        def compute(part: RangeSet, wrong: list[tuple[TopicPartition, int]] = wrong, tried: list[int] = tried) -> None:
            tried.append(part.count())
            if all(part & RangeSet([OffsetRange(at, offset, offset + 1)]) for at, offset in wrong):
                raise ErrorOfState("too much", "22003", "ARITHMETIC_OVERFLOW")

        found = failing(everything, compute)
        assert found == {Coordinate(*places[1]): FailureCause("ARITHMETIC_OVERFLOW", "[ARITHMETIC_OVERFLOW] too much")}
        assert len(tried) <= 3 * (3 * count).bit_length() + 3


@pytest.mark.covers("C4")
def test_the_search_goes_on_until_nothing_fails_together() -> None:
    everything = RangeSet([OffsetRange(PLACES[0], 0, 50)])

    def compute(part: RangeSet) -> None:
        if part.count() > 45:
            raise ErrorOfState("too many", "22003", "ARITHMETIC_OVERFLOW")

    found = failing(everything, compute)
    assert len(found) == 5
    compute(everything - RangeSet(OffsetRange(one.partition, one.offset, one.offset + 1) for one in found))


@pytest.mark.parametrize(
    ("problem", "cause"),
    [
        (ErrorOfState("no\n== SQL ==", "22018", "CAST"), FailureCause("CAST", "[CAST] no")),
        (ErrorOfState("raised", "P0001"), FailureCause("ErrorOfState", "raised")),
        (ErrorOfState("no memory", "53200", "UNABLE_TO_ACQUIRE_MEMORY"), None),
        # Java's own error, without a state: whether a message causes it, only trying tells.
        (ErrorOfState("of Java", None), FailureCause("ErrorOfState", "of Java")),
        (
            ErrorOfState("a value of another form", "42K0G", "MALFORMED"),
            FailureCause("MALFORMED", "[MALFORMED] a value of another form"),
        ),
        (PythonException("Traceback\n  line 1\nshop.Out: of stock\n"), FailureCause("shop.Out", "shop.Out: of stock")),
        # The words of a message in an error say nothing of what it is about.
        (
            ErrorOfState("'No space left on device' is no number", "22018", "CAST"),
            FailureCause("CAST", "[CAST] 'No space left on device' is no number"),
        ),
        (PythonException("Traceback\nKeyError"), FailureCause("KeyError", "KeyError")),
        (PythonException("Traceback\n(lines of its own)"), FailureCause("an exception", "(lines of its own)")),
    ],
)
def test_what_an_error_says_of_a_message(problem: PySparkException, cause: FailureCause | None) -> None:
    assert cause_of(problem) == cause


def test_what_is_no_messages_fault_is_raised() -> None:
    def compute(part: RangeSet) -> None:
        raise ErrorOfState("no memory", "53200")

    with pytest.raises(ErrorOfState, match="no memory"):
        failing(ranges({PLACES[0]: {1, 2}}), compute)
