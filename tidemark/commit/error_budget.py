"""How many invalid or failed messages a window may have before it fails: `limits.max_invalid` of a stream file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidemark.errors import TooManyInvalid
from tidemark.offsets.coordinates import Coordinate
from tidemark.offsets.counting import number_of
from tidemark.offsets.tallies import PartitionTally

# Enough to see what went wrong, and few enough for the one line in which a job says why it ended.
SHOWN_REASONS = 5


@dataclass(frozen=True)
class ErrorBudget:
    """The most dead letters that a window may have: a number, and a share of the messages it reads. None means no limit."""

    number: int | None = None
    share: float | None = None

    def __str__(self) -> str:
        limits = {"number": self.number, "share": self.share}
        return ", ".join(f"{name} {limit}" for name, limit in limits.items() if limit is not None)


@dataclass(frozen=True)
class FrequentReason:
    """A reason, how many dead letters of a window have it, and the first of them."""

    reason: str
    number: int
    example: Coordinate


@dataclass(frozen=True)
class BudgetUse:
    """How much of its budget a window has used: invalid messages, and messages whose processing failed."""

    invalid: int
    read: int
    failed: int = 0

    @property
    def dead_letters(self) -> int:
        return self.invalid + self.failed

    @property
    def share(self) -> float:
        """Dead letters as a share of the messages read; 0 when the window read nothing."""
        return self.dead_letters / self.read if self.read else 0.0

    def exceeds(self, budget: ErrorBudget) -> bool:
        """Whether the window has more dead letters than the budget allows. Exactly the limit is allowed."""
        if budget.number is not None and self.dead_letters > budget.number:
            return True
        # Compare shares: 21 / 300 rounds to the same float as the literal 0.07, but 300 * 0.07 is not exactly 21.
        return budget.share is not None and self.share > budget.share


def spent(tallies: Iterable[PartitionTally]) -> BudgetUse:
    """How much of its budget a window has used, over all its partitions."""
    counted = list(tallies)
    return BudgetUse(
        invalid=sum(tally.invalid.number for tally in counted),
        read=sum(tally.read.number for tally in counted),
        failed=sum(tally.failed.number for tally in counted),
    )


def too_many(window: str, used: BudgetUse, budget: ErrorBudget, frequent: Sequence[FrequentReason]) -> TooManyInvalid:
    """The error that names the dead letters of `window`, their reasons, and what to do. `frequent`: most frequent first."""
    shown = [
        f"{reason.number} x '{' '.join(reason.reason.split())}', such as {reason.example}"
        for reason in frequent[:SHOWN_REASONS]
    ]
    others = used.dead_letters - sum(reason.number for reason in frequent[:SHOWN_REASONS])
    if others:
        shown.append(f"{others} with other reasons")
    what = f"invalid or failed ({used.failed} failed)" if used.failed else "invalid"
    return TooManyInvalid(
        f"{used.dead_letters} of the {number_of(used.read, 'message')} of {window} are {what} (share {used.share:.4g}); "
        f"limits.max_invalid allows {budget}. Reasons: {'; '.join(shown)}. Correct the stream "
        "file or the code, or raise limits.max_invalid, and run again."
    )
