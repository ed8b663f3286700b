"""Finding the messages that a computation fails on, by halves, so that they do not hold up the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from tidemark.functions.caller import MAX_DETAIL
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.spark.runtime.own_errors import first_cause, may_be_of_a_message

# Columns: the class of the error, and its text.
ERROR, DETAIL = "_error", "_detail"
RAISED = r"^([\w.]+)(?::|$)"
# A class of Java, and what it says.
_THROWN = re.compile(r"(?:[\w$]+\.)*([\w$]+)(?:: |$)")

# What a job of Spark raises.
SPARKS = (PySparkException, Py4JJavaError)


@dataclass(frozen=True)
class FailureCause:
    """Why a message fails: the class of the error, the same for all messages that failed alike, and the error's text."""

    error: str
    detail: str


def cause_of(problem: Exception) -> FailureCause | None:
    """The cause, if an error may be about a message. None if it is about Spark, Kafka or the network instead."""
    if not may_be_of_a_message(problem):
        return None
    if isinstance(problem, Py4JJavaError):
        line = (first_cause(problem).strip().splitlines() or [""])[0]
        thrown = _THROWN.match(line)
        return FailureCause(thrown.group(1) if thrown else "an exception", line[:MAX_DETAIL])
    lines = str(problem).strip().splitlines() or [""]
    if isinstance(problem, PythonException):
        # The last line of a traceback.
        raised = re.match(RAISED, lines[-1])
        return FailureCause(raised.group(1) if raised else "an exception", lines[-1][:MAX_DETAIL])
    named = problem.getCondition() if isinstance(problem, PySparkException) else None
    return FailureCause(named or type(problem).__name__, lines[0][:MAX_DETAIL])


def failing(offsets: RangeSet, compute: Callable[[RangeSet], object]) -> dict[Coordinate, FailureCause]:
    """Messages at `offsets` that `compute` fails on, and why.

    These are those that it fails on when it gets them alone, each found by 2 log n computations at most. If there is none,
    it fails on several together, as where one message lets another through a condition: then the last one of the shortest
    beginning that fails is to blame, found by log n computations, until it fails no more. This is only for computations that
    `trials` cannot try. Raises errors that no message causes.
    """
    causes: dict[Coordinate, FailureCause] = {}

    def cause(part: RangeSet) -> FailureCause | None:
        try:
            compute(part)
        except SPARKS as problem:
            if (found := cause_of(problem)) is None:
                raise
            return found
        return None

    def search(part: RangeSet, *, known: bool) -> None:
        """Find those that fail alone. `known`: some of a part do, and it need not be computed as a whole."""
        if part.count() == 1:
            if (why := cause(part)) is not None:
                (only,) = part
                causes[Coordinate(only.partition, only.start)] = why
            return
        if not known and cause(part) is None:
            return
        before = len(causes)
        first, second = _halves(part)
        search(first, known=False)
        search(second, known=len(causes) == before)

    search(offsets, known=False)
    rest = offsets
    while not (causes and rest is offsets) and (why := cause(rest)) is not None:
        at = _last_of_shortest(rest, lambda part: cause(part) is not None)
        causes[at] = why
        rest -= RangeSet([OffsetRange(at.partition, at.offset, at.offset + 1)])
    return causes


def _last_of_shortest(part: RangeSet, fails: Callable[[RangeSet], bool]) -> Coordinate:
    """The last offset of the shortest beginning of a part that fails."""
    passing, failing_ = 0, part.count()
    while failing_ - passing > 1:
        middle = (passing + failing_) // 2
        if fails(_beginning(part, middle)):
            failing_ = middle
        else:
            passing = middle
    (only,) = _beginning(part, failing_) - _beginning(part, passing)
    return Coordinate(only.partition, only.start)


def _beginning(part: RangeSet, number: int) -> RangeSet:
    return next(iter(part.pieces(number)), part) if number else part - part


def _halves(offsets: RangeSet) -> list[RangeSet]:
    if len(offsets.partitions) > 1:
        first = offsets.only(offsets.partitions[: len(offsets.partitions) // 2])
    else:
        first = offsets.first(offsets.count() // 2)
    return [first, offsets - first]
