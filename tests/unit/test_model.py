"""The model of the ledger on stores in memory: many sequences in seconds. On real servers: test_ledger_model.py."""

from __future__ import annotations

import pytest

from tests.model.sequences import ON_ERASING, ON_THE_LEDGER, keeps_its_promises
from tests.support.memory import MemoryStore, TransactionalStore


@pytest.mark.slow
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
    keeps_its_promises(ON_THE_LEDGER, kind, seeds, least=5)


@pytest.mark.slow
@pytest.mark.covers("N27")
@pytest.mark.parametrize(("kind", "seeds"), [(MemoryStore, range(100)), (TransactionalStore, range(1_000, 1_100))])
def test_what_was_erased_stays_erased_whatever_happens(kind: type[MemoryStore], seeds: range) -> None:
    keeps_its_promises(ON_ERASING, kind, seeds, least=2)
