"""In which order a lane reads the offsets of a partition, and what its position then means. Pure."""

from __future__ import annotations

from enum import StrEnum

from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition


class Order(StrEnum):
    """The oldest offsets of a selection first, or the newest. A lane without a selection has no newest: it reads on for ever.

    `oldest`: a position is the next offset to read, and rises. `newest`: what is left lies below it, and it falls.
    """

    OLDEST = "oldest"
    NEWEST = "newest"

    def first(self, ranges: RangeSet, limit: int) -> RangeSet:
        """The `limit` offsets of each partition that come first."""
        return ranges.last(limit) if self is Order.NEWEST else ranges.first(limit)

    def begin(self, start: int, until: int) -> int:
        """The position at which a lane comes to [start, until)."""
        return until if self is Order.NEWEST else start

    def end(self, start: int, until: int) -> int:
        """The position at which a lane has read [start, until)."""
        return start if self is Order.NEWEST else until

    def is_beyond(self, position: int, other: int) -> bool:
        """Whether a lane comes to `other` before it comes to `position`."""
        return position < other if self is Order.NEWEST else position > other

    def has_passed(self, position: int, offset: int) -> bool:
        """Whether a lane at this position never reads an offset any more."""
        return position <= offset if self is Order.NEWEST else offset < position

    def behind(self, at: TopicPartition, position: int) -> OffsetRange:
        """All offsets that a lane at this position never reads any more."""
        return OffsetRange(at, position, MAX_OFFSET) if self is Order.NEWEST else OffsetRange(at, 0, position)

    def between(self, at: TopicPartition, position: int, other: int) -> OffsetRange:
        """What a lane passes from one position to another; empty if the other is not beyond."""
        start, until = (other, position) if self is Order.NEWEST else (position, other)
        return OffsetRange(at, start, max(start, until))
