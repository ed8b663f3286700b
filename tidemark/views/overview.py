"""A stream's overview, as its page shows it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tidemark.clients.kafka.retention import PartitionSnapshot, RetentionState, alarm, forecast_cell, headroom
from tidemark.clients.kafka.topics import READ_COMMITTED, PartitionLog, TopicLog
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.errors import Unreachable
from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.holes import UnreadOffsets
from tidemark.ledger.incarnations import Topics, newest, recreated, written_range
from tidemark.ledger.ledger import Ledger, StoredHead
from tidemark.ledger.newest import newest_of_lane, newest_windows, open_heads
from tidemark.ledger.records import (
    INGEST,
    Attempt,
    Head,
    LaneEntry,
    Pending,
    Record,
    Register,
    Window,
    next_offsets,
)
from tidemark.ledger.retirement import retirement
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, TopicPartition
from tidemark.offsets.times import in_words
from tidemark.runs.live.kafka_now import topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.retention import PartitionForecast, forecasts
from tidemark.streams.alarm import LAST_WINDOWS
from tidemark.views.audits import AuditEnded, last_audit
from tidemark.views.jumped_over import SkippedOffsets, jumped_over_now
from tidemark.views.latency import Latency, latencies, latency_shown
from tidemark.views.messages.payloads import visible
from tidemark.views.replaced_windows import Fate, fates
from tidemark.views.status import PartitionState, Verdict, worst
from tidemark.views.summary import SkippedCounts, messages, passed_over
from tidemark.views.trend import trend
from tidemark.views.unknown_fields import sentence, unknown_in
from tidemark.views.values import Number, PartitionRanges, part_of
from tidemark.views.verdicts import verdicts

_WINDOWS = 50
_LANES = 20
# Of a window; the page of the window has all of them.
_RANGES = 10
_WORDS = list(PartitionState)


@dataclass(frozen=True)
class Status:
    """The word of the worst partition, and the rule that gave it."""

    word: str
    rule: str
    topic: str
    partition: int
    sentence: str


@dataclass(frozen=True)
class StateOfStream:
    """`unread_since`: the timestamp of the oldest message that the ingest has not read, in ms since 1970, if it is known.

    `holes` are the first ones, and `more_holes` counts the others; None while nobody has read the history.

    `kafka_problem` says why Kafka does not answer: what only Kafka knows is None then, or empty.

    `lag` is that of all partitions, in a sentence too; None while no partition has a position. `in_topics` is what Kafka holds
    of the topics then, as long as no window has been committed.

    `lost_unread` and `expiring` are the retention alarms of offsets that Kafka has deleted, and may soon delete, unread.

    `skipped` are offsets that a policy has left out, that no window has read since, and that Kafka still has. `lost`: those
    that Kafka has no more, of the ingest's last windows.

    `late` is the sentence of a raised latency alarm, `retired` that of a ledger that has moved elsewhere.
    """

    stream: str
    description: str
    owner: str | None
    tags: list[str]
    status: Status | None
    missing_topics: list[str]
    retention_alarms: list[str]
    lost_unread: list[str]
    expiring: list[str]
    retention_headroom: str | None
    unread_since: int | None
    audit: AuditEnded | None
    holes: list[str] | None
    more_holes: int
    skipped: SkippedOffsets | None
    lost: SkippedOffsets | None
    late: str | None
    retired: str | None
    in_topics: Number | None
    kafka_problem: str | None
    lag: Number | None
    lag_sentence: str | None


@dataclass(frozen=True)
class LastCommit:
    window: int
    at: int
    run: str


@dataclass(frozen=True)
class IngestDeadLetters:
    """The dead letters that the last `windows` of the ingest wrote, of the messages that they `read`.

    Replays may have made something else of these since.

    `lags` and `letters` have a number for each of these windows, the oldest first: the lag that it left, and the dead letters
    that it wrote.
    """

    windows: int
    read: int
    dead_letters: int
    lags: list[Number]
    letters: list[int]
    last_commit: LastCommit | None


@dataclass(frozen=True)
class SinkOfStream:
    name: str
    type: str


@dataclass(frozen=True)
class PartitionNow:
    topic: str
    partition: int
    log_start: Number | None
    position: Number | None
    end: Number | None
    lag: Number | None
    status: str | None
    status_rule: str | None
    status_sentence: str | None
    pending: Number | None
    retention: str | None
    retention_shown: str | None
    retention_ms: int | None
    retention_reason: str | None


@dataclass(frozen=True)
class TransactionShown:
    """An open transaction, with a sentence for people. Times are milliseconds since 1970."""

    topic: str
    partition: int
    offset: Number
    behind: Number
    producer_id: Number
    producer_epoch: int
    transactional_id: str | None
    started: int | None
    last_timestamp: int | None
    sentence: str


@dataclass(frozen=True)
class LaneNow:
    lane: str
    kind: str
    state: str
    run: str | None
    reason: str | None
    opened_at: int
    windows: int


@dataclass(frozen=True)
class NewestWindow:
    """Counts are None while a window is pending; `stored` then has what is stored so far.

    `ranges` are the first ones, and `more_ranges` counts the others. `selected`: how many offsets the window's lane has
    selected within its ranges; None for all of them.
    """

    lane: str
    seq: int
    state: str
    at: int
    ranges: list[PartitionRanges]
    more_ranges: int
    selected: Number | None
    read: int | None
    stored: int | None
    skipped: int | None
    dead_letters: int | None
    passed_over: SkippedCounts | None
    generation: Number | None
    run: str | None
    # Why nothing of it counts any more, because of newer windows: see `replaced_windows.py`.
    fate: Fate | None


@dataclass(frozen=True)
class Overview(StateOfStream):
    """`more_partitions` counts those that are not among `partitions`.

    `unknown_fields`: how many messages of the ingest's last windows have keys that the stream does not name, and which keys.
    """

    sinks: list[SinkOfStream]
    latency: Latency
    partitions: list[PartitionNow]
    open_transactions: list[TransactionShown]
    lanes: list[LaneNow]
    windows: list[NewestWindow]
    ingest: IngestDeadLetters
    unknown_fields: str | None
    more_partitions: int


@dataclass(frozen=True)
class _InKafka:
    """The part of a stream's overview that only Kafka knows."""

    missing_topics: list[str]
    logs: dict[str, TopicLog]
    held: Sequence[OpenTransaction]
    forecasted: Mapping[TopicPartition, PartitionForecast]


def overview(opened: OpenStream, unread: UnreadOffsets | None = None, *, without_kafka: bool = False) -> Overview:
    """Positions, ends and lag per partition; lanes; the newest windows. Raises Unreachable and the ledger's errors.

    `unread`: what the ingest is past without a window that has read it, which only the whole history tells. None: nobody has
    looked, and only what the last windows have jumped over is known. With `without_kafka`, a Kafka that does not answer is no
    error: what the ledger knows is shown, and `kafka_problem` says what it was.
    """
    ledger = opened.ledger
    stored = ledger.register()
    lanes = _lanes(ledger, stored[1]) if stored else {}
    heads = open_heads(ledger, stored[1]) if stored else {}
    windows = {name: _committed_windows(lanes[name], heads.get(name)) for name in _newest_lanes(lanes)}
    ingest, now = heads.get(INGEST), ledger.clock()
    # They also give the log starts and positions for a forecast.
    lately = newest_of_lane(ledger, INGEST, ingest.head, LAST_WINDOWS) if ingest else []
    problem = None
    try:
        kafka = _in_kafka(opened, stored[1] if stored else None, ingest, lately, now)
    except Unreachable as away:
        if not without_kafka:
            raise
        problem, kafka = str(away), _InKafka([], {}, (), {})
    opened_at = lanes[INGEST].opened_at if INGEST in lanes else 0
    forecasted, told = kafka.forecasted, opened.stream.alarm
    ids = {topic: log.topic_id for topic, log in kafka.logs.items()}
    others = recreated(stored[1].topics, ids) if stored else frozenset[str]()
    judged = verdicts(
        ingest.head if ingest else None, opened_at, lately, kafka.logs, forecasted, opened.stream, now, others
    )
    soonest = min(
        (at for at, outlook in forecasted.items() if outlook.forecast.in_ms is not None),
        key=lambda at: forecasted[at].forecast.in_ms or 0,
        default=None,
    )
    partitions = _partitions(ingest, kafka.logs, forecasted, judged, others)
    holes = None if unread is None else unread.holes
    skipped, lost = jumped_over_now(stored[1].topics if stored else {}, lately, unread, kafka.logs)
    latency = latency_shown(latencies(lately), told.latency_minutes, told.windows)
    alarms = {
        state: [
            said
            for at, outlook in forecasted.items()
            if outlook.forecast.state == state and (said := alarm(str(at), outlook.now, outlook.forecast))
        ]
        for state in (RetentionState.LOST, RetentionState.WARNING)
    }
    unread_since = min((seen.unread_since for seen in forecasted.values() if seen.unread_since), default=None)
    lags = [partition.lag for partition in partitions if partition.lag is not None]
    return Overview(
        stream=opened.stream.name,
        description=visible(opened.stream.description),
        owner=None if opened.stream.owner is None else visible(opened.stream.owner),
        tags=[visible(tag) for tag in opened.stream.tags],
        status=_status(judged),
        missing_topics=kafka.missing_topics,
        retention_alarms=[said for of_state in alarms.values() for said in of_state],
        lost_unread=alarms[RetentionState.LOST],
        expiring=alarms[RetentionState.WARNING],
        retention_headroom=None
        if soonest is None
        else headroom(str(soonest), forecasted[soonest].now, forecasted[soonest].forecast),
        unread_since=unread_since,
        audit=last_audit(ledger),
        holes=None
        if holes is None
        else [written_range(opened.ledger.topics(), range_) for range_ in islice(holes, _RANGES)],
        more_holes=0 if holes is None else max(0, sum(1 for _ in holes) - _RANGES),
        skipped=skipped,
        lost=lost,
        late=latency.sentence,
        retired=retirement(stored[1]) if stored else None,
        in_topics=sum(now_.end - now_.start for log in kafka.logs.values() for now_ in log.partitions.values())
        if kafka.logs and ingest is None
        else None,
        kafka_problem=problem,
        lag=sum(lags) if lags else None,
        lag_sentence=_lag_sentence(lags, unread_since, now, skipped),
        sinks=[SinkOfStream(sink.name, sink.type) for sink in opened.stream.sinks],
        latency=latency,
        partitions=partitions,
        open_transactions=transactions_shown(kafka.held, now),
        lanes=[_lane(name, lanes[name], number) for name, number in windows.items() if number is not None],
        windows=_windows(ledger, stored[1], heads) if stored else [],
        ingest=_ingest(lately),
        unknown_fields=_unknown(lately),
        more_partitions=0,
    )


def _lag_sentence(
    lags: Sequence[int], unread_since: int | None, now: int, skipped: SkippedOffsets | None
) -> str | None:
    """The lag of a stream, whose partitions have these lags."""
    if not lags:
        return None
    number = f"{len(lags)} partition{'s' if len(lags) > 1 else ''}"
    besides = "" if skipped is None else f", and {number_of(skipped.offsets, 'offset', 'was', 'were')} skipped"
    if not any(lags):
        return f"{'nothing is unread' if skipped is None else 'no lag'} in {number}{besides}"
    unread = number_of(sum(lags), "offset", "is", "are")
    said = f"{unread} unread, in {sum(1 for lag in lags if lag)} of {number}{besides}"
    return (
        said if unread_since is None else f"{said}; the oldest message waits for {in_words(max(0, now - unread_since))}"
    )


def _in_kafka(
    opened: OpenStream, register: Register | None, ingest: StoredHead | None, lately: Sequence[Record], now: int
) -> _InKafka:
    source = opened.stream.source
    topics = topics_now(opened)
    logs = opened.log.topics(topics, source.isolation)
    high = opened.log.high_watermarks(logs)
    held = opened.log.open_transactions(logs, high) if source.isolation == READ_COMMITTED else ()
    moments = {} if register is None or ingest is None else _moments(register, ingest.head, logs, high, now)
    retention = forecasts(opened.log, moments, lately, opened.stream.limits.warn_retention_hours)
    return _InKafka(sorted(set(topics) - set(logs)), logs, held, retention)


def worst_partitions(shown: Overview, most: int) -> Overview:
    """An overview with at most this many partitions: by retention, status and lag, the worst first. Pure.

    Where all fit, they stay in their order.
    """
    rows = shown.partitions
    if len(rows) > most:
        rows = sorted(rows, key=_badness, reverse=True)[:most]
    return replace(shown, partitions=rows, more_partitions=len(shown.partitions) - len(rows))


def _badness(row: PartitionNow) -> tuple[bool, int, int]:
    return row.retention == "lost", _WORDS.index(PartitionState(row.status)) if row.status else 0, row.lag or 0


def transactions_shown(held: Iterable[OpenTransaction], now: int) -> list[TransactionShown]:
    same = ("topic", "partition", "behind", "producer_id", "transactional_id", "started", "last_timestamp")
    return [
        TransactionShown(
            **{name: getattr(transaction, name) for name in same},
            offset=transaction.start,
            producer_epoch=transaction.epoch,
            sentence=transaction.sentence(now),
        )
        for transaction in held
    ]


def _lanes(ledger: Ledger, register: Register) -> dict[str, LaneEntry]:
    """The open lanes, and some that were closed last."""
    lanes = dict(register.lanes)
    for part in closed_lanes(ledger, register):
        lanes |= part
        if len(lanes) > _LANES:
            break
    return lanes


def _newest_lanes(lanes: dict[str, LaneEntry]) -> list[str]:
    others = sorted((name for name in lanes if name != INGEST), key=lambda name: lanes[name].opened_at, reverse=True)
    return [*([INGEST] if INGEST in lanes else []), *others[:_LANES]]


def _moments(
    register: Register,
    ingest: Head,
    logs: dict[str, TopicLog],
    high: Mapping[tuple[str, int], int],
    now: int,
) -> dict[TopicPartition, PartitionSnapshot]:
    """The partitions with a position of the ingest, as they are now. Recreated topics are left out."""
    known = {topic: newest(register.topics, topic) for topic in register.topics}
    return {
        at: PartitionSnapshot(now, log.partitions[at.partition].start, high[at.topic, at.partition], offset)
        for at, offset in ingest.offsets().items()
        if (log := logs.get(at.topic)) is not None
        and (known[at.topic].topic_id, known[at.topic].incarnation) == (log.topic_id, at.incarnation)
        and at.partition in log.partitions
    }


def _lag(log: PartitionLog, position: int, *, recreated: bool) -> int:
    """How much is unread: of a topic that was recreated, all that it holds."""
    return max(0, log.end - (log.start if recreated else position))


def _status(judged: Mapping[tuple[str, int], Verdict]) -> Status | None:
    """The verdict of the worst partition; None while no partition has a position."""
    worst_of_all = worst(judged.values())
    if worst_of_all is None:
        return None
    topic, partition = next(at for at, verdict in sorted(judged.items()) if verdict is worst_of_all)
    return Status(
        worst_of_all.word.value,
        worst_of_all.rule.value,
        topic,
        partition,
        f"{topic}/{partition}: {worst_of_all.sentence}",
    )


def _partitions(
    ingest: StoredHead | None,
    logs: dict[str, TopicLog],
    forecasted: Mapping[TopicPartition, PartitionForecast],
    judged: Mapping[tuple[str, int], Verdict],
    recreated: Container[str],
) -> list[PartitionNow]:
    positions = next_offsets(ingest.head.positions if ingest else ())
    window = ingest.head.pending.window if ingest and ingest.head.pending else None
    pending = (
        {(range_.topic, range_.partition): range_.until for range_ in window.ranges if range_.start < range_.until}
        if window
        else {}
    )
    expected = {(at.topic, at.partition): outlook.forecast for at, outlook in forecasted.items()}
    rows = []
    # Without Kafka, those that the ledger knows.
    partitions: dict[str, dict[int, PartitionLog | None]] = {
        topic: dict(log.partitions) for topic, log in logs.items()
    } or {topic: dict.fromkeys(offsets) for topic, offsets in positions.items()}
    for topic, of_topic in sorted(partitions.items()):
        for partition, now in sorted(of_topic.items()):
            position = positions.get(topic, {}).get(partition)
            forecast = expected.get((topic, partition))
            verdict = judged.get((topic, partition))
            rows.append(
                PartitionNow(
                    topic=topic,
                    partition=partition,
                    log_start=now.start if now else None,
                    position=position,
                    end=now.end if now else None,
                    lag=None if position is None or now is None else _lag(now, position, recreated=topic in recreated),
                    status=verdict.word.value if verdict else None,
                    status_rule=verdict.rule.value if verdict else None,
                    status_sentence=verdict.sentence if verdict else None,
                    pending=pending.get((topic, partition)),
                    retention=forecast.state.value if forecast else None,
                    retention_shown=forecast_cell(forecast) if forecast else None,
                    retention_ms=forecast.in_ms if forecast else None,
                    retention_reason=forecast.reason.value if forecast and forecast.reason else None,
                )
            )
    return rows


def _committed_windows(entry: LaneEntry, stored: StoredHead | None) -> int | None:
    """How many windows a lane has committed; None for one that is only just being opened."""
    return stored.head.seq if stored else entry.windows


def _lane(name: str, entry: LaneEntry, windows: int) -> LaneNow:
    return LaneNow(name, entry.kind.value, entry.state.value, entry.run, entry.reason, entry.opened_at, windows)


def _windows(ledger: Ledger, register: Register, heads: Mapping[str, StoredHead]) -> list[NewestWindow]:
    pending = [
        _pending(ledger, lane, stored.head.pending, register.topics)
        for lane, stored in heads.items()
        if stored.head.pending
    ]
    pending.sort(key=lambda row: -row.at)
    records = newest_windows(ledger, register, heads, _WINDOWS)
    # What has replaced one of the newest windows is among them.
    found = fates(ledger, records, records)
    committed = [committed_window(record, register.topics, found.get((record.lane, record.seq))) for record in records]
    return [*pending, *committed][:_WINDOWS]


def _ingest(lately: Sequence[Record]) -> IngestDeadLetters:
    last = max(lately, key=lambda record: record.seq, default=None)
    windows = trend(lately).windows
    return IngestDeadLetters(
        windows=len(windows),
        read=sum(window.read for window in windows),
        dead_letters=sum(window.dead_letters for window in windows),
        lags=[window.lag for window in windows],
        letters=[window.dead_letters for window in windows],
        last_commit=LastCommit(last.seq, last.committed_at, last.attempt.run) if last else None,
    )


def _unknown(lately: Sequence[Record]) -> str | None:
    said = sentence(unknown_in(lately))
    return None if said is None else f"of the last {number_of(len(lately), 'window')} of the ingest, {said}"


def committed_window(record: Record, topics: Topics, fate: Fate | None) -> NewestWindow:
    """A committed window in a line of a table."""
    counts, passed = vars(messages(record)), passed_over(record)
    made = _newest(record.lane, record.window, topics, "committed", record.committed_at, record.attempt, counts, passed)
    return replace(made, fate=fate)


def _pending(ledger: Ledger, lane: str, pending: Pending, topics: Topics) -> NewestWindow:
    window, beat = pending.window, ledger.last_beat(lane)
    if beat is None or pending.attempt is None or beat.generation != pending.attempt.generation:
        beat = None
    counts = {"read": None, "stored": beat.stored if beat else None, "skipped": None, "dead_letters": None}
    state = f"pending: {beat.step}" if beat else "pending"
    return _newest(lane, window, topics, state, window.pinned_at, pending.attempt, counts, None)


def _newest(
    lane: str,
    window: Window,
    topics: Topics,
    state: str,
    at: int,
    attempt: Attempt | None,
    counts: Mapping[str, int | None],
    passed: SkippedCounts | None,
) -> NewestWindow:
    moved = [range_ for range_ in window.ranges if range_.start < range_.until]
    return NewestWindow(
        lane=lane,
        seq=window.seq,
        state=state,
        at=at,
        ranges=[part_of(topics, OffsetRange(range_.at, range_.start, range_.until)) for range_ in moved[:_RANGES]],
        more_ranges=max(0, len(moved) - _RANGES),
        selected=None if window.selection is None else window.selection.offsets,
        **counts,
        passed_over=passed,
        generation=attempt.generation if attempt else None,
        run=attempt.run if attempt else window.run,
        fate=None,
    )
