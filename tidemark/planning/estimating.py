"""How much a plan will read: records, bytes and time, from earlier windows. Pure; estimates promise nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidemark.ledger.book import View
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import OffsetRange, RangeSet


@dataclass(frozen=True)
class Estimate:
    """Records, bytes (keys and values), and the seconds that windows take after Spark has started."""

    records: int
    bytes: int
    seconds: float


def estimate(offsets: int, windows: Iterable[Record]) -> Estimate | None:
    """What reading so many offsets takes, if it is as with the given windows. None when those have read nothing.

    A window reads fewer records than offsets where transactions and compaction have left gaps.
    """
    spanned = read = size = milliseconds = 0
    for record in windows:
        if record.window.selection is None and record.receipt is not None:
            spanned += sum(one.until - one.start for one in record.window.ranges)
            read += sum(tally.read.number for tally in record.tallies)
            size += sum(tally.bytes for tally in record.tallies)
            milliseconds += max(0, record.receipt.finished_at - record.receipt.started_at)
    if read == 0:
        return None
    records = offsets * read / spanned
    return Estimate(round(records), round(records * size / read), records * milliseconds / read / 1000)


def stored_before(view: View, wanted: RangeSet) -> int:
    """About how many messages of some offsets have given rows. Exact for whole windows; otherwise in proportion."""
    counting: dict[int, list[OffsetRange]] = {}
    for at in wanted.partitions:
        for one in view.authority.segments(at):
            counting.setdefault(one.generation, []).append(OffsetRange(at, one.start, one.until))
    found = 0.0
    for window in view.windows:
        counts = RangeSet(counting.get(window.generation, ())) & wanted
        for tally in window.record.tallies:
            shared = counts.count(tally.at)
            if shared:
                found += tally.stored.number * shared / window.covers.count(tally.at)
    return round(found)
