"""Timing in pairs: on a shared machine only what ran next to each other can be compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Pairs:
    """Seconds of both sides, pair by pair."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]

    def summary(self) -> dict[str, object]:
        """The seconds, and how many times as long ours takes: min, median and max over the pairs."""
        ratios = [ours / bare for ours, bare in zip(self.ours, self.bare, strict=True)]
        return {
            "ours_s": [round(one, 2) for one in self.ours],
            "bare_s": [round(one, 2) for one in self.bare],
            "ratio": {
                "min": round(min(ratios), 2),
                "median": round(statistics.median(ratios), 2),
                "max": round(max(ratios), 2),
            },
        }


def in_pairs(number: int, ours: Callable[[], object], bare: Callable[[], object]) -> Pairs:
    """Run both `number` times, one after the other, who is first in turns; a run of each before is not counted."""
    ours(), bare()
    times: dict[Callable[[], object], list[float]] = {ours: [], bare: []}
    for pair in range(number):
        for side in (ours, bare) if pair % 2 else (bare, ours):
            began = time.perf_counter()
            side()
            times[side].append(time.perf_counter() - began)
    return Pairs(tuple(times[ours]), tuple(times[bare]))
