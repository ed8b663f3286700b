"""How many invalid or failed messages a window may have before it fails: `limits.max_invalid` of a stream file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.coordinates import Coordinate
from tidemark.errors import TooManyInvalid
from tidemark.tallies import PartitionTally

# Enough to see what went wrong, and few enough for the one line in which a job says why it ended.
SHOWN_REASONS = 5


@dataclass(frozen=True)
class ErrorBudget:
    """The most messages of one window that are set aside: how many, and which share of what it reads. None: any number."""

    number: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        limits = {"number": self.number, "share": self.share}
        return ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)


@dataclass(frozen=True)
class Frequent:
    """A reason, how many messages of a window were set aside with it, and the first of them."""

    reason: str
    number: int
    example: Coordinate


@dataclass(frozen=True)
class Spent:
    """What a window has used of its budget, in messages: those that are invalid, and those on which processing failed."""

    invalid: int
    read: int
    failed: int = 0

    @property
    def set_aside(self) -> int:
        return self.invalid + self.failed

    @property
    def share(self) -> float:
        """What is set aside as a share of what was read; 0 where nothing was read."""
        return self.set_aside / self.read if self.read else 0.0

    def exceeds(self, budget: ErrorBudget) -> bool:
        """Whether there are more than the budget allows; exactly as many are allowed."""
        if budget.number is not None and self.set_aside > budget.number:
            return True
        # A division is rounded as the literal in the file is, so that 21 of 300 are exactly 0.07; 300 * 0.07 are not 21.
        return budget.share is not None and self.share > budget.share


def spent(tallies: Iterable[PartitionTally]) -> Spent:
    """What a window has used of its budget, all its partitions together."""
    counted = list(tallies)
    return Spent(
        invalid=sum(tally.invalid.number for tally in counted),
        read=sum(tally.read.number for tally in counted),
        failed=sum(tally.failed.number for tally in counted),
    )


def too_many(window: str, used: Spent, budget: ErrorBudget, frequent: Sequence[Frequent]) -> TooManyInvalid:
    """The error that says what `window` holds, why, where, and what to do. `frequent` begins with the most frequent."""
    shown = [
        f"{one.number} x '{' '.join(one.reason.split())}', such as {one.example}" for one in frequent[:SHOWN_REASONS]
    ]
    others = used.set_aside - sum(one.number for one in frequent[:SHOWN_REASONS])
    if others:
        shown.append(f"{others} with other reasons")
    what = f"invalid or failed ({used.failed} failed)" if used.failed else "invalid"
    return TooManyInvalid(
        f"{used.set_aside} of the {used.read} messages of {window} are {what} (share {used.share:.4g}); limits.max_invalid "
        f"allows {budget}. Reasons: {'; '.join(shown)}. Nothing was written and nothing was committed; the window stays "
        "pinned. Correct the stream file or the code, or raise limits.max_invalid, and run again."
    )
