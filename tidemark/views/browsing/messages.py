"""Looking through the messages of a topic, from the oldest on or from the newest back, a bounded part at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from tidemark.clients.kafka.slots import KafkaMessage
from tidemark.clients.kafka.stepping import Steps
from tidemark.errors import WrongUse
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import check_same
from tidemark.views.browsing.filters import parse
from tidemark.views.browsing.items import Item, SearchBudget, SearchResult
from tidemark.views.browsing.matching import Matcher
from tidemark.views.browsing.places import InKafka, SearchCursor, SearchScope, in_kafka

# From the newest back, a partition is read in parts, each forwards: this many offsets first, then more or fewer.
_FIRST_STEP, _MAX_STEP = 64, 2**40
# Messages of a part: with fewer the next one has more offsets, and the other way round.
_FEW, _MANY = 250, 1_000
# Partitions whose newest messages are looked for at once.
MAX_PARTITIONS = 32


@dataclass(frozen=True)
class MessageQuery:
    """A question: `count` items that fit, from where the answer before ended. `backwards`: from the newest back."""

    where: SearchScope = field(default_factory=SearchScope)
    filter: str = ""
    count: int = 50
    backwards: bool = False
    go_on: str = ""


@dataclass
class _MessageSearch:
    """The items found so far, and up to where."""

    opened: OpenStream
    asked: MessageQuery
    there: InKafka
    matcher: Matcher
    meter: SearchBudget
    searched: list[OffsetRange] = field(default_factory=list)
    erased: int = 0

    def step(self, of: TopicPartition, messages: tuple[tuple[int, KafkaMessage], ...]) -> list[Item]:
        """The items of one answer of Kafka that fit. Of what was erased, nothing is looked at."""
        items = []
        for offset, message in messages:
            if (of, offset) in self.there.erased:
                self.erased += 1
                continue
            item = _item(Coordinate(of, offset), message)
            self.meter.count(item)
            items.append(item)
        return self.matcher.matching(items)

    def take_back(self, of: TopicPartition, offsets: Iterable[int]) -> None:
        """Count as not looked at what the next question looks at again."""
        for offset in offsets:
            if (of, offset) in self.there.erased:
                self.erased -= 1
            else:
                self.meter.looked -= 1


def _item(at: Coordinate, message: KafkaMessage) -> Item:
    return Item(at, message.timestamp, message.key, message.value, message.headers)


def messages(opened: OpenStream, asked: MessageQuery, meter: SearchBudget) -> SearchResult:
    """The messages that Kafka holds, that the stream may see, and that fit: `count` of them, or as many as `meter` allows.

    Without a partition, backwards gives the newest of all partitions, and does not go on from there. Raises WrongUse,
    Conflict where the log is another one than that of the answer before, Unreachable, NotAuthorized, and the ledger's errors.
    """
    wanted = parse(asked.filter)
    go_on = SearchCursor.read(asked.go_on) if asked.go_on else None
    there = in_kafka(opened, asked.where)
    if go_on is not None:
        go_on.check(opened, there.topic)
    search = _MessageSearch(opened, asked, there, Matcher(wanted, opened.stream, opened.connections), meter)
    ranges = _left(there.offsets, go_on, backwards=asked.backwards)
    numbers = {one.partition.partition for one in ranges}
    with opened.log.stepping(opened.stream.source.isolation) as steps:
        if not asked.backwards:
            items, after = _forwards(search, steps, ranges)
        elif len(numbers) <= 1:
            items, after = _backwards(search, steps, ranges, go_on.step if go_on else _FIRST_STEP)
        else:
            items, after = _newest(search, steps, ranges), None
    check_same(opened, {there.topic: there.log})
    ended = "count" if len(items) >= asked.count else meter.ended()
    return SearchResult(
        items=search.matcher.with_records(items),
        searched=tuple(RangeSet(search.searched)),
        go_on=None if after is None else str(after),
        ended=ended,
        looked=meter.looked,
        read=meter.read,
        erased=search.erased,
        not_read=search.matcher.not_read,
        topics=opened.ledger.topics(),
    )


def _left(offsets: RangeSet, go_on: SearchCursor | None, *, backwards: bool) -> list[OffsetRange]:
    """The part that is still to be searched, in its order: by partition and offset, whatever the incarnation."""
    left = []
    for one in sorted(offsets, key=lambda one: (one.partition.partition, one.start), reverse=backwards):
        if go_on is None:
            left.append(one)
            continue
        place = one.partition.partition
        if place == go_on.partition:
            start, until = one.start, one.until
            if backwards:
                until = min(until, go_on.offset)
            else:
                start = max(start, go_on.offset)
            if start < until:
                left.append(OffsetRange(one.partition, start, until))
        elif (place < go_on.partition) == backwards:
            left.append(one)
    return left


def _forwards(
    search: _MessageSearch, steps: Steps, ranges: list[OffsetRange]
) -> tuple[list[Item], SearchCursor | None]:
    items: list[Item] = []
    count, log = search.asked.count, search.there.log
    for at, one in enumerate(ranges):
        reached = one.start
        for step in steps(one.partition.topic, one.partition.partition, one.start, one.until):
            more = search.step(one.partition, step.messages)
            reached = step.until
            if len(items) + len(more) > count:
                more = more[: count - len(items)]
                reached = more[-1].at.offset + 1 if more else items[-1].at.offset + 1
                search.take_back(one.partition, (offset for offset, _ in step.messages if offset >= reached))
            items += more
            if len(items) >= count or search.meter.ended():
                break
        search.searched.append(replace(one, until=reached))
        if len(items) >= count or search.meter.ended():
            rest = ranges[at] if reached < one.until else next(iter(ranges[at + 1 :]), None)
            if rest is None:
                return items, None
            start = reached if rest is one else rest.start
            return items, SearchCursor.after(rest.partition.partition, start, _FIRST_STEP, log)
    return items, None


def _backwards(
    search: _MessageSearch, steps: Steps, ranges: list[OffsetRange], size: int
) -> tuple[list[Item], SearchCursor | None]:
    """The newest first. A part that a bound has ended is read again by the next question, which takes a smaller one."""
    older: list[Item] = []
    count, log = search.asked.count, search.there.log
    for at, one in enumerate(ranges):
        until = one.until
        while until > one.start:
            if len(older) >= count or search.meter.ended():
                return older, SearchCursor.after(one.partition.partition, until, size, log)
            part = OffsetRange(one.partition, max(one.start, until - size), until)
            items, reached, there = _part(search, steps, part)
            if reached < part.until:
                smaller = max(1, min(size - 1, (reached - part.start) // 2))
                search.take_back(one.partition, there)
                return older, SearchCursor.after(one.partition.partition, until, smaller, log)
            newest = items[::-1]
            left = count - len(older)
            if len(newest) > left:
                newest, until = newest[:left], newest[left - 1].at.offset
                search.take_back(one.partition, (offset for offset in there if offset < until))
            else:
                until = part.start
            older += newest
            search.searched.append(OffsetRange(one.partition, until, part.until))
            size = min(_MAX_STEP, size * 2) if len(there) < _FEW else max(1, size // 2) if len(there) > _MANY else size
        if len(older) >= count and (rest := next(iter(ranges[at + 1 :]), None)) is not None:
            return older, SearchCursor.after(rest.partition.partition, rest.until, size, log)
    return older, None


def _part(search: _MessageSearch, steps: Steps, part: OffsetRange) -> tuple[list[Item], int, list[int]]:
    """The items that fit in a part, up to where it was read, and the offsets of its messages. One offset is always read."""
    items: list[Item] = []
    reached, there = part.start, list[int]()
    for step in steps(part.partition.topic, part.partition.partition, part.start, part.until):
        items += search.step(part.partition, step.messages)
        reached = step.until
        there += [offset for offset, _ in step.messages]
        if search.meter.ended() and (part.until - part.start > 1 or search.meter.ended() == "time"):
            break
    return items, reached, there


def _newest(search: _MessageSearch, steps: Steps, ranges: list[OffsetRange]) -> list[Item]:
    """The newest of several partitions by their times, each partition with its share of the bounds."""
    by_partition: dict[int, list[OffsetRange]] = {}
    for one in ranges:
        by_partition.setdefault(one.partition.partition, []).append(one)
    if len(by_partition) > MAX_PARTITIONS:
        raise WrongUse(f"the newest of {len(by_partition)} partitions: name one as topic/partition")
    whole, items = search.meter, list[Item]()
    for share in _shares(whole, len(by_partition)):
        search.meter = share
        items += _backwards(search, steps, by_partition.popitem()[1], _FIRST_STEP)[0]
        whole.looked += share.looked
        whole.read += share.read
    search.meter = whole
    items.sort(key=lambda one: (one.timestamp or 0, one.at.partition.partition, one.at.offset), reverse=True)
    return items[: search.asked.count]


def _shares(meter: SearchBudget, number: int) -> Iterator[SearchBudget]:
    for left in range(number, 0, -1):
        now = time.monotonic()
        yield SearchBudget(
            max(1, (meter.items - meter.looked) / left),
            max(1, (meter.bytes - meter.read) / left),
            now + max(0.0, meter.until - now) / left,
        )
