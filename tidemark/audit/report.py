"""The proof of an audit, as arithmetic over values: coverage, and a comparison's findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from msgspec import Struct, structs

from tidemark.audit.deleted_messages import BlockReport
from tidemark.audit.levels import Level
from tidemark.audit.source import SourceReport
from tidemark.ledger.covered import CoveredRanges
from tidemark.ledger.erasures import erased, tombstones
from tidemark.ledger.holes import Ingest
from tidemark.ledger.incarnations import At
from tidemark.ledger.ledger import Committed
from tidemark.ledger.records import FORMAT, Register, SelectionRef
from tidemark.offsets.counting import number_of
from tidemark.offsets.ranges import RangeSet, TopicPartition
from tidemark.offsets.shares import ShareReport

# Enough for people to read. The report's selection has all of them.
SHOWN_COORDINATES = 100

# The most offsets of one place that an audit hands over to a replay.
MAX_FINDINGS = 1_000_000


class CoverageReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One partition: where the ingest began and where it is, and whether every offset between is in exactly one window.

    `before`: offsets below the start that Kafka had and no lane has read; a backfill can fill them.
    """

    partition: At
    start: int
    position: int
    covered: int
    holes: tuple[At, ...]
    overlaps: tuple[At, ...]
    lost: tuple[At, ...] = ()
    skipped: tuple[At, ...] = ()


class GapReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The offsets of one partition without a message that readers may see, by their cause.

    `markers` are transactions' ends. In a compacted topic, they may include messages that compaction has removed.
    `compacted` were counted when they were read, and compaction has removed them since. In other topics such offsets are
    `unexplained`. `ranges`: where these offsets are, the first hundred ranges.
    """

    partition: At
    offsets: int
    messages: int
    aborted: int
    markers: int
    compacted: int
    unexplained: int
    ranges: tuple[At, ...] = ()


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
    # For a sink whose server deletes rows by itself: rows that it no longer holds since they were old (`expired`), and those
    # whose place a newer message with the same key has taken (`replaced`). They are not missing.
    expired: int = 0
    replaced: int = 0
    missing_at: tuple[At, ...] = ()
    different_at: tuple[At, ...] = ()
    extra_at: tuple[At, ...] = ()
    twice_at: tuple[At, ...] = ()
    # Blocks with offsets that Kafka has deleted, whose results differ from what was stored. The first hundred are named.
    blocks: int = 0
    blocks_at: tuple[BlockReport, ...] = ()

    def deleted_by_itself(self) -> str:
        """The rows that the sink has deleted by itself, as a part of the report's sentence."""
        text = (
            f"; {number_of(self.expired, 'row', 'has', 'have')} expired in the sink {self.name}" if self.expired else ""
        )
        if self.replaced:
            text += f"; compaction has removed {number_of(self.replaced, 'row')} of the sink {self.name}"
        return text

    @property
    def differences(self) -> int:
        return self.missing + self.different + self.extra + self.twice + self.blocks


class TombstoneReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The erasure by one window, when, why and by whom. `ranges`: the first hundred ranges of the offsets."""

    window: str
    at: int
    run: str
    reason: str | None
    asked_by: str | None
    approved_by: str | None
    offsets: int
    ranges: tuple[At, ...] = ()


class ForgottenReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A place that is gone for good, as a person has said: what was erased later was not cleared there."""

    name: str
    type: str
    place: str
    at: int
    reason: str
    by: str


class AuditReport(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The outcome of an audit. The numbers of what its `level` does not cover are 0, and mean nothing.

    Messages (`expected`, `stored`, `dead_letters`, `skipped`) are those that Kafka still holds, at the levels `full`
    and `recompute` alone. `unchanged` of these were as their windows had read them: their rows were compared with the
    windows' tallies and not computed again.

    Of the offsets whose messages were not read, `by_tallies` were compared with the tallies of their blocks in every
    place, and `unproven` are the others: at the level `sinks` all offsets, at the deeper ones those below the log
    starts. `gone` offsets are in blocks with differences that no replay can repair, since Kafka has deleted their
    messages. At the level `sinks` they include offsets of compacted topics, which the deeper levels tell apart.

    With a `share`, all counts are of that share alone. The ledger is always checked whole. `not_compared` are the sinks
    that the audit has not compared at all.

    `erased` offsets have no result for good: a row or dead letter of them that counts is a difference. `tombstones` say
    who has erased them, and why. `forgotten` are the places where nothing was cleared, since they are gone for good.

    `changed` offsets were read again or erased while the audit ran: differences there are left out. `unfinished`
    offsets were committed before they were read (`at_most_once`), by attempts that have not finished.

    `findings` is the stored selection of all coordinates with a difference, ready for a replay.
    """

    format: int = FORMAT
    stream: str
    run: str
    at: int
    code_version: str
    level: Level = Level.FULL
    # None means no share, but everything that was asked for.
    share: ShareReport | None = None
    windows: int = 0
    expected: int = 0
    stored: int = 0
    dead_letters: int = 0
    skipped: int = 0
    unchanged: int = 0
    unproven: int = 0
    by_tallies: int = 0
    gone: int = 0
    unfinished: int = 0
    changed: int = 0
    places: tuple[PlaceReport, ...] = ()
    not_compared: tuple[str, ...] = ()
    coverage: tuple[CoverageReport, ...]
    ledger_problems: tuple[str, ...]
    source: tuple[SourceReport, ...] = ()
    gaps: tuple[GapReport, ...] = ()
    findings: SelectionRef | None = None
    erased: int = 0
    tombstones: tuple[TombstoneReport, ...] = ()
    forgotten: tuple[ForgottenReport, ...] = ()

    @property
    def differences(self) -> int:
        return sum(place.differences for place in self.places)

    @property
    def problems(self) -> tuple[str, ...]:
        """The faults of the ledger, and those between the ledger and Kafka's offsets, in words."""
        return (*self.ledger_problems, *(source.problem for source in self.source if source.problem is not None))

    @property
    def clean(self) -> bool:
        """Whether nothing is wrong, as far as this level looks."""
        unbroken = not any(partition.holes or partition.overlaps for partition in self.coverage)
        explained = not any(gap.unexplained for gap in self.gaps)
        return self.differences == 0 and unbroken and explained and not self.problems

    def sentence(self) -> str:
        """The outcome in one line, for people."""
        text = self._counted() if self.share is None else f"{self.share}; {self._counted()}"
        holes = sum(len(partition.holes) for partition in self.coverage)
        overlaps = sum(len(partition.overlaps) for partition in self.coverage)
        if holes or overlaps:
            text += f"; coverage: {number_of(holes, 'hole')}, {number_of(overlaps, 'overlap')}"
        if self.level.reads_messages and (self.unproven or self.by_tallies):
            text += f"; {number_of(self.unproven + self.by_tallies, 'offset', 'is', 'are')} no longer in Kafka"
            if self.by_tallies:
                text += f", {self.by_tallies} of them were compared with the tallies of their blocks"
        if blocks := sum(place.blocks for place in self.places):
            text += f"; blocks that differ: {blocks}"
        text += "".join(place.deleted_by_itself() for place in self.places)
        if unexplained := sum(gap.unexplained for gap in self.gaps):
            gone = number_of(
                unexplained,
                "message",
                "was counted when it was read and is gone",
                "were counted when they were read and are gone",
            )
            text += f"; {gone}, in topics that are not compacted"
        text += "".join(f"; {number} {said}" for number, said in self._besides() if number)
        return text + "".join(f"; {problem}" for problem in self.problems)

    def _besides(self) -> tuple[tuple[int, str], ...]:
        """Numbers that are no differences, in words."""
        return (
            (self.erased, "offsets are erased"),
            (self.changed, "offsets were read again or erased meanwhile: differences there are left out"),
            (self.unfinished, "offsets were committed before they were read, by attempts that did not finish"),
            (self.unchanged, "messages are as they were read: their rows were compared with tallies of the windows"),
        )

    def _counted(self) -> str:
        """The counts of the level. The levels that read no message say what they have looked at."""
        covered = sum(partition.covered for partition in self.coverage)
        if self.level in (Level.LEDGER, Level.SOURCE):
            text = (
                f"{self.level}: {number_of(self.windows, 'window', 'covers', 'cover')} {number_of(covered, 'offset')}"
            )
            if self.level == Level.SOURCE:
                held, expired, unread = (
                    sum(getattr(source, name) for source in self.source) for name in ("held", "expired", "unread")
                )
                text += f", {held} of them in Kafka, {expired} no longer"
                # Without positions, nobody can say what will be read.
                if any(source.position is not None for source in self.source):
                    text += f"; {unread} are not read yet"
            return text
        if self.level == Level.SINKS:
            compared = f"{self.by_tallies} of {number_of(self.by_tallies + self.unproven, 'offset')}"
            debris = sum(place.debris for place in self.places)
            left = f", not compared: {', '.join(self.not_compared)}" if self.not_compared else ""
            return f"sinks: {compared} compared with the tallies of their blocks, debris {debris}{left}"
        total = {
            name: sum(getattr(place, name) for place in self.places)
            for name in ("missing", "different", "extra", "twice", "debris")
        }
        counted = ", ".join(f"{name} {number}" for name, number in total.items())
        skipped = f"skipped {self.skipped}, " if self.skipped else ""
        left = f"; not compared: {', '.join(self.not_compared)}" if self.not_compared else ""
        return f"expected {self.expected}, stored {self.stored}, {skipped}dead letters {self.dead_letters}, {counted}{left}"

    def naming(self, most: int) -> AuditReport:
        """The same report with at most this many names of each kind, for a ledger that takes no larger value."""

        def cut(entry: Struct, *names: str) -> dict[str, Any]:
            return {name: getattr(entry, name)[:most] for name in names}

        at = ("missing_at", "different_at", "extra_at", "twice_at", "blocks_at")
        return structs.replace(
            self,
            places=tuple(structs.replace(place, **cut(place, *at)) for place in self.places),
            gaps=tuple(structs.replace(gap, **cut(gap, "ranges")) for gap in self.gaps),
            tombstones=tuple(
                structs.replace(tombstone, **cut(tombstone, "ranges")) for tombstone in self.tombstones[: 10 * most]
            ),
        )


@dataclass(frozen=True)
class CoverageProof:
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
    """The offsets of a partition that hold no message, by cause.

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


def prove_coverage(windows: Sequence[Committed], ingest: Ingest) -> list[CoverageProof]:
    """Whether the windows that read offsets for the first time (ingest, backfill) meet without a hole or an overlap."""
    return proof_of(CoveredRanges.by(windows), erased(windows), ingest)


def proof_of(by_windows: CoveredRanges, without: RangeSet, ingest: Ingest) -> list[CoverageProof]:
    """As `prove_coverage`, by what all windows cover together, and what was erased."""
    # An erased offset is not a hole, even if no window has read it before.
    covered = by_windows.first | without
    lost, skipped = (gaps - covered for gaps in (by_windows.lost, by_windows.skipped))
    parts = (covered, by_windows.holes(ingest), by_windows.twice, lost, skipped)
    proof = []
    for at in sorted({*ingest.positions, *covered.partitions}):
        asked = ingest.asked_for(at, by_windows.reached.of(at))
        proof.append(CoverageProof(at, asked.start, asked.until, *(part.only([at]) for part in parts)))
    return proof


def tombstone_reports(windows: Iterable[Committed]) -> tuple[TombstoneReport, ...]:
    """The tombstones of a stream, by time."""
    return tuple(
        TombstoneReport(
            window=f"{tombstone.record.lane}/{tombstone.record.seq}",
            at=tombstone.record.committed_at,
            run=tombstone.record.window.run,
            reason=tombstone.record.window.reason,
            asked_by=tombstone.asked_by,
            approved_by=tombstone.approved_by,
            offsets=tombstone.offsets.count(),
            ranges=shown(tombstone.offsets),
        )
        for tombstone in tombstones(windows)
    )


def forgotten_reports(register: Register | None) -> tuple[ForgottenReport, ...]:
    """The places that are gone for good, by time."""
    return tuple(
        ForgottenReport(
            name=forgotten.place.name,
            type=forgotten.place.type,
            place=forgotten.place.where(),
            at=forgotten.at,
            reason=forgotten.reason,
            by=forgotten.by,
        )
        for forgotten in sorted(register.forgotten if register else (), key=lambda forgotten: forgotten.at)
    )


def shown(ranges: RangeSet) -> tuple[str, ...]:
    """Ranges as people read them, the first hundred."""
    return tuple(map(str, islice(ranges, SHOWN_COORDINATES)))
