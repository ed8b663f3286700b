"""The windows of a lane, a page at a time, from any number or time on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.records import Record
from tidemark.runs.live.open_stream import OpenStream
from tidemark.views.overview import NewestWindow, committed_window
from tidemark.views.replaced_windows import fates_near

MAX_WINDOWS, MAX_LOOKED = 100, 2_000


FilesOfOffsets = Literal["", "dead letters", "passed over"]


@dataclass(frozen=True)
class WindowsOfLane:
    """Committed windows of a lane, the newest first, with numbers below `below`, of the `of` that it has committed.

    `looked_down_to`: those below this number have not been looked at; those from it on that are not here do not fit.
    """

    lane: str
    windows: list[NewestWindow]
    below: int
    looked_down_to: int
    of: int


@dataclass(frozen=True)
class WindowFilter:
    """Which windows: whose run has this text in its name, and which have dead letters, or have passed over offsets."""

    run: str = ""
    holding: FilesOfOffsets = ""

    def fits(self, record: Record) -> bool:
        if self.run not in record.attempt.run:
            return False
        if self.holding == "passed over":
            return bool(record.window.gaps)
        return not self.holding or any(tally.dead_letters for tally in record.tallies)


ANY = WindowFilter()


def windows_of_lane(
    opened: OpenStream,
    lane: str,
    wanted: WindowFilter = ANY,
    *,
    below: int | None = None,
    until: int | None = None,
    count: int = 50,
) -> WindowsOfLane | None:
    """The windows of a lane with the greatest numbers, or those below a number; None when there is no such lane.

    `until`: only those that were committed before this time, in ms since 1970. Reads `count` windows, and a few to find a
    time, however many windows the lane has; where only some are `wanted`, up to `MAX_LOOKED`. Raises the ledger's errors.
    """
    ledger, topics = opened.ledger, opened.ledger.topics()
    stored, entry = ledger.head(lane), all_lanes(ledger).get(lane)
    if stored is None and entry is None:
        return None
    last = stored.head.last if stored else None
    of = stored.head.seq if stored else (entry.windows or 0) if entry else 0

    def records(numbers: range) -> list[Record]:
        """The windows of these numbers, the newest first. The last one may not be in the history yet."""
        apart = [last] if last is not None and last.seq in numbers else []
        rest = ledger.records([(lane, seq) for seq in numbers if not apart or seq != apart[0].seq])
        return [ledger.with_receipt(record) for record in sorted([*rest, *apart], key=lambda record: -record.seq)]

    end = of + 1 if below is None else min(below, of + 1)
    if until is not None:
        first, most = 1, end
        while first < most:
            middle = (first + most) // 2
            if records(range(middle, middle + 1))[0].committed_at < until:
                first = middle + 1
            else:
                most = middle
        end = first
    count = min(count, MAX_WINDOWS)
    step = count if wanted == ANY else MAX_WINDOWS
    windows: list[Record] = []
    down_to = end
    while down_to > 1 and len(windows) < count and end - down_to < MAX_LOOKED:
        part = range(max(1, down_to - step), down_to)
        windows += filter(wanted.fits, records(part))
        down_to = part.start
    if len(windows) > count:
        windows = windows[:count]
        down_to = windows[-1].seq
    register = ledger.register()
    found = fates_near(ledger, register[1], windows) if register is not None else {}
    shown = [committed_window(record, topics, found.get((record.lane, record.seq))) for record in windows]
    return WindowsOfLane(lane, shown, max(1, end), max(1, down_to), of)
