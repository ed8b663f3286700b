"""Which window covers which offsets, kept in memory for a page that many people look at; or only whether there are holes.

A committed window never changes. So the whole history is read once, and after that only what was committed since. An
entry of the index takes 24 bytes for each partition of a window; for holes, what is covered is enough: a few ranges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from tidemark.ledger.closed_lanes import closed_lanes
from tidemark.ledger.holes import Ingest, IngestReach, UnreadOffsets, passed_unread
from tidemark.ledger.ledger import Ledger
from tidemark.ledger.records import INGEST, Gap, LaneKind, Record, Register
from tidemark.offsets.authority import Segment, segments_of
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

# Records in one read.
_AT_ONCE = 500


class WindowName(NamedTuple):
    """A window of a lane, for people and for addresses."""

    lane: str
    seq: int


@dataclass
class _History(ABC):
    """The committed windows of a stream, each taken once, those of a lane in their order. Not for several threads."""

    # As it was at the last refresh; None for a stream that was never read.
    register: Register | None = None
    # Where the ingest began and was, no further than the windows that are here.
    ingest: Ingest = field(default_factory=lambda: Ingest({}, {}))
    reached: IngestReach = field(default_factory=IngestReach)
    # The last window of each lane that is here; closed lanes whose windows are all here.
    _seqs: dict[str, int] = field(default_factory=dict)
    _closed: set[str] = field(default_factory=set)
    _closed_lanes: int = 0

    def refresh(self, ledger: Ledger) -> None:
        """Read what was committed since the last time."""
        versioned = ledger.register()
        if versioned is None:
            return
        self.register = register = versioned[1]
        heads = ledger.heads_of(register.lanes)
        if not self._seqs and not self._closed:
            self._read_all(ledger)
        for lane, stored in heads.items():
            # The history may not have the head's last window yet.
            self._read(ledger, lane, stored.head.seq - 1)
            if stored.head.last is not None and self._seqs.get(lane, 0) < stored.head.seq:
                self.add(stored.head.last, ledger.covers(stored.head.last.window))
        if register.closed != self._closed_lanes:
            for part in closed_lanes(ledger, register):
                new = {lane: entry for lane, entry in part.items() if lane not in self._closed}
                for lane, entry in new.items():
                    self._read(ledger, lane, entry.windows or 0)
                self._closed |= new.keys()
                if part and not new:
                    # The parts begin with the lanes that were closed last.
                    break
            self._closed_lanes = register.closed
        ingest = heads.get(INGEST)
        self.ingest = Ingest.of(register, ingest.head if ingest else None)

    def add(self, record: Record, covers: RangeSet) -> None:
        """Add a committed window of a lane, after the lane's earlier ones."""
        self._seqs[record.lane] = record.seq
        self.reached.add(record)
        self._take(record, covers)

    @abstractmethod
    def _take(self, record: Record, covers: RangeSet) -> None:
        """Keep what is to be known of a window."""

    @abstractmethod
    def unread(self) -> UnreadOffsets:
        """What the ingest is past without a window that has read it, by the windows that are here."""

    def _read_all(self, ledger: Ledger) -> None:
        for _, record in ledger.records_with_bytes():
            self.add(record, ledger.covers(record.window))

    def _read(self, ledger: Ledger, lane: str, until: int) -> None:
        for record in _records(ledger, lane, range(self._seqs.get(lane, 0) + 1, until + 1)):
            self.add(record, ledger.covers(record.window))


@dataclass
class KnownHoles(_History):
    """What a stream's windows have not read: only what they cover together, and have jumped over, is kept."""

    _known: RangeSet = field(default_factory=RangeSet)
    _new: list[RangeSet] = field(default_factory=list)
    _gaps: list[Gap] = field(default_factory=list)

    def unread(self) -> UnreadOffsets:
        self._join()
        return passed_unread(self.ingest, self.reached, self._known, self._gaps)

    def _take(self, record: Record, covers: RangeSet) -> None:
        self._gaps += record.window.gaps
        self._new.append(covers)
        if len(self._new) >= _AT_ONCE:
            self._join()

    def _join(self) -> None:
        if self._new:
            self._known = RangeSet(one for part in (self._known, *self._new) for one in part)
            self._new = []


@dataclass
class WindowIndex(_History):
    """The committed windows of a stream by partition: names and kinds of lanes by generation. Not for several threads."""

    names: dict[int, WindowName] = field(default_factory=dict)
    kinds: dict[int, LaneKind] = field(default_factory=dict)
    gaps: dict[TopicPartition, list[Gap]] = field(default_factory=dict)
    # Triples of start, until and generation.
    _covered: dict[TopicPartition, array[int]] = field(default_factory=dict)
    _segments: dict[TopicPartition, tuple[int, list[Segment]]] = field(default_factory=dict)
    # Few, unlike segments: those of all partitions are kept.
    _runs: dict[TopicPartition, tuple[int, list[Segment]]] = field(default_factory=dict)

    def _take(self, record: Record, covers: RangeSet) -> None:
        generation = record.attempt.generation
        self.names[generation] = WindowName(record.lane, record.seq)
        self.kinds[generation] = record.kind
        # A window that writes some sinks alone does not take the offsets from the one that has read them into all.
        for at in covers.partitions if record.window.counts_for(None) else ():
            kept = self._covered.setdefault(at, array("q"))
            for start, until in covers.of(at):
                kept.extend((start, until, generation))
        for gap in record.window.gaps:
            self.gaps.setdefault(gap.as_range().partition, []).append(gap)

    def segments(self, at: TopicPartition) -> list[Segment]:
        """The covered offsets of a partition, ascending and disjoint, each with the generation that counts."""
        kept = self._covered.get(at, array("q"))
        known = self._segments.get(at)
        if known is None or known[0] != len(kept):
            triples = zip(*(iter(kept),) * 3, strict=True)
            known = self._segments[at] = (len(kept), segments_of(list(triples)))
        return known[1]

    def unread(self) -> UnreadOffsets:
        covered = RangeSet.of_intervals((at, [(one.start, one.until) for one in self.runs(at)]) for at in self._covered)
        return passed_unread(self.ingest, self.reached, covered, chain.from_iterable(self.gaps.values()))

    def asked_for(self, at: TopicPartition) -> OffsetRange:
        """The offsets of a partition that the ingest has had to read, as far as the windows that are here."""
        return self.ingest.asked_for(at, self.reached.of(at))

    def runs(self, at: TopicPartition) -> list[Segment]:
        """The covered offsets of a partition, ascending, with a gap between any two, each with one of its generations."""
        kept = self._covered.get(at, array("q"))
        count, segments = self._runs.get(at, (0, []))
        if count < len(kept):
            new = zip(*(iter(kept[count:]),) * 3, strict=True)
            merged: list[Segment] = []
            for start, until, generation in sorted([*segments, *new]):
                if merged and start <= merged[-1].until:
                    last = merged.pop()
                    start, until = last.start, max(last.until, until)
                merged.append(Segment(start, until, generation))
            self._runs[at] = (len(kept), segments := merged)
        return segments

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(sorted({*self._covered, *self.gaps}))


def _records(ledger: Ledger, lane: str, seqs: range) -> Iterator[Record]:
    for first in range(seqs.start, seqs.stop, _AT_ONCE):
        yield from ledger.records([(lane, seq) for seq in range(first, min(first + _AT_ONCE, seqs.stop))])
