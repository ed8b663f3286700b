"""The windows that read offsets for the first time, for sinks that keep one contribution of each window.

Every offset belongs for ever to the ingest or backfill window that read it first. A replay reads such windows again,
each as a whole, and its contribution replaces the earlier one.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence

from tidemark.errors import WrongUse
from tidemark.ledger.book import Committed
from tidemark.ledger.records import Guarantee, LaneKind, Record
from tidemark.offsets.order import Order
from tidemark.offsets.ranges import RangeSet, TopicPartition

# Lane and number of a window.
Name = tuple[str, int]


class FirstWindows:
    """The committed windows of ingest and backfills, which do not overlap; immutable.

    A window is named here by its index in `names` and `covers`.
    """

    def __init__(self, windows: Iterable[Committed]) -> None:
        # Windows of guarantee `none` may read the same offsets again, so none of them is the first for ever.
        first = [
            one
            for one in windows
            if one.record.kind != LaneKind.REPLAY and one.record.window.guarantee != Guarantee.NONE
        ]
        self.names: tuple[Name, ...] = tuple((one.record.lane, one.record.seq) for one in first)
        self.covers: tuple[RangeSet, ...] = tuple(one.covers for one in first)
        found: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        for number, covers in enumerate(self.covers):
            for one in covers:
                found.setdefault(one.partition, []).append((one.start, one.until, number))
        self._intervals = {at: sorted(intervals) for at, intervals in found.items()}

    def at(self, partition: TopicPartition, offset: int) -> int | None:
        """The window that read an offset first."""
        intervals = self._intervals.get(partition, [])
        found = bisect.bisect_right(intervals, offset, key=lambda one: one[0]) - 1
        return intervals[found][2] if found >= 0 and offset < intervals[found][1] else None

    def touched(self, wanted: RangeSet) -> list[int]:
        """The windows that have read any of some offsets first, ascending."""
        found = set()
        for one in wanted:
            intervals = self._intervals.get(one.partition, [])
            # The intervals are disjoint, so their ends ascend too.
            first = bisect.bisect_right(intervals, one.start, key=lambda each: each[1])
            for start, _, number in intervals[first:]:
                if start >= one.until:
                    break
                found.add(number)
        return sorted(found)

    def whole(self, wanted: RangeSet) -> RangeSet:
        """Some offsets, with all other offsets of the windows that have read any of them first."""
        return RangeSet([*wanted, *(one for number in self.touched(wanted) for one in self.covers[number])])

    def closed(self, chosen: RangeSet, left: RangeSet, *, made: str, order: Order = Order.OLDEST) -> RangeSet:
        """The offsets of `left` to read at once when some are `chosen`: whole windows, and all that come before in `order`.

        Raises WrongUse when a part of such a window is not left. `made`: the error's word for what is made of windows.
        """
        while True:
            whole = self.whole(chosen)
            if lacking := whole - left:
                raise WrongUse(
                    f"{made} are made of whole windows, and this replay reads only a part of some: without "
                    f"{', '.join(map(str, lacking))}. Give it up (tidemark ledger abandon), and ask for a new one"
                )
            # A lane's position is one offset for each partition: nothing that it has passed is read later.
            passed = left & RangeSet(
                order.behind(one.partition, order.end(one.start, one.until)) for one in whole.hull()
            )
            if passed == chosen:
                return chosen
            chosen = passed

    def recomputed(self, windows: Sequence[Committed], wrote: Callable[[Record], bool]) -> dict[Name, int]:
        """For each window, the generation that counts: the highest one that was committed over all its offsets.

        `wrote`: whether a committed window has written contributions at all.
        """
        found: dict[Name, int] = {}
        for window in windows:
            if not wrote(window.record):
                continue
            for number in self.touched(window.covers):
                if not self.covers[number] - window.covers:
                    name = self.names[number]
                    found[name] = max(window.generation, found.get(name, 0))
        return found
