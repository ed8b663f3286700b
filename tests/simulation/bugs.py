"""Bugs to plant in the product, each with what the simulation says of it, and a seed whose program finds it.

`./run simulate --bugs` looks for the seeds anew: they change their meaning with the menu.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tests.model.planting import planted
from tests.simulation.known import known
from tests.simulation.playing import failure_of
from tests.simulation.steps import drawn

PROTOCOL = "tidemark.commit.protocol"
REGISTER = "tidemark.ledger.register"


@dataclass(frozen=True)
class Bug:
    """In each of some modules, one text stands instead of another. `said`: a word of what the simulation then says."""

    number: str
    changes: tuple[tuple[str, str, str], ...]
    seed: int = 0


BUGS: dict[str, Bug] = {
    "a run's name decides, not its request": Bug(
        "2",
        (
            ("tidemark.cli.erasing", "if dry_run or not begun or EraseRequest.asks(values):", "if not begun:"),
            ("tidemark.cli.selected", 'if values["dry_run"] or not begun or request.asks(values):', "if not begun:"),
        ),
    ),
    "an answer that was lost is taken for a success": Bug(
        "r", (("tidemark.ledger.doubt", "            reason = str(problem)\n", "            return\n"),)
    ),
    "a dry run under the name of a run that has begun": Bug(
        "2", (("tidemark.cli.selected", "        if asked.dry_run:\n", "        if asked.dry_run and not begun:\n"),)
    ),
    "a block is found by its first offset": Bug(
        "3",
        (
            (
                "tidemark.sinks.aggregates.table",
                "        if not block & self.erased:\n",
                "        if (at, start) not in self.erased:\n",
            ),
        ),
    ),
    "an attempt that committed first writes on during an erasure": Bug(
        "3",
        (
            ("tidemark.commit.fence", "            self._check_not_erased(self._committed)\n", ""),
            (
                PROTOCOL,
                "    since = erasures_since(book, book.covers(taken.pending.window)",
                "    since = [] and (book.covers(taken.pending.window)",
            ),
            (PROTOCOL, "        if one.record.receipt is not None or not (shared", "        if True or not (shared"),
        ),
    ),
    "the isolation level changes, and the log seems cut": Bug(
        "4", (("tidemark.planning.checking", "min(logs[at].written, known", "min(logs[at].end, known"),)
    ),
    "an erasure is judged by what it only erases": Bug(
        "14",
        (
            (
                "tidemark.runs.since_pin",
                "for part in (read & RangeSet([one.as_range()])).hull():",
                "for part in RangeSet([one.as_range()]).hull():",
            ),
        ),
    ),
    "a key is looked for above a cut that nobody has met": Bug(
        "new",
        (
            (
                "tidemark.runs.keys",
                "    return held - RangeSet(OffsetRange(at, end, MAX_OFFSET) for at, end in known.epoch_ends.items())\n",
                "    return held\n",
            ),
        ),
    ),
    "an attempt names its columns by a window that it has lost": Bug(
        "new",
        (
            (
                "tidemark.sinks.aggregates.columns",
                "one is not None and one.attempt is not None and one.attempt.generation == generation:",
                "one is not None and one.window.seq == seq:",
            ),
            ("tidemark.sinks.aggregates.columns", "    raise Fenced(\n", "    raise ValueError(\n"),
        ),
    ),
}


@contextmanager
def planting(bug: Bug) -> Iterator[None]:
    with ExitStack() as stack:
        for change in bug.changes:
            stack.enter_context(planted(*change))
        yield


def first_seed(bug: Bug, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first seed whose program finds a bug, and what the simulation says."""
    with planting(bug):
        for seed in seeds:
            failure = failure_of(drawn(seed))
            if failure is not None and not known(failure):
                return seed, failure.text
    return None
