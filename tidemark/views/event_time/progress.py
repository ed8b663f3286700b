"""How far a stream is in event time now: asks Kafka and the ledger, and `completeness.py` judges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from tidemark.audit.report import shown
from tidemark.clients.kafka.topics import READ_COMMITTED
from tidemark.errors import TopicUnknown
from tidemark.ledger.holes import jumped_over
from tidemark.ledger.incarnations import Topics
from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import INGEST, Guarantee, LaneKind, Register
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.reading import Reading
from tidemark.offsets.times import in_iso
from tidemark.planning.inputs import KafkaState
from tidemark.runs.live.kafka_now import known_now, topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.same_logs import check_same
from tidemark.views.event_time.completeness import (
    HOUR_MS,
    LogBounds,
    Missing,
    OffsetsForTimes,
    Partition,
    PartitionCompleteness,
    TimeSpan,
    WindowPart,
    concerns,
    hours_due,
    is_complete,
    judge,
    passed_over,
    watermark,
)

Place = tuple[str, int]

# A week. An hour that becomes complete later is not announced; `tidemark complete` answers for it.
MAX_HOURS = 168


@dataclass(frozen=True)
class EventTimeNow:
    """A stream as ledger and Kafka show it at `now` (ms since 1970). What comes later is not in it."""

    opened: OpenStream
    now: int
    known: KafkaState
    partitions: tuple[Partition, ...]
    # As the ledger knows them.
    topics: Topics = field(default_factory=dict)
    _passing: dict[int, Mapping[Place, int | None]] = field(default_factory=dict)
    # The times that Kafka was asked for since it was looked at again.
    _asked: list[int] = field(default_factory=list)

    @property
    def lateness_ms(self) -> int:
        return self.opened.stream.event_time.lateness_ms

    def answers(self, span: TimeSpan) -> list[PartitionCompleteness]:
        """Whether a span is complete, partition by partition. Asks Kafka where its logs pass the span."""
        asked = [self._first(time) for time in (0, span.start, span.until + self.lateness_ms)]
        self._check_asked()
        answers = []
        for partition in self.partitions:
            if concerns(partition, span):
                place = (partition.at.topic, partition.at.partition)
                passing = (
                    OffsetsForTimes()
                    if partition.log is None
                    else OffsetsForTimes(*(first.get(place) for first in asked))
                )
                answers.append(judge(partition, span, passing, self.now, self.lateness_ms))
        return answers

    def look_at(self, times: Iterable[int]) -> None:
        """Ask Kafka where its logs pass some times, so that `answers` need not.

        The later the time, the later the place. So between two times with the same places nothing is asked.
        """
        wanted = sorted(set(times))
        between = [(0, len(wanted) - 1)] if wanted else []
        while between:
            low, high = between.pop()
            first, last = self._first(wanted[low]), self._first(wanted[high])
            if first == last:
                for time in wanted[low + 1 : high]:
                    self._passing.setdefault(time, first)
            elif high - low > 1:
                middle = (low + high) // 2
                between += [(low, middle), (middle, high)]
        self._check_asked()

    def watermark(self) -> int | None:
        """The least watermark of the partitions that the stream reads; None when that of one is unknown."""
        reading = [partition for partition in self.partitions if partition.log is not None]
        waiting = {
            (partition.at.topic, partition.at.partition): waits
            for partition in reading
            if (waits := partition.waiting) is not None
        }
        unread = self.opened.log.timestamps(waiting) if waiting else {}
        moments = [
            watermark(partition, self.now, self.lateness_ms, unread.get((partition.at.topic, partition.at.partition)))
            for partition in reading
        ]
        known = [moment for moment in moments if moment is not None]
        return min(known) if known and len(known) == len(moments) else None

    def passed_over(self) -> RangeSet:
        """The offsets that the watermark has passed without a window: lost, skipped, or committed before it was read."""
        return RangeSet(
            part for partition in self.partitions if partition.log is not None for part in passed_over(partition)
        )

    def first_message(self) -> int | None:
        """The least timestamp that a window has read, in ms since 1970; None when no window has."""
        return min((part.first_timestamp for partition in self.partitions for part in partition.parts), default=None)

    def became_complete(
        self, watermark: int | None, announced: Iterable[int]
    ) -> list[tuple[TimeSpan, list[PartitionCompleteness]]]:
        """The complete hours of the last week that were not announced, with their answers, oldest first."""
        due = hours_due(self.first_message(), watermark, announced, MAX_HOURS)
        hours = [TimeSpan(hour, hour + HOUR_MS) for hour in due]
        judged = [(hour, self.answers(hour)) for hour in hours]
        return [(hour, answers) for hour, answers in judged if is_complete(answers)]

    def counted(
        self, span: TimeSpan, answers: Iterable[PartitionCompleteness], reading: Reading
    ) -> list[PartitionCompleteness]:
        """The answers with the exact numbers of late messages: reads from Kafka where they may lie.

        What Kafka has deleted stays a bound.
        """
        wanted = [(answer, self._to_count(answer)) for answer in answers]
        reading.begin(RangeSet(part for _, ranges in wanted for part in ranges))
        return [self._counted(span, one, ranges, reading) if ranges else one for one, ranges in wanted]

    def _to_count(self, answer: PartitionCompleteness) -> RangeSet:
        """Where late messages of an answer may lie; empty where Kafka does not hold all of it."""
        log = next(partition.log for partition in self.partitions if partition.at == answer.at)
        ranges = answer.late.ranges.only([answer.at])
        return ranges if log is not None and ranges and ranges.of(answer.at)[0][0] >= log.start else RangeSet()

    def _counted(
        self, span: TimeSpan, answer: PartitionCompleteness, ranges: RangeSet, reading: Reading
    ) -> PartitionCompleteness:
        place = (answer.at.topic, answer.at.partition)
        number = self.opened.log.count_between(
            {place: ranges.of(answer.at)},
            span.start,
            span.until,
            self.opened.stream.source.isolation,
            partial(reading.passed, answer.at),
        )
        return replace(answer, late=replace(answer.late, least=number, most=number))

    def _first(self, time: int) -> Mapping[Place, int | None]:
        if time not in self._passing:
            isolation = self.opened.stream.source.isolation
            self._passing[time] = self.opened.log.first_at_or_after(self.known.logs, time, isolation)
            self._asked.append(time)
        return self._passing[time]

    def _check_asked(self) -> None:
        """Checks once for many times that Kafka's answers since the last check were about the logs that were looked at."""
        if self._asked:
            check_same(self.opened, self.known.logs)
            self._asked.clear()


def progress(opened: OpenStream) -> EventTimeNow:
    """Look at a stream once. Reads the whole history. Raises TopicUnknown, Unreachable and the ledger's errors."""
    # The clock first: what Kafka holds afterwards has come by then.
    now = opened.ledger.clock()
    topics = topics_now(opened)
    known = known_now(opened, topics, learn=False)
    for topic in topics:
        if topic not in known.logs and topic not in known.left:
            raise TopicUnknown(f"topic {topic} does not exist; create it, or correct `source` in the stream file")
    settled = opened.stream.source.isolation != READ_COMMITTED
    high = {} if settled else opened.log.high_watermarks(known.logs)
    logs = {
        at: LogBounds(log.start, log.end, high.get((at.topic, at.partition), log.end))
        for at, log in known.to_read().items()
    }
    # The ledger last: what was committed meanwhile counts.
    view = opened.ledger.view()
    partitions = _partitions(known, logs, view.register, view.windows, topics)
    return EventTimeNow(opened, now, known, partitions, view.register.topics if view.register else {})


def _partitions(
    known: KafkaState,
    logs: Mapping[TopicPartition, LogBounds],
    register: Register | None,
    windows: Sequence[Committed],
    topics: Iterable[str],
) -> tuple[Partition, ...]:
    covered = RangeSet(range_ for window in windows if window.record.receipt is not None for range_ in window.covers)
    unfinished = RangeSet(range_ for window in windows if window.record.receipt is None for range_ in window.covers)
    lost, skipped = jumped_over(windows)
    parts = _parts(windows)
    arrived: dict[TopicPartition, list[tuple[int, int]]] = defaultdict(list)
    begins: dict[TopicPartition, int] = {}
    last: dict[TopicPartition, int] = {}
    for window in windows:
        record = window.record
        # An erasure may not have asked Kafka where its logs ended.
        for range_ in record.window.ranges if record.kind != LaneKind.ERASE else ():
            arrived[range_.at].append((record.window.pinned_at, range_.log_end))
            last[range_.at] = max(record.committed_at, last.get(range_.at, 0))
            if record.kind == LaneKind.INGEST:
                begins[range_.at] = min(range_.start, begins.get(range_.at, range_.start))
        for gap in record.window.gaps:
            at = gap.as_range().partition
            begins[at] = min(gap.start, begins.get(at, gap.start))
    if register is not None and INGEST in register.lanes:
        for position in register.lanes[INGEST].start:
            begins[position.at] = min(position.offset, begins.get(position.at, position.offset))
    read = known.partitions()
    return tuple(
        Partition(
            at=at,
            begins=begins[at] if at in begins else known.begins(at, read[at]) if at in logs else 0,
            covered=covered.only([at]),
            left_out={
                Missing.LOST: lost.only([at]),
                Missing.SKIPPED: skipped.only([at]),
                Missing.UNFINISHED: unfinished.only([at]),
            },
            parts=parts.get(at, ()),
            arrived=arrived[at],
            log=logs.get(at),
            lowest=known.starts.get(at, 0),
            ended_at=None if at in logs else _ended_at(at, known, register, last.get(at, 0), topics),
        )
        for at in sorted({*logs, *covered.partitions, *unfinished.partitions})
    )


def _ended_at(
    at: TopicPartition, known: KafkaState, register: Register | None, last: int, topics: Iterable[str]
) -> int | None:
    """Since when the stream no longer reads a partition. None while a change of its topic is not accepted."""
    incarnations = register.topics.get(at.topic, ()) if register is not None else ()
    later = [incarnation.since for incarnation in incarnations if incarnation.incarnation > at.incarnation]
    left = [
        incarnation.left.at
        for incarnation in incarnations
        if incarnation.incarnation == at.incarnation and incarnation.left is not None
    ]
    if later or left:
        return min((*later, *left))
    return None if at.topic in topics and at.topic not in known.incarnations else last


def _parts(windows: Iterable[Committed]) -> dict[TopicPartition, list[WindowPart]]:
    """The counts of windows in each partition. Windows that read again what others had read add nothing new."""
    first: list[Committed] = []
    again: list[Committed] = []
    for window in windows:
        record = window.record
        repeats = record.kind.reads_again or record.window.guarantee == Guarantee.NONE
        (again if repeats else first).append(window)
    covered = RangeSet(range_ for window in first if window.record.receipt is not None for range_ in window.covers)
    parts: dict[TopicPartition, list[WindowPart]] = defaultdict(list)
    for once, several in ((True, first), (False, again)):
        for window in several:
            for tally in window.record.tallies:
                if tally.first is None or tally.last is None:
                    continue
                if tally.first_timestamp is None or tally.last_timestamp is None:
                    continue
                if not once and not window.covers.only([tally.at]) - covered:
                    continue
                name = f"{window.record.lane}/{window.record.seq}"
                times = (tally.first_timestamp, tally.last_timestamp)
                parts[tally.at].append(WindowPart(name, tally.read.number, tally.first, tally.last, *times, once))
    return parts


# for the command line and events


@dataclass(frozen=True)
class LateTotal:
    """How many messages of a span came late: at least and at most."""

    least: int
    most: int


@dataclass(frozen=True)
class LateInWindows(LateTotal):
    windows: list[str]


@dataclass(frozen=True)
class MissingPart:
    kind: str
    range: str


@dataclass(frozen=True)
class CompletenessShown:
    """The answer for a partition."""

    partition: str
    complete: bool
    rule: str
    missing: list[MissingPart]
    late: LateInWindows
    unread_after: int


@dataclass(frozen=True)
class CompleteHour:
    """An hour that became complete, for the event that other DAGs wait for."""

    hour: str
    since: str
    until: str
    late: LateTotal


def hour_name(span: TimeSpan) -> str:
    """An hour as the command line takes it, by its beginning in UTC: 2026-11-21T13Z."""
    return f"{in_iso(span.start).partition(':')[0]}Z"


def answer_shown(answer: PartitionCompleteness) -> CompletenessShown:
    missing = [MissingPart(kind.value, str(part)) for kind, part in answer.missing]
    late = LateInWindows(answer.late.least, answer.late.most, list(answer.late.windows))
    return CompletenessShown(str(answer.at), answer.complete, answer.rule.value, missing, late, answer.late.unread)


def hour_shown(span: TimeSpan, answers: Iterable[PartitionCompleteness]) -> CompleteHour:
    return CompleteHour(hour_name(span), in_iso(span.start), in_iso(span.until), late_total(answers))


def late_total(answers: Iterable[PartitionCompleteness]) -> LateTotal:
    """How many messages of a span came late in all partitions."""
    lates = [answer.late for answer in answers]
    return LateTotal(sum(late.least for late in lates), sum(late.most for late in lates))


def progress_shown(seen: EventTimeNow, watermark: int | None) -> dict[str, str | list[str] | None]:
    """The watermark of a stream, for events: its time, and the offsets that it has passed without a window."""
    at = None if watermark is None else in_iso(watermark)
    return {"watermark": at, "passed_over": list(shown(seen.passed_over()))}
