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


BUGS: dict[str, Bug] = {}


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
