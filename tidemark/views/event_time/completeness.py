"""Whether a span of event time is complete, how far a stream is in event time, and what came late. Pure.

Event time is the timestamp of Kafka's messages, in ms since 1970. Producers write it (`CreateTime`): it may be late, out
of order, or ahead of the clock. With `LogAppendTime` the broker writes it, and it rises but for a change of the leader.

What is exactly true. Say that a partition *passes* a time with its first message at or after that time, in the order of
the offsets. A span [start, until) is complete in a partition when

1. the clock has passed `until` by the allowed lateness,
2. the partition has passed `until` by the allowed lateness too (rule PASSED); or it has no message so new, and all that
   Kafka held when it was asked counts (rule IDLE, so that a silent partition does not hold up the others),
3. each message before that place, with a timestamp in the span, is in a committed window.

What lies behind that place may still have timestamps of the span: those messages are *late*. Nobody can say that no more
of them will come.

Kafka says for any time where its log passes it: no offset before that has such a timestamp. So of the offsets that no
window has read, only those that may belong to the span count as missing. Kafka says nothing about offsets that it has
deleted. Of them, two assumptions are made. What was in the log before the span began does not belong to it: messages do
not come from the future. And what is followed by a message older than the span does not belong to it either.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from tidemark.errors import WrongUse
from tidemark.offsets.ranges import MAX_OFFSET, OffsetRange, RangeSet, TopicPartition

HOUR_MS = 3_600_000

# A part that reaches over more hours is looked at for every span, and so is each part for a longer span.
_MAX_HOURS_OF_A_PART, _MAX_HOURS_OF_A_SPAN = 48, 1_000


class CompletenessRule(StrEnum):
    """Why a partition is complete, or why not."""

    PASSED = "passed"
    IDLE = "idle"
    NOT_OVER = "not over"
    MISSING = "missing"
    REPLACED = "replaced"


class Missing(StrEnum):
    """Why no committed window has the messages of an offset that may belong to the span."""

    UNREAD = "unread"
    LOST = "lost"
    SKIPPED = "skipped"
    EXPIRED = "expired"
    HELD = "held"
    UNFINISHED = "unfinished"


# Their meanings: docs/complete.md is written from here.
RULES = {
    CompletenessRule.PASSED: "complete: Kafka has a message at or after the end of the span and the allowed lateness, and "
    "all that may belong to the span before that message is in committed windows",
    CompletenessRule.IDLE: "complete: Kafka has no message so new, the clock has passed that time, and all that Kafka held is "
    "in committed windows",
    CompletenessRule.NOT_OVER: "not complete: the clock has not passed the end of the span and the allowed lateness",
    CompletenessRule.MISSING: "not complete: offsets that may belong to the span are in no committed window",
    CompletenessRule.REPLACED: "not complete: the topic was recreated, truncated or left before its windows had passed the "
    "span, and nobody knows what was unread; or the log ends below what was read of it",
}
MISSINGS = {
    Missing.UNREAD: "no window has read them yet; the next run does, or a backfill",
    Missing.LOST: "Kafka had deleted them, and a policy of the stream file let that pass",
    Missing.SKIPPED: "a policy of the stream file skipped them; a backfill reads them while Kafka has them",
    Missing.EXPIRED: "Kafka has deleted them, and no window has read them",
    Missing.HELD: "an open transaction holds them back, or they were written just now",
    Missing.UNFINISHED: "committed before they were read (`at_most_once`), by an attempt that has not finished",
}


@dataclass(frozen=True, order=True)
class TimeSpan:
    """Event time [start, until) in ms since 1970. Raises WrongUse for a span without any time in it."""

    start: int
    until: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.until:
            raise WrongUse("the span has no time in it: its beginning has to lie before its end, and not before 1970")


@dataclass(frozen=True)
class WindowPart:
    """The counts of a committed window in one partition: how many messages, first and last offset, least and last time.

    `once`: no other part has the same messages.
    """

    window: str
    number: int
    first: int
    last: int
    first_timestamp: int
    last_timestamp: int
    once: bool = True


class PartsByTime:
    """The parts of a partition by their hours: for each span those that matter, without a look at all of them."""

    def __init__(self, parts: Sequence[WindowPart]) -> None:
        self._parts = parts
        self._long: list[int] = []
        self._by_hour: dict[int, list[int]] = defaultdict(list)
        for number, part in enumerate(parts):
            hours = range(part.first_timestamp // HOUR_MS, part.last_timestamp // HOUR_MS + 1)
            if len(hours) > _MAX_HOURS_OF_A_PART:
                self._long.append(number)
            else:
                for hour in hours:
                    self._by_hour[hour].append(number)
        later = sorted(range(len(parts)), key=lambda number: parts[number].first_timestamp)
        self._times = [parts[number].first_timestamp for number in later]
        # Of the parts from each place on, the one with the least first offset.
        self._least = list(later)
        for at in range(len(later) - 2, -1, -1):
            if parts[self._least[at + 1]].first < parts[later[at]].first:
                self._least[at] = self._least[at + 1]

    def near(self, start: int, end: int) -> Sequence[WindowPart]:
        """The parts with a time at or after `start`, in their order. From those that lie wholly at or after `end`, the one
        with the least first offset stands for all. There may be others, which lie elsewhere.
        """
        hours = range(start // HOUR_MS, (end - 1) // HOUR_MS + 1)
        if len(hours) > _MAX_HOURS_OF_A_SPAN:
            return self._parts
        numbers = {number for hour in hours for number in self._by_hour.get(hour, ())}
        numbers.update(self._long)
        after = bisect_left(self._times, end)
        if after < len(self._times):
            numbers.add(self._least[after])
        return [self._parts[number] for number in sorted(numbers)]


@dataclass(frozen=True)
class LogBounds:
    """Kafka's log of a partition: [start, end) can be read, and [end, high) not yet (see `Missing.HELD`)."""

    start: int
    end: int
    high: int

    @property
    def until(self) -> int:
        return max(self.end, self.high)


@dataclass(frozen=True)
class Partition:
    """The state of one partition by ledger and Kafka. `log` is None for one that the stream no longer reads: see `ended_at`.

    `covered`: offsets in committed windows whose attempts have finished. `left_out`: others that the stream has passed,
    by their kind. `lowest`: below it, the offsets belong to an earlier incarnation. `begins`: where the stream began to
    read. `arrived`: pairs of a time and an end of the log at that time. `ended_at`: since when the stream no longer reads it.
    """

    at: TopicPartition
    begins: int
    covered: RangeSet
    left_out: Mapping[Missing, RangeSet]
    parts: Sequence[WindowPart]
    arrived: Sequence[tuple[int, int]]
    log: LogBounds | None
    lowest: int = 0
    ended_at: int | None = None

    # These are asked for once for each hour of a calendar.
    @cached_property
    def uncovered(self) -> tuple[tuple[int, int], ...]:
        """The offsets that no finished window covers, as pairs, ascending; the last one ends with the last number."""
        return (_within(self.at, 0, MAX_OFFSET) - self.covered).of(self.at)

    def covers(self, until: int) -> bool:
        """Whether finished windows cover all that is below an offset."""
        return not any(self.lowest < end and start < until for start, end in self.uncovered)

    @cached_property
    def next(self) -> int:
        """The first offset, from where the stream began, that it has neither read nor passed over."""
        done = self.covered
        for offsets in self.left_out.values():
            done |= offsets
        return next((until for start, until in done.of(self.at) if start <= self.begins < until), self.begins)

    @cached_property
    def reached(self) -> int:
        """Where the stream goes on: the end of all that it has read or passed over, whatever it has left before."""
        done = [self.covered, *self.left_out.values()]
        return max((until for range_ in done for _, until in range_.of(self.at)[-1:]), default=self.begins)

    def near(self, start: int, end: int) -> Sequence[WindowPart]:
        """The parts that matter for a span from `start` on whose passing is at `end`: see `PartsByTime.near`."""
        return self._by_time.near(start, end)

    @cached_property
    def _by_time(self) -> PartsByTime:
        return PartsByTime(self.parts)

    @property
    def cut(self) -> bool:
        """Whether the log ends below what was read of it: what it holds may be other messages at the same offsets."""
        return self.log is not None and self.next > self.log.until

    @property
    def waiting(self) -> tuple[int, int] | None:
        """The first unread offset that can be read, and the end; None when there is none, or when Kafka has deleted it."""
        log = self.log
        return (self.next, log.end) if log is not None and log.start <= self.next < log.end else None


@dataclass(frozen=True)
class OffsetsForTimes:
    """Kafka's first offset with a timestamp, the first at or after a span's start, and at or after its end and lateness.

    None where it has no such message below the end.
    """

    first: int | None = None
    start: int | None = None
    until: int | None = None


@dataclass(frozen=True)
class LateMessages:
    """How many messages of a span came late: at least and at most this many, in `windows`.

    `ranges` are the offsets in which they may lie. `unread` offsets are in no committed window, and may hold more.
    """

    least: int
    most: int
    windows: tuple[str, ...]
    ranges: RangeSet
    unread: int


@dataclass(frozen=True)
class PartitionCompleteness:
    """Whether a span is complete in one partition, the rule, what is missing, and what came late."""

    at: TopicPartition
    complete: bool
    rule: CompletenessRule
    missing: tuple[tuple[Missing, OffsetRange], ...]
    late: LateMessages


def is_complete(answers: Collection[PartitionCompleteness]) -> bool:
    """Whether a span is complete in all partitions. Where none has a part in it, nothing is."""
    return bool(answers) and all(answer.complete for answer in answers)


def judge(
    partition: Partition, span: TimeSpan, passing: OffsetsForTimes, now: int, lateness_ms: int
) -> PartitionCompleteness:
    """Whether a span is complete in a partition. `now` is the clock before Kafka was asked; `lateness_ms` is allowed."""
    end = span.until + lateness_ms
    parts = partition.near(span.start, end)
    earliest, latest = _passed(partition, parts, end, passing.until)
    reach = latest if latest is not None else partition.log.until if partition.log is not None else None
    missing = () if reach is None or partition.covers(reach) else tuple(_missing(partition, span, passing, reach))
    if now < end:
        rule = CompletenessRule.NOT_OVER
    elif reach is None or partition.cut:
        rule = CompletenessRule.REPLACED
    elif missing:
        rule = CompletenessRule.MISSING
    else:
        rule = CompletenessRule.PASSED if latest is not None else CompletenessRule.IDLE
    complete = rule in (CompletenessRule.PASSED, CompletenessRule.IDLE)
    return PartitionCompleteness(partition.at, complete, rule, missing, _late(partition, parts, span, earliest, latest))


def concerns(partition: Partition, span: TimeSpan) -> bool:
    """Whether a partition has a part in a span: it is read today, or still was when the span began."""
    return partition.ended_at is None or span.start < partition.ended_at


def watermark(partition: Partition, now: int, lateness_ms: int, unread_since: int | None = None) -> int | None:
    """The time up to which a partition's messages are committed or passed over, less the allowed lateness; None if unknown.

    The newest timestamp of the messages up to the first unread one, whose timestamp is `unread_since` where it is known
    (see `Partition.waiting`).
    Of a partition that is read to its end, the clock. Never later than the clock.
    """
    if partition.cut:
        return None
    if partition.log is not None and partition.next == partition.log.until:
        return now - lateness_ms
    newest = max((part.last_timestamp for part in partition.parts if part.last < partition.next), default=None)
    seen = [time for time in (newest, unread_since) if time is not None]
    return min(now, max(seen)) - lateness_ms if seen else None


def passed_over(partition: Partition) -> RangeSet:
    """Offsets that the watermark has passed and no window has: a span that these may belong to is not complete."""
    left = RangeSet(part for ranges in partition.left_out.values() for part in ranges)
    return (left & RangeSet([OffsetRange(partition.at, 0, partition.next)])) - partition.covered


def hours_due(first: int | None, watermark: int | None, announced: Iterable[int], most: int) -> list[int]:
    """The hours, by their beginnings in ms, that may have become complete and were not announced, oldest first.

    From the hour of the first message to the last one below the watermark, at most the newest `most` of them.
    """
    if first is None or watermark is None:
        return []
    until = watermark // HOUR_MS * HOUR_MS
    start = max(first // HOUR_MS * HOUR_MS, until - most * HOUR_MS, 0)
    known = set(announced)
    return [hour for hour in range(start, until, HOUR_MS) if hour not in known]


def announced_before(noted: Mapping[str, Any], run: str) -> set[int]:
    """The hours that earlier runs have announced, of what was noted. What a try of this run has noted does not count."""
    return set(noted["hours"]) - set(noted["by_run"] if noted["run"] == run else ())


def noted(before: Iterable[int], hours: Iterable[int], run: str, most: int) -> dict[str, Any]:
    """The hours to note after a run has announced some: the newest `most` of all that were announced."""
    return {"hours": sorted({*before, *hours})[-most:], "run": run, "by_run": sorted(hours)}


NOTHING_NOTED: Mapping[str, Any] = {"hours": [], "run": "", "by_run": []}


def _passed(
    partition: Partition, parts: Iterable[WindowPart], time: int, known: int | None
) -> tuple[int | None, int | None]:
    """Bounds of the first known message at or after a time: of what Kafka holds, and of what windows have read.

    Where Kafka still holds the message, both bounds are its offset.
    """
    start = partition.log.start if partition.log is not None else None
    earliest = [] if known is None else [known]
    latest = list(earliest)
    for part in parts:
        if part.last_timestamp >= time:
            latest.append(part.first if part.first_timestamp >= time else part.last)
            if start is None or part.first < start:
                earliest.append(part.first)
    low, high = min(earliest, default=None), min(latest, default=None)
    return (high if low is None else low), high


def _missing(
    partition: Partition, span: TimeSpan, passing: OffsetsForTimes, reach: int
) -> Iterator[tuple[Missing, OffsetRange]]:
    """The offsets below `reach` that may belong to a span, and that no finished window covers, each with its kind."""
    uncovered = _within(partition.at, partition.lowest, reach) - partition.covered
    # Kafka can be asked about what it holds. Without such a message, all that can be read is older than the span.
    held_from = reach if partition.log is None else partition.log.start
    since = reach if partition.log is None else partition.log.end if passing.start is None else passing.start
    log_is_older = passing.first is not None and passing.first < since
    left = uncovered & _within(partition.at, max(since, held_from), reach)
    for expired in uncovered & _within(partition.at, partition.lowest, min(held_from, reach)):
        if not _older(partition, expired.until, span.start, log_is_older):
            left |= RangeSet([expired])
    named = RangeSet()
    for kind, ranges in partition.left_out.items():
        for part in left & ranges:
            yield kind, part
        named |= ranges
    left -= named
    if partition.log is not None:
        for part in left & _within(partition.at, 0, partition.log.start):
            yield Missing.EXPIRED, part
        for part in left & _within(partition.at, partition.log.start, max(partition.log.start, partition.log.end)):
            yield Missing.UNREAD, part
        # Offsets above the high watermark came after it was asked for.
        for part in left & _within(partition.at, partition.log.end, max(partition.log.end, partition.log.high)):
            yield Missing.HELD, part
        left &= _within(partition.at, partition.log.until, max(partition.log.until, reach))
    for part in left:
        yield Missing.UNREAD, part


def _older(partition: Partition, until: int, time: int, log_is_older: bool) -> bool:
    """Whether deleted offsets below `until` are taken as older than a time: see the two assumptions of this module."""
    if any(at <= time and end >= until for at, end in partition.arrived):
        return True
    above = partition.log.start if partition.log is not None else None
    behind = [part for part in partition.parts if part.first >= until and (above is None or part.first < above)]
    if not behind:
        return log_is_older
    return min(behind, key=lambda part: part.first).first_timestamp < time


def _late(
    partition: Partition, parts: Iterable[WindowPart], span: TimeSpan, earliest: int | None, latest: int | None
) -> LateMessages:
    """The messages that came after the partition had passed the span: `earliest` and `latest` are bounds of where it did."""
    least, most, windows = 0, 0, []
    ranges = RangeSet()
    if earliest is None or latest is None:
        return LateMessages(0, 0, (), ranges, 0)
    for part in parts:
        inside = [span.start <= time < span.until for time in (part.first_timestamp, part.last_timestamp)]
        if part.last <= earliest or part.first_timestamp >= span.until or part.last_timestamp < span.start:
            continue
        same = part.first_timestamp == part.last_timestamp
        if part.first > latest and part.once:
            # The messages with the least and the last time are known; they are one if there is only one time.
            least += part.number if all(inside) else sum(inside)
        may = part.number if all(inside) or same else part.number - inside.count(False)
        # The message that passed the span is none of it.
        may = min(may, part.last - max(earliest, part.first - 1))
        if may > 0:
            most += may
            windows.append(part.window)
            ranges |= _within(partition.at, max(earliest, part.first), part.last + 1)
    unread = 0
    if partition.log is not None:
        held = max(earliest, partition.log.start)
        unread = sum(max(0, min(until, partition.log.until) - max(start, held)) for start, until in partition.uncovered)
    return LateMessages(least, most, tuple(windows), ranges & partition.covered if ranges else ranges, unread)


def _within(at: TopicPartition, start: int, until: int) -> RangeSet:
    return RangeSet([OffsetRange(at, start, max(start, until))])
