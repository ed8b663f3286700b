"""The windows of a lane, a page at a time, from any number or time on."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.ledger.closed import all_lanes
from tidemark.ledger.records import Record
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.overview import NewestWindow, committed_window

MOST_WINDOWS = 100


@dataclass(frozen=True)
class WindowsOfLane:
    """Committed windows of a lane, the newest first, with numbers below `below`, of the `of` that it has committed."""

    lane: str
    windows: list[NewestWindow]
    below: int
    of: int


def windows_of_lane(
    opened: OpenStream, lane: str, *, below: int | None = None, until: int | None = None, count: int = 50
) -> WindowsOfLane | None:
    """The windows of a lane with the greatest numbers, or those below a number; None when there is no such lane.

    `until`: only those that were committed before this time, in ms since 1970. Reads `count` windows, and a few to find a
    time, however many windows the lane has. Raises the ledger's errors.
    """
    book = opened.book
    stored, entry = book.head(lane), all_lanes(book).get(lane)
    if stored is None and entry is None:
        return None
    last = stored.head.last if stored else None
    of = stored.head.seq if stored else (entry.windows or 0) if entry else 0

    def record(seq: int) -> Record:
        # The last one may not be in the history yet.
        if last is not None and last.seq == seq:
            return book.with_receipt(last)
        (found,) = book.records([(lane, seq)])
        return found

    end = of + 1 if below is None else min(below, of + 1)
    if until is not None:
        first, most = 1, end
        while first < most:
            middle = (first + most) // 2
            if record(middle).committed_at < until:
                first = middle + 1
            else:
                most = middle
        end = first
    numbers = range(max(1, end - min(count, MOST_WINDOWS)), end)
    apart = {last.seq: book.with_receipt(last)} if last is not None and last.seq in numbers else {}
    found = {one.seq: one for one in book.records([(lane, seq) for seq in numbers if seq not in apart])} | apart
    windows = [committed_window(book.with_receipt(found[seq])) for seq in reversed(numbers)]
    return WindowsOfLane(lane, windows, max(1, end), of)
