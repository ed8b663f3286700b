"""Looking through the dead letters that count, by what is in their messages, a bounded part at a time."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime

from tidemark.ledger.elsewhere import for_readers
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.times import milliseconds
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.requests.dead_letters import DeadLetterFilter
from tidemark.runs.requests.selecting import times
from tidemark.sinks.dead_letters import headers_of
from tidemark.sinks.reading import pieces, rows_of_pieces
from tidemark.sinks.stored_rows import StoredRow
from tidemark.views.browsing.filters import parse
from tidemark.views.browsing.items import Item, SearchBudget, SearchResult
from tidemark.views.browsing.matching import Matcher
from tidemark.views.browsing.messages import MessageQuery
from tidemark.views.browsing.parts import FoundItems, Take, left_from, stretches

# What a dead letter has beside its message.
FIELDS = ("reason", "error", "detail", "outcome", "attempts", "redrives")


def dead_letters(opened: OpenStream, asked: MessageQuery, meter: SearchBudget) -> SearchResult:
    """The dead letters that count and fit: `count` of them, or as many as `meter` allows.

    By partition and offset; backwards those of the newest window first, each from its end. The times are those of their
    messages. Raises WrongUse and what the ledger and their store raise.
    """
    matcher = Matcher(parse(asked.filter, FIELDS), opened.stream, opened.connections)
    there = replace(opened, ledger=for_readers(opened.ledger))
    view, table = there.ledger.view(), there.dead_letter_table()
    since, until = times(asked.where.since, asked.where.until)
    wanted = DeadLetterFilter(window=asked.where.window, since=since, until=until)
    wanted.check(opened.ledger.stream, view)

    def read(part: OffsetRange, take: Take) -> tuple[list[Item], bool]:
        rows = rows_of_pieces(there.ledger, table, view, pieces(RangeSet([part])))
        return take(_item(row) for row in rows if wanted.has(row))

    through = FoundItems(read, matcher, meter, asked.count)
    windows = _windows(view, wanted, asked)
    through.look(left_from(stretches(windows, backwards=asked.backwards), asked.go_on))
    answer = through.answer(opened.ledger.topics())
    return replace(answer, items=matcher.with_records(answer.items))


def _windows(view: LedgerSnapshot, wanted: DeadLetterFilter, asked: MessageQuery) -> list[tuple[int, RangeSet]]:
    """The windows that may have made some that are asked for, by generation, with those of their offsets that count."""
    return [
        (one.generation, asked.where.only(view.authority.held_by(one.generation, one.covers.only(places))))
        for one in view.windows
        if (places := wanted.may_be_in(one.record))
    ]


def _item(row: StoredRow) -> Item:
    fields = row.fields
    at = Coordinate(row.place.partition, row.place.offset)
    time = None
    with suppress(ValueError):
        time = milliseconds(datetime.fromisoformat(fields.get("timestamp", b"").decode()))
    told = {name: fields[name] for name in FIELDS if name in fields}
    told["window"] = f"{row.mark.lane}/{row.mark.seq}".encode()
    return Item(at, time, fields.get("key"), fields.get("value"), headers_of(fields), told)
