"""The model with a Kafka that changes under the stream: the real planner, saved plans, and every policy."""

from __future__ import annotations

import hypothesis
import pytest

from tests.model.sequences import ON_THE_SOURCE, explore, unexplored
from tests.support.memory import MemoryStore, TransactionalStore


@pytest.mark.parametrize(("kind", "seeds"), [(MemoryStore, range(200)), (TransactionalStore, range(1_000, 1_200))])
def test_whatever_happens_to_kafka_the_ledger_keeps_its_promises(kind: type[MemoryStore], seeds: range) -> None:
    if hypothesis.settings.get_current_profile_name() == "mutants":
        # They are played once for each change: what the first do not find, no later one has to.
        explore(ON_THE_SOURCE, kind, seeds[:60], shorter=False)
        return
    counts = explore(ON_THE_SOURCE, kind, seeds)
    print(counts)
    assert not unexplored(ON_THE_SOURCE, counts, least=1)
