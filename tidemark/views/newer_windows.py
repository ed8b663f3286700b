"""The fate of a window's results: how many still count, and which newer windows have replaced or erased the others."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.values import Number

MAX_WINDOWS = 100


@dataclass(frozen=True)
class NewerWindow:
    """A window that counts in place of another one, at this many of its offsets; `run` has committed it."""

    window: str
    kind: str
    run: str
    committed_at: int
    offsets: Number


@dataclass(frozen=True)
class NewerWindows:
    """How many of a window's `offsets` still `count` in each sink; the newer windows, newest first."""

    offsets: Number
    count: Number
    newer: list[NewerWindow]
    more: int


def newer_windows(opened: OpenStream, lane: str, seq: int) -> NewerWindows | None:
    """None when the lane has committed no such window. Raises the ledger's errors."""
    view = opened.ledger.view()
    mine = next((one for one in view.windows if (one.record.lane, one.record.seq) == (lane, seq)), None)
    if mine is None:
        return None
    by_generation: dict[int, list[OffsetRange]] = {}
    alone = mine.record.window.sinks
    # Of one that has written all sinks, also the dead letters.
    names: list[str | None] = [None, *(sink.name for sink in opened.stream.sinks)] if alone is None else [*alone]
    for name in names:
        authority = view.of(name).authority
        for part in mine.covers:
            for one in authority.within(part):
                by_generation.setdefault(one.generation, []).append(OffsetRange(part.partition, one.start, one.until))
    others = {
        generation: RangeSet(parts) for generation, parts in by_generation.items() if generation != mine.generation
    }
    replaced = RangeSet(one for parts in others.values() for one in parts)
    windows = [
        NewerWindow(
            f"{one.record.lane}/{one.record.seq}",
            one.record.lane.partition("-")[0],
            one.record.attempt.run,
            one.record.committed_at,
            others[one.generation].count(),
        )
        for one in sorted(view.windows, key=lambda one: one.generation, reverse=True)
        if one.generation in others
    ]
    total = mine.covers.count()
    return NewerWindows(total, total - replaced.count(), windows[:MAX_WINDOWS], max(0, len(windows) - MAX_WINDOWS))
