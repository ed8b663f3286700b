"""Which results a topic may have deleted by its own settings. An audit calls them expired, and not missing. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidemark.clients.kafka.topics import TopicLog
from tidemark.ledger.ledger import Committed, LedgerSnapshot
from tidemark.offsets.ranges import OffsetRange, RangeSet

# For topics whose messages may all have been deleted, up to now.
ALL = 1 << 63


def deleted_until(logs: Mapping[str, TopicLog], first: Mapping[tuple[str, int], int]) -> int | None:
    """The time (ms) up to which some partition has deleted messages. None: no partition has deleted any.

    `first` has the times of the first messages that remain. A partition without such a time may have deleted anything.
    """
    return max(
        (
            first.get((topic, number), ALL)
            for topic, log in logs.items()
            for number, partition in log.partitions.items()
            if partition.start > 0
        ),
        default=None,
    )


def may_have_expired(view: LedgerSnapshot, until: int | None) -> RangeSet:
    """The offsets whose newest results may have been written before some time: their attempt began no later."""
    if until is None:
        return RangeSet()
    early = {window.generation for window in view.windows if began_by(window, until)}
    authority = view.authority
    return RangeSet(
        OffsetRange(at, segment.start, segment.until)
        for at in authority.partitions
        for segment in authority.segments(at)
        if segment.generation in early
    )


def began_by(window: Committed, until: int) -> bool:
    return window.record.attempt.taken_at <= until


def within(topics: str, targets: Collection[str]) -> bool:
    """Whether a receipt names no topic but some of `targets`."""
    return {*topics.split(",")} <= {*targets}
