"""A view of the ledger as far as some offsets ask for it: the windows that cover any of them, found without the others.

Positions within a lane never fall. So between two windows of a lane, those between them have read what lies between their
positions, or have jumped over it; where none of the offsets does, none of these windows has to be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.ledger import NOTHING_SEEN, Ledger, LedgerSnapshot, authority_of
from tidemark.ledger.lookup import heads_of_open, unpositioned
from tidemark.ledger.records import LaneEntry, Position, Record
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

# Windows of each gap that are read at once, and windows of one read.
_SAMPLES, _AT_ONCE = 16, 256

Positions = Mapping[TopicPartition, int]


class _Gap(NamedTuple):
    """The windows of a lane between two, with the positions before the first and after the last of them."""

    before: int
    start: Positions
    behind: int
    end: Positions

    def samples(self) -> list[int]:
        distance = self.behind - self.before
        steps = min(distance - 1, _SAMPLES)
        return [self.before + distance * step // (steps + 1) for step in range(1, steps + 1)]


def view_near(ledger: Ledger, within: RangeSet, *, beside: frozenset[str] = frozenset()) -> LedgerSnapshot:
    """As `Ledger.view`, but that only the windows are in it which cover some of these offsets: nothing is said of others.

    `beside`: lanes whose windows are left out.

    Raises LedgerContradiction when a head or a record is missing.
    """
    stored = ledger.register()
    if stored is None:
        return NOTHING_SEEN
    register = stored[1]
    lanes = dict(register.lanes)
    for part in closed_lanes(ledger, register):
        lanes |= {lane: entry for lane, entry in part.items() if _may_cover(entry, within)}
    lanes = {lane: entry for lane, entry in lanes.items() if lane not in beside}
    heads = heads_of_open(ledger, lanes)
    records: dict[tuple[str, int], Record] = {}
    for lane, entry in lanes.items():
        head = heads[lane].head if lane in heads else None
        found: Iterable[Record] = ()
        if entry.windows is not None:
            found = _of_closed(ledger, lane, entry, within)
        elif head is not None and head.last is not None and _may_cover(entry, within):
            start = head.unpositioned or 0
            # Without positions, nothing is known of windows that are not read.
            begin = {} if start else _offsets(entry.start)
            gap = _Gap(start, begin, head.seq, head.offsets())
            found = (*unpositioned(ledger, head), head.last, *_in_gaps(ledger, lane, [gap], within))
        records |= {(record.lane, record.seq): record for record in found if _touches(record, within)}
    covering = ledger.covering([ledger.with_receipt(record) for _, record in sorted(records.items())])
    windows = [window for window in covering if window.covers & within]
    return LedgerSnapshot(
        windows,
        authority_of(windows, None).without(ledger.hidden),
        {lane: head_.head.seq for lane, head_ in heads.items()},
        register.closed,
        hidden=ledger.hidden,
        register=register,
        heads={lane: head_.head for lane, head_ in heads.items()},
    )


def _of_closed(ledger: Ledger, lane: str, entry: LaneEntry, within: RangeSet) -> Iterator[Record]:
    windows = entry.windows or 0
    if windows <= _AT_ONCE:
        yield from ledger.records([(lane, seq) for seq in range(1, windows + 1)])
        return
    (last,) = ledger.records([(lane, windows)])
    yield last
    yield from _in_gaps(ledger, lane, [_Gap(0, _offsets(entry.start), windows, _offsets(last.positions))], within)


def _in_gaps(ledger: Ledger, lane: str, gaps: Sequence[_Gap], within: RangeSet) -> Iterator[Record]:
    """The windows of some gaps that may cover some of the offsets, and a few others."""
    while gaps := [gap for gap in gaps if gap.behind - gap.before > 1 and _passes(gap, within)]:
        wanted = [(lane, seq) for gap in gaps for seq in gap.samples()]
        read: dict[int, Record] = {}
        for first in range(0, len(wanted), _AT_ONCE):
            read |= {record.seq: record for record in ledger.records(wanted[first : first + _AT_ONCE])}
        yield from read.values()
        gaps = [smaller for gap in gaps for smaller in _divided(gap, read)]


def _divided(gap: _Gap, read: Mapping[int, Record]) -> Iterator[_Gap]:
    before, start = gap.before, gap.start
    for seq in gap.samples():
        end = _offsets(read[seq].positions)
        yield _Gap(before, start, seq, end)
        before, start = seq, end
    yield _Gap(before, start, gap.behind, gap.end)


def _passes(gap: _Gap, within: RangeSet) -> bool:
    """Whether the windows of a gap may have moved a position over some of the offsets."""
    for at in within.partitions:
        start, end = gap.start.get(at), gap.end.get(at)
        if end is None:
            # It fell away between the two, or was never there.
            if start is not None:
                return True
            continue
        first = within.at_or_above(at, start or 0)
        if first is not None and first < end:
            return True
    return False


def _may_cover(entry: LaneEntry, within: RangeSet) -> bool:
    """Whether a lane's entry allows that its windows cover some of the offsets."""
    if entry.selection is None or not entry.until:
        return True
    return bool(
        RangeSet(
            OffsetRange(position.at, position.offset, max(position.offset, until))
            for position, until in zip(entry.start, entry.until, strict=False)
        )
        & within
    )


def _touches(record: Record, within: RangeSet) -> bool:
    return bool(record.window.hull() & within)


def _offsets(positions: Sequence[Position]) -> Positions:
    return {position.at: position.offset for position in positions}
