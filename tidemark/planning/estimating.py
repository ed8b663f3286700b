"""How much a plan will read: records, bytes and time, from earlier windows. Pure; estimates promise nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.ledger.ledger import LedgerSnapshot
from tidemark.ledger.records import Record
from tidemark.offsets.ranges import OffsetRange, RangeSet


@dataclass(frozen=True)
class Estimate:
    """Records, bytes (keys and values), and the seconds that windows take after Spark has started."""

    records: int
    bytes: int
    seconds: float


def estimate(offsets: int, windows: Iterable[Record]) -> Estimate | None:
    """An estimate of reading this many offsets, by the given windows. None if those have read nothing.

    A window reads fewer records than offsets where transactions and compaction have left gaps.
    """
    spanned = read = size = milliseconds = 0
    for record in windows:
        if record.window.selection is None and record.receipt is not None:
            spanned += sum(range_.until - range_.start for range_ in record.window.ranges)
            read += sum(tally.read.number for tally in record.tallies)
            size += sum(tally.bytes for tally in record.tallies)
            milliseconds += max(0, record.receipt.finished_at - record.receipt.started_at)
    if read == 0:
        return None
    records = offsets * read / spanned
    return Estimate(round(records), round(records * size / read), records * milliseconds / read / 1000)


@dataclass(frozen=True)
class StoredMessages:
    """How many messages of some offsets have rows: at least and at most, by what their windows have counted."""

    least: int
    most: int

    @property
    def exact(self) -> int | None:
        return self.least if self.least == self.most else None

    def __str__(self) -> str:
        return str(self.least) if self.least == self.most else f"{self.least} to {self.most}"

    def as_fields(self) -> dict[str, int | None]:
        """For JSON: the number is null where the ledger cannot tell it."""
        return {"stored_before": self.exact, "stored_at_least": self.least, "stored_at_most": self.most}


def stored_before(view: LedgerSnapshot, wanted: RangeSet, dead: RangeSet, *, all_dead: bool) -> StoredMessages:
    """The number of messages of some offsets that have rows: at least and at most.

    `dead`: offsets known to be dead letters of those that count in the view; `all_dead`: no other wanted one is. Exact
    for whole windows. Otherwise the messages without rows may be any of a window's offsets.
    """
    counting: dict[int, list[OffsetRange]] = {}
    for range_ in wanted:
        for part in view.authority.within(range_):
            counting.setdefault(part.generation, []).append(OffsetRange(range_.partition, part.start, part.until))
    least = most = 0
    for window in view.windows:
        counts = RangeSet(counting.get(window.generation, ())) - window.erased
        tallies = {tally.at: tally for tally in window.record.tallies}
        for at in counts.partitions:
            # A window that writes some sinks alone stores no dead letters: those that count there are of others.
            whole = window.record.window.counts_for(None)
            chosen, letters = counts.count(at), (counts & dead).count(at) if whole else 0
            tally = tallies.get(at)
            if tally is None:
                # It has read nothing there. Without counts, nobody knows: the ledger was rebuilt from the sinks.
                most += 0 if window.record.has_counts or window.record.receipt is None else chosen - letters
                continue
            stored, covered = tally.stored.number, (window.covers - window.erased).count(at)
            without = covered - stored
            # At most this many of the chosen ones have no rows: those that are known, and any that is not a dead letter.
            lacking = letters + without - tally.dead_letters if whole and all_dead else without
            # Somebody may have removed dead letters from their table: what the window has counted bounds both.
            possible = min(stored, chosen - letters)
            least += min(max(0, chosen - lacking), possible)
            most += possible
    return StoredMessages(least, most)


def union_estimate(parts: Sequence[StoredMessages], offsets: int) -> StoredMessages:
    """The number of this many offsets that are stored in any of some sinks."""
    return StoredMessages(max(part.least for part in parts), min(offsets, sum(part.most for part in parts)))
