"""The progress of reading some offsets, per partition. One thread reads; another shows it."""

from __future__ import annotations

from tidemark.offsets.ranges import RangeSet, TopicPartition


class Reading:
    """Counts the offsets that have been passed, of those that are to be read."""

    def __init__(self) -> None:
        self._totals: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}

    def begin(self, wanted: RangeSet) -> None:
        """These offsets are to be read, and none of them is yet."""
        self._done = dict.fromkeys(wanted.partitions, 0)
        self._totals = {at: wanted.count(at) for at in wanted.partitions}

    def passed(self, at: TopicPartition, number: int) -> None:
        """Note that this many more offsets of a partition are done, with or without a message."""
        self._done[at] += number

    def so_far(self) -> list[tuple[TopicPartition, int, int]]:
        """Each partition with its number of offsets, and how many of them are done."""
        return [(at, total, self._done[at]) for at, total in self._totals.items()]
