"""What the page says of a stream, as plain values for JSON. Offsets are strings: JavaScript loses digits above 2^53."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark.discovery import topics_now
from tidemark.ledger.book import Book, Stored
from tidemark.ledger.newest import newest_windows, open_heads
from tidemark.ledger.records import INGEST, LaneEntry, Pending, Record, Window, WindowRange
from tidemark.streams.opened import OpenStream
from tidemark.topics import TopicLog

_WINDOWS = 50
_LANES = 20


def overview(opened: OpenStream) -> dict[str, Any]:
    """Positions, ends and lag per partition; lanes; the newest windows. Raises Unreachable and the ledger's errors."""
    book, source = opened.book, opened.stream.source
    found = book.register()
    lanes = found[1].lanes if found else {}
    heads = open_heads(book, lanes)
    windows = {name: _committed_windows(book, name, lanes[name], heads.get(name)) for name in _newest_lanes(lanes)}
    topics = topics_now(opened)
    logs = opened.log.topics(topics, source.isolation)
    return {
        "stream": opened.stream.stream,
        "description": opened.stream.description,
        "partitions": _partitions(heads.get(INGEST), logs),
        "missing_topics": sorted(set(topics) - set(logs)),
        "lanes": [_lane(name, lanes[name], number) for name, number in windows.items() if number is not None],
        "windows": _windows(book, lanes, heads),
    }


def _newest_lanes(lanes: dict[str, LaneEntry]) -> list[str]:
    others = sorted((name for name in lanes if name != INGEST), key=lambda name: lanes[name].opened_at, reverse=True)
    return [*([INGEST] if INGEST in lanes else []), *others[:_LANES]]


def _partitions(ingest: Stored | None, logs: dict[str, TopicLog]) -> list[dict[str, Any]]:
    offsets = ingest.head.offsets() if ingest else {}
    newest = {(at.topic, at.partition): offset for at, offset in sorted(offsets.items())}
    rows = []
    for topic, log in sorted(logs.items()):
        for partition, now in sorted(log.partitions.items()):
            position = newest.get((topic, partition))
            rows.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "log_start": str(now.start),
                    "position": None if position is None else str(position),
                    "end": str(now.end),
                    "lag": None if position is None else str(max(0, now.end - position)),
                }
            )
    return rows


def _committed_windows(book: Book, name: str, entry: LaneEntry, stored: Stored | None) -> int | None:
    """How many windows a lane has committed; None for one that is only just being opened."""
    if stored is None and entry.windows is not None:
        return entry.windows
    stored = stored or book.head(name)
    return stored.head.seq if stored else None


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


def _windows(book: Book, lanes: Mapping[str, LaneEntry], heads: Mapping[str, Stored]) -> list[dict[str, Any]]:
    pending = [_pending(book, lane, stored.head.pending) for lane, stored in heads.items() if stored.head.pending]
    pending.sort(key=lambda row: -row["at"])
    committed = [_committed(record) for record in newest_windows(book, lanes, heads, _WINDOWS)]
    return [*pending, *committed][:_WINDOWS]


def _committed(record: Record) -> dict[str, Any]:
    tallies = record.tallies
    return {
        "lane": record.lane,
        "seq": record.seq,
        "state": "committed",
        "at": record.committed_at,
        "ranges": _ranges(record.window.ranges),
        "selected": _selected(record.window),
        "read": sum(tally.read.number for tally in tallies),
        "stored": sum(tally.stored.number for tally in tallies),
        "set_aside": sum(tally.invalid.number + tally.failed.number for tally in tallies),
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
        "ranges": _ranges(pending.window.ranges),
        "selected": _selected(pending.window),
        "read": None,
        "stored": sum(beat.done.values()) if beat is not None and working else None,
        "set_aside": None,
        "generation": str(pending.attempt.generation) if pending.attempt else None,
        "run": pending.attempt.run if pending.attempt else pending.window.run,
    }


def _selected(window: Window) -> int | None:
    """How many offsets the window's lane has selected within its ranges; None for all of them."""
    return None if window.selection is None else window.selection.offsets


def _ranges(ranges: tuple[WindowRange, ...]) -> list[dict[str, str]]:
    return [
        {"partition": str(one.at), "from": str(one.start), "until": str(one.until)}
        for one in ranges
        if one.start < one.until
    ]
