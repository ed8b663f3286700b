"""Looking through the rows of a sink that count, by their fields, a bounded part at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from tidemark.errors import WrongUse
from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.selecting import times
from tidemark.sinks.contract import SinkAdmin, SinkSettings
from tidemark.sinks.kinds import kind_of
from tidemark.views.browsing.filters import Filter, parse
from tidemark.views.browsing.items import Item, SearchBudget, SearchResult
from tidemark.views.browsing.matching import Matcher
from tidemark.views.browsing.messages import MessageQuery
from tidemark.views.browsing.parts import FoundItems, Take, left_from, stretches

_COORDINATE = re.compile(r"([A-Za-z0-9._-]+)(?:#(\d+))?/(\d+)@(\d+)", re.ASCII)


def results(opened: OpenStream, asked: MessageQuery, meter: SearchBudget, sink: str | None = None) -> SearchResult:
    """The rows that count in a sink and fit: `count` of them, or as many as `meter` allows.

    By partition and offset; backwards those of the newest window first, each from its end. `sink`: the first one with rows by
    coordinate unless named. Of a sink with the newest rows of keys, these. Times are those of windows: rows of all that have
    read a message of them. Raises WrongUse, and what the ledger and the sink raise.
    """
    settings, kind = _sink(opened, sink)
    matcher = Matcher(_of_fields(parse(asked.filter, opened.fields), opened), opened.stream, opened.connections)
    there = replace(opened, ledger=for_readers(opened.ledger))
    windows = _windows(there.ledger.view(settings.name), asked)

    def read(part: OffsetRange, take: Take) -> tuple[list[Item], bool]:
        def taken(rows: Iterator[dict[str, Any]]) -> tuple[list[Item], bool]:
            return take(map(_item, rows))

        return kind.rows_within(there, settings, part, taken)

    through = FoundItems(read, matcher, meter, asked.count)
    through.look(left_from(stretches(windows, backwards=asked.backwards), asked.go_on))
    return through.answer(opened.ledger.topics())


def _sink(opened: OpenStream, name: str | None) -> tuple[SinkSettings, SinkAdmin]:
    kinds = {one.name: (one, kind_of(one.type).make_admin()) for one in opened.stream.sinks}
    if name is not None and name not in kinds:
        raise WrongUse(f"{opened.stream.name} has no sink {name}; there are: {', '.join(kinds)}")
    able = {one: pair for one, pair in kinds.items() if pair[1].rows_by_coordinate}
    if name is None and able:
        return next(iter(able.values()))
    if name not in able:
        said = f"sink {name} has no" if name is not None else f"{opened.stream.name} has no sink with"
        others = f"; these have: {', '.join(able)}" if able else ""
        raise WrongUse(f"{said} rows by coordinate that can be looked through{others}")
    return able[name]


def _of_fields(wanted: Filter, opened: OpenStream) -> Filter:
    if any(one.subject.kind != "field" for one in wanted.conditions):
        raise WrongUse(f"filter: rows have fields, and no key, value or headers: {', '.join(opened.fields)}")
    return wanted


def _windows(view: LedgerSnapshot, asked: MessageQuery) -> list[tuple[int, RangeSet]]:
    """The windows that are asked for, by generation, with those of their offsets that count."""
    since, until = times(asked.where.since, asked.where.until)
    name = asked.where.window
    if name and not any(_is_of(one.record, name) for one in view.windows):
        raise WrongUse(f"window {name}: there is no committed window of this name")
    return [
        (one.generation, asked.where.only(view.authority.held_by(one.generation, one.covers.only(places))))
        for one in view.windows
        if (not name or _is_of(one.record, name)) and (places := _places(one.record, since, until))
    ]


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


def _item(row: dict[str, Any]) -> Item:
    match = _COORDINATE.fullmatch(str(row["coordinate"]))
    if match is None:
        raise AssertionError(row["coordinate"])
    topic, incarnation, partition, offset = match.groups()
    at = TopicPartition(topic, int(partition), int(incarnation or 1))
    return Item(
        Coordinate(at, int(offset)),
        fields={name: str(value).encode("utf-8", "backslashreplace") for name, value in row["fields"].items()},
        index=row["index"],
        deleted=row.get("deleted"),
    )
