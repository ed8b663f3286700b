"""Replays of whole windows, for sinks with one contribution per window: it cannot be rebuilt from part of a window."""

from __future__ import annotations

from functools import partial

from tidemark.errors import OffsetsOutOfRange, WrongUse
from tidemark.offsets.order import Order
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.planner import AtOnce, offsets_within
from tidemark.runs.discovery import known_now
from tidemark.runs.open_stream import OpenStream
from tidemark.sinks.contract import SinkSettings
from tidemark.sinks.first_reads import FirstWindows


def read_at_once(opened: OpenStream, order: Order) -> AtOnce | None:
    """What one window of a replay has to read: all or nothing of each window. None when no sink needs that."""
    sink = _sink_of(opened)
    if sink is None:
        return None
    return partial(FirstWindows(opened.book.committed()).closed, made=sink.whole_windows, order=order)


def made_of_them(opened: OpenStream) -> str:
    """What a sink of the stream makes of whole windows, in a word for people; empty when none does."""
    sink = _sink_of(opened)
    return sink.whole_windows if sink is not None else ""


def widened(opened: OpenStream, selection: RangeSet) -> RangeSet:
    """The offsets that a replay reads: where a sink needs it, all offsets of the windows that read the selection first.

    Raises OffsetsOutOfRange when Kafka no longer holds all of them, and WrongUse for offsets that were read under
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
            f"sink {sink.name} cannot tell which window {', '.join(map(str, without))} belong to: they were read with "
            "guarantee none. Leave them out, or read the topics with a new stream"
        )
    wide = first.whole(selection)
    added = wide - selection
    if added:
        topics = tuple(sorted({at.topic for at in added.partitions}))
        if lost := added - offsets_within(known_now(opened, topics, learn=False), added):
            raise OffsetsOutOfRange(
                f"sink {sink.name} needs whole windows, and Kafka no longer holds all of those that were asked for: "
                f"{', '.join(map(str, lost))} are gone. Nothing was changed. Ask for windows that are still there, or take "
                "the sink out of the stream file for this replay: what it has of these windows then stays as it is"
            )
    return wide


def _sink_of(opened: OpenStream) -> SinkSettings | None:
    """The first sink that needs whole windows."""
    return next((one for one in opened.stream.sinks if one.whole_windows), None)
