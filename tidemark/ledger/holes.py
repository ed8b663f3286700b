"""Holes. A hole is an offset that the ingest had to read, is past, and that no window has read or jumped over.

The ingest had to read a partition from where it began there to its position. What lies before that was never asked for: a
backfill may read any part of it, and the rest is no hole. This is the only definition, for audits, pages and commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tidemark.ledger.ledger import Committed, LedgerSnapshot
from tidemark.ledger.records import INGEST, Gap, GapKind, Guarantee, Head, LaneKind, Record, Register, WindowRange
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition


@dataclass
class IngestReach:
    """From where to where the windows of the ingest reach in each partition, with what they have jumped over."""

    _found: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def by(cls, records: Iterable[Record]) -> IngestReach:
        reached = cls()
        for record in records:
            reached.add(record)
        return reached

    @classmethod
    def within(cls, hull: RangeSet) -> IngestReach:
        return cls({part.partition: (part.start, part.until) for part in hull})

    def hull(self) -> RangeSet:
        return RangeSet.of_intervals((at, [found]) for at, found in self._found.items())

    def and_by(self, records: Iterable[Record]) -> IngestReach:
        """With more windows."""
        reached = IngestReach(dict(self._found))
        for record in records:
            reached.add(record)
        return reached

    def add(self, record: Record) -> None:
        # Without positions, a run begins where `start` says, whatever lies between: it never had to read that.
        if record.kind != LaneKind.INGEST or record.window.guarantee == Guarantee.NONE:
            return
        parts: Sequence[WindowRange | Gap] = (*record.window.ranges, *record.window.gaps)
        for range_ in parts:
            at = range_.at
            start, until = self._found.get(at, (range_.start, range_.until))
            self._found[at] = min(start, range_.start), max(until, range_.until)

    def of(self, at: TopicPartition) -> tuple[int, int] | None:
        return self._found.get(at)

    @property
    def partitions(self) -> Iterable[TopicPartition]:
        return self._found


@dataclass(frozen=True)
class Ingest:
    """Where the ingest began, as the register says, and where it is, by partition."""

    starts: Mapping[TopicPartition, int]
    positions: Mapping[TopicPartition, int]

    @classmethod
    def of(cls, register: Register | None, head: Head | None) -> Ingest:
        entry = register.lanes.get(INGEST) if register else None
        starts = {position.at: position.offset for position in entry.start} if entry else {}
        return cls(starts, head.offsets() if head is not None else {})

    @classmethod
    def seen(cls, view: LedgerSnapshot) -> Ingest:
        """The ingest in a view of the ledger."""
        return cls(cls.of(view.register, None).starts, view.ingested)

    def asked_for(self, at: TopicPartition, reached: tuple[int, int] | None = None) -> OffsetRange:
        """The offsets of a partition that the ingest has had to read until now; empty if there were none.

        `reached`: the windows' bounds there, if known. A partition that was added later begins with the first offset
        that Kafka had then. In an earlier incarnation, the ingest has ended with the last window's.
        """
        start = self.starts.get(at, reached[0] if reached else 0)
        position = self.positions.get(at, reached[1] if reached else start)
        return OffsetRange(at, min(start, position), position)


def holes(windows: Iterable[Committed], ingest: Ingest) -> RangeSet:
    """Every hole of a stream. An erased offset is not a hole, even if no window had read it."""
    windows = list(windows)
    lost, skipped = jumped_over(windows)
    covered = RangeSet.union(window.covers for window in windows)
    return uncovered(ingest, IngestReach.by(window.record for window in windows), covered | lost | skipped)


def uncovered(ingest: Ingest, reached: IngestReach, covered: RangeSet) -> RangeSet:
    """The offsets that the ingest has had to read until now, without what windows have covered or jumped over."""
    partitions = {*ingest.positions, *reached.partitions}
    return RangeSet(ingest.asked_for(at, reached.of(at)) for at in partitions) - covered


def jumped_over(windows: Iterable[Committed]) -> tuple[RangeSet, RangeSet]:
    """The offsets that committed windows name as lost, and those that they name as skipped."""
    return _by_kind(gap for window in windows for gap in window.record.window.gaps)


def _by_kind(gaps: Iterable[Gap]) -> tuple[RangeSet, RangeSet]:
    gaps = list(gaps)
    lost = RangeSet(gap.as_range() for gap in gaps if gap.kind == GapKind.LOST)
    return lost, RangeSet(gap.as_range() for gap in gaps if gap.kind == GapKind.SKIPPED)


@dataclass(frozen=True)
class UnreadOffsets:
    """What the ingest is past without a window that has read it: holes, and what windows have jumped over by a policy."""

    holes: RangeSet = field(default_factory=RangeSet)
    lost: RangeSet = field(default_factory=RangeSet)
    skipped: RangeSet = field(default_factory=RangeSet)

    def without(self, windows: Iterable[Committed]) -> UnreadOffsets:
        """What is left of it beside more windows of other lanes."""
        covered = RangeSet.union(window.covers for window in windows)
        return UnreadOffsets(self.holes - covered, self.lost - covered, self.skipped - covered)

    @classmethod
    def seen(cls, view: LedgerSnapshot) -> UnreadOffsets:
        """By a view of the whole ledger."""
        covered = RangeSet.union(window.covers for window in view.windows)
        records = [window.record for window in view.windows]
        gaps = [gap for record in records for gap in record.window.gaps]
        return passed_unread(Ingest.seen(view), IngestReach.by(records), covered, gaps)


def passed_unread(ingest: Ingest, reached: IngestReach, covered: RangeSet, gaps: Iterable[Gap]) -> UnreadOffsets:
    """What the ingest is past, but for what windows have `covered`. `gaps`: what they have jumped over."""
    lost, skipped = _by_kind(gaps)
    return UnreadOffsets(uncovered(ingest, reached, covered | lost | skipped), lost - covered, skipped - covered)
