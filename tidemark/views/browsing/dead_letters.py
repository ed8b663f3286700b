"""Looking through the dead letters that count, by what is in their messages, a bounded part at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from tidemark.errors import WrongUse
from tidemark.ledger.book import View
from tidemark.ledger.elsewhere import for_readers
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.runs.requests.selecting import times
from tidemark.sinks.dead_letters import headers_of
from tidemark.sinks.reading import pieces, rows_of_pieces
from tidemark.sinks.stored import StoredRow
from tidemark.views.browsing.filters import parse
from tidemark.views.browsing.items import Found, Item, Meter
from tidemark.views.browsing.matching import Matcher
from tidemark.views.browsing.messages import Asked
from tidemark.views.browsing.places import from_there, left_from

# What a dead letter has beside its message.
FIELDS = ("reason", "error", "detail", "outcome", "attempts", "redrives")
# So many are tried at once.
_AT_ONCE = 500


def dead_letters(opened: OpenStream, asked: Asked, meter: Meter) -> Found:
    """The dead letters that count and fit, by partition and offset: `count` of them, or as many as `meter` allows.

    The times are those of their messages. Raises WrongUse and what the ledger and their store raise.
    """
    if asked.backwards:
        raise WrongUse("dead letters are looked through from the oldest on: give a window or a time")
    matcher = Matcher(parse(asked.filter, FIELDS), opened.stream, opened.connections)
    opened = replace(opened, book=for_readers(opened.book))
    view = opened.book.view()
    since, until = times(asked.where.since, asked.where.until)
    wanted = DeadLetterFilter(window=asked.where.window, since=since, until=until)
    wanted.check(opened.book.stream, view)
    there = left_from(asked.where.only(_there(view, wanted)), asked.go_on)
    found: list[Item] = []
    searched: list[OffsetRange] = []
    answer = partial(_answer, opened, found, searched, meter, matcher)
    for piece in pieces(there):
        after = piece.start
        for some in _some(opened, view, wanted, piece):
            fitting = matcher.matching(some)
            for one in some:
                meter.count(one)
            after = some[-1].at.offset + 1
            if len(found) + len(fitting) >= asked.count:
                found += fitting[: asked.count - len(found)]
                after = found[-1].at.offset + 1
                meter.looked -= sum(one.at.offset >= after for one in some)
                searched.append(replace(piece, until=after))
                return answer(from_there(there, piece.partition, after), "count")
            found += fitting
            if (ended := meter.ended()) is not None:
                searched.append(replace(piece, until=after))
                return answer(from_there(there, piece.partition, after), ended)
        searched.append(piece)
        if (ended := meter.ended()) is not None:
            return answer(from_there(there, piece.partition, piece.until), ended)
    return answer(None, None)


def _there(view: View, wanted: DeadLetterFilter) -> RangeSet:
    """Where windows may have made some that are asked for and still count."""
    return RangeSet(
        part
        for one in view.windows
        if (places := wanted.may_be_in(one.record))
        for part in view.authority.held_by(one.generation, one.covers.only(places))
    )


def _some(opened: OpenStream, view: View, wanted: DeadLetterFilter, piece: OffsetRange) -> Iterator[list[Item]]:
    """The dead letters of a piece that are asked for, some at a time; never an empty list."""
    some: list[Item] = []
    for row in rows_of_pieces(opened.book, opened.dead_letter_table(), view, [piece]):
        if wanted.has(row):
            some.append(_item(row))
        if len(some) >= _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _item(row: StoredRow) -> Item:
    fields = row.fields
    at = Coordinate(row.place.partition, row.place.offset)
    time = None
    with suppress(ValueError):
        time = milliseconds(datetime.fromisoformat(fields.get("timestamp", b"").decode()))
    told = {name: fields[name] for name in FIELDS if name in fields}
    told["window"] = f"{row.mark.lane}/{row.mark.seq}".encode()
    return Item(at, time, fields.get("key"), fields.get("value"), headers_of(fields), told)


def _answer(
    opened: OpenStream,
    found: list[Item],
    searched: list[OffsetRange],
    meter: Meter,
    matcher: Matcher,
    go_on: str | None,
    ended: str | None,
) -> Found:
    return Found(
        matcher.with_records(found),
        tuple(RangeSet(searched)),
        go_on,
        ended,
        meter.looked,
        meter.read,
        not_read=matcher.not_read,
        topics=opened.book.topics(),
    )
