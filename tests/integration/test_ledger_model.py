"""The model of the ledger on real servers: fewer sequences than in tests/unit, where bugs are planted too.

Actors that die in the middle, lanes of each kind, clocks that jump, answers that get lost, writes that arrive late, servers
that lag: see tests/model. `./run test full` plays more sequences.
"""

from __future__ import annotations

import pytest

from tests.model.sequences import ON_THE_LEDGER, explore
from tests.support.stores import Stores

QUICK, FULL = 5, 100


@pytest.mark.full
def test_whatever_happens_the_ledger_keeps_its_promises(stores: Stores, request: pytest.FixtureRequest) -> None:
    number = FULL if request.config.getoption("--full") else QUICK
    counts = explore(ON_THE_LEDGER, stores.new, range(number), shorter=False)
    assert counts["sequences"] == number
    assert counts["windows of a ingest, at_least_once"] > 0
