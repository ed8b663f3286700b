"""Which windows of a list nothing counts of any more, because newer windows have read or erased all of their offsets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from tidemark.ledger.ledger import Ledger
from tidemark.ledger.nearby import view_near
from tidemark.ledger.records import INGEST, LaneKind, Record, Register
from tidemark.offsets.ranges import RangeSet

Fate = Literal["replaced", "erased"]


def fates(ledger: Ledger, records: Sequence[Record], newer: Collection[Record]) -> Mapping[tuple[str, int], Fate]:
    """The windows among `records` that `newer` ones have replaced, or erased, in every sink that they wrote."""
    again = [(record, ledger.covers(record.window)) for record in newer if record.kind.reads_again]
    found: dict[tuple[str, int], Fate] = {}
    for record in records if again else ():
        covers = ledger.covers(record.window)
        after = [one for one in again if one[0].attempt.generation > record.attempt.generation]
        # None: what has written all sinks, and the dead letters.
        names = record.window.sinks or (None,)
        by_name = [[part for one, part in after if one.window.counts_for(name)] for name in names]
        if covers and not any(covers - RangeSet.union(parts) for parts in by_name):
            erased = RangeSet.union(part for one, part in after if one.kind == LaneKind.ERASE)
            found[record.lane, record.seq] = "replaced" if covers - erased else "erased"
    return found


def fates_near(ledger: Ledger, register: Register, records: Sequence[Record]) -> Mapping[tuple[str, int], Fate]:
    """As `fates`, by all newer windows: those that cover any of the same offsets are read."""
    if not records or (not register.closed and register.lanes.keys() <= {INGEST}):
        return {}
    within = RangeSet.union(ledger.covers(record.window) for record in records)
    return fates(ledger, records, [one.record for one in view_near(ledger, within).windows])
