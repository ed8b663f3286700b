"""Finding the messages that a computation fails on, by halves, so that they do not hold up the others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, PythonException

from tidemark.functions.caller import MOST_DETAIL
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import RangeSet
from tidemark.spark.runtime.failures import first_cause, may_be_of_a_message

# Columns: the class of the error, and its text.
ERROR, DETAIL = "_error", "_detail"
RAISED = r"^([\w.]+)(?::|$)"
# A class of Java, and what it says.
_THROWN = re.compile(r"(?:[\w$]+\.)*([\w$]+)(?:: |$)")

# What a job of Spark raises.
SPARKS = (PySparkException, Py4JJavaError)


@dataclass(frozen=True)
class Cause:
    """Why a message fails: the class of the error, the same for all messages that failed alike, and the error's text."""

    error: str
    detail: str


def cause_of(problem: Exception) -> Cause | None:
    """The cause, if an error may be about a message. None if it is about Spark, Kafka or the network instead."""
    if not may_be_of_a_message(problem):
        return None
    if isinstance(problem, Py4JJavaError):
        line = (first_cause(problem).strip().splitlines() or [""])[0]
        thrown = _THROWN.match(line)
        return Cause(thrown.group(1) if thrown else "an exception", line[:MOST_DETAIL])
    lines = str(problem).strip().splitlines() or [""]
    if isinstance(problem, PythonException):
        # The last line of a traceback.
        raised = re.match(RAISED, lines[-1])
        return Cause(raised.group(1) if raised else "an exception", lines[-1][:MOST_DETAIL])
    named = problem.getCondition() if isinstance(problem, PySparkException) else None
    return Cause(named or type(problem).__name__, lines[0][:MOST_DETAIL])


def failing(offsets: RangeSet, compute: Callable[[RangeSet], object]) -> dict[Coordinate, Cause]:
    """The messages at `offsets` that `compute` fails on when it gets them alone, and why.

    Each takes some twenty Spark jobs, so this is only for computations that `trials` cannot try. Raises errors that no
    message causes.
    """
    causes: dict[Coordinate, Cause] = {}
    parts = [offsets]
    while parts:
        part = parts.pop()
        try:
            compute(part)
        except SPARKS as problem:
            cause = cause_of(problem)
            if cause is None:
                raise
            if part.count() > 1:
                parts += reversed(_halves(part))
                continue
            (only,) = part
            causes[Coordinate(only.partition, only.start)] = cause
    return causes


def _halves(offsets: RangeSet) -> list[RangeSet]:
    if len(offsets.partitions) > 1:
        first = offsets.only(offsets.partitions[: len(offsets.partitions) // 2])
    else:
        first = offsets.first(offsets.count() // 2)
    return [first, offsets - first]
