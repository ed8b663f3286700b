"""The model of the ledger on stores in memory: many sequences in seconds. On real servers: test_ledger_model.py."""

from __future__ import annotations

import hypothesis
import pytest

from tests.model.sequences import ON_ERASING, ON_THE_LEDGER, explore, unexplored
from tests.support.memory import MemoryStore, TransactionalStore


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (MemoryStore, range(275)),
        (TransactionalStore, range(1_000, 1_275)),
        pytest.param(MemoryStore, range(275, 1_000), marks=pytest.mark.full),
        pytest.param(TransactionalStore, range(1_275, 2_000), marks=pytest.mark.full),
    ],
)
def test_whatever_happens_the_ledger_keeps_its_promises(kind: type[MemoryStore], seeds: range) -> None:
    if hypothesis.settings.get_current_profile_name() == "mutants":
        # They are played once for each change: what the first do not find, no later one has to.
        explore(ON_THE_LEDGER, kind, seeds[:60], shorter=False)
        return
    counts = explore(ON_THE_LEDGER, kind, seeds)
    print(counts)
    assert not unexplored(ON_THE_LEDGER, counts, least=5)


@pytest.mark.covers("N27")
@pytest.mark.parametrize(("kind", "seeds"), [(MemoryStore, range(100)), (TransactionalStore, range(1_000, 1_100))])
def test_what_was_erased_stays_erased_whatever_happens(kind: type[MemoryStore], seeds: range) -> None:
    counts = explore(ON_ERASING, kind, seeds)
    print(counts)
    assert not unexplored(ON_ERASING, counts, least=2)
