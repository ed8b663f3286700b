"""Timing in pairs: on a shared machine only what ran next to each other can be compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

# One side of a pair: does its work, and may say how many seconds of it count (None: all of them).
Side = Callable[[], float | None]


@dataclass(frozen=True)
class Pairs:
    """Seconds (or bytes) of both sides, pair by pair."""

    ours: tuple[float, ...]
    other: tuple[float, ...]

    def ratios(self, *, speed: bool = False) -> dict[str, float]:
        """How many times as long ours takes, or with `speed` how many times as fast it is: min, median, max of the pairs."""
        found = [ours / other for ours, other in zip(self.ours, self.other, strict=True)]
        if speed:
            found = [1 / one for one in found]
        return {
            "min": round(min(found), 2),
            "median": round(statistics.median(found), 2),
            "max": round(max(found), 2),
        }


def in_pairs(number: int, ours: Side, other: Side, *, warm: bool = True) -> Pairs:
    """Run both `number` times, one after the other, who is first in turns; if `warm`, a run of each before is not counted."""
    if warm:
        _timed(ours), _timed(other)
    times: dict[Side, list[float]] = {ours: [], other: []}
    for pair in range(number):
        for side in (ours, other) if pair % 2 else (other, ours):
            times[side].append(_timed(side))
    return Pairs(tuple(times[ours]), tuple(times[other]))


def _timed(side: Side) -> float:
    began = time.perf_counter()
    said = side()
    return time.perf_counter() - began if said is None else said


def processor_ms(work: Callable[[], object]) -> float:
    """The milliseconds of processor time that something takes."""
    began = time.process_time()
    work()
    return 1_000 * (time.process_time() - began)
