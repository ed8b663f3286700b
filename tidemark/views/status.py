"""A word for the state of a partition, and the rule that gave the word. Pure: takes values, and gives a verdict.

The rules are those of Burrow's evaluator (`caching.go`), which judges a consumer by its last commits. Here a commit is a
committed window of the ingest. Burrow's words STOP, STALL and REWIND are STOPPED, STALLED and REWOUND here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from tidemark.clients.kafka.topics import PartitionLog
from tidemark.offsets.times import in_words


class PartitionState(StrEnum):
    """From the best to the worst, in the order in which Burrow checks for them, the worst first."""

    OK = "OK"
    # Windows are committed, and the lag does not fall.
    WARNING = "WARNING"
    # Windows are committed, and the position does not move.
    STALLED = "STALLED"
    # The topic was recreated or truncated: the position is of what was there before, or has fallen since.
    REWOUND = "REWOUND"
    # No window is committed any more.
    STOPPED = "STOPPED"


class VerdictRule(StrEnum):
    """Why a partition has its word."""

    NO_WINDOW = "no window yet"
    NO_LAG = "no lag"
    CAUGHT_UP = "no lag after one of the last windows"
    TOO_FEW = "too few windows"
    FALLING = "the lag falls"
    NOT_FALLING = "the lag does not fall"
    UNMOVED = "the position does not move"
    FELL = "the position fell"
    RECREATED = "the topic was recreated"
    CUT = "the log was cut"
    SILENT = "no commit"


# What one or two windows leave is no trend.
_FEWEST = 3
_SEVERITY = list(PartitionState)


@dataclass(frozen=True)
class Commit:
    """The state that a window left of a partition: when (ms since 1970), the position, and the lag; None if unknown."""

    at: int
    position: int
    lag: int | None


@dataclass(frozen=True)
class Verdict:
    """A word, its rule, and a sentence with the rule's numbers."""

    word: PartitionState
    rule: VerdictRule
    sentence: str


def judge(
    commits: Sequence[Commit],
    lag: int,
    now: int,
    *,
    ends: Iterable[int] = (),
    allowed_lag: int = 0,
    patience_ms: int = 0,
) -> Verdict:
    """The state of a partition after its last commits, the oldest first. `lag` is that of `now` (ms since 1970).

    `ends`: where the log has ended lately. An end at or below the position means that nothing was unread then.
    `allowed_lag`: up to this many offsets are no lag. `patience_ms`: the least time without a commit that counts as stopped.
    """
    if not commits:
        return Verdict(PartitionState.OK, VerdictRule.NO_WINDOW, "no window has read it yet")
    if lag <= allowed_lag:
        return Verdict(PartitionState.OK, VerdictRule.NO_LAG, f"the lag is {lag}")
    first, last = commits[0], commits[-1]
    silent, span = now - last.at, last.at - first.at
    if silent > max(span, patience_ms) and not any(end <= last.position for end in ends):
        longer = "two runs were due since" if span < patience_ms else f"the last windows took {in_words(span)}"
        return Verdict(
            PartitionState.STOPPED,
            VerdictRule.SILENT,
            f"no commit for {in_words(silent)}, although {longer}; the lag is {lag}",
        )
    if (fell := _fell(commits)) is not None:
        return Verdict(
            PartitionState.REWOUND,
            VerdictRule.FELL,
            f"the position fell from {fell[0].position} to {fell[1].position}, is now {last.position}, and the lag is {lag}",
        )
    if any(commit.lag is not None and commit.lag <= allowed_lag for commit in commits):
        return Verdict(
            PartitionState.OK, VerdictRule.CAUGHT_UP, f"the lag is {lag}, and one of the last windows left none"
        )
    if len(commits) < _FEWEST:
        return Verdict(
            PartitionState.OK,
            VerdictRule.TOO_FEW,
            f"the lag is {lag}; a trend takes {_FEWEST} windows, here are {len(commits)}",
        )
    if all(commit.position == last.position for commit in commits):
        return Verdict(
            PartitionState.STALLED,
            VerdictRule.UNMOVED,
            f"the last {len(commits)} windows left the position at {last.position}, and the lag is {lag}",
        )
    known = [commit.lag for commit in commits if commit.lag is not None]
    if all(before <= after for before, after in pairwise(known)):
        # Burrow too says so when no lag is known.
        trend = f"went from {known[0]} to {known[-1]}" if known else "is not known"
        return Verdict(
            PartitionState.WARNING,
            VerdictRule.NOT_FALLING,
            f"over the last {len(commits)} windows the lag {trend}, and is now {lag}",
        )
    return Verdict(
        PartitionState.OK, VerdictRule.FALLING, f"the lag is {lag}, and fell over the last {len(commits)} windows"
    )


def rewound(log: PartitionLog, position: int, *, recreated: bool) -> Verdict | None:
    """The verdict on a position that is of no message in the log any more; None where it may be."""
    if recreated:
        return Verdict(
            PartitionState.REWOUND,
            VerdictRule.RECREATED,
            f"the topic was deleted and created again: the position {position} is of the one before",
        )
    if position > log.written:
        return Verdict(
            PartitionState.REWOUND, VerdictRule.CUT, f"the log ends at {log.written}, below the position {position}"
        )
    return None


def worst(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The verdict with the worst word, of several the first one with a lag; None of none."""
    return max(
        verdicts, key=lambda verdict: (_SEVERITY.index(verdict.word), verdict.rule != VerdictRule.NO_LAG), default=None
    )


def _fell(commits: Sequence[Commit]) -> tuple[Commit, Commit] | None:
    """The first two commits between which the position fell, unless a later commit came back to where it was."""
    for number, (before, after) in enumerate(pairwise(commits), start=1):
        if after.position < before.position:
            back = any(commit.position >= before.position for commit in commits[number:])
            return None if back else (before, after)
    return None
