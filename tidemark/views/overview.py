"""What the page shows of a stream, as plain values for JSON. Offsets are strings: JavaScript loses digits above 2^53."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from tidemark.clients.kafka.retention import Moment, alarm, headroom, in_table
from tidemark.clients.kafka.topics import READ_COMMITTED, TopicLog
from tidemark.clients.kafka.transactions import OpenTransaction
from tidemark.ledger.book import Book, Stored
from tidemark.ledger.closed import closed_lanes
from tidemark.ledger.incarnations import newest
from tidemark.ledger.newest import newest_of_lane, newest_windows, open_heads
from tidemark.ledger.records import (
    INGEST,
    Head,
    LaneEntry,
    Pending,
    Record,
    Register,
    Window,
    WindowRange,
    next_offsets,
)
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.runs.live.discovery import topics_now
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.live.retention import Forecasted, forecasts
from tidemark.streams.alarm import LAST_WINDOWS
from tidemark.views.latency import latencies, latency_shown
from tidemark.views.messages.payloads import visible
from tidemark.views.status import Verdict, Word, worst
from tidemark.views.summary import messages, passed_over
from tidemark.views.verdicts import verdicts

_WINDOWS = 50
_LANES = 20
# Of a window; the page of the window has all of them.
_RANGES = 10
_WORDS = list(Word)


def overview(opened: OpenStream, holes: RangeSet | None = None) -> dict[str, Any]:
    """Positions, ends and lag per partition; lanes; the newest windows. Raises Unreachable and the ledger's errors.

    `holes`: those of the stream, which only the whole history tells. None: nobody has looked.
    """
    book, source = opened.book, opened.stream.source
    found = book.register()
    lanes = _lanes(book, found[1]) if found else {}
    heads = open_heads(book, found[1]) if found else {}
    windows = {name: _committed_windows(lanes[name], heads.get(name)) for name in _newest_lanes(lanes)}
    topics = topics_now(opened)
    logs = opened.log.topics(topics, source.isolation)
    high = opened.log.high_watermarks(logs)
    held = opened.log.open_transactions(logs, high) if source.isolation == READ_COMMITTED else ()
    moments, lately = {}, []
    if found and INGEST in heads:
        moments = _moments(found[1], heads[INGEST].head, logs, high, book.clock())
        # They also give the log starts and positions for a forecast.
        lately = newest_of_lane(book, INGEST, heads[INGEST].head, LAST_WINDOWS)
    forecasted = forecasts(opened.log, moments, lately, opened.stream.limits.warn_retention_hours)
    ingest, told = heads.get(INGEST), opened.stream.alarm
    opened_at = lanes[INGEST].opened_at if INGEST in lanes else 0
    judged = verdicts(ingest.head if ingest else None, opened_at, lately, logs, forecasted, opened.stream, book.clock())
    soonest = min(
        (at for at, one in forecasted.items() if one.forecast.in_ms is not None),
        key=lambda at: forecasted[at].forecast.in_ms or 0,
        default=None,
    )
    return {
        "stream": opened.stream.name,
        "description": visible(opened.stream.description),
        "sinks": [{"name": one.name, "type": one.type} for one in opened.stream.sinks],
        "status": _status(judged),
        "holes": None if holes is None else [str(one) for one in islice(holes, _RANGES)],
        "more_holes": 0 if holes is None else max(0, sum(1 for _ in holes) - _RANGES),
        # The timestamp of the oldest message that the ingest has not read, in ms since 1970; None where none is known.
        "unread_since": min((one.unread_since for one in forecasted.values() if one.unread_since), default=None),
        "latency": latency_shown(latencies(lately), told.latency_minutes, told.windows),
        "partitions": _partitions(ingest, logs, forecasted, judged),
        "missing_topics": sorted(set(topics) - set(logs)),
        "retention_alarms": [said for at, one in forecasted.items() if (said := alarm(str(at), one.now, one.forecast))],
        "retention_headroom": None
        if soonest is None
        else headroom(str(soonest), forecasted[soonest].now, forecasted[soonest].forecast),
        "open_transactions": transactions_shown(held, book.clock()),
        "lanes": [_lane(name, lanes[name], number) for name, number in windows.items() if number is not None],
        "windows": _windows(book, found[1], heads) if found else [],
        "ingest": _ingest(lately),
        "audit": _audit(book),
    }


def worst_partitions(shown: Mapping[str, Any], most: int) -> dict[str, Any]:
    """An overview with at most so many partitions: by retention, status and lag, the worst first. Pure.

    `more_partitions` counts the others. Where all fit, they stay in their order.
    """
    rows = shown["partitions"]
    if len(rows) > most:
        rows = sorted(rows, key=_badness, reverse=True)[:most]
    return {**shown, "partitions": rows, "more_partitions": len(shown["partitions"]) - len(rows)}


def _badness(row: Mapping[str, Any]) -> tuple[bool, int, int]:
    word = row["status"]
    return row["retention"] == "lost", _WORDS.index(word) if word else 0, int(row["lag"] or 0)


def transactions_shown(held: Iterable[OpenTransaction], now: int) -> list[dict[str, Any]]:
    """Open transactions as plain values, each with a sentence for people. Times are milliseconds since 1970."""
    return [
        {
            "topic": one.topic,
            "partition": one.partition,
            "offset": str(one.start),
            "behind": str(one.behind),
            "producer_id": str(one.producer_id),
            "producer_epoch": one.epoch,
            "transactional_id": one.transactional_id,
            "started": one.started,
            "last_timestamp": one.last_timestamp,
            "sentence": one.sentence(now),
        }
        for one in held
    ]


def _lanes(book: Book, register: Register) -> dict[str, LaneEntry]:
    """The open lanes, and some that were closed last."""
    lanes = dict(register.lanes)
    for part in closed_lanes(book, register):
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
) -> dict[TopicPartition, Moment]:
    """The partitions with a position of the ingest, as they are now. Recreated topics are left out."""
    known = {topic: newest(register.topics, topic) for topic in register.topics}
    return {
        at: Moment(now, log.partitions[at.partition].start, high[at.topic, at.partition], offset)
        for at, offset in ingest.offsets().items()
        if (log := logs.get(at.topic)) is not None
        and (known[at.topic].topic_id, known[at.topic].incarnation) == (log.topic_id, at.incarnation)
        and at.partition in log.partitions
    }


def _status(judged: Mapping[tuple[str, int], Verdict]) -> dict[str, Any] | None:
    """The verdict of the worst partition; None while no partition has a position."""
    found = worst(judged.values())
    if found is None:
        return None
    topic, partition = next(at for at, one in sorted(judged.items()) if one is found)
    return {
        "word": found.word.value,
        "rule": found.rule.value,
        "topic": topic,
        "partition": partition,
        "sentence": f"{topic}/{partition}: {found.sentence}",
    }


def _partitions(
    ingest: Stored | None,
    logs: dict[str, TopicLog],
    forecasted: Mapping[TopicPartition, Forecasted],
    judged: Mapping[tuple[str, int], Verdict],
) -> list[dict[str, Any]]:
    positions = next_offsets(ingest.head.positions if ingest else ())
    window = ingest.head.pending.window if ingest and ingest.head.pending else None
    pending = (
        {(one.topic, one.partition): one.until for one in window.ranges if one.start < one.until} if window else {}
    )
    expected = {(at.topic, at.partition): one.forecast for at, one in forecasted.items()}
    rows = []
    for topic, log in sorted(logs.items()):
        for partition, now in sorted(log.partitions.items()):
            position = positions.get(topic, {}).get(partition)
            forecast = expected.get((topic, partition))
            verdict = judged.get((topic, partition))
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "log_start": str(now.start),
                    "position": None if position is None else str(position),
                    "end": str(now.end),
                    "lag": None if position is None else str(max(0, now.end - position)),
                    "status": verdict.word.value if verdict else None,
                    "status_rule": verdict.rule.value if verdict else None,
                    "status_sentence": verdict.sentence if verdict else None,
                    "pending": str(pending[topic, partition]) if (topic, partition) in pending else None,
                    "retention": forecast.state.value if forecast else None,
                    "retention_shown": in_table(forecast) if forecast else None,
                    "retention_ms": forecast.in_ms if forecast else None,
                    "retention_reason": forecast.reason.value if forecast and forecast.reason else None,
                }
            )
    return rows


def _committed_windows(entry: LaneEntry, stored: Stored | None) -> int | None:
    """How many windows a lane has committed; None for one that is only just being opened."""
    return stored.head.seq if stored else entry.windows


def _lane(name: str, entry: LaneEntry, windows: int) -> dict[str, Any]:
    return {
        "lane": name,
        "kind": entry.kind.value,
        "state": entry.state.value,
        "run": entry.run,
        "reason": entry.reason,
        "opened_at": entry.opened_at,
        "windows": windows,
    }


def _windows(book: Book, register: Register, heads: Mapping[str, Stored]) -> list[dict[str, Any]]:
    pending = [_pending(book, lane, stored.head.pending) for lane, stored in heads.items() if stored.head.pending]
    pending.sort(key=lambda row: -row["at"])
    committed = [_committed(record) for record in newest_windows(book, register, heads, _WINDOWS)]
    return [*pending, *committed][:_WINDOWS]


def _ingest(lately: Sequence[Record]) -> dict[str, Any]:
    """The dead letters that the last windows of the ingest wrote, how many windows these are, and the last commit."""
    last = max(lately, key=lambda record: record.seq, default=None)
    return {
        "windows": len(lately),
        "dead_letters": sum(messages(record)["dead_letters"] for record in lately),
        "last_commit": last and {"window": last.seq, "at": last.committed_at, "run": last.attempt.run},
    }


def _committed(record: Record) -> dict[str, Any]:
    return {
        "lane": record.lane,
        "seq": record.seq,
        "state": "committed",
        "at": record.committed_at,
        **_ranges(record.window.ranges),
        "selected": _selected(record.window),
        **messages(record),
        "passed_over": {kind: str(offsets) for kind, offsets in passed_over(record).items()},
        "generation": str(record.attempt.generation),
        "run": record.attempt.run,
    }


def _pending(book: Book, lane: str, pending: Pending) -> dict[str, Any]:
    beat = book.last_beat(lane)
    working = beat is not None and pending.attempt is not None and beat.generation == pending.attempt.generation
    return {
        "lane": lane,
        "seq": pending.window.seq,
        "state": f"pending: {beat.step}" if beat is not None and working else "pending",
        "at": pending.window.pinned_at,
        **_ranges(pending.window.ranges),
        "selected": _selected(pending.window),
        "read": None,
        "stored": beat.stored if beat is not None and working else None,
        "skipped": None,
        "dead_letters": None,
        "passed_over": None,
        "generation": str(pending.attempt.generation) if pending.attempt else None,
        "run": pending.attempt.run if pending.attempt else pending.window.run,
    }


def _audit(book: Book) -> dict[str, Any] | None:
    """The outcome of the audit that ended last; None before the first one."""
    found = book.last_audit()
    if found is None:
        return None
    return {"run": found.run, "at": found.at, "level": found.level, "clean": found.clean, "sentence": found.sentence}


def _selected(window: Window) -> str | None:
    """How many offsets the window's lane has selected within its ranges; None for all of them."""
    return None if window.selection is None else str(window.selection.offsets)


def _ranges(ranges: tuple[WindowRange, ...]) -> dict[str, Any]:
    moved = [one for one in ranges if one.start < one.until]
    shown = [{"partition": str(one.at), "from": str(one.start), "until": str(one.until)} for one in moved[:_RANGES]]
    return {"ranges": shown, "more_ranges": len(moved) - len(shown)}
