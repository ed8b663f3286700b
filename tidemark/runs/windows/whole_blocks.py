"""Replays of whole blocks of offsets, for sinks with one contribution of each.

A contribution cannot be rebuilt from a part of what it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tidemark.errors import OffsetsOutOfRange, WrongUse
from tidemark.ledger.book import View
from tidemark.offsets.ranges import RangeSet
from tidemark.planning.planner import AtOnce, offsets_within
from tidemark.runs.live.kafka_now import known_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows.chosen_sinks import Sinks
from tidemark.runs.windows.earlier_counts import gone_by_now
from tidemark.sinks.first_reads import FirstWindows, units


@dataclass(frozen=True)
class _Needed:
    """The needs of a stream's sinks: the first such sink, its word for what it makes, and the blocks of all of them."""

    sink: str
    made: str
    blocks: tuple[int, ...]

    @property
    def units(self) -> str:
        return units(self.blocks)

    @property
    def because(self) -> str:
        return f"{self.made} are made of {self.units}"


def read_at_once(opened: OpenStream, sinks: Sinks = None) -> AtOnce | None:
    """The offsets that one window of a replay has to read: all or nothing of each unit. None when no sink needs that."""
    needed = _needed(opened, sinks)
    if needed is None:
        return None
    first = FirstWindows(opened.book.committed())
    return partial(first.closed, because=needed.because, blocks=needed.blocks)


def whole(opened: OpenStream, view: View, sinks: Sinks = None) -> Callable[[RangeSet], RangeSet]:
    """Some offsets with those that one lane has to read with them, since a sink needs their units whole."""
    needed = _needed(opened, sinks)
    if needed is None:
        return lambda selection: selection
    return partial(FirstWindows(view.windows).whole, blocks=needed.blocks)


def because(opened: OpenStream, sinks: Sinks = None) -> str:
    """Why a replay reads more than it was asked to: `aggregates are made of whole blocks of 4 offsets`; empty for no reason."""
    needed = _needed(opened, sinks)
    return needed.because if needed is not None else ""


def widened(
    opened: OpenStream, view: View, selection: RangeSet, sinks: Sinks = None, *, erasing: bool = False
) -> RangeSet:
    """The offsets that a replay reads: where a sink needs it, all offsets of the units that hold any of the selection.

    What was erased is left out. With `erasing`, the selection is erased, and only the rest is read.

    Raises OffsetsOutOfRange when Kafka no longer has a message that was counted at an offset which is added, and WrongUse
    for offsets that were read under `guarantee: none`.
    """
    needed = _needed(opened, sinks)
    if needed is None:
        return selection
    first = FirstWindows(view.windows)
    read = RangeSet(range_ for window in view.windows for range_ in window.covers)
    if without := (selection & read) - RangeSet(range_ for covers in first.covers for range_ in covers):
        raise WrongUse(
            f"sink {needed.sink} cannot tell which window {', '.join(map(str, without))} belong to: they were read with "
            "guarantee none. Leave them out, or read the topics with a new stream"
        )
    wide = first.whole(selection, needed.blocks) - first.erased
    if lost := _lost(opened, view, wide - selection, sinks):
        if erasing:
            raise _not_whole(needed, first, selection, lost)
        raise OffsetsOutOfRange(
            f"sink {needed.sink} needs {needed.units}, and Kafka no longer holds all of those that were asked for: "
            f"{', '.join(map(str, lost))} are gone. Nothing was changed. Ask for some that are still there, or name these "
            "offsets too, and they lose what they have. Or replay into the other sinks alone (sinks, --sink): what this one "
            "has of these offsets then stays as it is"
        )
    return wide


def _lost(opened: OpenStream, view: View, added: RangeSet, sinks: Sinks) -> RangeSet:
    """The offsets among those that nobody has named whose messages Kafka has no more, although windows have counted them."""
    topics = tuple(sorted({at.topic for at in added.partitions}))
    held = offsets_within(known_now(opened, topics, learn=False), added) if added else added
    return (added - held) | gone_by_now(opened, view, held, sinks)


def lost_with(opened: OpenStream, view: View, selection: RangeSet, sinks: Sinks = None) -> RangeSet:
    """The part of a selection that no replay can read, since its units hold messages that Kafka no longer has."""
    needed = _needed(opened, sinks)
    if needed is None or not selection:
        return RangeSet()
    first = FirstWindows(view.windows)
    lost = _lost(opened, view, first.whole(selection, needed.blocks) - first.erased - selection, sinks)
    return selection & first.whole(lost, needed.blocks) if lost else lost


def _not_whole(needed: _Needed, first: FirstWindows, selection: RangeSet, lost: RangeSet) -> OffsetsOutOfRange:
    units = first.whole(lost, needed.blocks)
    return OffsetsOutOfRange(
        f"sink {needed.sink} keeps {needed.made} of {needed.units}, and cannot make those of "
        f"{', '.join(map(str, units.hull()))} again without what is erased: Kafka no longer has {', '.join(map(str, lost))}. "
        f"Nothing was changed. Leave {', '.join(map(str, selection & units))} out. Or take the sink out of the stream file "
        f"for this erasure: its {needed.made} of these {needed.units} then count no more, neither of the erased messages "
        "nor of the others"
    )


def _needed(opened: OpenStream, sinks: Sinks) -> _Needed | None:
    """None when none of the sinks needs whole units."""
    units = [
        (sink, sink.whole_blocks)
        for sink in opened.stream.sinks
        if sink.whole_blocks is not None and (sinks is None or sink.name in sinks)
    ]
    if not units:
        return None
    first, _ = units[0]
    return _Needed(first.name, first.contributions, tuple(block for _, block in units))
