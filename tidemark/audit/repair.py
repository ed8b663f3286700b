"""Whether a repair has fixed what an audit found: the first audit, and the one after the replay of its findings. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidemark.audit.levels import Level
from tidemark.audit.report import MAX_FINDINGS, AuditReport
from tidemark.offsets.counting import number_of


def name_after_repair(run: str) -> str:
    """The name of the audit that follows the repair of what a run has found."""
    return f"{run}/after-repair"


@dataclass(frozen=True)
class RepairVerdict:
    """Whether the results are right now, and why, in one line."""

    clean: bool
    sentence: str


def verdict(first: AuditReport, again: AuditReport | None) -> RepairVerdict:
    """The outcome of an audit, and of the audit that followed its repair; None when nothing was repaired.

    The second audit looks only at what was replayed. So what the findings of the first one do not cover stays wrong.
    """
    if again is None:
        return RepairVerdict(first.clean, first.sentence())
    if not again.clean:
        return RepairVerdict(clean=False, sentence=f"the audit after the repair: {again.sentence()}")
    left = beyond_repair(first)
    if again.unproven:
        unproven = number_of(again.unproven, "offset")
        left += (f"{unproven} could not be compared after the replay: Kafka has deleted their messages",)
    if left:
        return RepairVerdict(clean=False, sentence=f"the findings are repaired, and this is not: {'; '.join(left)}")
    return RepairVerdict(clean=True, sentence=f"repaired: {again.sentence()}")


def beyond_repair(report: AuditReport) -> tuple[str, ...]:
    """The faults that are not among the findings, so that no replay of them fixes them, in words."""
    left = []
    if holes := sum(len(partition.holes) for partition in report.coverage):
        left.append(f"{number_of(holes, 'hole')}: a backfill reads them")
    if overlaps := sum(len(partition.overlaps) for partition in report.coverage):
        left.append(f"{overlaps} overlaps")
    if unexplained := sum(gap.unexplained for gap in report.gaps):
        gone = number_of(unexplained, "message", "that was counted and is gone", "that were counted and are gone")
        left.append(f"{gone} from Kafka")
    if report.gone:
        why = " or may have compacted: see level full" if report.level == Level.SINKS else ""
        left.append(f"{number_of(report.gone, 'offset')} of blocks that differ, whose messages Kafka has deleted{why}")
    # Rows, not coordinates: with fewer wrong rows than that, the findings have all of their coordinates.
    cut = any(place.missing + place.different + place.extra + place.twice >= MAX_FINDINGS for place in report.places)
    if cut:
        left.append(f"some of {MAX_FINDINGS} differences or more, which are more than an audit hands over: audit again")
    return (*left, *report.problems)
