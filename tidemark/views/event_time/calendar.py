"""A stream's completeness in event time, hour by hour, for a calendar: `event_time.py` answers, and here it is said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tidemark.errors import WrongUse
from tidemark.ledger.incarnations import Topics, written_partition
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds, read_time
from tidemark.views.event_time.completeness import (
    HOUR_MS,
    MISSINGS,
    RULES,
    CompletenessRule,
    Missing,
    Partition,
    PartitionCompleteness,
    TimeSpan,
    is_complete,
)
from tidemark.views.event_time.progress import EventTimeNow, LateInWindows, LateTotal, hour_name, late_total
from tidemark.views.values import From, Number

# Of one partition: the ranges that are missing, and the windows with late messages.
SHOWN = 100


class HourState(StrEnum):
    """An hour of the whole stream in a word."""

    BEFORE = "before the first message"
    NOTHING = "no message yet"
    COMPLETE = "complete"
    NOT_OVER = "not over"
    UNREAD = "not read yet"
    MISSING = "missing"
    REPLACED = "replaced"


# Their meanings: docs/airflow-pages.md is written from here.
WORDS = {
    HourState.COMPLETE: "complete in all partitions",
    HourState.NOT_OVER: "the clock has not passed the end of the hour and the allowed lateness",
    HourState.UNREAD: "the missing offsets are after all that the stream has read: the next run reads them",
    HourState.MISSING: "offsets that may belong to the hour are in no committed window, and are below the stream's position",
    HourState.REPLACED: "it is unknown what is missing: a topic was recreated, truncated or left before it had passed the hour",
    HourState.BEFORE: "the hour ended before the first message that the stream has read",
    HourState.NOTHING: "the hour is over, and neither Kafka nor any window has a message of the stream",
}


@dataclass(frozen=True)
class HourNamed:
    hour: str
    since: int
    until: int
    word: str


@dataclass(frozen=True)
class HourLine(HourNamed):
    missing: Number
    late: LateTotal
    unread_after: Number


@dataclass(frozen=True)
class Calendar:
    """`first` is the least timestamp that was read. Times are ms since 1970."""

    now: int
    watermark: int | None
    allowed_lateness_ms: int
    first: int | None
    hours: list[HourLine]


@dataclass(frozen=True)
class MissingRange:
    """`again` is what a backfill can read of it, as `topic/partition@from-until`.

    `partition`: as a request takes it with these offsets, with its incarnation where that is not the one that they mean else.
    """

    partition: str
    kind: str
    meaning: str
    start: From
    until: Number
    again: str | None


@dataclass(frozen=True)
class PartitionOfHour:
    """A partition with its rule, what is missing and why, and what came late."""

    partition: str
    complete: bool
    rule: str
    meaning: str
    missing: list[MissingRange]
    more_missing: int
    late: LateInWindows
    unread_after: Number


@dataclass(frozen=True)
class Hour(HourNamed):
    """`backfill` has all that a backfill can read of what is missing."""

    complete: bool
    now: int
    allowed_lateness_ms: int
    late: LateTotal
    unread_after: Number
    partitions: list[PartitionOfHour]
    backfill: list[str]
    more_backfill: int


def hours_asked(since: str, hours: int, now: int) -> list[TimeSpan]:
    """The hours from a time on, which begins an hour; without one, the last ones. None that begins after the clock.

    Raises WrongUse naming `since` when that is no time, or no hour begins then.
    """
    start = hour_asked("since", since).start if since else now // HOUR_MS * HOUR_MS - (hours - 1) * HOUR_MS
    until = min(start + hours * HOUR_MS, now + 1)
    return [TimeSpan(at, at + HOUR_MS) for at in range(max(0, start), until, HOUR_MS)]


def hour_asked(field: str, text: str) -> TimeSpan:
    """The hour that begins at a time. Raises WrongUse naming the field."""
    try:
        at = milliseconds(read_time(text))
        if at % HOUR_MS:
            raise WrongUse(f"{text}: no hour begins then; give its beginning, like 2026-11-21T13Z")
        return TimeSpan(at, at + HOUR_MS)
    except WrongUse as problem:
        raise WrongUse(f"{field}: {problem}") from None


def calendar_of(seen: EventTimeNow, hours: Iterable[TimeSpan], watermark: int | None, first: int | None) -> Calendar:
    """The hours in a line each. `first` is `EventTimeNow.first_message`."""
    wanted, partitions = list(hours), _by_place(seen)
    seen.look_at(_times(seen, [hour for hour in wanted if not _before(hour, first)]))
    lines = [_line(seen, hour, first, partitions) for hour in wanted]
    return Calendar(seen.now, watermark, seen.lateness_ms, first, lines)


def _line(
    seen: EventTimeNow, hour: TimeSpan, first: int | None, partitions: Mapping[TopicPartition, Partition]
) -> HourLine:
    answers = [] if _before(hour, first) else seen.answers(hour)
    return HourLine(
        **vars(_named(hour, first, answers, partitions)),
        missing=sum(len(part) for answer in answers for _, part in answer.missing),
        late=late_total(answers),
        unread_after=sum(answer.late.unread for answer in answers),
    )


def hour_whole(seen: EventTimeNow, hour: TimeSpan, first: int | None) -> Hour:
    """An hour, partition by partition. `first` is `EventTimeNow.first_message`."""
    answers, by_place = seen.answers(hour), _by_place(seen)
    again = [
        again
        for answer in answers
        for kind, part in answer.missing
        if (again := _again(by_place[answer.at], kind, part))
    ]
    return Hour(
        **vars(_named(hour, first, answers, by_place)),
        complete=is_complete(answers),
        now=seen.now,
        allowed_lateness_ms=seen.lateness_ms,
        late=late_total(answers),
        unread_after=sum(answer.late.unread for answer in answers),
        partitions=[_partition(answer, by_place[answer.at], seen.topics) for answer in answers],
        backfill=again[:SHOWN],
        more_backfill=max(0, len(again) - SHOWN),
    )


def word_of(answers: Iterable[PartitionCompleteness], partitions: Mapping[TopicPartition, Partition]) -> HourState:
    """An hour in a word, of its answers in all partitions: the most remarkable of theirs."""
    words = set()
    for answer in answers:
        if answer.rule == CompletenessRule.MISSING:
            behind = any(_behind(partitions[answer.at], kind, part) for kind, part in answer.missing)
            words.add(HourState.MISSING if behind else HourState.UNREAD)
        elif answer.rule == CompletenessRule.REPLACED:
            words.add(HourState.REPLACED)
        elif answer.rule == CompletenessRule.NOT_OVER:
            words.add(HourState.NOT_OVER)
    worst = (HourState.MISSING, HourState.REPLACED, HourState.UNREAD, HourState.NOT_OVER)
    return next((word for word in worst if word in words), HourState.COMPLETE)


def _behind(partition: Partition, kind: Missing, part: OffsetRange) -> bool:
    """Whether the stream has gone past some of what is missing, so that its next run does not read all of that."""
    return kind not in (Missing.UNREAD, Missing.HELD) or part.start < partition.reached


def _again(partition: Partition, kind: Missing, part: OffsetRange) -> str | None:
    """The part of a missing range that a backfill can read: what Kafka holds, and what the ingest does not read by itself."""
    if partition.log is None or kind not in (Missing.UNREAD, Missing.SKIPPED):
        return None
    start, until = max(part.start, partition.log.start), min(part.until, partition.reached, partition.log.end)
    return f"{partition.at.topic}/{partition.at.partition}@{start}-{until}" if start < until else None


def _partition(answer: PartitionCompleteness, known: Partition, topics: Topics) -> PartitionOfHour:
    return PartitionOfHour(
        partition=str(answer.at),
        complete=answer.complete,
        rule=answer.rule.value,
        meaning=RULES[answer.rule],
        missing=[
            MissingRange(
                written_partition(topics, RangeSet([part])),
                kind.value,
                MISSINGS[kind],
                part.start,
                part.until,
                _again(known, kind, part),
            )
            for kind, part in answer.missing[:SHOWN]
        ],
        more_missing=max(0, len(answer.missing) - SHOWN),
        late=LateInWindows(answer.late.least, answer.late.most, list(answer.late.windows[:SHOWN])),
        unread_after=answer.late.unread,
    )


def _named(
    hour: TimeSpan,
    first: int | None,
    answers: Iterable[PartitionCompleteness],
    partitions: Mapping[TopicPartition, Partition],
) -> HourNamed:
    word = HourState.BEFORE if _before(hour, first) else word_of(answers, partitions)
    if word is HourState.COMPLETE and first is None:
        word = HourState.NOTHING
    return HourNamed(hour_name(hour), hour.start, hour.until, word.value)


def _before(hour: TimeSpan, first: int | None) -> bool:
    return first is not None and hour.until <= first


def _times(seen: EventTimeNow, hours: Iterable[TimeSpan]) -> Iterator[int]:
    """The times at which Kafka is asked about some hours."""
    for hour in hours:
        yield from (hour.start, hour.until + seen.lateness_ms)


def _by_place(seen: EventTimeNow) -> dict[TopicPartition, Partition]:
    return {partition.at: partition for partition in seen.partitions}
