"""A replay of whole windows, where a sink keeps one contribution of each window: of a part of one it could not be made anew."""

from __future__ import annotations

from tidemark.errors import OffsetsOutOfRange, WrongUse
from tidemark.first_windows import FirstWindows
from tidemark.planning.discovery import known_now
from tidemark.planning.planner import offsets_within
from tidemark.ranges import RangeSet
from tidemark.streams.aggregates_sink import HBaseAggregatesSink
from tidemark.streams.opened import OpenStream


def first_windows(opened: OpenStream) -> FirstWindows | None:
    """The windows of which a replay takes all or nothing; None when no sink needs that."""
    return FirstWindows(opened.book.committed()) if _sink_of(opened) is not None else None


def widened(opened: OpenStream, selection: RangeSet) -> RangeSet:
    """What a replay of some offsets reads: where a sink needs it, all offsets of the windows that have read them first.

    Raises OffsetsOutOfRange when Kafka no longer holds all of these, WrongUse for offsets that were read under
    `guarantee: none`.
    """
    sink = _sink_of(opened)
    if sink is None:
        return selection
    windows = opened.book.committed()
    first = FirstWindows(windows)
    read = RangeSet(one for window in windows for one in window.covers)
    if without := (selection & read) - RangeSet(one for covers in first.covers for one in covers):
        raise WrongUse(
            f"sink {sink} cannot tell which window {', '.join(map(str, without))} belong to: they were read with guarantee "
            "none. Leave them out, or read the topics with a new stream"
        )
    wide = first.whole(selection)
    added = wide - selection
    if added:
        topics = tuple(sorted({at.topic for at in added.partitions}))
        if lost := added - offsets_within(known_now(opened, topics, learn=False), added):
            raise OffsetsOutOfRange(
                f"sink {sink} needs whole windows, and Kafka no longer holds all of those that were asked for: "
                f"{', '.join(map(str, lost))} are gone. Nothing was changed. Ask for windows that are still there, or take "
                "the sink out of the stream file for this replay: what it has of these windows then stays as it is"
            )
    return wide


def _sink_of(opened: OpenStream) -> str | None:
    """The first sink that needs whole windows, by its name."""
    found = (one.name for one in opened.stream.sinks if isinstance(one, HBaseAggregatesSink))
    return next(found, None)
