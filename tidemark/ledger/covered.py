"""What the windows of a stream cover together: few ranges, however many windows there are.

The ingest's windows are many, and never change. So every `EVERY` windows, the ledger keeps what they cover until then, with
the digest of the last of them. By the chain of digests this stands for all before it. Whoever asks reads this value, that
record, and the windows after it. The value is only a memory: without it, or where its record is another one, the windows
themselves are read. `verify` compares it with them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from msgspec import Struct, structs

from tidemark.errors import TidemarkError
from tidemark.ledger.closed_lanes import all_lanes
from tidemark.ledger.codec import decode, decode_what_is_known, digest, encode
from tidemark.ledger.holes import Ingest, IngestReach, UnreadOffsets, uncovered
from tidemark.ledger.ledger import NOTHING, Committed, Ledger, record_key
from tidemark.ledger.nearby import view_near
from tidemark.ledger.records import FORMAT, INGEST, Gap, GapKind, Guarantee, Head, LaneEntry, Record, Register
from tidemark.ledger.stores.contract import Key, WriteInDoubt
from tidemark.offsets.ranges import Interval, RangeSet, TopicPartition, repeated

log = logging.getLogger(__name__)

# Whoever asks reads fewer windows than this.
EVERY = 64
KEY: Key = ("covered", INGEST)
# Records of one read.
_AT_ONCE = 500


class _Pairs:
    """Pairs of offsets by partition, gathered without making a set of each window."""

    def __init__(self, known: RangeSet) -> None:
        self._found: dict[TopicPartition, list[Interval]] = {at: list(known.of(at)) for at in known.partitions}

    def add(self, at: TopicPartition, pairs: Iterable[Interval]) -> None:
        self._found.setdefault(at, []).extend(pairs)

    def set(self) -> RangeSet:
        return RangeSet.of_intervals(self._found.items())

    def repeated(self) -> RangeSet:
        """The offsets that are in several of the pairs."""
        return RangeSet.of_intervals((at, repeated(found)) for at, found in self._found.items())


def _pairs(record: Record, covers: RangeSet | None) -> Iterator[tuple[TopicPartition, Sequence[Interval]]]:
    if covers is None:
        return ((part.at, ((part.start, part.until),)) for part in record.window.ranges)
    return ((at, covers.of(at)) for at in covers.partitions)


@dataclass(frozen=True)
class CoveredRanges:
    """What some windows cover: `all` of them, and `first` those that read offsets for the first time, which may not overlap
    and do so at `twice`. They have jumped over `lost` and `skipped`.
    """

    all: RangeSet = NOTHING
    first: RangeSet = NOTHING
    twice: RangeSet = NOTHING
    lost: RangeSet = NOTHING
    skipped: RangeSet = NOTHING
    reached: IngestReach = field(default_factory=IngestReach)

    @classmethod
    def by(cls, windows: Iterable[Committed]) -> CoveredRanges:
        return cls().and_by((window.record, window.covers) for window in windows)

    def and_by(self, windows: Iterable[tuple[Record, RangeSet | None]]) -> CoveredRanges:
        """With more windows, each with what it covers; None for all of its ranges."""
        everything, first = _Pairs(self.all), _Pairs(self.first)
        gaps: list[Gap] = []
        reached = self.reached.and_by(())
        for record, covers in windows:
            # Without positions, every window reads again what others have read.
            reads_first = not record.kind.reads_again and record.window.guarantee != Guarantee.NONE
            gaps += record.window.gaps
            reached.add(record)
            for at, pairs in _pairs(record, covers):
                everything.add(at, pairs)
                if reads_first:
                    first.add(at, pairs)
        lost, skipped = (
            RangeSet(gap.as_range() for gap in gaps if gap.kind == kind) for kind in (GapKind.LOST, GapKind.SKIPPED)
        )
        return CoveredRanges(
            everything.set(),
            first.set(),
            self.twice | first.repeated(),
            self.lost | lost,
            self.skipped | skipped,
            reached,
        )

    def holes(self, ingest: Ingest) -> RangeSet:
        """Every hole of a stream, if these are all of its windows. An erased offset is not a hole: a window covers it."""
        return uncovered(ingest, self.reached, RangeSet.union((self.all, self.lost, self.skipped)))

    def unread(self, ingest: Ingest) -> UnreadOffsets:
        """What the ingest is past without a window that has read it, if these are all windows of a stream."""
        return UnreadOffsets(self.holes(ingest), self.lost - self.all, self.skipped - self.all)


@dataclass(frozen=True)
class LedgerHistory:
    """All windows of a stream: those of the ingest together, the `others` one by one."""

    register: Register
    head: Head
    ingested: CoveredRanges
    others: Sequence[Committed]

    @property
    def ingest(self) -> Ingest:
        return Ingest.of(self.register, self.head)

    @property
    def covered(self) -> CoveredRanges:
        return self.ingested.and_by((window.record, window.covers) for window in self.others)

    @property
    def lanes(self) -> dict[str, RangeSet]:
        """What each lane covers."""
        parts: dict[str, list[RangeSet]] = {INGEST: [self.ingested.all]} if self.ingested.all else {}
        for window in self.others:
            parts.setdefault(window.record.lane, []).append(window.covers)
        return {lane: RangeSet.union(found) for lane, found in sorted(parts.items())}


def history_of(ledger: Ledger) -> LedgerHistory | None:
    """The history of a stream as it is now; None for a stream that was never read."""
    stored, head = ledger.register(), ledger.head(INGEST)
    if stored is None or head is None:
        return None
    register = stored[1]
    lanes = {lane: entry for lane, entry in all_lanes(ledger).items() if lane != INGEST}
    others = ledger.covering([ledger.with_receipt(record) for record in _records_of(ledger, lanes)])
    return LedgerHistory(register, head.head, ingested(ledger, head.head), others)


def unread_now(ledger: Ledger) -> UnreadOffsets:
    """What the ingest is past without a window that has read it. Of other lanes, only the windows near that are read."""
    register, head = ledger.register(), ledger.head(INGEST)
    if register is None or head is None:
        return UnreadOffsets()
    found = ingested(ledger, head.head).unread(Ingest.of(register[1], head.head))
    left = RangeSet.union((found.holes, found.lost, found.skipped))
    return found.without(view_near(ledger, left, beside=frozenset({INGEST})).windows) if left else found


def ingested(ledger: Ledger, head: Head) -> CoveredRanges:
    """What the windows of the ingest cover, up to the last one of a head."""
    seq, known = _known(ledger, head.seq)
    windows = _after(ledger, head, seq)
    while some := list(islice(windows, _AT_ONCE)):
        known = known.and_by((record, _covers(ledger, record)) for record in some)
    return known


def is_due(record: Record) -> bool:
    """Whether what windows cover is kept up to this one."""
    return record.lane == INGEST and record.seq % EVERY == 0


def keep_covered(ledger: Ledger, record: Record) -> None:
    """Keep what the ingest covers up to a window that is settled. It is no error if it fails."""
    try:
        stored = ledger.store.read(record_key(INGEST, record.seq))
        head = ledger.head(INGEST)
        if stored is None or head is None or head.head.seq < record.seq:
            return
        covered = ingested(ledger, structs.replace(head.head, seq=record.seq, last=record))
        value = encode(_stored(ledger.stream, record.seq, digest(stored), covered))
        # With very many partitions that were read in parts, there is no room for it.
        if len(value) <= ledger.store.max_value_bytes:
            ledger.store.put(KEY, value)
    except (TidemarkError, WriteInDoubt) as problem:
        log.warning("what the ingest of %s covers was not kept, and its windows are read: %s", ledger.stream, problem)


class SummaryCheck:
    """Compares what is kept with the windows of the ingest, which `take` gets one after another."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._kept = _kept(ledger)
        self._covered = CoveredRanges()
        self._waiting: list[tuple[Record, RangeSet | None]] = []
        # Whether the last of its windows is the one that the value names. Otherwise nobody goes by it.
        self._in_use = False

    def take(self, stored: bytes, record: Record) -> None:
        if self._kept is None or record.lane != INGEST or record.seq > self._kept.seq:
            return
        self._in_use = record.seq == self._kept.seq and digest(stored) == self._kept.digest
        self._waiting.append((record, _covers(self._ledger, record)))
        if self._in_use or len(self._waiting) >= _AT_ONCE:
            self._covered, self._waiting = self._covered.and_by(self._waiting), []

    def problems(self) -> list[str]:
        kept = self._kept
        if not self._in_use or kept is None or kept == _stored(kept.stream, kept.seq, kept.digest, self._covered):
            return []
        return [
            f"lane {INGEST}: its windows up to {kept.seq} cover other offsets than {'/'.join(KEY)} says. Nothing depends on "
            "that value but how soon holes are known: remove it"
        ]


# reading


def _records_of(ledger: Ledger, lanes: dict[str, LaneEntry]) -> Iterator[Record]:
    open_now = [lane for lane, entry in lanes.items() if entry.windows is None]
    heads = ledger.heads_of(open_now)
    places = [(lane, seq) for lane, entry in lanes.items() for seq in range(1, (entry.windows or 0) + 1)]
    places += [(lane, seq) for lane, stored in heads.items() for seq in range(1, stored.head.seq)]
    for first in range(0, len(places), _AT_ONCE):
        yield from ledger.records(places[first : first + _AT_ONCE])
    yield from (stored.head.last for stored in heads.values() if stored.head.last is not None)


def _after(ledger: Ledger, head: Head, seq: int) -> Iterator[Record]:
    """The windows of the ingest after a number, up to the last one of a head. One that is lost is left out: it is a hole."""
    for first in range(seq + 1, head.seq, _AT_ONCE):
        keys = [record_key(INGEST, number) for number in range(first, min(first + _AT_ONCE, head.seq))]
        for key, stored in zip(keys, ledger.store.read_several(keys), strict=True):
            if stored is not None:
                yield decode(stored, Record, "/".join((ledger.stream, *key)))
    if head.last is not None and seq < head.seq:
        yield head.last


def _known(ledger: Ledger, most: int) -> tuple[int, CoveredRanges]:
    """What is kept of windows up to some number, and the last one's number; nothing if its record is another one now."""
    kept = _kept(ledger)
    if kept is not None and 0 < kept.seq <= most:
        stored = ledger.store.read(record_key(INGEST, kept.seq))
        if stored is not None and digest(stored) == kept.digest:
            return kept.seq, kept.covered()
    return 0, CoveredRanges()


def _covers(ledger: Ledger, record: Record) -> RangeSet | None:
    return None if record.window.selection is None else ledger.covers(record.window)


def _kept(ledger: Ledger) -> _Kept | None:
    stored = ledger.store.read(KEY)
    kept = None if stored is None else decode_what_is_known(stored, _Kept)
    return kept if kept is not None and kept.stream == ledger.stream else None


# the stored value


class _Extent(Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    topic: str
    incarnation: int
    partition: int
    ranges: tuple[Interval, ...]


class _Kept(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the ingest's windows cover up to the one with this number and digest."""

    format: int = FORMAT
    stream: str
    seq: int
    digest: str
    all: tuple[_Extent, ...]
    # None if it is all.
    first: tuple[_Extent, ...] | None
    twice: tuple[_Extent, ...]
    lost: tuple[_Extent, ...]
    skipped: tuple[_Extent, ...]
    reached: tuple[_Extent, ...]

    def covered(self) -> CoveredRanges:
        everything = _set(self.all)
        return CoveredRanges(
            everything,
            everything if self.first is None else _set(self.first),
            _set(self.twice),
            _set(self.lost),
            _set(self.skipped),
            IngestReach.within(_set(self.reached)),
        )


def _stored(stream: str, seq: int, digest_: str, covered: CoveredRanges) -> _Kept:
    return _Kept(
        stream=stream,
        seq=seq,
        digest=digest_,
        all=_extents(covered.all),
        first=None if covered.first == covered.all else _extents(covered.first),
        twice=_extents(covered.twice),
        lost=_extents(covered.lost),
        skipped=_extents(covered.skipped),
        reached=_extents(covered.reached.hull()),
    )


def _extents(ranges: RangeSet) -> tuple[_Extent, ...]:
    return tuple(_Extent(at.topic, at.incarnation, at.partition, ranges.of(at)) for at in ranges.partitions)


def _set(extents: Iterable[_Extent]) -> RangeSet:
    return RangeSet.of_intervals(
        (TopicPartition(one.topic, one.partition, one.incarnation), one.ranges) for one in extents
    )
