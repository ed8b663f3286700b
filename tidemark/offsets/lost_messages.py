"""Which offsets had a message when they were counted, and have none any more. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.offsets.hashing import offset_hash, partition_seed
from tidemark.offsets.ranges import RangeSet
from tidemark.offsets.subsets import counted_ones
from tidemark.offsets.tallies import Count


@dataclass(frozen=True)
class CountedMessages:
    """How many messages a window has read at some offsets of one partition, with their ack value."""

    offsets: RangeSet
    messages: Count


def vanished(wanted: RangeSet, counted: Iterable[CountedMessages], there: RangeSet) -> RangeSet:
    """The `wanted` offsets whose counted message is not `there` now, or may not be where nobody can tell.

    `there` has all offsets of `wanted` and `counted` with a message now. Messages only disappear, so equal numbers mean
    that none has. Where few offsets are empty, the ack value tells which of them were counted.
    """
    lost = RangeSet()
    for range_ in counted:
        holes = (wanted & range_.offsets) - there
        present = range_.offsets & there
        missing = range_.messages.number - present.count()
        if not holes or missing <= 0:
            continue
        ack = int(range_.messages.ack, 16) ^ _ack(present)
        told = counted_ones(range_.offsets - there, Count.of(missing, ack))
        lost |= holes if told is None else holes & told
    return lost


def _ack(offsets: RangeSet) -> int:
    """The ack value of messages at all of some offsets."""
    digest = 0
    for range_ in offsets:
        seed = partition_seed(range_.partition)
        for offset in range(range_.start, range_.until):
            digest ^= offset_hash(seed, offset)
    return digest
