"""The windows that read offsets for the first time, for sinks that keep contributions of blocks in them.

Every offset belongs for ever to the ingest or backfill window that read it first. A sink keeps one contribution of each
*unit*: of the part of such a window that lies in one block of offsets of a partition. Block n is [n * size, (n + 1) * size).
A replay reads units again, each as a whole, and the new contributions replace the earlier ones.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable

from tidemark.errors import WrongUse
from tidemark.ledger.book import Committed
from tidemark.ledger.erasures import erased
from tidemark.ledger.records import Guarantee, Record
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition


def reads_first(record: Record) -> bool:
    """Whether its offsets belong to a window for ever. Windows of guarantee `none` may read offsets that others have read."""
    return not record.kind.reads_again and record.window.guarantee != Guarantee.NONE


class FirstWindows:
    """The committed windows of ingest and backfills, which do not overlap; immutable.

    A window is named here by its index in `covers`.
    """

    def __init__(self, windows: Iterable[Committed]) -> None:
        windows = list(windows)
        # No later window covers these offsets, so a unit is whole without them.
        self.erased = erased(windows)
        self._set(window.covers for window in windows if reads_first(window.record))

    def _set(self, read: Iterable[RangeSet]) -> None:
        self.covers = tuple(read)
        intervals_of: dict[TopicPartition, list[tuple[int, int, int]]] = {}
        for number, covers in enumerate(self.covers):
            for range_ in covers:
                intervals_of.setdefault(range_.partition, []).append((range_.start, range_.until, number))
        self._intervals = {at: sorted(intervals) for at, intervals in intervals_of.items()}

    def at(self, partition: TopicPartition, offset: int) -> int | None:
        """The window that read an offset first."""
        intervals = self._intervals.get(partition, [])
        before = bisect.bisect_right(intervals, offset, key=lambda interval: interval[0]) - 1
        return intervals[before][2] if before >= 0 and offset < intervals[before][1] else None

    def start(self, partition: TopicPartition, offset: int, size: int) -> int | None:
        """The first offset of an offset's unit, in blocks of `size` offsets; None for an offset that no window has read."""
        number = self.at(partition, offset)
        return None if number is None else self.covers[number].at_or_above(partition, offset - offset % size)

    def touched(self, wanted: RangeSet) -> FirstWindows:
        """Those of the windows that have read any of some offsets first."""
        return self._of(self.covers[number] for number in sorted({number for number, _ in self._shared(wanted)}))

    def whole(self, wanted: RangeSet, blocks: Collection[int]) -> RangeSet:
        """Some offsets, with all other offsets of the units that hold any of them. `blocks`: their sizes, of each sink."""
        sizes = set(blocks)
        while True:
            wide = wanted
            for size in sizes:
                wide |= self._whole(wide, size)
            # Blocks of different sizes overlap: a block of one touches blocks of the other.
            if wide == wanted or len(sizes) == 1:
                return wide
            wanted = wide

    def _whole(self, wanted: RangeSet, size: int) -> RangeSet:
        by_window: dict[int, list[OffsetRange]] = {}
        for number, one in self._shared(wanted):
            start, until = one.start // size * size, min(-(-one.until // size) * size, MAX_OFFSET)
            by_window.setdefault(number, []).append(OffsetRange(one.partition, start, until))
        return RangeSet(
            range_ for number, blocks in by_window.items() for range_ in self.covers[number] & RangeSet(blocks)
        )

    def _shared(self, wanted: RangeSet) -> Iterable[tuple[int, OffsetRange]]:
        """The parts of some offsets that windows have read first, each with its window."""
        for range_ in wanted:
            intervals = self._intervals.get(range_.partition, [])
            # The intervals are disjoint, so their ends ascend too.
            at = bisect.bisect_right(intervals, range_.start, key=lambda each: each[1])
            while at < len(intervals) and intervals[at][0] < range_.until:
                start, until, number = intervals[at]
                yield number, OffsetRange(range_.partition, max(start, range_.start), min(until, range_.until))
                at += 1

    def closed(self, chosen: RangeSet, left: RangeSet, *, because: str, blocks: Collection[int]) -> RangeSet:
        """The offsets of `left` to read at once when some are `chosen`: whole units, and all that come before them.

        Raises WrongUse when a part of such a unit is not left. `because`: why units are read as a whole, for the error.
        """
        while True:
            whole = self.whole(chosen, blocks) - self.erased
            if lacking := whole - left:
                raise WrongUse(
                    f"{because}, and this replay reads only a part of some: without "
                    f"{', '.join(map(str, lacking))}. Give it up (tidemark ledger abandon), and ask for a new one"
                )
            # A lane's position is one offset for each partition: nothing that it has passed is read later.
            passed = left & RangeSet(OffsetRange(range_.partition, 0, range_.until) for range_ in whole.hull())
            if passed == chosen:
                return chosen
            chosen = passed

    def intact(self, held: RangeSet, block: int) -> FirstWindows:
        """The same windows, with only those units all of whose offsets are `held`, or erased."""
        read = RangeSet(range_ for covers in self.covers for range_ in covers)
        kept = read - self.whole(read - held - self.erased, [block])
        return self._of(part for covers in self.covers if (part := covers & kept))

    @staticmethod
    def _of(read: Iterable[RangeSet]) -> FirstWindows:
        windows = FirstWindows(())
        windows._set(read)
        return windows


def units(blocks: Collection[int]) -> str:
    """The unit that a replay reads as a whole, for people: `whole blocks of 1000 offsets`."""
    return f"whole blocks of {' and '.join(map(str, sorted(set(blocks))))} offsets"
