"""The model with a Kafka that changes under the stream: the real planner, and every policy."""

from __future__ import annotations

import pytest

from tests.model.sequences import ON_THE_SOURCE, keeps_its_promises
from tests.support.memory import MemoryStore, TransactionalStore


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "seeds"), [(MemoryStore, range(200)), (TransactionalStore, range(2_000, 2_200))])
def test_whatever_happens_to_kafka_the_ledger_keeps_its_promises(kind: type[MemoryStore], seeds: range) -> None:
    keeps_its_promises(ON_THE_SOURCE, kind, seeds, least=1)
