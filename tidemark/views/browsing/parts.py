"""Rows and dead letters part by part, by partition and offset, or from the newest window back; and where a question goes on."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from tidemark.errors import WrongUse
from tidemark.ledger.incarnations import Topics
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.views.browsing.items import Item, SearchBudget, SearchResult
from tidemark.views.browsing.matching import Matcher

# Offsets that are read at once: this many first, twice as many where these had few items, half of them where there is no room.
_FIRST, _MAX, _FEW = 200, 2**40, 1_000
# What there is room for in memory.
_MAX_ITEMS, _MAX_BYTES = 50_000, 16_000_000
# Items of one message that an answer has besides those that were asked for.
_MAX_MORE = 1_000
_GO_ON = re.compile(r"(?:(\d{1,19}):)?([A-Za-z0-9._-]{1,249})#(\d{1,9})/(\d{1,10})@(\d{1,19})", re.ASCII)

# Takes the items of some offsets from the function that it is given, as far as there is room.
Take = Callable[[Iterator[Item]], tuple[list[Item], bool]]
Read = Callable[[OffsetRange, Take], tuple[list[Item], bool]]


@dataclass(frozen=True)
class BrowsedRange:
    """Offsets that are looked through without a break. `window`: the generation of theirs, from the newest window back."""

    offsets: OffsetRange
    window: int | None = None


def stretches(windows: Iterable[tuple[int, RangeSet]], *, backwards: bool) -> list[BrowsedRange]:
    """The ranges of some windows that count, by generation, in the order in which they are searched."""
    if not backwards:
        return [BrowsedRange(one) for one in RangeSet(part for _, covers in windows for part in covers)]
    newest = sorted(windows, key=lambda one: one[0], reverse=True)
    return [BrowsedRange(one, window) for window, covers in newest for one in reversed(list(covers))]


def left_from(there: Sequence[BrowsedRange], go_on: str) -> list[BrowsedRange]:
    """The rest for a question that goes on. Raises WrongUse for a text that no answer has given."""
    if not go_on:
        return list(there)
    match = _GO_ON.fullmatch(go_on)
    if match is None:
        raise WrongUse("go_on: expected what the answer before has given")
    window = None if match[1] is None else int(match[1])
    at, offset = TopicPartition(match[2], int(match[4]), int(match[3])), int(match[5])
    return [rest for one in there if (rest := _rest(one, window, at, offset)) is not None]


def _rest(one: BrowsedRange, window: int | None, at: TopicPartition, offset: int) -> BrowsedRange | None:
    own = one.offsets
    if one.window is not None:
        if window is None or one.window != window:
            return one if window is not None and one.window < window else None
        if own.partition != at:
            return one if own.partition < at else None
        until = min(own.until, offset)
        return replace(one, offsets=replace(own, until=until)) if own.start < until else None
    if own.partition != at:
        return one if own.partition > at else None
    start = max(own.start, offset)
    return replace(one, offsets=replace(own, start=start)) if start < own.until else None


@dataclass
class FoundItems:
    """The finds of a question in some stretches, up to `count` items of whole messages, and up to where.

    `go_on`: what the next question is given; None at the end. `ended`: as `SearchResult` has it.
    """

    read: Read
    matcher: Matcher
    meter: SearchBudget
    count: int
    found: list[Item] = field(default_factory=list)
    searched: list[OffsetRange] = field(default_factory=list)
    left_out: int = 0
    go_on: str | None = None
    ended: str | None = None

    def look(self, there: Sequence[BrowsedRange]) -> None:
        size = _FIRST
        for number, stretch in enumerate(there):
            rest = stretch
            while rest.offsets.start < rest.offsets.until:
                part = _part(rest, size)
                items, whole = self.read(part, _some)
                if not whole and part.until - part.start > 1:
                    size = (part.until - part.start) // 2
                    continue
                size = min(_MAX, size * 2) if len(items) < _FEW else size
                rest = self._taken(rest, part, items, whole=whole)
                if self.ended is not None:
                    following = (
                        rest if rest.offsets.start < rest.offsets.until else next(iter(there[number + 1 :]), None)
                    )
                    self.go_on = None if following is None else _said(following)
                    return

    def answer(self, topics: Topics) -> SearchResult:
        return SearchResult(
            tuple(self.found),
            tuple(RangeSet(self.searched)),
            self.go_on,
            self.ended,
            self.meter.looked,
            self.meter.read,
            not_read=self.matcher.not_read,
            left_out=self.left_out,
            topics=topics,
        )

    def _taken(self, stretch: BrowsedRange, part: OffsetRange, items: list[Item], *, whole: bool) -> BrowsedRange:
        """Take what fits of a part, and give what is left of the stretch."""
        back = stretch.window is not None
        items.sort(key=lambda one: (-one.at.offset if back else one.at.offset, one.index))
        for one in items:
            self.meter.count(one)
        fitting = self.matcher.matching(items)
        if len(self.found) + len(fitting) >= self.count:
            # All items of a message, or none, so that the next question has those that follow.
            kept = _whole_messages(fitting, self.count - len(self.found))
            if len(kept) < len(fitting):
                last = kept[-1].at.offset
                part = replace(part, start=last) if back else replace(part, until=last + 1)
                self.meter.looked -= sum(not part.start <= one.at.offset < part.until for one in items)
            fitting, self.ended = kept, "count"
        room = max(0, self.count - len(self.found)) + _MAX_MORE
        self.left_out += max(0, len(fitting) - room) + (not whole)
        self.found += fitting[:room]
        self.searched.append(part)
        self.ended = self.ended or self.meter.ended()
        own = stretch.offsets
        return replace(stretch, offsets=replace(own, until=part.start) if back else replace(own, start=part.until))


def _part(rest: BrowsedRange, size: int) -> OffsetRange:
    own = rest.offsets
    if rest.window is not None:
        return replace(own, start=max(own.start, own.until - size))
    return replace(own, until=min(own.until, own.start + size))


def _said(rest: BrowsedRange) -> str:
    at, own = rest.offsets.partition, rest.offsets
    place = f"{at.topic}#{at.incarnation}/{at.partition}"
    return f"{place}@{own.start}" if rest.window is None else f"{rest.window}:{place}@{own.until}"


def _some(items: Iterator[Item]) -> tuple[list[Item], bool]:
    """Items, as many as there is room for, and whether these are all of them."""
    some: list[Item] = []
    size = 0
    for one in items:
        some.append(one)
        size += one.bytes
        if len(some) >= _MAX_ITEMS or size >= _MAX_BYTES:
            return some, False
    return some, True


def _whole_messages(items: Iterable[Item], count: int) -> list[Item]:
    """At least the first `count` items, with the others of the last one's message."""
    kept: list[Item] = []
    for one in items:
        if len(kept) >= count and one.at != kept[-1].at:
            break
        kept.append(one)
    return kept
