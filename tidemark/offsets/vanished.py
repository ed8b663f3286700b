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
    """The `wanted` offsets at which a message was counted that is not `there` now; or may have been, where nobody can tell.

    `there` has all offsets of `wanted` and `counted` with a message now. As long as as many messages are there as were
    counted, none has gone: messages only go. Where few offsets are empty, the ack value tells which of them were counted.
    """
    found = RangeSet()
    for one in counted:
        holes = (wanted & one.offsets) - there
        present = one.offsets & there
        missing = one.messages.number - present.count()
        if not holes or missing <= 0:
            continue
        ack = int(one.messages.ack, 16) ^ _ack(present)
        told = counted_ones(one.offsets - there, Count.of(missing, ack))
        found |= holes if told is None else holes & told
    return found


def _ack(offsets: RangeSet) -> int:
    """The ack value of messages at all of some offsets."""
    found = 0
    for one in offsets:
        seed = partition_seed(one.partition)
        for offset in range(one.start, one.until):
            found ^= offset_hash(seed, offset)
    return found
