"""Which messages a computation fails on: they are found by halves, so that the others are not held up by them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import PySparkException, PythonException

from tidemark.calling import MOST_DETAIL
from tidemark.coordinates import Coordinate
from tidemark.errors import ProcessingFailed
from tidemark.ranges import RangeSet

# To find one takes about as long as computing everything twice, and some twenty jobs of Spark.
MOST_FAILING = 20
# SQL's data exceptions (a division by zero, a text that is no number), what functions of one's own raise, and `raise_error`.
_OF_DATA = ("22", "39", "P0")
_RAISED = re.compile(r"^([\w.]+)(?::|$)")


@dataclass(frozen=True)
class Cause:
    """Why a message fails: the class of the error, the same for all that failed alike, and what it said."""

    error: str
    detail: str


def cause_of(problem: PySparkException) -> Cause | None:
    """What an error says of a message; None where it says something of Spark, Kafka or the network instead."""
    lines = str(problem).strip().splitlines() or [""]
    if isinstance(problem, PythonException):
        # The end of a traceback.
        raised = _RAISED.match(lines[-1])
        return Cause(raised.group(1) if raised else "an exception", lines[-1][:MOST_DETAIL])
    if (problem.getSqlState() or "").startswith(_OF_DATA):
        return Cause(problem.getCondition() or type(problem).__name__, lines[0][:MOST_DETAIL])
    return None


def failing(what: str, offsets: RangeSet, compute: Callable[[RangeSet], object]) -> dict[Coordinate, Cause]:
    """The messages at `offsets` that `compute` fails on by themselves, and why.

    Raises ProcessingFailed when they are more than MOST_FAILING, naming those; and whatever is no message's fault.
    """
    found: dict[Coordinate, Cause] = {}
    parts = [offsets]
    while parts:
        part = parts.pop()
        try:
            compute(part)
        except PySparkException as problem:
            cause = cause_of(problem)
            if cause is None:
                raise
            if part.count() > 1:
                parts += reversed(_halves(part))
                continue
            (only,) = part
            found[Coordinate(only.partition, only.start)] = cause
            if len(found) > MOST_FAILING:
                named = "; ".join(f"{at}: {one.detail}" for at, one in list(found.items())[:5])
                raise ProcessingFailed(
                    f"{what} fails on more than {MOST_FAILING} messages of this window: {named}. "
                    "Set such messages aside with a check, or use a function that gives null for them (try_divide, "
                    "try_cast). Nothing was written."
                ) from problem
    return found


def _halves(offsets: RangeSet) -> list[RangeSet]:
    if len(offsets.partitions) > 1:
        first = offsets.only(offsets.partitions[: len(offsets.partitions) // 2])
    else:
        first = offsets.first(offsets.count() // 2)
    return [first, offsets - first]
