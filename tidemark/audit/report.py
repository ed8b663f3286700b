"""What an audit proves, as arithmetic over values: coverage, and a comparison's findings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from tidemark.audit.deleted import BlockReport
from tidemark.ledger.book import Committed
from tidemark.ledger.records import FORMAT, GapKind, Guarantee, LaneKind, Record, SelectionRef
from tidemark.offsets.ranges import OffsetRange, RangeSet, TopicPartition

# Enough for people to look at. The report's selection has all of them.
SHOWN_COORDINATES = 100


class CoverageReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One partition: where the ingest began and where it is, and whether every offset between is in exactly one window.

    `before`: offsets below the start that Kafka had and no lane has read; a backfill can fill them.
    """

    partition: str
    start: int
    position: int
    covered: int
    holes: tuple[str, ...]
    overlaps: tuple[str, ...]
    lost: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


class GapReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The offsets of one partition without a message that readers may see, by their cause.

    `markers` are transactions' ends. In a compacted topic, they may include messages that compaction has removed.
    `compacted` were counted when they were read, and compaction has removed them since. In other topics such offsets are
    `unexplained`. `ranges`: where these offsets are, the first hundred ranges.
    """

    partition: str
    offsets: int
    messages: int
    aborted: int
    markers: int
    compacted: int
    unexplained: int
    ranges: tuple[str, ...] = ()


class PlaceReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One sink, or the dead letters: how many rows were expected and found, and which rows are wrong."""

    name: str
    expected: int
    found: int
    missing: int
    different: int
    extra: int
    twice: int
    debris: int
    # Rows of messages that compaction has removed from Kafka since. They can no longer be checked.
    compacted: int = 0
    # For a sink with aggregates: contributions of windows that were not audited whole, or that Kafka no longer holds whole.
    unproven: int = 0
    missing_at: tuple[str, ...] = ()
    different_at: tuple[str, ...] = ()
    extra_at: tuple[str, ...] = ()
    twice_at: tuple[str, ...] = ()
    # Blocks with offsets that Kafka has deleted, whose results differ from what was stored. The first hundred are named.
    blocks: int = 0
    blocks_at: tuple[BlockReport, ...] = ()

    @property
    def differences(self) -> int:
        return self.missing + self.different + self.extra + self.twice + self.blocks


class AuditReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The outcome of an audit. Messages are those that Kafka still holds.

    For offsets below the log starts: `by_tallies` were compared with the tallies of their blocks, in every place.
    `unproven` are the others.

    `unfinished` offsets were committed before they were read (`at_most_once`), by attempts that have not finished.

    `findings` is the stored selection of all coordinates with a difference, ready for a replay.
    """

    format: int = FORMAT
    stream: str
    run: str
    at: int
    code_version: str
    expected: int
    stored: int
    dead_letters: int
    skipped: int
    unproven: int
    by_tallies: int = 0
    unfinished: int = 0
    places: tuple[PlaceReport, ...]
    coverage: tuple[CoverageReport, ...]
    ledger_problems: tuple[str, ...]
    gaps: tuple[GapReport, ...] = ()
    findings: SelectionRef | None = None

    @property
    def differences(self) -> int:
        return sum(place.differences for place in self.places)

    @property
    def clean(self) -> bool:
        unbroken = not any(one.holes or one.overlaps for one in self.coverage)
        explained = not any(one.unexplained for one in self.gaps)
        return self.differences == 0 and unbroken and explained and not self.ledger_problems

    def sentence(self) -> str:
        """The outcome in one line, for people."""
        total = {
            name: sum(getattr(place, name) for place in self.places)
            for name in ("missing", "different", "extra", "twice", "debris")
        }
        counted = ", ".join(f"{name} {number}" for name, number in total.items())
        skipped = f"skipped {self.skipped}, " if self.skipped else ""
        text = f"expected {self.expected}, stored {self.stored}, {skipped}dead letters {self.dead_letters}, {counted}"
        holes = sum(len(one.holes) for one in self.coverage)
        overlaps = sum(len(one.overlaps) for one in self.coverage)
        if holes or overlaps:
            text += f"; coverage: {holes} holes, {overlaps} overlaps"
        if self.unproven or self.by_tallies:
            text += f"; {self.unproven + self.by_tallies} offsets are no longer in Kafka"
        if self.by_tallies:
            text += f", {self.by_tallies} of them were compared with the tallies of their blocks"
        if blocks := sum(place.blocks for place in self.places):
            text += f"; blocks that differ: {blocks}"
        if unproven := sum(place.unproven for place in self.places):
            text += f"; {unproven} contributions to aggregates are of windows that could not be computed again"
        if unexplained := sum(one.unexplained for one in self.gaps):
            text += f"; {unexplained} messages were counted when they were read and are gone, in topics that are not compacted"
        if self.unfinished:
            text += f"; {self.unfinished} offsets were committed before they were read, by attempts that did not finish"
        return text + "".join(f"; {problem}" for problem in self.ledger_problems)

    def naming(self, most: int) -> AuditReport:
        """The same report with at most so many names of each kind, for a ledger that takes no larger value."""

        def cut(one: Struct, *names: str) -> dict[str, Any]:
            return {name: getattr(one, name)[:most] for name in names}

        at = ("missing_at", "different_at", "extra_at", "twice_at", "blocks_at")
        return structs.replace(
            self,
            places=tuple(structs.replace(one, **cut(one, *at)) for one in self.places),
            gaps=tuple(structs.replace(one, **cut(one, "ranges")) for one in self.gaps),
        )


@dataclass(frozen=True)
class Coverage:
    """Proof for one partition: [start, position) is covered, except `holes`, and offsets that the ledger calls lost or skipped.

    Only `overlaps` are covered twice.
    """

    partition: TopicPartition
    start: int
    position: int
    covered: RangeSet
    holes: RangeSet
    overlaps: RangeSet
    lost: RangeSet
    skipped: RangeSet


def explain(
    at: TopicPartition,
    *,
    offsets: int,
    messages: int,
    uncommitted: int,
    vanished: int,
    compacted: bool,
    ranges: RangeSet,
) -> GapReport:
    """What fills the offsets of a partition besides messages.

    `messages` are visible at the stream's isolation level, `uncommitted` only at the other level. `vanished` were counted
    by the windows that read them, and are gone.
    """
    aborted = uncommitted - messages
    vanished = max(0, vanished)
    return GapReport(
        partition=str(at),
        offsets=offsets,
        messages=messages,
        aborted=aborted,
        markers=offsets - messages - aborted - vanished,
        compacted=vanished if compacted else 0,
        unexplained=0 if compacted else vanished,
        ranges=shown(ranges),
    )


def prove_coverage(
    windows: Sequence[Committed], starts: Mapping[TopicPartition, int], positions: Mapping[TopicPartition, int]
) -> list[Coverage]:
    """Whether the windows that read offsets for the first time (ingest, backfill) meet without a hole or an overlap.

    `starts` and `positions` are those of the ingest. A partition that was added later begins with its first window.
    """
    # Without positions, every window reads again what others have read.
    first_readings = [
        window
        for window in windows
        if window.record.kind != LaneKind.REPLAY and window.record.window.guarantee != Guarantee.NONE
    ]
    covered = RangeSet()
    overlaps = RangeSet()
    for window in first_readings:
        overlaps |= covered & window.covers
        covered |= window.covers
    lost, skipped = jumped_over(windows)
    lost, skipped = lost - covered, skipped - covered
    proof = []
    for at in sorted({*positions, *covered.partitions}):
        intervals = covered.of(at)
        begun = min(
            (
                one.start
                for w in first_readings
                for one in w.record.window.ranges
                if _is_ingest(w.record) and one.at == at
            ),
            default=starts.get(at, 0),
        )
        start = starts.get(at, begun)
        position = positions.get(at, intervals[-1][1] if intervals else start)
        holes = RangeSet([OffsetRange(at, start, max(start, position))]) - covered - lost - skipped
        parts = (one.only([at]) for one in (covered, holes, overlaps, lost, skipped))
        proof.append(Coverage(at, start, position, *parts))
    return proof


def jumped_over(windows: Iterable[Committed]) -> tuple[RangeSet, RangeSet]:
    """The offsets that committed windows name as lost, and those that they name as skipped."""
    gaps = [gap for window in windows for gap in window.record.window.gaps]
    lost = RangeSet(gap.as_range() for gap in gaps if gap.kind == GapKind.LOST)
    return lost, RangeSet(gap.as_range() for gap in gaps if gap.kind == GapKind.SKIPPED)


def _is_ingest(record: Record) -> bool:
    return record.kind == LaneKind.INGEST


def shown(ranges: RangeSet) -> tuple[str, ...]:
    """Ranges as people read them, the first hundred."""
    return tuple(map(str, islice(ranges, SHOWN_COORDINATES)))
