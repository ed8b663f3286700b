"""The cost of reading some offsets, by the last windows of the ingest; and how many of their messages have rows now."""

from __future__ import annotations

from typing import Any

from tidemark.errors import TidemarkError
from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.newest import newest_of_lane
from tidemark.ledger.records import INGEST
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import OffsetRange, RangeSet
from tidemark.offsets.times import in_words
from tidemark.planning.estimating import StoredMessages, estimate, stored_before, union_estimate
from tidemark.planning.merging import scatter
from tidemark.runs.live.conditions import sizes_for
from tidemark.runs.live.open_stream import OpenStream
from tidemark.runs.windows import pacing
from tidemark.runs.windows.chosen_sinks import Sinks
from tidemark.sinks.reading import fewest_scans, pieces, rows_of_pieces

# How many windows an estimate uses: enough for a day of hourly runs, and none from last year's code.
_WINDOWS = 24
# A plan looks up which of this many offsets are dead letters: one scan for those that are near one another.
_MAX_LOOKED_UP = 10_000


def estimated(opened: OpenStream, wanted: RangeSet, rate: int | None = None) -> dict[str, Any] | None:
    """The cost of reading some offsets, by the ingest's last windows; None before the first window.

    Scattered ones take longer: each range has to be found, and the offsets `between` near ones are read too. With a
    `rate` in records a second, it takes at least the time that the rate asks for.
    """
    offsets = wanted.count()
    stored = opened.ledger.head(INGEST)
    likely = estimate(offsets, newest_of_lane(opened.ledger, INGEST, stored.head if stored else None, _WINDOWS))
    if likely is None:
        return None
    between, longer = scatter(wanted, sizes_for(opened, wanted))
    return {
        "records": likely.records,
        "bytes": likely.bytes,
        "between": between,
        "seconds": round(max(likely.seconds + longer, pacing.seconds_to_wait(offsets, 0, rate)), 1),
    }


def describe_estimate(estimate: dict[str, Any] | None) -> str:
    """An estimate in a line for people."""
    if estimate is None:
        return "estimate: unknown, since no window has been read yet"
    between = f" and {estimate['between']} between them that are only read" if estimate["between"] else ""
    seconds = estimate["seconds"]
    took = number_of(seconds, "second") if seconds < 60 else in_words(round(seconds * 1_000))
    return (
        f"estimate: {number_of(estimate['records'], 'record')}{between}, {number_of(estimate['bytes'], 'byte')}, {took} "
        "and the start of Spark, by the windows before"
    )


def stored_now(
    opened: OpenStream, view: LedgerSnapshot, offsets: RangeSet, sinks: Sinks, dead: RangeSet
) -> StoredMessages:
    """The number of messages of some offsets with rows in the sinks that a run would write; `dead` are known dead letters.

    Looks up which of the others are dead letters, if these are few and the store can be asked.
    """
    known = _dead_letters(opened, view, offsets - dead)
    letters, all_dead = dead | (known or RangeSet()), known is not None
    names = sinks or tuple(sink.name for sink in opened.stream.sinks)
    # The same counts in most sinks.
    views = {id(sink_view.authority): sink_view for sink_view in map(view.of, names)}
    parts = [stored_before(sink_view, offsets, letters, all_dead=all_dead) for sink_view in views.values()]
    return union_estimate(parts, offsets.count())


def _dead_letters(opened: OpenStream, view: LedgerSnapshot, offsets: RangeSet) -> RangeSet | None:
    """Which of some offsets are dead letters that count; None where that is not known."""
    there = RangeSet(
        part
        for window in view.windows
        if (places := [tally.at for tally in window.record.tallies if tally.dead_letters])
        for part in view.authority.held_by(window.generation, window.covers.only(places) & offsets)
    )
    if there.count() > _MAX_LOOKED_UP:
        return None
    if not there:
        return there
    try:
        table = opened.dead_letter_table().only(("reason",))
        rows = rows_of_pieces(opened.ledger, table, view, pieces(fewest_scans(there, there.hull())))
        ranges = [OffsetRange(row.place.partition, row.place.offset, row.place.offset + 1) for row in rows]
    except TidemarkError:
        # A plan does not depend on it.
        return None
    return there & RangeSet(ranges)
