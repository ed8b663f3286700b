"""Looking through the rows of a sink that count, by their fields, a bounded part at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from tidemark.errors import WrongUse
from tidemark.ledger.book import Book, View
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.selecting import times
from tidemark.sinks.contract import PlainSink, SinkSettings
from tidemark.sinks.kinds import kind_of
from tidemark.views.browsing.filters import Filter, parse
from tidemark.views.browsing.items import Found, Item, Meter
from tidemark.views.browsing.matching import Matcher
from tidemark.views.browsing.messages import Asked
from tidemark.views.browsing.places import from_there, left_from

# Offsets whose rows are read at once, the first time and at most; and the most rows and bytes of these.
_FIRST, _MOST, _MOST_ROWS, _MOST_BYTES = 200, 20_000, 200_000, 16_000_000
# Rows of one message that an answer has besides those that were asked for.
_MOST_MORE = 1_000
_COORDINATE = re.compile(r"([A-Za-z0-9._-]+)(?:#(\d+))?/(\d+)@(\d+)", re.ASCII)


def results(opened: OpenStream, asked: Asked, meter: Meter, sink: str | None = None, *, quickly: bool = False) -> Found:
    """The rows that count in a sink and fit, by partition and offset: `count` of them, or as many as `meter` allows.

    `sink`: the first one with rows by coordinate unless named. With `quickly`, only one that reads no files. Times are those
    of windows: rows of all that have read a message of them. Raises WrongUse, and what the ledger and the sink raise.
    """
    if asked.backwards:
        raise WrongUse("rows are looked through from the oldest on: give a window or a time")
    settings, kind = _sink(opened, sink, quickly=quickly)
    matcher = Matcher(_of_fields(parse(asked.filter, opened.fields), opened), opened.stream, opened.connections)
    book = for_readers(opened.book)
    view = book.view(settings.name)
    there = left_from(asked.where.only(_there(view, asked)), asked.go_on)
    found: list[Item] = []
    searched: list[OffsetRange] = []
    ended, after, left_out = None, None, 0
    for part, rows, whole in _parts(replace(opened, book=book), kind, settings, view, there):
        for one in rows:
            meter.count(one)
        fitting = matcher.matching(rows)
        until = part.until
        if len(found) + len(fitting) >= asked.count:
            # All rows of a message, or none, so that the next question has those that follow.
            kept = _whole_messages(fitting, asked.count - len(found))
            until = part.until if len(kept) == len(fitting) else kept[-1].at.offset + 1
            fitting, ended = kept, "count"
            meter.looked -= sum(one.at.offset >= until for one in rows)
        room = max(0, asked.count - len(found)) + _MOST_MORE
        left_out += max(0, len(fitting) - room) + (not whole)
        found += fitting[:room]
        searched.append(replace(part, until=until))
        after = from_there(there, part.partition, until)
        ended = ended or meter.ended()
        if ended is not None:
            break
    go_on = after if ended is not None else None
    return Found(
        tuple(found),
        tuple(RangeSet(searched)),
        go_on,
        ended,
        meter.looked,
        meter.read,
        not_read=matcher.not_read,
        left_out=left_out,
        topics=opened.book.topics(),
    )


def _sink(opened: OpenStream, name: str | None, *, quickly: bool) -> tuple[SinkSettings, PlainSink]:
    kinds = {one.name: (one, kind_of(one.type).without_spark()) for one in opened.stream.sinks}
    if name is not None and name not in kinds:
        raise WrongUse(f"{opened.stream.name} has no sink {name}; there are: {', '.join(kinds)}")
    able = {
        one: pair
        for one, pair in kinds.items()
        if pair[1].rows_by_coordinate and (pair[1].looks_quickly or not quickly)
    }
    chosen = able.get(name) if name is not None else next(iter(able.values()), None)
    if chosen is None:
        said = f"sink {name} has" if name is not None else f"{opened.stream.name} has no sink with"
        how = ": `tidemark results --filter` looks through files" if quickly else ""
        raise WrongUse(
            f"{said} {'no ' if name is not None else ''}rows by coordinate that can be looked through here{how}"
        )
    return chosen


def _of_fields(found: Filter, opened: OpenStream) -> Filter:
    if any(one.subject.kind != "field" for one in found.conditions):
        raise WrongUse(f"filter: rows have fields, and no key, value or headers: {', '.join(opened.fields)}")
    return found


def _there(view: View, asked: Asked) -> RangeSet:
    """The offsets whose rows may be asked for: those that count of the windows that are."""
    since, until = times(asked.where.since, asked.where.until)
    name = asked.where.window
    known = [one.record for one in view.windows]
    if name and not any(_is_of(one, name) for one in known):
        raise WrongUse(f"window {name}: there is no committed window of this name")
    return RangeSet(
        part
        for one in view.windows
        if (not name or _is_of(one.record, name)) and (places := _places(one.record, since, until))
        for part in view.authority.held_by(one.generation, one.covers.only(places))
    )


def _is_of(record: Record, name: str) -> bool:
    return name in (record.lane, f"{record.lane}/{record.seq}")


def _places(record: Record, since: datetime | None, until: datetime | None) -> list[TopicPartition]:
    """The partitions in which a window may have read messages of a time."""
    if (since is None and until is None) or not record.tallies:
        return [one.at for one in record.window.ranges]
    return [
        one.at
        for one in record.tallies
        if one.first_timestamp is None
        or one.last_timestamp is None
        or (
            (since is None or one.last_timestamp >= milliseconds(since))
            and (until is None or one.first_timestamp < milliseconds(until))
        )
    ]


def _parts(
    opened: OpenStream, kind: PlainSink, settings: SinkSettings, view: View, there: RangeSet
) -> Iterator[tuple[OffsetRange, list[Item], bool]]:
    """The rows of some offsets at a time, in the order of partitions and offsets, and whether these are all.

    Only of a single message there may be more.
    """
    size = _FIRST
    everything = view.authority.covered()
    for one in there:
        start = one.start
        while start < one.until:
            part = OffsetRange(one.partition, start, min(one.until, start + size))
            hidden: Book = opened.book.hiding(opened.book.hidden | (everything - RangeSet([part])))
            rows, whole = _some(kind.rows(replace(opened, book=hidden), settings, _MOST_ROWS))
            if not whole and part.until - part.start > 1:
                size = (part.until - part.start) // 2
                continue
            yield part, sorted(rows, key=lambda row: (row.at.offset, row.index)), whole
            start, size = part.until, min(_MOST, size * 2)


def _some(rows: Iterator[dict[str, object]]) -> tuple[list[Item], bool]:
    """Rows, as many as there is room for, and whether these are all of them."""
    found: list[Item] = []
    size = 0
    for row in rows:
        found.append(_item(row))
        size += found[-1].bytes
        if len(found) >= _MOST_ROWS or size >= _MOST_BYTES:
            return found, False
    return found, True


def _item(row: dict[str, object]) -> Item:
    match = _COORDINATE.fullmatch(str(row["coordinate"]))
    if match is None:
        raise AssertionError(row["coordinate"])
    topic, incarnation, partition, offset = match.groups()
    at = TopicPartition(topic, int(partition), int(incarnation or 1))
    fields = row["fields"]
    texts = fields.items() if isinstance(fields, dict) else ()
    index = row["index"]
    return Item(
        Coordinate(at, int(offset)),
        fields={name: str(value).encode("utf-8", "backslashreplace") for name, value in texts},
        index=index if isinstance(index, int) else 0,
    )


def _whole_messages(rows: Iterable[Item], count: int) -> list[Item]:
    """At least the first `count` rows, with the others of the last one's message."""
    kept: list[Item] = []
    for one in rows:
        if len(kept) >= count and one.at != kept[-1].at:
            break
        kept.append(one)
    return kept
